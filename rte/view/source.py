"""A living cluster for the page: what changed since the last look, and what was before."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Protocol

from rte.view import model
from rte.view.history import History

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.loop.cycle import Cycle

#: Seconds between two looks at the cluster, with and without somebody who watches.
_LOOK_S, _IDLE_S = 0.25, 2.0
#: Most of a processor that looking may cost: in large clusters there is a longer rest between.
_MOST_LOAD = 0.03
#: Changes that wait for a slow listener; one that is slower begins anew.
_MOST_QUEUED = 64
#: Nodes that are described anew at one look: a bound on what the page costs its scheduler.
_MOST_NODES = 100
#: Seconds between two points of the curves.
_SAMPLE_S = 5.0
#: Waiting pods that are shown; of the others the number.
MOST_WAITING = 200


class ViewKnown(Protocol):
    """What a source reads: a scheduler, or a follower that decides nothing."""

    @property
    def cluster(self) -> Cluster:
        """All that is known."""

    @property
    def cycle(self) -> Cycle:
        """The rules."""


class ViewSource:
    """Looks at the cluster while somebody runs it; hands out what is shown.

    Args:
        known: the cluster.
        clock: Unix time.
        remark: a line that is shown beside the counts; empty: none.
    """

    def __init__(
        self,
        known: ViewKnown,
        *,
        clock: Callable[[], float] = time.time,
        remark: Callable[[], str] = str,
    ) -> None:
        self.known = known
        self.history = History()
        self._clock = clock
        self._remark, self._remarked = remark, ""
        self._nodes: dict[str, JsonObject] = {}
        self._machines: dict[str, JsonObject] = {}
        self._waiting: list[JsonObject] = []
        self._waits = 0
        self._sequence = 0
        self._late: dict[str, None] = {}
        self._device_versions: dict[str, int] = {}
        self._sampled = 0.0
        self._listeners: set[asyncio.Queue[JsonObject]] = set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            began = time.perf_counter()
            self.look()
            took = time.perf_counter() - began
            rest = _LOOK_S if self._listeners else _IDLE_S
            await asyncio.sleep(max(rest, took / _MOST_LOAD))

    def look(self) -> JsonObject | None:
        """Take in what has changed; the change as listeners get it, None if there is none."""
        now = self._clock()
        nodes = self._changed_nodes()
        waiting = self._waiting_pods()
        fresh = {
            each["machine"]: self._machines[each["machine"]]
            for each in nodes.values()
            if each is not None and "machine" in each
        }
        change: JsonObject = {}
        if nodes or waiting != self._waiting:
            decisions = self._decisions(now, nodes, waiting)
            self.history.decisions.extend(decisions)
            self._waiting = waiting
            for name, each in nodes.items():
                if each is None:
                    self._nodes.pop(name, None)
                else:
                    self._nodes[name] = each
            self.history.record(now, nodes, waiting)
            change = {
                "at": now,
                "nodes": nodes,
                "machines": fresh,
                "waiting": waiting,
                "waits": self._waits,
                "decisions": decisions,
            }
        if self._nodes and now - self._sampled >= _SAMPLE_S:
            self._sampled = now
            point = {"at": now, **model.sample(self._nodes.values(), self._waits)}
            self.history.samples.append(point)
            change |= {"at": now, "sample": point}
        remark = self._remark()
        if remark != self._remarked:
            self._remarked = remark
            change |= {"at": now, "remark": remark}
        if change:
            for listener in tuple(self._listeners):
                self._tell(listener, change)
        return change or None

    def snapshot(self) -> JsonObject:
        """Everything that the page shows at first."""
        return {
            "at": self._clock(),
            "begins": self.history.begins,
            "nodes": [self._nodes[name] for name in sorted(self._nodes)],
            "machines": self._machines,
            "waiting": self._waiting,
            "waits": self._waits,
            "samples": list(self.history.samples),
            "decisions": list(self.history.decisions)[-200:],
            "remark": self._remarked,
            "live": True,
        }

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[asyncio.Queue[JsonObject]]:
        """Changes from now on."""
        queue: asyncio.Queue[JsonObject] = asyncio.Queue(_MOST_QUEUED)
        self.look()
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def _tell(self, listener: asyncio.Queue[JsonObject], change: JsonObject) -> None:
        if listener.full():
            while not listener.empty():
                listener.get_nowait()
            change = {"reload": True}
        listener.put_nowait(change)

    def _changed_nodes(self) -> dict[str, JsonObject | None]:
        cluster = self.known.cluster
        for entry in reversed(cluster.changed_since(self._sequence)):
            self._late[entry.name] = None
        self._sequence = cluster.sequence
        fleet = cluster.devices.fleet
        for name, version in self._device_versions.items():
            if version != fleet.version(name):
                self._late[name] = None
        for name in self._nodes.keys() - cluster.nodes.keys():
            self._late[name] = None
        out: dict[str, JsonObject | None] = {}
        first = not self._nodes
        while self._late and (first or len(out) < _MOST_NODES):
            name = next(iter(self._late))
            del self._late[name]
            out[name] = self._describe(name)
            if out[name] == self._nodes.get(name):
                del out[name]
        return out

    def _describe(self, name: str) -> JsonObject | None:
        entry = self.known.cluster.nodes.get(name)
        self._device_versions[name] = self.known.cluster.devices.fleet.version(name)
        if entry is None:
            del self._device_versions[name]
        shown = None if entry is None else self._shown(entry)
        outlook = entry.outlook() if entry is not None else None
        if shown is not None and outlook is not None:
            key = shown["machine"]
            if key not in self._machines:
                self._machines[key] = model.machine(outlook.predicted.topology)
        return shown

    def _shown(self, entry: NodeEntry) -> JsonObject | None:
        return model.node(entry, self.known.cluster.devices, self.known.cycle)

    def _waiting_pods(self) -> list[JsonObject]:
        cluster = self.known.cluster
        pods = [
            pod
            for pod in cluster.pods.values()
            if not (pod.node or pod.terminal or pod.uid in cluster.assumed)
        ]
        pods.sort(key=lambda pod: (-pod.priority, pod.created, pod.key))
        self._waits = len(pods)
        return [model.waiting(pod) for pod in pods[:MOST_WAITING]]

    def _decisions(
        self, now: float, nodes: dict[str, JsonObject | None], waiting: list[JsonObject]
    ) -> list[JsonObject]:
        """Pods that have a node since the last look, and pods that wait for another reason."""
        out = []
        for name, each in nodes.items():
            before = {pod["uid"] for pod in self._nodes.get(name, {}).get("pods", ())}
            for pod in (each or {}).get("pods", ()):
                if pod["uid"] not in before:
                    zones = pod.get("zones")
                    out.append({"at": now, "pod": pod["pod"], "node": name, "zones": zones})
        told = {pod["uid"]: pod["reason"] for pod in self._waiting}
        out += [
            {"at": now, "pod": pod["pod"], "reason": pod["reason"]}
            for pod in waiting
            if pod["reason"] and told.get(pod["uid"]) != pod["reason"]
        ]
        return out
