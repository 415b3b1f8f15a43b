"""Many nodes at once: screening, finding, scoring."""
