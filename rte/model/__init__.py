"""Plain values shared by every room; no I/O."""
