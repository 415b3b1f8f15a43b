"""The resources and the rules of each kind."""
