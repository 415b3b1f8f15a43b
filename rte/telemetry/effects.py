"""What a machine without I/O wants noted: values for metrics, and lines for the log (pure)."""

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
