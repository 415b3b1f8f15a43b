"""``python -m tools.release``: all that a release consists of, from one commit, twice the same."""
