"""NUMA-aligned scheduling on Kubernetes, made exact."""

__version__ = "1.0.0"
