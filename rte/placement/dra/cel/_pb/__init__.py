"""Generated from checked.proto; the command is in its header."""
