"""Generated from podresources.proto; the command is in its header."""
