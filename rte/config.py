"""Settings: defaults < file < environment < flags, merged into one frozen value."""
