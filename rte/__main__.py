"""``python -m rte``."""

import sys

from rte.cli import main

if __name__ == "__main__":
    sys.exit(main())
