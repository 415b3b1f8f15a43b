"""The joint search for a place on one node (pure)."""
