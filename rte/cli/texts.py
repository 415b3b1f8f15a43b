"""Texts that are named on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rte import errors

if TYPE_CHECKING:
    from pathlib import Path


def read_text(file: Path) -> str:
    """A file's text; ``-`` is standard input.

    Raises:
        errors.UsageError: it cannot be read.
    """
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"cannot read {file}: {errors.why_unreadable(error)}") from error
