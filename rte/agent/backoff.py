"""How long a machine waits before it tries again (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Backoff:
    """Waits that double from ``first`` to ``most`` seconds, each times what ``jitter`` gives."""

    first: float
    most: float
    jitter: Callable[[], float]
    attempts: int = 0

    def failed(self, asked: float = 0.0) -> float:
        """Seconds until the next attempt, not before the ``asked`` (Retry-After)."""
        wait = min(self.most, self.first * 2.0 ** min(self.attempts, 16))
        self.attempts += 1
        return max(asked, wait * self.jitter())

    def worked(self) -> None:
        """The next failure is a first one."""
        self.attempts = 0
