"""Processing groups: the rules by which pods with groups are placed (docs/groups.md)."""
