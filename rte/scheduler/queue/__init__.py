"""Who waits, in which order, and whom an event helps (pure)."""
