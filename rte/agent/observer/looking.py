"""When the kubelet's files are looked at, and because of which changes."""

from __future__ import annotations

import math

from rte.agent.observer.messages import KubeletChange


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
