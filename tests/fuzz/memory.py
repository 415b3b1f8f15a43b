"""A bound on the memory of one case."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of one case, in bytes, beside what this process has already.
MOST = 64 << 20

#: Beyond so much more nothing is given at all, so that a bomb ends here and not the machine.
_AT_ALL = 2 << 30


@contextmanager
def bounded(most: int = MOST) -> Iterator[None]:
    """What is done meanwhile takes so many bytes at most.

    Raises:
        MemoryError: it took more, at any moment.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_bytes("VmData") + _AT_ALL, hard))
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on (proc(5))
    before = _bytes("VmRSS")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    grown = _bytes("VmHWM") - before
    if grown > most:
        raise MemoryError(f"{grown >> 20} MiB")


def _bytes(what: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) << 10
