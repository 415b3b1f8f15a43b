"""When the Lease is renewed: while what is published can be trusted, and is published."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte.agent.publisher.messages import Probe, Renew
from rte.telemetry.effects import Measured, Said, SetReadiness

if TYPE_CHECKING:
    from rte import errors
    from rte.agent.publisher.messages import Effect
    from rte.agent.timings import Timings


class Renewals:
    """Decides upon renewals of the Lease: each is preceded by a sign of life of the kubelet.

    Attributes:
        trusted_until: of what was published last.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.trusted_until = -math.inf
        self._ask_at = math.inf
        self._next = -math.inf
        self._lapses_at = math.inf
        self._is_failing = False

    @property
    def due(self) -> float:
        """When there is something to do; infinite: not before an answer, or a first report."""
        return min(self._ask_at, self._lapses_at)

    def begin(self) -> None:
        """Something is published: there is something to vouch for."""
        if self._next == -math.inf:
            self._next = self._ask_at = 0.0

    def beat(self, now: float) -> list[Effect]:
        """Ask for a sign of life, if it is time; tell when nobody trusts us any more."""
        effects: list[Effect] = []
        if now >= self._lapses_at:
            self._lapses_at = math.inf
            why = "it was not renewed for so long that schedulers take this agent for dead"
            effects += [SetReadiness("lease", why), Measured("lease_alive", 0.0, how="set")]
        if now >= self._ask_at:
            self._next, self._ask_at = now + self._timings.renew, math.inf
            effects.append(Probe())
        return effects

    def probed(self, behind_since: float | None, now: float, *, alive: bool) -> list[Effect]:
        """Renew, or withhold it; ``behind_since``: the API server lacks a state since then."""
        is_current = behind_since is None or now - behind_since < self._timings.lease
        if alive and is_current and now < self.trusted_until:
            return [Renew()]
        self._ask_at = self._next
        return [Measured("lease_renewals", labels=("withheld",))]

    def renewed(self, error: errors.RteError | None, now: float) -> list[Effect]:
        """How a renewal came out."""
        self._ask_at = max(now, self._next)
        was_failing, self._is_failing = self._is_failing, error is not None
        if error is None:
            self._lapses_at = now + self._timings.lease
            return [
                Measured("lease_renewals", labels=("renewed",)),
                Measured("lease_alive", 1.0, how="set"),
                SetReadiness("lease"),
            ]
        told: list[Effect] = [Measured("lease_renewals", labels=("failed",))]
        if not was_failing:
            line = f"the Lease cannot be renewed, will keep trying: {error}"
            told.append(Said("warning", line))
        return told
