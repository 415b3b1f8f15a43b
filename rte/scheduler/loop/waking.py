"""Whom what has happened may help (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Help, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.room import Room
    from rte.scheduler.loop.parts import Parts
    from rte.scheduler.queue.waiting import EquivalenceClass


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
            with self._bulkheads.guard("preemption", "events"):
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
