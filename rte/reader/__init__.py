"""All JSON and YAML that somebody else has written, within a budget (pure).

Nothing else in rte parses either; a test looks for it (``tests/unit/reader/test_only_way.py``).
"""
