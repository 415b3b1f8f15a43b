"""NHD's own formats: its configuration file, its labels, its TriadSets (pure)."""
