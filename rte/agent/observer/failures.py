"""Readings that fail: when to look again, and what is said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.agent.observer import messages
from rte.telemetry.effects import Condition, Measured, Said

if TYPE_CHECKING:
    from rte.agent.observer.clocks import Clocks
    from rte.agent.observer.messages import Effect


class Failures:
    """Of readings in a row.

    Attributes:
        since: when the first of them failed; None: the last one worked.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.since: float | None = None
        self._times = 0
        self._told = ""

    def failed(
        self, error: errors.RteError, now: float, *, is_young: bool
    ) -> tuple[float, list[Effect]]:
        """Note one: when to look again unless something changes before, and what is to be told.

        ``is_young``: the kubelet was started a moment ago and is about to answer.
        """
        match error:
            case errors.InconsistentStateError():
                result, what = "torn", "the kubelet's files do not agree"
            case errors.ParseError():
                result, what = "torn", "a state file of the kubelet is damaged"
            case _:
                result, what = "failed", "the kubelet cannot be read"
        effects: list[Effect] = [messages.Failed(result, error)]
        if self.since is None:
            self.since, self._times = now, 0
        self._times += 1
        lasting = result == "failed" or now - self.since > self._clocks.settled
        if lasting and what != self._told:
            self._told = what
            effects += [
                Said("warning", f"{what}, will keep looking: {error}"),
                Condition("reading", what),
            ]
        if result == "failed":
            wait = self._clocks.resync if is_young else self._clocks.source
        else:
            wait = min(self._clocks.torn * 2.0 ** min(self._times - 1, 16), self._clocks.torn_most)
        return now + wait, effects

    def worked(self) -> list[Effect]:
        """A reading worked; what is to be told."""
        self.since = None
        effects: list[Effect] = [
            Condition("reading"),
            Measured("readings", labels=("consistent",)),
        ]
        if self._told:
            self._told = ""
            effects.append(Said("info", "the kubelet is readable again"))
        return effects
