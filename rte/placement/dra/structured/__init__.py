"""The structured-parameters allocation of Kubernetes: devices of slices for requests of claims."""
