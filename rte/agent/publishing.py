"""Feeds the publisher, and carries out where the object is kept what it wants."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

import orjson

from rte import errors
from rte.agent.driver import Driver
from rte.agent.publisher import messages
from rte.agent.publisher.messages import AskOwner, Get, Probe, Renew, WriteReport
from rte.kube import retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.agent.observer.messages import Observation
    from rte.agent.publisher.machine import Publisher
    from rte.agent.publisher.messages import Effect, Event, Request
    from rte.kube.lease import Heartbeat
    from rte.reader.json import JsonObject
    from rte.telemetry.effects import Readiness, SetReadiness
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)

#: Longest wait for a renewal: the sign of life before it is to be a few seconds old.
_RENEW_S = 3.0


class ReportStore(Protocol):
    """Where the object is kept: the API server, a file, standard output."""

    async def get(self) -> JsonObject:
        """The object as it is stored.

        Raises:
            errors.RteError: it cannot be read; KubeError with status 404: there is none.
        """

    async def owner_uid(self) -> str:
        """UID of the Node as it is now; empty where it is not known. May raise RteError."""

    async def write(self, request: WriteReport) -> JsonObject:
        """Create or update it; what is stored by now. May raise RteError."""


class Publishing(Driver["Event", "Effect"]):
    """The publisher at work; :meth:`run` works until cancelled.

    Args:
        store: where the object is kept.
        publisher: what decides.
        lease: shows that the agent lives.
        probe: whether the kubelet has just answered; None: there is none to ask.
    """

    def __init__(
        self,
        store: ReportStore,
        publisher: Publisher,
        *,
        metrics: AgentMetrics,
        readiness: Readiness,
        lease: Heartbeat | None = None,
        probe: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._store = store
        super().__init__(publisher, metrics, readiness, logger)
        self._publisher = publisher
        self._lease = lease
        self._probe = probe
        self._requests: list[Request | Probe | Renew] = []
        self._wake = asyncio.Event()

    def offer(self, observation: Observation) -> None:
        """This is the latest state."""
        self.feed(messages.Offered(observation))

    def trust(self, until: float) -> None:
        """What was offered last is to be trusted until then (``time.monotonic``)."""
        self.feed(messages.Trusted(until))

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._begin_all()
                while True:
                    patience = self.patience()
                    self._wake.clear()
                    try:
                        async with asyncio.timeout(patience):
                            await self._wake.wait()
                    except TimeoutError:
                        self.feed(messages.Tick())
        finally:
            self._tasks = None
            self._requests.clear()

    async def flush(self) -> None:
        """Write what is not written yet, without patience: for the end of the process."""
        self.feed(messages.Stopping())
        while self._requests:
            self.feed(await self._do(self._requests.pop(0)))

    async def publish(self, observation: Observation, timeout_s: float) -> None:
        """Write one state, as the agent would; until it is written.

        Raises:
            errors.RteError: it is refused, or not accepted within ``timeout_s``.
        """
        ends = time.monotonic() + timeout_s
        self.offer(observation)
        while not self._publisher.is_current:
            while self._requests:
                answer = await self._do(self._requests.pop(0))
                self.feed(answer)
                if not self._requests and isinstance(answer, messages.WriteRefused):
                    error = answer.error
                    if time.monotonic() >= ends or not (
                        retry.is_transient(error) or getattr(error, "status", 0) == 409
                    ):
                        raise error
            if not self._publisher.is_current:
                await asyncio.sleep(max(0.0, self._publisher.deadline() - time.monotonic()))
                self.feed(messages.Tick())

    def feed(self, event: Event) -> None:
        """Tell the publisher, and see to what it wants done."""
        super().feed(event)
        if self._tasks is not None:
            self._begin_all()
        self._wake.set()

    # --- effects ---

    def _begin_all(self) -> None:
        while self._requests:
            self.begin(self._answer(self._requests.pop(0)))

    def carry_out(self, effect: Effect) -> None:
        """It waits for those before it, and for the driver to run."""
        if isinstance(effect, Get | AskOwner | WriteReport | Probe | Renew):
            self._requests.append(effect)

    def stated(self, condition: SetReadiness) -> None:
        """The last publish has a time."""
        if condition == messages.PUBLISHED:
            self._metrics.last_publish.set_to_current_time()

    async def _answer(self, request: Request | Probe | Renew) -> None:
        self.feed(await self._do(request))

    async def _do(self, request: Request | Probe | Renew) -> Event:
        try:
            match request:
                case Probe():
                    return messages.Probed(await self._is_alive())
                case Renew():
                    return messages.Renewed(await self._renew())
                case Get():
                    return messages.Stored(await self._store.get())
                case AskOwner():
                    return messages.OwnerKnown(await self._store.owner_uid())
                case WriteReport():
                    stored = messages.Stored(await self._store.write(request))
                    self._metrics.write_bytes.observe(len(orjson.dumps(request.body)))
                    return stored
        except Exception as error:  # noqa: BLE001 - whatever is in the object or in its answer
            return messages.WriteRefused(self._expected(request, error))

    def _expected(self, request: Request | Probe | Renew, error: Exception) -> errors.RteError:
        what, quarantine = type(request).__name__, self._publisher.quarantine
        return quarantine.as_expected("requests", what, error, time.monotonic())

    async def _is_alive(self) -> bool:
        with self._publisher.quarantine.guard("requests", "Probe", time.monotonic()):
            return self._probe is None or await self._probe()
        return False

    async def _renew(self) -> errors.RteError | None:
        """Renew the Lease while the sign of life is young; why not."""
        if self._lease is None:
            return None
        try:
            async with asyncio.timeout(_RENEW_S):
                await self._lease.renew()
        except TimeoutError:
            return errors.KubeError(f"no answer from the API server within {_RENEW_S:g} s")
        except Exception as error:  # noqa: BLE001 - it is tried again
            return self._expected(Renew(), error)
        return None
