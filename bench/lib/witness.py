"""A second view of a cluster that notices pods which wait although a place is there.

It follows the same collections as a scheduler of ours, learns its decisions from its log, and asks
the same rules on a state of its own: it notices a pod that the queue has forgotten, or that is
looked at too late. What it finds is held against what the scheduler itself says (``/explain``): a
reservation, a pod in flight and a node being read afresh are reasons to wait that have a name.

Time in which the scheduler ran, or was runnable without getting a CPU, is told apart: it says how
loaded the machine is, not whether a pod was overlooked.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from bench.lib import rejections
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.intake import Intake
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.messages import Gone, Listed, Seen
from rte.scheduler.settings import AGENT_LEASE_LABELS, SchedulerSettings
from rte.scheduler.shell.feeds import Feeds
from rte.telemetry.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.scheduler.framework.objects import PodView

#: A pod may wait for so long after the event that has made room for it.
LATE_S = 0.2

#: Time between two looks.
_LOOK_S = 0.03


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """The scheduler that is watched.

    Attributes:
        name: pods with this ``spec.schedulerName`` are its own.
        kubeconfig: how the API server is reached.
        address: where it answers ``/explain``.
        log: its debug log, in JSON.
        pid: of its process.
    """

    name: str
    kubeconfig: Path
    address: str
    log: Path
    pid: int

    def busy_s(self) -> float:
        """Seconds so far in which it ran or waited for a CPU."""
        try:
            ran, waited, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        except OSError:  # it has ended
            return 0.0
        return (int(ran) + int(waited)) / 1e9


@dataclass
class Late:
    """A pod that waited although a place was there.

    Attributes:
        pod: its name; ``nodes`` took it for ``seconds`` on end.
        idle: how long of that the scheduler was idle.
        why: what it said to that, by node, if it was ``asked``.
        named: each of these is a reason to wait.
    """

    pod: str
    namespace: str
    nodes: tuple[str, ...]
    seconds: float = 0.0
    idle: float = 0.0
    asked: bool = False
    why: Mapping[str, str] = field(default_factory=dict)
    named: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain values, with the verdict; ``why`` only where it was asked."""
        told = {"why": self.why, "named": self.named} if self.asked else {}
        return {
            "pod": self.pod,
            "nodes": list(self.nodes),
            "seconds": self.seconds,
            "idle": self.idle,
            **told,
            "fault": self.is_fault,
        }

    @property
    def is_fault(self) -> bool:
        """Nothing excuses it: there was time enough, and no reason."""
        return self.is_suspicious and not self.named

    @property
    def is_suspicious(self) -> bool:
        """The scheduler was mostly idle, for long enough."""
        return self.idle > max(LATE_S, self.seconds / 2)


def takers(cluster: Cluster, cycle: Cycle, pod: PodView) -> list[str]:
    """Nodes that take the pod now: nothing in flight and no reservation forbids it."""
    if cycle.problem(pod).reason:
        return []
    around = cycle.around(pod)
    return [
        entry.name
        for entry in cluster.nodes.values()
        if entry.info is not None and not cycle.check(entry, pod, around).reason
    ]


def reasons(answer: Mapping[str, Any], nodes: Sequence[str]) -> tuple[dict[str, str], bool]:
    """What the scheduler says of the nodes (an answer of ``/explain``), and whether it is a reason.

    A bind that is under way, or done by now, is none: it came too late.
    """
    if answer.get("bound"):
        return {answer["bound"]: "bound by now"}, False
    said = {item["node"]: item for item in answer.get("nodes", ())}
    why, named = {}, True
    for name in nodes:
        item = said.get(name)
        why[name] = "it is not known" if item is None else item["reason"] or "it fits"
        named = named and item is not None and item["waits"]
    return why, named


