"""How long is waited before something is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Backoff:
    """Waits that double from ``first`` to ``most`` seconds, each times what ``jitter`` gives.

    Attributes:
        attempts: failures in a row.
    """

    first: float
    most: float
    jitter: Callable[[], float] = lambda: 1.0
    attempts: int = 0

    def failed(self, asked: float = 0.0) -> float:
        """Seconds until the next attempt, not before the ``asked`` (Retry-After)."""
        self.attempts += 1
        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        state.attempt_number = self.attempts
        wait = tenacity.wait_exponential(multiplier=self.first, max=self.most)
        return max(asked, wait(state) * self.jitter())

    def worked(self) -> None:
        """The next failure is a first one."""
        self.attempts = 0
