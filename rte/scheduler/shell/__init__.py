"""Feeds the machine from the API server and carries its effects out."""
