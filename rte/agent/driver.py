"""What a machine without I/O needs to be at work: one way to feed it and to note what it says."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rte.telemetry.effects import Measured, Said, SetReadiness

if TYPE_CHECKING:
    import asyncio
    import logging
    from collections.abc import Coroutine, Iterable

    from rte.telemetry.effects import Readiness
    from rte.telemetry.metrics import AgentMetrics

EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)


class PureMachine(Protocol[EventT_contra, EffectT_co]):
    """Events in, effects and a deadline out; no clock and no I/O."""

    def handle(self, event: EventT_contra, now: float) -> Iterable[EffectT_co]:
        """Take an event in; what has to be done about it."""

    def deadline(self) -> float:
        """When it is to be told the time; infinite: only after the next event."""


class Driver(ABC, Generic[EventT_contra, EffectT_co]):
    """Tells a machine what happens, and sees to what it wants done.

    Args:
        machine: what decides.
        metrics: where values go.
        readiness: where conditions go.
        log: where lines go.
    """

    def __init__(
        self,
        machine: PureMachine[EventT_contra, EffectT_co],
        metrics: AgentMetrics,
        readiness: Readiness,
        log: logging.Logger,
    ) -> None:
        self._machine = machine
        self._metrics = metrics
        self._readiness = readiness
        self._log = log
        self._tasks: asyncio.TaskGroup | None = None

    def feed(self, event: EventT_contra) -> None:
        """Tell the machine, and see to what it wants done."""
        for effect in self._machine.handle(event, time.monotonic()):
            match effect:
                case Measured():
                    effect.note(self._metrics)
                case Said():
                    effect.say(self._log)
                case SetReadiness():
                    self._readiness.set(effect)
                    self.stated(effect)
                case _:
                    self.carry_out(effect)

    @abstractmethod
    def carry_out(self, effect: EffectT_co) -> None:  # type: ignore[misc]
        """Begin what the machine wants done; its result is an event."""

    def stated(self, condition: SetReadiness) -> None:
        """The machine has said that a condition holds, or why not."""

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Work beside what the machine is told meanwhile; only while the driver runs."""
        if self._tasks is None:
            raise RuntimeError("not running")
        self._tasks.create_task(work)

    def is_due(self) -> bool:
        """Whether the machine is to be told the time."""
        return self._machine.deadline() <= time.monotonic()

    def patience(self) -> float | None:
        """Seconds until it is; None: until the next event."""
        wait = self._machine.deadline() - time.monotonic()
        return None if wait == math.inf else max(0.0, wait)