class Watch:
    """Looks at all pods that wait for one scheduler, whatever queue it keeps them in.

    Attributes:
        found: every lateness so far.
    """

    def __init__(self, cluster: Cluster, scheduler: str) -> None:
        self._cluster = cluster
        self._cycle = Cycle(cluster)
        self._scheduler = scheduler
        self._since: dict[str, tuple[float, float]] = {}
        self._late: dict[str, Late] = {}
        self.found: list[Late] = []

    def decided(self, uid: str, node: str) -> None:
        """The scheduler has given the pod a place."""
        pod = self._cluster.pods.get(uid)
        if pod is not None and not pod.node:
            self._cluster.forget(uid)
            self._cluster.assume(uid, node)

    def look(self, now: float, busy: float) -> None:
        """Keep up what is known of each pod that waits.

        ``busy``: seconds so far in which the scheduler was not idle.
        """
        before, self._since = self._since, {}
        for pod in list(self._cluster.pending(self._scheduler)):
            nodes = () if pod.gated or pod.deleting else takers(self._cluster, self._cycle, pod)
            if not nodes:
                continue
            since = self._since[pod.uid] = before.get(pod.uid, (now, busy))
            seconds = now - since[0]
            late = self._late.get(pod.uid)
            if late is None and seconds > LATE_S:
                late = self._late[pod.uid] = Late(pod.name, pod.namespace, tuple(nodes))
                self.found.append(late)
            if late is not None:
                late.seconds = round(seconds, 3)
        for uid, late in list(self._late.items()):
            # A wait for a CPU is counted when it ends: after the decision that ends the lateness.
            begun = self._since[uid][1] if uid in self._since else before[uid][1]
            late.idle = round(max(0.0, late.seconds - (busy - begun)), 3)
            if uid not in self._since:
                del self._late[uid]

    def to_ask(self) -> list[Late]:
        """Those of which the scheduler should say why; asked once, for it takes it time."""
        due = [late for late in self._late.values() if late.is_suspicious and not late.asked]
        for late in due:
            late.asked = True
        return due


def _take(intake: Intake, event: Seen | Gone | Listed) -> None:
    now = time.monotonic()
    match event:
        case Seen():
            intake.seen(event.collection, event.obj, now, age_s=event.age_s)
        case Gone():
            intake.gone(event.collection, event.key, now)
        case Listed():
            for key in intake.listed(event.collection, event.keys, event.version):
                intake.gone(event.collection, key, now)


class Witness:
    """Runs in a thread of its own.

    Attributes:
        late: what it has found so far.
    """

    def __init__(self, suspect: Suspect) -> None:
        self._suspect = suspect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()
        self._failure: BaseException | None = None
        self.late: list[Late] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look while the block runs."""
        thread = threading.Thread(target=self._work, name="witness")
        thread.start()
        self._begun.wait()
        try:
            yield
        finally:
            if self._loop is not None and self._task is not None and self._failure is None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._failure = error
        finally:
            self._begun.set()

    async def _run(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        cluster = Cluster()
        watch = Watch(cluster, self._suspect.name)
        self.late = watch.found
        intake = Intake(cluster)
        agents = (SchedulerSettings.agent_namespace, AGENT_LEASE_LABELS)
        async with (
            Client(credentials.load(self._suspect.kubeconfig, {})) as client,
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as group,
        ):
            faults = Quarantine()
            feeds = Feeds(
                client,
                lambda event: _take(intake, event),
                agents,
                bulkhead=lambda kind, key: faults.guard(kind, key, time.monotonic()),
            )
            feeds.start(group)
            await feeds.wait_synced()
            with self._suspect.log.open() as log:
                log.seek(0, 2)
                self._begun.set()
                rest = ""
                while True:
                    await asyncio.sleep(_LOOK_S)
                    intake.judge_leases(time.monotonic())
                    cluster.drain()
                    *lines, rest = (rest + log.read()).split("\n")
                    for decision in rejections.decisions(lines):
                        watch.decided(decision.uid, decision.node)
                    watch.look(time.monotonic(), self._suspect.busy_s())
                    for late in watch.to_ask():
                        group.create_task(self._ask(session, late))

    async def _ask(self, session: aiohttp.ClientSession, late: Late) -> None:
        query = {"namespace": late.namespace, "name": late.pod}
        url = f"http://{self._suspect.address}/explain"
        try:
            async with session.get(url, params=query) as response:
                answer = await response.json()
        except aiohttp.ClientError as error:
            late.why = {"": f"it does not answer: {error}"}
            return
        late.why, late.named = reasons(answer, late.nodes)
