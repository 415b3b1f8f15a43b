"""What a machine without I/O wants noted: metrics, lines for the log, conditions (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.reader.json import Json


@dataclass(frozen=True, slots=True)
class Measured:
    """A value for a metric, named by the attribute of the program's metrics that holds it.

    ``how``: ``inc``, ``set`` or ``observe``.
    """

    metric: str
    value: float = 1.0
    labels: tuple[str, ...] = ()
    how: str = "inc"

    def note(self, metrics: object) -> None:
        """Give the value to that metric."""
        metric = getattr(metrics, self.metric)
        getattr(metric.labels(*self.labels) if self.labels else metric, self.how)(self.value)


@dataclass(frozen=True, slots=True)
class Said:
    """A line for the log. ``level`` is the logger's method; ``error`` adds its traceback."""

    level: str
    text: str
    extra: Json = field(default_factory=dict)
    error: BaseException | None = None

    def say(self, logger: object) -> None:
        """Write the line to that logger."""
        getattr(logger, self.level)("%s", self.text, extra=self.extra, exc_info=self.error)


@dataclass(frozen=True, slots=True)
class SetReadiness:
    """A condition of readiness, and why it does not hold; without a reason it does."""

    name: str
    reason: str = ""


class Readiness:
    """Named conditions that must all hold; an unmet one carries its reason."""

    def __init__(self, **unmet: str) -> None:
        self._unmet = dict(unmet)

    def met(self, condition: str) -> None:
        """The condition holds."""
        self._unmet.pop(condition, None)

    def fails(self, condition: str, reason: str) -> None:
        """The condition does not hold, because of ``reason``."""
        self._unmet[condition] = reason

    def set(self, condition: SetReadiness) -> None:
        """As the condition says."""
        if condition.reason:
            self.fails(condition.name, condition.reason)
        else:
            self.met(condition.name)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not ready, one line each; empty when ready."""
        return tuple(f"{name}: {why}" for name, why in sorted(self._unmet.items()))
