"""Feeds the machine of Kueue's AdmissionChecks, and carries its effects out."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from rte import errors
from rte.kube.client import APPLY
from rte.kube.resources import CLAIM_TEMPLATES, Resource
from rte.scheduler.kueue.machine import TURN, Admissions
from rte.scheduler.kueue.messages import (
    CHECKS,
    FLAVORS,
    TEMPLATES,
    WORKLOADS,
    Activate,
    Happened,
    Judge,
    SolveWorkload,
    WorkloadSolved,
    Written,
)
from rte.scheduler.loop.messages import Seen, Tick, Turn
from rte.scheduler.shell.questions import find_out
from rte.telemetry.effects import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from rte.kube.client import Client
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.kueue.messages import Event
    from rte.scheduler.loop.machine import SchedulerMachine
    from rte.scheduler.report.metrics import SchedulerMetrics

logger = logging.getLogger(__name__)

_GROUP: Final = "kueue.x-k8s.io"
_VERSION: Final = "v1beta2"

#: What is watched.
COLLECTIONS: Final = {
    WORKLOADS: Resource(_GROUP, _VERSION, "workloads", namespaced=True),
    CHECKS: Resource(_GROUP, _VERSION, "admissionchecks"),
    FLAVORS: Resource(_GROUP, _VERSION, "resourceflavors"),
    TEMPLATES: CLAIM_TEMPLATES,
}

#: Owns what we write (server-side apply).
_MANAGER: Final = "rte-scheduler"

#: Between two looks at what is due, while this replica may not write.
_LEAST_S: Final = 0.1


class KueueDriver:
    """The AdmissionChecks of one controller name.

    Args:
        client: the API server.
        controller: the name.
        scheduler: knows the cluster, and would place pods.
        hold_s: see :class:`Admissions`.
        may_write: whether this replica is the active one, asked before each write.
        spawn: runs something beside the decisions.
        metrics: of the scheduler.
    """

    def __init__(
        self,
        client: Client,
        controller: str,
        scheduler: SchedulerMachine,
        *,
        hold_s: float,
        may_write: Callable[[], bool],
        spawn: Callable[[Coroutine[None, None, None]], None],
        metrics: SchedulerMetrics,
    ) -> None:
        self._client, self._may_write, self._spawn = client, may_write, spawn
        self._metrics = metrics
        self._machine = Admissions(controller, scheduler, hold_s)
        self._wake = asyncio.Event()
        self._asked: SolveWorkload | None = None
        scheduler.listeners.append(self._on_cluster)

    async def run(self) -> None:
        """Try Workloads as they come, until cancelled."""
        while True:
            due = self._machine.deadline()
            left = None if due is None else max(_LEAST_S, due - time.time())
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                self.feed(Tick())
            self._wake.clear()
            while self._may_write() and self._machine.has_work(time.time()):
                started = time.perf_counter()
                self.feed(Turn())
                await self._solve()
                await asyncio.sleep((TURN - 1) * (time.perf_counter() - started))

    def feed(self, event: Event) -> None:
        """Give the machine an event, and see to what it wants done."""
        for effect in self._machine.handle(event, time.time()):
            match effect:
                case Judge():
                    self._spawn(self._judge(effect))
                case Activate():
                    self._spawn(self._activate(effect))
                case SolveWorkload():
                    self._asked = effect
                case Said():
                    effect.say(logger)
                case _:
                    effect.note(self._metrics)
        self._wake.set()

    def _on_cluster(self, events: Sequence[ClusterEvent]) -> None:
        self.feed(Happened(events))

    async def _solve(self) -> None:
        """Answer what was asked; meanwhile others get their turns."""
        asked, self._asked = self._asked, None
        if asked is not None:
            self.feed(WorkloadSolved(asked.key, await find_out(asyncio.to_thread, asked.question)))

    async def _judge(self, effect: Judge) -> None:
        namespace, _, name = effect.key.partition("/")
        metadata = {"name": name, "namespace": namespace, "uid": effect.uid}
        body = _object("Workload", metadata, effect.version, admissionChecks=list(effect.items))
        path = COLLECTIONS[WORKLOADS].path(name, namespace, "status")
        obj = await self._apply(path, body)
        if obj is not None:
            self.feed(Seen(WORKLOADS, obj))
        self.feed(Written(effect.key, done=obj is not None))

    async def _activate(self, effect: Activate) -> None:
        metadata = {"name": effect.name}
        body = _object("AdmissionCheck", metadata, effect.version, conditions=[effect.condition])
        await self._apply(COLLECTIONS[CHECKS].path(effect.name, subresource="status"), body)

    async def _apply(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The object as it is then; None where it was not written."""
        if not self._may_write():
            return None
        try:
            found: dict[str, Any] = await self._client.request(
                "PATCH",
                path,
                body=body,
                params={"fieldManager": _MANAGER, "force": "true"},
                content_type=APPLY,
            )
        except errors.KubeError as error:
            # It has changed meanwhile, or is gone: the watch tells.
            tell = logger.debug if error.status in (404, 409) else logger.warning
            tell("cannot write %s: %s", path, error)
            return None
        return found


def _object(kind: str, metadata: dict[str, str], version: str, **status: Any) -> dict[str, Any]:
    """What is applied; an object of another version is refused."""
    return {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": kind,
        "metadata": {**metadata, "resourceVersion": version},
        "status": status,
    }
