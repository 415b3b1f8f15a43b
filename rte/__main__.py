"""``python -m rte``, and the program ``rte``."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def main() -> int:
    """Run the command line; as the first process of a container it ends when asked, at once.

    The kernel drops what such a process has no handler for, and the command line takes much longer
    to load than this module: a SIGTERM meanwhile would be lost, and the grace period pass.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    from rte.cli import main as command_line

    return command_line()


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
