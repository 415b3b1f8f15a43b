"""Whether a kubelet that was started has re-admitted its pods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable
    from collections.abc import Set as AbstractSet


class KubeletRestart:
    """Whether the kubelet has re-admitted its pods since it was started (pure but for its state).

    Its podresources list shows a pod as soon as the kubelet knows it, a moment before admission;
    so the list of a kubelet that was just started must be complete twice in a row. ``most_s`` after
    its start a kubelet has re-admitted all that it ever will.

    Attributes:
        epoch: which start; empty: none was seen yet.
        synced: it has.
        is_first: no other kubelet was seen before this one.
        gone: UIDs that its files called admitted, and that were over, while it was synced.
    """

    _JUST_STARTED_S = 10.0
    #: A kubelet may report first and make its socket afterwards, and tells whole seconds.
    _SLACK_S = 10.0

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.epoch = ""
        self.synced = False
        self._began = self._started = self._seen = -math.inf
        self._made: float | None = None
        self._complete = 0
        self.is_first = True
        self.gone: frozenset[str] = frozenset()

    def notice(
        self, epoch: str, now: float, started: float | None, made: float | None = None
    ) -> bool:
        """Take the current epoch ("" = no socket); True when it is a new one.

        ``started`` is when the kubelet made its socket, on the clock of ``now`` (None: a moment
        ago, for all that is known), ``made`` the same by the clock of its reports.
        """
        if epoch == self.epoch:
            self._seen = now
        if not epoch or epoch == self.epoch:
            return False
        self.is_first = not self.epoch
        # Whatever its clock says: not before the former one was seen last.
        started = now if started is None else max(started, self._seen)
        self.epoch, self._began, self._started, self._made = epoch, now, started, made
        self._complete = 0 if now - started < self._JUST_STARTED_S else 1
        self._seen = now
        self.synced = False
        return True

    def is_young(self, now: float) -> bool:
        """Whether the start was noticed a moment ago, and the kubelet is about to answer."""
        return bool(self.epoch) and not self.synced and now - self._began < self._JUST_STARTED_S

    def is_before(self, heard: float | None, now: float) -> bool:
        """Whether a report from the moment ``heard`` is still the former kubelet's.

        A starting kubelet reports at once (syncNodeStatus in pkg/kubelet/kubelet_node_status.go);
        ``most_s`` after the start nothing more is waited for.
        """
        if heard is None or self._made is None or now - self._began > self._most_s:
            return False
        return heard < self._made - self._SLACK_S

    def may_be_before(self, heard: float | None) -> bool:
        """Whether a report from the moment ``heard`` may be the former kubelet's."""
        return (
            bool(self.epoch) and heard is not None and (self._made is None or heard <= self._made)
        )

    def is_settled(self, now: float) -> bool:
        """Whether it has run for so long that it has re-admitted what it ever will."""
        return now - self._started > self._most_s

    def check(
        self, present: AbstractSet[Hashable], expected: AbstractSet[Hashable], now: float
    ) -> str:
        """Compare who is there by now with who is to be; each call is about a new answer.

        Returns:
            What an operator should know, in one line; mostly nothing.
        """
        missing = expected - present
        self._complete = 0 if missing else self._complete + 1
        line = ""
        if now - self._began > self._most_s and missing:
            line = f"the kubelet has not taken up {len(missing)} of its pods after its start"
            self._complete = 2
        self.synced = self._complete >= 2
        return line

    def nobody_to_ask(self) -> None:
        """Files alone do not tell, nor does a recording of a kubelet."""
        self.synced = True
