"""Reads a sysfs/procfs root into a Machine; nothing else touches those files."""
