"""When the Lease is renewed: while what is published can be trusted, and is published."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.agent.publisher.messages import Renew
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from rte import errors


@dataclass(frozen=True, kw_only=True, slots=True)
class Rhythm:
    """Seconds.

    Attributes:
        renew: between renewals.
        duration: from a renewal until others take the agent for dead, and the longest that the API
            server may lack the current state.
    """

    renew: float = 10.0
    duration: float = 40.0


class Renewals:
    """Decides upon renewals of the Lease.

    Attributes:
        due: when the next one is; infinite: not before the answer, or something is published.
        trusted_until: of what was published last.
    """

    def __init__(self, rhythm: Rhythm) -> None:
        self._rhythm = rhythm
        self.due = math.inf
        self.trusted_until = -math.inf
        self._next = -math.inf
        self._is_failing = False

    def begin(self) -> None:
        """Something is published: there is something to vouch for."""
        if self._next == -math.inf:
            self._next = self.due = 0.0

    def beat(self, behind_since: float | None, now: float) -> list[Renew | Measured]:
        """Renew, or withhold it; ``behind_since``: the API server lacks a state since then."""
        self._next = now + self._rhythm.renew
        is_current = behind_since is None or now - behind_since < self._rhythm.duration
        if is_current and now < self.trusted_until:
            self.due = math.inf
            return [Renew()]
        self.due = self._next
        return [Measured("lease_renewals", labels=("withheld",))]

    def renewed(self, error: errors.KubeError | None, now: float) -> list[Measured | Said]:
        """How a renewal came out."""
        self.due = max(now, self._next)
        was_failing, self._is_failing = self._is_failing, error is not None
        if error is None:
            return [Measured("lease_renewals", labels=("renewed",))]
        told: list[Measured | Said] = [Measured("lease_renewals", labels=("failed",))]
        if not was_failing:
            line = f"the Lease cannot be renewed, will keep trying: {error}"
            told.append(Said("warning", line))
        return told
