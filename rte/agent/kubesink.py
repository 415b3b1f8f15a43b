"""Feeds the publisher, and carries out at the API server what it wants."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson

from rte import errors
from rte.agent.publisher import messages
from rte.agent.publisher.messages import AskOwner, Get, Renew, Write
from rte.kube import retry
from rte.kube.resources import NRTS
from rte.kube.watch import watch
from rte.telemetry.effects import Condition, Measured, Said

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rte.agent.observer.messages import Observation
    from rte.agent.publisher.machine import Publisher
    from rte.agent.publisher.messages import Effect, Event, Request
    from rte.kube.client import Client
    from rte.kube.lease import Heartbeat
    from rte.kube.watch import Event as WatchEvent
    from rte.telemetry.health import Readiness
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)

#: Between attempts to watch the own object, half of it random.
_WATCH_AGAIN_S = 10.0


class KubeSink:
    """The publisher at work; :meth:`run` works until cancelled.

    Args:
        client: the API server.
        node_name: name of the object.
        publisher: what decides.
        ask_owner: learns the UID of the Node as it is now; may raise KubeError.
        tell_owner: takes that UID: what is offered from now on belongs to it.
        lease: shows that the agent lives.
    """

    def __init__(
        self,
        client: Client,
        node_name: str,
        publisher: Publisher,
        *,
        metrics: AgentMetrics,
        readiness: Readiness,
        ask_owner: Callable[[], Awaitable[str]] | None = None,
        tell_owner: Callable[[str], None] = lambda _: None,
        lease: Heartbeat | None = None,
    ) -> None:
        self._client = client
        self._name = node_name
        self._publisher = publisher
        self._metrics = metrics
        self._readiness = readiness
        self._ask_owner = ask_owner
        self._tell_owner = tell_owner
        self._lease = lease
        self._requests: list[Request | Renew] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()

    def offer(self, observation: Observation) -> None:
        """This is the latest state."""
        self._feed(messages.Offered(observation))

    def trust(self, until: float) -> None:
        """What was offered last is to be trusted until then (``time.monotonic``)."""
        self._feed(messages.Trusted(until))

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start()
                while True:
                    wait = self._publisher.deadline() - time.monotonic()
                    self._wake.clear()
                    try:
                        async with asyncio.timeout(None if wait == math.inf else max(0.0, wait)):
                            await self._wake.wait()
                    except TimeoutError:
                        self._feed(messages.Tick())
        finally:
            self._tasks = None
            self._requests.clear()

    async def follow(self) -> None:
        """Watch the object, so that what others do to it is noticed; until cancelled."""
        while True:
            try:
                events = watch(
                    self._client, NRTS.path(), field_selector=f"metadata.name={self._name}"
                )
                async with aclosing(events):
                    async for event in events:
                        self._feed(_watched(event))
            except errors.KubeError as error:
                # The publisher tells what is wrong; without this watch it repairs at a resync.
                logger.debug("own object is not watched: %s", error)
            await asyncio.sleep(_WATCH_AGAIN_S * random.uniform(0.5, 1.0))  # noqa: S311

    async def flush(self) -> None:
        """Write what is not written yet, without patience: for the end of the process."""
        self._note(self._publisher.handle(messages.Stopping(), time.monotonic()))
        while self._requests:
            self._feed(await self._carry_out(self._requests.pop(0)))

    async def publish(self, observation: Observation, timeout_s: float) -> None:
        """Write one state, as the agent would; until it is written.

        Raises:
            errors.KubeError: it is refused, or not accepted within ``timeout_s``.
        """
        ends = time.monotonic() + timeout_s
        self.offer(observation)
        while not self._publisher.is_current:
            while self._requests:
                answer = await self._carry_out(self._requests.pop(0))
                self._feed(answer)
                if not self._requests and isinstance(answer, messages.Refused):
                    error = answer.error
                    if time.monotonic() >= ends or not (
                        retry.is_transient(error) or error.status == 409
                    ):
                        raise error
            if not self._publisher.is_current:
                await asyncio.sleep(max(0.0, self._publisher.deadline() - time.monotonic()))
                self._feed(messages.Tick())

    # --- effects ---

    def _feed(self, event: Event) -> None:
        self._note(self._publisher.handle(event, time.monotonic()))
        self._start()
        self._wake.set()

    def _start(self) -> None:
        if self._tasks is not None:
            while self._requests:
                self._tasks.create_task(self._answer(self._requests.pop(0)))

    async def _answer(self, request: Request | Renew) -> None:
        self._feed(await self._carry_out(request))

    async def _carry_out(self, request: Request | Renew) -> Event:
        try:
            match request:
                case Renew():
                    if self._lease is not None:
                        await self._lease.renew()
                    return messages.Renewed()
                case Get():
                    return messages.Stored(await self._client.get(NRTS.path(self._name)))
                case AskOwner():
                    uid = await self._ask_owner() if self._ask_owner else ""
                    if uid:
                        self._tell_owner(uid)
                    return messages.OwnerKnown(uid)
                case Write():
                    return messages.Stored(await self._write(request))
        except errors.KubeError as error:
            renews = isinstance(request, Renew)
            return messages.Renewed(error) if renews else messages.Refused(error)

    async def _write(self, request: Write) -> dict[str, Any]:
        stored: dict[str, Any]
        if request.operation == "create":
            stored = await self._client.create(NRTS.path(), request.body)
        else:
            stored = await self._client.update(NRTS.path(self._name), request.body)
        self._metrics.write_bytes.observe(len(orjson.dumps(request.body)))
        return stored

    def _note(self, effects: Iterable[Effect]) -> None:
        """Note what is to be noted; requests wait to be carried out."""
        for effect in effects:
            match effect:
                case Measured():
                    effect.note(self._metrics)
                case Said():
                    effect.say(logger)
                case Condition():
                    self._readiness.set(effect)
                    if not effect.reason:
                        self._metrics.last_publish.set_to_current_time()
                case _:
                    self._requests.append(effect)


def _watched(event: WatchEvent) -> messages.Watched:
    """What a watch of one object tells: the object, or that it is gone."""
    obj: dict[str, Any] | None = event.object
    if event.kind == "LISTED":
        obj = next(iter(event.object.get("items") or ()), None)
    newest = obj or event.object
    version = str((newest.get("metadata") or {}).get("resourceVersion") or "")
    return messages.Watched(None if event.kind == "DELETED" else obj, version)
