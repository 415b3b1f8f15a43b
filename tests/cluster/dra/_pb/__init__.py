"""Generated from dra.proto; the command is in its header."""
