"""Readings that fail: when to look again, what is said about it, and when trust ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.observer import messages
from rte.telemetry.effects import Condition, Measured, Said

if TYPE_CHECKING:
    from rte.agent.observer.answers import Answers
    from rte.agent.observer.clocks import Clocks
    from rte.agent.observer.messages import Effect

#: Everything is asked once per poll interval, give or take a fifth of it.
_MOST_POLLS = 1.2


class Failures:
    """Of readings in a row.

    Attributes:
        since: when the first of them failed; None: the last one worked.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.since: float | None = None
        self._worked_at = -math.inf
        self._times = 0
        self._told = ""

    def restarted(self) -> None:
        """Another kubelet: of it nothing has been read."""
        self._worked_at = -math.inf

    def trusted_until(self, answers: Answers | None) -> float:
        """Until when the last reading is to be trusted; ``answers`` where podresources is asked.

        Trust ends by itself: with a source that fails for ``stale`` seconds, and with none that has
        said anything although everything was due to be asked. What a former kubelet said is worth
        nothing.
        """
        read_at = self._worked_at if answers is None else min(self._worked_at, answers.at)
        until = read_at + _MOST_POLLS * self._clocks.poll + self._clocks.stale
        for since in (self.since, answers.silent_since if answers else None):
            if since is not None:
                until = min(until, since + self._clocks.stale)
        return until

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

    def worked(self, now: float) -> list[Effect]:
        """A reading worked; what is to be told."""
        self.since, self._worked_at = None, now
        effects: list[Effect] = [
            Condition("reading"),
            Measured("readings", labels=("consistent",)),
        ]
        if self._told:
            self._told = ""
            effects.append(Said("info", "the kubelet is readable again"))
        return effects
