"""The object in the API server kept equal to the latest state: a machine without I/O."""
