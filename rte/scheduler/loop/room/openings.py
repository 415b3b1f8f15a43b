"""Nodes where something was freed: too little for a pod, maybe enough if others left (pure).

Who fits nowhere and could not help himself by evictions sleeps until some node takes him. A node
that has lost a pod may still not do that, and yet have come within reach: what is left there and
what less important pods hold is enough now. kube-scheduler tries such a pod again whenever a pod
ends (``fit.go``, ``isSchedulableAfterPodEvent``), here only who may gain by it, some each second.
Rules that nobody has reached yet, because room was short, may have changed as well: one pod after
the other asks all nodes again, as often as that costs little.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.plugins.default_preemption import reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import Waiting

#: Events that free something on a node.
FREES = Kind.POD_GONE | Kind.POD_CHANGED | Kind.NODE_ALLOCATABLE | Kind.NOMINATION

#: Nodes looked at in one second, and pods looked at for each of them.
_MOST_NODES, _MOST_PODS = 8, 8

#: Nodes asked in one second by pods that ask all of them again.
_ASKED = 100


class Openings:
    """Which pods may gain by which node.

    Args:
        cluster: what is known.
        queue: who waits.

    Attributes:
        freed: nodes where something was freed, in that order.
        pairs: pods that are to be looked at, and on which nodes.
    """

    def __init__(self, cluster: Cluster, queue: SchedulingQueue) -> None:
        self._cluster, self._queue = cluster, queue
        self.freed: dict[str, None] = {}
        self.pairs: deque[tuple[str, str]] = deque()
        #: Nodes for which some who may gain have not been looked at yet.
        self._rest: dict[str, list[str]] = {}
        self._credit = 0

    def second(self, now: float) -> list[Waiting]:
        """Find out who may gain by one node, and who should ask all; to be called each second."""
        heads = self._heads()
        if not heads:
            self.freed.clear()
            self._rest.clear()
        elif not self.pairs:
            for name in list(islice(self.freed, _MOST_NODES - len(self._rest))):
                del self.freed[name]
                entry = self._cluster.nodes.get(name)
                if entry is not None and entry.info is not None:
                    self._rest[name] = list(_gaining(heads, entry))
            for name in list(self._rest):
                gaining = self._rest.pop(name)
                self.pairs += [(uid, name) for uid in gaining[:_MOST_PODS]]
                if len(gaining) > _MOST_PODS:
                    self._rest[name] = gaining[_MOST_PODS:]
        nodes = len(self._cluster.nodes)
        self._credit = min(self._credit + _ASKED, max(_ASKED, nodes)) if heads else 0
        asking = heads[: self._credit // nodes] if nodes else []
        self._credit -= nodes * len(asking)
        for head in asking:
            head.looked_at = now
        return asking

    def _heads(self) -> list[Waiting]:
        """Who might help himself by evictions; first who has asked longest ago."""
        found = [
            head
            for group in self._queue.asleep()
            if group.key.gang is None and (head := group.head()) is not None
            if head.pod.preempts
            and head.pod.uid not in self._cluster.promises
            and not head.evicting
            and self._cluster.has_lower(head.pod.priority)
        ]
        return sorted(found, key=lambda head: (head.looked_at, head.order))

    def take(self) -> tuple[Waiting, str] | None:
        """The next pod to be looked at, and the node; None: it waits no more."""
        uid, name = self.pairs.popleft()
        record = self._queue.records.get(uid)
        return None if record is None else (record, name)


def _gaining(heads: Iterable[Waiting], entry: NodeEntry) -> Iterator[str]:
    """UIDs of those whom the node's totals would hold without less important pods."""
    free: dict[int, dict[str, int] | None] = {}
    for head in heads:
        pod = head.pod
        if pod.priority not in free:
            free[pod.priority] = reach(entry, pod.priority)
        there = free[pod.priority]
        if there and all(there.get(name, 0) >= asked for name, asked in pod.shape.totals.items()):
            yield pod.uid
