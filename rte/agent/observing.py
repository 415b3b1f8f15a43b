"""Feeds the observer: carries out what it wants read, and tells it what came of it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from rte.agent.driver import Driver
from rte.agent.observer import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.agent.drift import DriftCheck
    from rte.agent.follow import Signals
    from rte.agent.observer.machine import Observer
    from rte.agent.observer.messages import Effect, Event, Observation
    from rte.agent.sources import NodeReader
    from rte.model.node import NodeState
    from rte.telemetry.effects import Readiness
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)

#: After a new state was handed on, before the next look: its write goes first.
_BREATH_S = 0.002


class StateSink(Protocol):
    """Where states go."""

    def offer(self, observation: Observation) -> None:
        """This is the latest state."""

    def trust(self, until: float) -> None:
        """What was offered last is to be trusted until then (``time.monotonic``)."""


class Observing(Driver["Event", "Effect"]):
    """An observer at work; :meth:`run` works until cancelled.

    Args:
        observer: what decides.
        sources: where to read.
        signals: what tells of changes.
        sink: takes each new state.
        drift: compares admissions with their predictions; None: nobody does.
        rest: called when a state was handed on and is on its way, and after each answer.
    """

    def __init__(
        self,
        observer: Observer,
        sources: NodeReader,
        signals: Signals,
        sink: StateSink,
        *,
        metrics: AgentMetrics,
        readiness: Readiness,
        drift: DriftCheck | None = None,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(observer, metrics, readiness, logger)
        self._observer = observer
        self._sources = sources
        self._signals = signals
        self._sink = sink
        self._drift = drift
        self._rest = rest
        self._has_published = False
        self._state: NodeState | None = None

    async def run(self) -> None:
        """Observe until cancelled.

        Raises:
            ExceptionGroup: of errors.RteError; there is no hardware to be read.
        """
        async with asyncio.TaskGroup() as self._tasks:
            self.feed(await self._sources.first_machine())
            while True:
                await self._turn()

    def feed(self, event: Event) -> None:
        """Tell the observer, and see to what it wants done."""
        trusted = self._observer.trusted_until()
        if self._drift is not None and isinstance(event, messages.PodsEvent):
            self._drift.newcomers.told(event)
        super().feed(event)
        if self._observer.trusted_until() != trusted:
            self._sink.trust(self._observer.trusted_until())

    def carry_out(self, effect: Effect) -> None:
        """Read at once, ask beside; what was read is the next event."""
        match effect:
            case messages.ReadFiles():
                self.feed(self._sources.read_files(effect))
            case messages.ReadMachine():
                self.begin(self._answer(self._sources.read_machine()))
            case messages.Ask():
                self.begin(self._answer(self._sources.ask(effect)))
            case messages.Learn():
                self.begin(self._answer(self._sources.learn(effect)))
            case messages.Publish():
                self._hand_on(effect)
            case messages.Failed():
                self._metrics.readings.labels(effect.result).inc()
            case messages.CompareAdmissions():
                self._state = effect.state

    async def _turn(self) -> None:
        """Wait for what happens next, and tell the observer of it."""
        await self._signals.wait(self.patience())
        began = time.monotonic()
        events = self._signals.take_events()
        for event in events:
            self.feed(event)
        changes, noticed = self._signals.take()
        if changes:
            self.feed(messages.Noticed(changes, noticed))
        if self.is_due():
            self.feed(messages.Tick())
        if self._state is not None:
            self._metrics.reading_seconds.observe(time.monotonic() - began)
        if self._has_published:
            self._has_published = False
            await asyncio.sleep(_BREATH_S)
            self._rest()
        elif any(isinstance(event, messages.Pulse | messages.Answered) for event in events):
            self._rest()
        if self._state is not None and self._drift is not None:
            with self._observer.quarantine.guard("observer", "drift", time.monotonic()):
                self._drift.observe(self._state)
        self._state = None

    def _hand_on(self, effect: messages.Publish) -> None:
        for name, is_left_out in effect.left_out.items():
            self._metrics.left_out.labels(name).set(is_left_out)
        self._has_published = True
        self._sink.offer(effect.observation)

    async def _answer(self, work: Awaitable[Event]) -> None:
        self._signals.give(await work)
