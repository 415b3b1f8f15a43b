"""Kubernetes' own scheduler benchmarks: configurations, and steps on a real API server."""
