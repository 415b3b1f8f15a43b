"""What stands in for a cluster: simulated kubelet, embedded API server, demo."""
