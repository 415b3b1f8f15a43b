"""Faults that are planted by name, so that it is known what the world finds.

Each is a small substitution: a function of one path is replaced by a wrong one. They are chosen by
kind (what goes wrong in such programs), not by what the invariants happen to look at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.world.plant import Plant, answers, async_nothing, does_nothing, unless, value
from tests.world.planted_more import MORE
from tests.world.planted_third import THIRD
from tests.world.substitution import find

if TYPE_CHECKING:
    from collections.abc import Callable


def _kind(*names: str) -> Callable[..., bool]:
    """Whether an event of the cluster is of one of these kinds."""

    def is_one(_cluster: Any, kinds: Any, *_args: Any, **_kwargs: Any) -> bool:
        return any(name in str(kinds) for name in names)

    return is_one


def _assume_only(right: Any) -> Any:
    def assume(self: Any, uid: str, name: str, written: Any = None) -> None:
        self.assumed[uid] = name
        self._written[uid] = written or {}
        self.unnominate(uid)

    return assume


def _only_renew_time(right: Any) -> Any:
    async def renew(self: Any) -> None:
        client = self._client
        patch = client.patch

        async def pruned(path: str, body: Any, **more: Any) -> Any:
            return await patch(path, {"spec": {"renewTime": body["spec"]["renewTime"]}}, **more)

        client.patch = pruned
        try:
            await right(self)
        finally:
            del client.patch

    return renew


def _first_terminal_stays(right: Any) -> Any:
    def node_pod(obj: Any) -> Any:
        import dataclasses

        return dataclasses.replace(right(obj), terminal=False)

    return node_pod


def _no_versions(right: Any) -> Any:
    async def write(self: Any, lease: Any, holder: str) -> bool:
        metadata = {k: v for k, v in lease["metadata"].items() if k != "resourceVersion"}
        return bool(await right(self, {**lease, "metadata": metadata}, holder))

    return write


def _never_stale(right: Any) -> Any:
    def set_pod(self: Any, pod: Any, now: float, as_of: int = 0) -> bool:
        import dataclasses

        old = self.pods.get(pod.uid)
        newer = old.version + 1 if old is not None and pod.version < old.version else pod.version
        return bool(right(self, dataclasses.replace(pod, version=newer), now, as_of))

    return set_pod


def _keeps(right: Any) -> Any:
    """What is removed from the queue stays in it as well."""

    def remove(self: Any, uid: str) -> Any:
        record = right(self, uid)
        if record is not None:
            self.records[f"{uid}~"] = record
        return record

    return remove


def _refused_last(right: Any) -> Any:
    def pop(self: Any, now: float = 0.0, *, quick: bool = False) -> Any:
        self._turn_of_refused = False
        return right(self, now, quick=quick)

    return pop


_FIRST: tuple[Plant, ...] = (
    # --- lost wake-ups ---
    Plant("reports wake nobody", "lost wake-up",
          "rte.scheduler.cache.cluster:Cluster._tell", unless(_kind("REPORT"))),
    Plant("pods that go wake nobody", "lost wake-up",
          "rte.scheduler.cache.cluster:Cluster._tell", unless(_kind("POD_GONE"))),
    Plant("taints taken away wake nobody", "lost wake-up",
          "rte.scheduler.cache.cluster:Cluster._tell", unless(_kind("NODE_TAINTS", "NODE_ADDED"))),
    Plant("the queue wakes nobody", "lost wake-up",
          "rte.scheduler.queue.queue:SchedulingQueue.wake", does_nothing),
    Plant("who backs off is never released", "lost wake-up",
          "rte.scheduler.queue.queue:SchedulingQueue.release", does_nothing),
    Plant("a new leader does not look again", "lost wake-up",
          "rte.scheduler.queue.queue:SchedulingQueue.rouse_all", does_nothing,
          unseen="who stands by hears the same events, which wake the same pods"),
    Plant("the agent is not told of pods that go", "lost wake-up",
          "rte.accounting.liveness:PodTable.remove", answers(False)),
    Plant("a pod's end changes nothing for the agent", "lost wake-up",
          "rte.accounting.liveness:node_pod", _first_terminal_stays),
    # --- starvation ---
    Plant("backs off for an hour", "starvation",
          "rte.scheduler.queue.queue:_backoff", answers(3600.0)),
    Plant("everybody who was refused waits behind all others", "starvation",
          "rte.scheduler.queue.queue:SchedulingQueue.pop", _refused_last,
          unseen="the queue runs empty between arrivals: who is last has a turn all the same"),
    # --- double promises ---
    Plant("an assumed pod takes no room", "double promise",
          "rte.scheduler.cache.cluster:Cluster.assume", _assume_only),
    Plant("pods in flight are forgotten", "double promise",
          "rte.scheduler.framework.node:NodeEntry.add", unless(lambda _, pod: not pod.started)),
    Plant("a device is promised twice", "double promise",
          "rte.scheduler.framework.claims.devices:Devices.promise", does_nothing),
    Plant("claims of others do not count", "double promise",
          "rte.placement.dra.structured.usage:Usage.add", does_nothing),
    # --- two binders ---
    Plant("a Lease lasts for ever", "two binders",
          "rte.scheduler.shell.leader:Leader.left_s",
          lambda _: lambda self: math.inf if self._active else 0.0),
    Plant("every other holder is dead", "two binders",
          "rte.scheduler.shell.leader:Leader._is_dead", answers(True)),
    Plant("the Lease is written whoever has written since", "two binders",
          "rte.scheduler.shell.leader:Leader._write", _no_versions),
    Plant("a new leader does not list", "two binders",
          "rte.scheduler.shell.feeds:Feeds.relist", async_nothing),
    # --- stale reads ---
    Plant("an older pod counts", "stale read",
          "rte.scheduler.cache.cluster:Cluster.set_pod", _never_stale),
    Plant("what a list lacks stays", "stale read",
          "rte.scheduler.cache.intake:Intake.listed", answers([])),
    Plant("a watch does not notice a restored server", "stale read",
          "rte.kube.watch:_later", lambda _: lambda known, told: told or known),
    Plant("a watch never lists again", "stale read",
          "rte.kube.watch:_still_good", lambda _: lambda p, n, version, known: (version, known)),
    # --- dead ones are trusted ---
    Plant("silent agents are never judged", "trust",
          "rte.scheduler.cache.intake:Intake.judge_leases", does_nothing),
    Plant("an agent is dead after 40,000 s", "wrong unit",
          "rte.scheduler.cache.intake:AGENT_DEAD_S", value(40_000.0)),
    Plant("only the time of a Lease is renewed (A3)", "trust",
          "rte.kube.lease:Heartbeat.renew", _only_renew_time),
    Plant("a restarted kubelet is synced at once", "trust",
          "rte.agent.observer.learning:KubeletRestart.check", lambda _: lambda self, *a: (
              setattr(self, "synced", True) or "")),
    Plant("a restart is not noticed", "trust",
          "rte.agent.observer.learning:KubeletRestart.notice",
          unless(lambda self, epoch, *_: bool(self.epoch), answer=False)),
    # --- leaks ---
    Plant("the queue keeps who has left", "leak",
          "rte.scheduler.queue.queue:SchedulingQueue.remove", _keeps),
    Plant("tombstones stay", "leak",
          "rte.scheduler.framework.node:NodeEntry.forget_buried", does_nothing),
    Plant("the agent remembers all that ended", "leak",
          "rte.accounting.liveness:PodTable.retain", answers(None)),
    # --- wrong units ---
    Plant("memory in KiB", "wrong unit",
          "rte.model.quantity:parse_resource", lambda right: lambda name, text: (
              right(name, text) // 1024 if name == "memory" else right(name, text))),
)  # fmt: skip


#: All of them.
PLANTS = (*_FIRST, *MORE, *THIRD)


def missing() -> list[str]:
    """Planted faults whose name is gone, one line each."""
    out = []
    for plant in PLANTS:
        try:
            plant.wrong(find(plant.path)[2])
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it is what is told
            out.append(f"{plant.name}: {error}")
    return out


def by_name(name: str) -> Plant | None:
    """The planted fault of that name; None for no name."""
    return next(plant for plant in PLANTS if plant.name == name) if name else None
