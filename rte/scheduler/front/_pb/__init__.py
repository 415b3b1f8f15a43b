"""Generated from nhd_stats.proto; the command is in its header."""
