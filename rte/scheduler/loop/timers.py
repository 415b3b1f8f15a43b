"""What is due when: deadlines as values."""

from __future__ import annotations

import heapq
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Due(StrEnum):
    """What can be due."""

    RELEASE = "release"  #: pods that backed off
    TELL = "tell"  #: a pod's users: why it waits
    PREEMPT = "preempt"  #: another search for victims, for a pod
    PATIENCE = "patience"  #: the end of a pod's wait for a better place
    NOMINATION = "nomination"  #: a look at a pod's nomination
    EVIDENCE = "evidence"  #: the end of what a node's refusal has told
    REREAD = "reread"  #: a node that has refused a pod
    ASIDE = "aside"  #: what was put aside after an internal error
    SECOND = "second"
    MINUTE = "minute"


class Timers:
    """Moments, each with what is due then and for whom; of equal ones the first set comes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due, str]] = []
        self._number = 0

    def at(self, when: float, what: Due, key: str = "") -> None:
        """That is due then."""
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, what, key))

    def next(self) -> float | None:
        """When the first is due; None: nothing is."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[tuple[Due, str]]:
        """Take out what is due, also what is set meanwhile for no later than now."""
        while self._heap and self._heap[0][0] <= now:
            _, _, what, key = heapq.heappop(self._heap)
            yield what, key
