"""What pods with groups are given in the end: CPUs, devices, networks, their own file (pure)."""
