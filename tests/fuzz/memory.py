"""A bound on the memory of one case: what asks for more gets a MemoryError, where it asks."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of one case, in bytes, beside what this process has already.
MOST = 64 << 20


@contextmanager
def bounded(most: int = MOST) -> Iterator[None]:
    """Meanwhile this process gets no more data than so many bytes beside what it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data() + most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data() -> int:
    """Bytes of private memory that this process may write (proc(5))."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmData:")[2].split()[0]) << 10
