"""Whom what has happened may help, and which pods share their fate (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Help, Kind
from rte.scheduler.loop.gangs.unit import is_placed_as_one
from rte.scheduler.queue.waiting import UnitKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.cache.intake import Intake
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.loop.binding import Binding
    from rte.scheduler.loop.bulkheads import Bulkheads
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.gangs import Gangs
    from rte.scheduler.loop.messages import Effect, Timers
    from rte.scheduler.loop.room.making_room import MakingRoom
    from rte.scheduler.loop.telling import Telling
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import EquivalenceClass


class Fates:
    """Which waiting pods share their fate.

    Args:
        cluster: what is known.
        queue: who waits.

    Attributes:
        labels: keys of those that tell pods apart: required anti-affinity of placed pods looks at
            them.
    """

    def __init__(self, cluster: Cluster, queue: SchedulingQueue) -> None:
        self._cluster, self._queue = cluster, queue
        self.labels: frozenset[str] = frozenset()

    def key(self, pod: PodView) -> UnitKey:
        """Pods with equal keys share their fate."""
        if pod.gang is not None and is_placed_as_one(self._cluster, pod):
            return UnitKey(gang=pod.gang)
        seen = sorted(self.labels & pod.labels.keys()) if self.labels else ()
        return UnitKey(
            shape=pod.shape.key,
            preempts=pod.preempts,
            alone=pod.uid if pod.uid in self._cluster.promises else "",
            devices=self._cluster.devices.fate(pod) if pod.shape.device_claims else b"",
            labels=tuple((name, pod.labels[name]) for name in seen),
        )

    def look_at(self, labels: frozenset[str], bulkheads: Bulkheads) -> None:
        """These labels tell waiting pods apart from now on, and no others."""
        changed, self.labels = self.labels ^ labels, labels
        if not changed:
            return
        for record in self._queue:
            if not changed.isdisjoint(record.pod.labels):
                with bulkheads.guard("keys", record.pod.key):
                    self._queue.regroup(record.pod.uid, self.key(record.pod))


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a turn works with.

    Attributes:
        cluster: what is known.
        cycle: the rules.
        queue: who waits.
        fates: who shares whose.
        intake: how far watches have come.
        binding: puts decisions in force.
        room: makes room for single pods.
        gangs: who is placed together.
        telling: tells users why pods wait.
        timers: deadlines.
        bulkheads: puts aside what raises.
        effects: what is to be done is added there.
    """

    cluster: Cluster
    cycle: Cycle
    queue: SchedulingQueue
    fates: Fates
    intake: Intake
    binding: Binding
    room: MakingRoom
    gangs: Gangs
    telling: Telling
    timers: Timers
    bulkheads: Bulkheads
    effects: list[Effect]


class Waking:
    """Wakes the pods that the changes of the cluster can help.

    Args:
        parts: what it works with.

    Attributes:
        listeners: told of what has changed in the cluster.
    """

    def __init__(self, parts: Parts) -> None:
        self._cluster, self._cycle, self._queue = parts.cluster, parts.cycle, parts.queue
        self._fates, self._gangs, self._room = parts.fates, parts.gangs, parts.room
        self._bulkheads = parts.bulkheads
        self.listeners: list[Callable[[Sequence[ClusterEvent]], None]] = []

    def wake(
        self,
        now: float,
        deciding: EquivalenceClass | None,
        review: Callable[[str, float], None],
    ) -> None:
        """Tell what has changed to whom it may help.

        Args:
            now: seconds of the machine's clock.
            deciding: the gang about which something is being found out.
            review: looks at what is promised to a pod.
        """
        cluster = self._cluster
        # While a label is looked at, before or after the events, it tells pods apart.
        seen = frozenset(cluster.matches.refusing.labels)
        if not cluster.events and seen == self._fates.labels:
            return
        self._fates.look_at(seen | self._fates.labels, self._bulkheads)
        while events := cluster.drain():
            for listen in self.listeners:
                with self._bulkheads.guard("listeners", getattr(listen, "__qualname__", "")):
                    listen(events)
            if deciding is not None and self._helps_any(events, deciding):
                # What is being found out about it may be otherwise by now.
                deciding.seen = -1
            self._regroup(events, now)
            names = {event.node for event in events}
            self._room.note(events)
            for name in names & self._room.unsettled.keys():
                with self._bulkheads.guard("preemption", name):
                    self._room.changed(name)
            for uid, promise in list(cluster.promises.items()):
                if promise.places[uid] in names and uid in self._queue.records:
                    review(uid, now)
            self._queue.wake(events, self._helps, self._rooms, cluster.sequence, now)
        self._fates.look_at(seen, self._bulkheads)

    def _regroup(self, events: Sequence[ClusterEvent], now: float) -> None:
        """A pod whose own claim of devices has changed may not share the fate of others."""
        for event in events:
            for path in event.claims if event.kind & Kind.DEVICES else ():
                known = self._cluster.devices.claims.get(path)
                record = self._queue.records.get(known.owner) if known else None
                if record is not None and record.pod.uid in self._queue:
                    with self._bulkheads.guard("keys", record.pod.key):
                        self._queue.push(record.pod, self._fates.key(record.pod), now)

    def _helps_any(self, events: Sequence[ClusterEvent], group: EquivalenceClass) -> bool:
        return bool(group.head()) and any(self._helps(event, group) for event in events)

    def _helps(self, event: ClusterEvent, group: EquivalenceClass) -> Help:
        with self._bulkheads.guard("hints", group.first().key):
            if group.key.gang is not None:
                return self._gangs.helps(event, group.first())
            return self._cycle.helps(event, group)
        return Help.ANY  # it raises: a decision tells, and who is at fault

    def _rooms(self, event: ClusterEvent, refused_by: frozenset[str]) -> Sequence[Room] | None:
        with self._bulkheads.guard("hints", event.node):
            return self._cycle.rooms(event, refused_by)
        return None
