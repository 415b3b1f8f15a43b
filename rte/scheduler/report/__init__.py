"""What users and operators read: events, conditions, metrics."""
