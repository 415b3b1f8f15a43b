"""What can be done to objects: one module for each kind of call."""
