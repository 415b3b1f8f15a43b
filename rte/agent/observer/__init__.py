"""What a node has, from what its sources tell: a machine without I/O."""
