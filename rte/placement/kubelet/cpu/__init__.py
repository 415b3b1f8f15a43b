"""The CPU manager: its static policy, the layout of CPUs that it sees, and how it picks."""
