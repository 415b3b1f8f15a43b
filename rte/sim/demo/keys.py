"""Keys that are pressed in a terminal, while the screen is drawn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_LINES = {"\x1b[A": -1, "\x1bOA": -1, "k": -1, "\x1b[B": 1, "\x1bOB": 1, "j": 1}
_PAGES = {"\x1b[5~": -1, "b": -1, "\x1b[6~": 1, " ": 1}
_TOP = ("\x1b[H", "\x1b[1~", "\x1bOH", "g")
_END = ("\x1b[F", "\x1b[4~", "\x1bOF", "G")


def scrolled(key: str, top: int, *, page: int, most: int) -> int:
    """The first line that is shown after a key; keys without a meaning change nothing."""
    if key in _TOP:
        return 0
    if key in _END:
        return most
    return top + _LINES.get(key, 0) + page * _PAGES.get(key, 0)


def split(text: str) -> list[str]:
    """What was typed, key by key: an escape sequence is one key."""
    return _KEY.findall(text)


@contextlib.contextmanager
def pressed() -> Iterator[asyncio.Queue[str]]:
    """A queue of keys as they are pressed; stays empty where standard input is no terminal."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    if not sys.stdin.isatty():
        yield queue
        return
    import termios
    import tty

    number, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(number)

    def read() -> None:
        for key in split(os.read(number, 1024).decode(errors="ignore")):
            queue.put_nowait(key)

    tty.setcbreak(number)  # signals of the keyboard stay signals
    loop.add_reader(number, read)
    try:
        yield queue
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
