"""The objects: store, selectors, positions in the history."""
