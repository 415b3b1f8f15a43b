"""Machine and kubelet view to a consistent NodeReading (pure)."""
