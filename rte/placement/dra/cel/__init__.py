"""CEL with Kubernetes' additions, behind one function."""
