"""NUMA-aligned scheduling on Kubernetes, made exact."""

__version__ = "0.1.0"
