"""The kubelet's state files: when they are looked at, and what they said last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte.accounting import liveness
from rte.agent.observer.messages import KubeletChange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from rte.agent.timings import Timings
    from rte.model.kubelet import StateFiles


class Looking:
    """The look that is under way, and the next one.

    Attributes:
        at: when to look next, unless something changes before; infinite: not by itself.
        under_way: the files are being read.
        noticed: when the first of the changes was noticed that are not accounted for.
    """

    def __init__(self) -> None:
        self.at = -math.inf
        self.under_way = False
        self.noticed: float | None = None
        self._changes = KubeletChange.NOTHING
        self._looked_for = KubeletChange.NOTHING

    def add(self, changes: KubeletChange, noticed: float, now: float) -> None:
        """These are to be looked at, now."""
        self._changes |= changes
        if self.noticed is None:
            self.noticed = noticed
        self.by(now)

    def by(self, moment: float) -> None:
        """Look then, or earlier."""
        self.at = min(self.at, moment)

    def is_due(self, now: float) -> bool:
        """Whether the next look is to begin."""
        return not self.under_way and self.at <= now

    def deadline(self) -> float:
        """When the next look is to begin; infinite while one is under way."""
        return math.inf if self.under_way else self.at

    def begin(self) -> None:
        """Look at all changes so far."""
        self.at, self.under_way = math.inf, True
        self._looked_for, self._changes = self._changes, KubeletChange.NOTHING

    def end(self) -> KubeletChange:
        """It was looked; for which changes."""
        self.under_way = False
        return self._looked_for


class FilesReading:
    """What the files say, and whether they were caught between two writes.

    Attributes:
        content: as read last; None: nothing was read yet.
        changed_at: when they were found to be others than before.
        failed: the last look found none that can be used.
        has_marker: this kubelet tells whom it has admitted, as far as its release and gates are
            known.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.content: StateFiles | None = None
        self.changed_at = -math.inf
        self.failed = False
        self.has_marker = True
        self._seen_half: frozenset[str] = frozenset()

    def take(self, files: StateFiles, now: float) -> bool:
        """Take what was read; True where devices came or went since the last time."""
        known, self.content = self.content, files
        if files is known or files == known:
            return False
        self.changed_at = now
        return known is not None and _registered(known) != _registered(files)

    @property
    def holders(self) -> frozenset[str]:
        """UIDs that hold anything."""
        return liveness.holders(self.content)

    @property
    def admitted(self) -> frozenset[str]:
        """UIDs that the kubelet calls admitted; if it does not tell, those that hold anything."""
        allocated = self.content.allocated if self.content else None
        if not self.has_marker:
            return self.holders
        return frozenset(allocated.pods) if allocated else frozenset()

    def admission_under_way(self, ended: AbstractSet[str], now: float) -> float:
        """Seconds to wait for the last write of an admission; 0: there is none under way.

        A pod enters ``allocated_pods_state`` right after the last of its entries. Publishing the
        half would delay the whole: the write of it would be under way when the rest comes. Of the
        pods that have ``ended`` nothing is waited for.
        """
        if self.content is None or self.content.allocated is None or not self.has_marker:
            return 0.0
        half = self.holders - self.admitted
        left = self.changed_at + self._timings.admission - now
        if half - self._seen_half - ended and left > 0:
            return left
        self._seen_half = half
        return 0.0

    def have_settled(self, now: float) -> bool:
        """Whether they stood still for so long that they are not caught between two writes."""
        return now - self.changed_at >= self._timings.settled

    def have_same_devices(self, listed: StateFiles | None) -> bool:
        """Whether the files around an answer told the same of devices."""
        files = self.content
        return files is not None and listed is not None and files.devices == listed.devices


def _registered(files: StateFiles) -> Mapping[str, frozenset[str]]:
    return files.devices.registered if files.devices else {}
