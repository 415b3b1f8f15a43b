"""Koordinator's pickers and policies."""
