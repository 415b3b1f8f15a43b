"""What others have written, on our user's terminal: names, reasons, files."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What commands a terminal (C0 and C1 but for line ends and tabs), and what turns text around.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text, with what would command a terminal written out as JSON writes it."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@contextlib.contextmanager
def only_text() -> Iterator[None]:
    """Whatever is printed commands no terminal."""
    with (
        contextlib.redirect_stdout(cast("TextIO", _Plain(sys.stdout))),
        contextlib.redirect_stderr(cast("TextIO", _Plain(sys.stderr))),
    ):
        yield


class _Plain:
    """A stream that takes text only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write it out."""
        self._stream.write(plain(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
