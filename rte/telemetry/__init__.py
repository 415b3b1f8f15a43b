"""Metrics, health endpoints, structured logs."""
