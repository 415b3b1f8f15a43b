"""What the kubelet says: podresources, state files, effective configuration."""
