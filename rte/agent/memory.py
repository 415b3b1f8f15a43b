"""Keeps the process small, at times when nobody waits for it.

Left alone, the collector of cyclic garbage runs amid a reading, and looks through the whole state
of a large node each time.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Glibc; None where the C library is another one.
_LIBC = ctypes.CDLL(None) if hasattr(ctypes.CDLL(None), "malloc_trim") else None

#: Of malloc.h, and what both thresholds begin with.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MALLOC_THRESHOLD_BYTES = 128 << 10

#: Of mman.h.
_MADV_DONTNEED = 4

#: So many new objects, without a rest, are not foreseen.
_UNFORESEEN = 20_000

_RETURN_EVERY_S = 1.0

#: A line of smaps: addresses, rights, offset, device, and a file's inode. Nothing private to us is
#: ever shared (``p``), nor has a file the inode 0.
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p [0-9a-f]+ [0-9a-f:]+ [1-9]\d*\s")


def begin() -> None:
    """Nothing is collected amid a reading, and all threads share one heap; call it early.

    By itself glibc gives each of gRPC's threads a heap of its own, and raises its thresholds to the
    largest block that it has seen freed: the 256 KiB that each read of a socket takes for a moment
    would leave holes in the heap.
    """
    gc.set_threshold(_UNFORESEEN, 1, 1)
    if _LIBC is not None:
        _LIBC.mallopt(_M_ARENA_MAX, 1)
        _LIBC.mallopt(_M_TRIM_THRESHOLD, _MALLOC_THRESHOLD_BYTES)
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _MALLOC_THRESHOLD_BYTES)


def import_http_client() -> None:
    """Import aiohttp, before others do, without the certificates of the system's authorities.

    It reads them all when it is imported, 2 MiB, for connections that name none; ours all name
    theirs (rte.kube.credentials).
    """
    named = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        import aiohttp  # noqa: F401
    finally:
        del os.environ["SSL_CERT_FILE"]
        if named is not None:
            os.environ["SSL_CERT_FILE"] = named


def let_go_of_code() -> None:
    """Unmap what the start alone has needed of libraries: a third of the agent, 15 MiB.

    What is needed again is mapped again, from the page cache, at the first touch. Only parts of
    which no page was ever changed are unmapped: they are in their files as they are in memory.
    """
    if _LIBC is None:
        return
    try:
        text = Path("/proc/self/smaps").read_text()
    except OSError:  # another kernel, or none of our business
        return
    for start, end in unchanged_parts(text):
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def unchanged_parts(smaps: str) -> Iterator[tuple[int, int]]:
    """Addresses (first, one after last) of parts of files that are mapped read-only and unchanged.

    A part that was relocated is read-only by now too, but its pages are our own (``Anonymous``).
    """
    first = last = 0
    for line in smaps.splitlines():
        if match := _MAPPING.match(line):
            first, last = (int(number, 16) for number in match.groups())
        elif not line[:1].isupper():
            first = last = 0  # another mapping
        elif line.startswith("Anonymous:"):
            if last and line.split()[1] == "0":
                yield first, last
            first = last = 0


class Rests:
    """Tidies up, in half a millisecond, when it is told that nobody waits.

    Once a second it takes some milliseconds more, and gives back what is not needed while nothing
    happens. Code is among it: of gRPC's alone a question to the kubelet brings 6 MiB back, since
    the kernel maps 16 pages for each that is touched.
    """

    def __init__(self) -> None:
        self._settled = False
        self._next_return = 0.0

    def __call__(self) -> None:
        """Nobody waits just now."""
        gc.collect()
        if not self._settled:
            self._settled = True
            gc.freeze()  # what is there by now stays: collections need not look at it
        if time.monotonic() >= self._next_return:
            # Each time would be too often: what is given back must be asked for again.
            let_go_of_code()
            if _LIBC is not None:
                _LIBC.malloc_trim(0)  # else the most that was ever needed stays with us
            self._next_return = time.monotonic() + _RETURN_EVERY_S
