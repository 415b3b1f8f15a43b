"""What the parts of the scheduler speak in: pods, nodes, answers, and what a plugin is (pure)."""
