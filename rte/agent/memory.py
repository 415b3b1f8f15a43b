"""Keeps the process small, at times when nobody waits for it.

Left alone, the collector of cyclic garbage runs amid a reading, and looks through the whole state
of a large node each time.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time

#: Glibc; None where the C library is another one.
_LIBC = ctypes.CDLL(None) if hasattr(ctypes.CDLL(None), "malloc_trim") else None

#: Of malloc.h, and what both thresholds begin with.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MALLOC_THRESHOLD_BYTES = 128 << 10

#: So many new objects, without a rest, are not foreseen.
_UNFORESEEN = 20_000

_TRIM_EVERY_S = 1.0


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


class Rests:
    """Tidies up, in half a millisecond, when it is told that nobody waits."""

    def __init__(self) -> None:
        self._settled = False
        self._next_trim = 0.0

    def __call__(self) -> None:
        """Nobody waits just now."""
        gc.collect()
        if not self._settled:
            self._settled = True
            gc.freeze()  # what is there by now stays: collections need not look at it
        if _LIBC is not None and time.monotonic() >= self._next_trim:
            # Else the most that was ever needed stays with us. Each time would be too often: what
            # is given back must be asked for again.
            _LIBC.malloc_trim(0)
            self._next_trim = time.monotonic() + _TRIM_EVERY_S
