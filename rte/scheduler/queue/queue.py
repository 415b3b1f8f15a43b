"""Who waits, in which order, and who is worth another look.

The queue holds *groups*: all waiting pods of one shape, priority and label set. They share their
fate, so only the first of a group is tried; when it cannot be placed the group sleeps until an
event that can help it, and then only changed nodes are looked at, if the event speaks of one alone.
Nothing polls, so nothing spins.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from rte.scheduler.queue.group import Group
from rte.scheduler.queue.sleepers import Sleepers
from rte.scheduler.queue.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rte.scheduler.framework.events import ClusterEvent, Kind
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.room import Room
    from rte.scheduler.queue.group import Order

    #: Whether the event can help the group; None: any node may have changed its answer.
    Helps = Callable[[ClusterEvent, Group], bool | None]
    #: All of them hold a pod refused by these plugins that is helped; None: that is open.
    RoomsOf = Callable[[ClusterEvent, frozenset[str]], Sequence[Room] | None]

    _Heap = list[tuple[Order, int, Group]]

#: Waiting time after a failed bind (not after "does not fit": that waits for an event).
FIRST_BACKOFF_S = 0.1
MOST_BACKOFF_S = 10.0


class Queue:
    """All pods that wait for us: active, unschedulable until an event, or backing off.

    Args:
        takes_long: whether decisions about groups of that key take long.

    Attributes:
        records: UID -> record; a pod that was decided keeps its own until it is bound.
    """

    def __init__(self, takes_long: Callable[[bytes], bool] = lambda _: False) -> None:
        self._takes_long = takes_long
        self.records: dict[str, Waiting] = {}
        self._groups: dict[bytes, Group] = {}
        #: Those of which decisions are quick, and those of which they take long.
        self._active: tuple[_Heap, _Heap] = [], []
        self._asleep: dict[tuple[Kind, frozenset[str]], Sleepers] = {}
        #: Groups that will look only at the nodes that have changed since they fell asleep.
        self._half_awake: dict[tuple[Kind, frozenset[str]], dict[bytes, Group]] = {}
        self._backoff: list[tuple[float, str]] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self.records)

    def __contains__(self, uid: str) -> bool:
        """Whether the pod waits: in a group, or backing off."""
        record = self.records.get(uid)
        return record is not None and (record.due is not None or self.group_of(uid) is not None)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self.records.values()))

    def group_of(self, uid: str) -> Group | None:
        """The group in which the pod waits; None while it backs off or does not wait."""
        record = self.records.get(uid)
        group = self._groups.get(record.key) if record else None
        return group if group is not None and uid in group.pods else None

    def shapes(self) -> int:
        """So many groups wait."""
        return len(self._groups)

    def sizes(self) -> dict[str, int]:
        """Pods by queue, in kube-scheduler's terms."""
        asleep = sum(len(group.pods) for group in self._groups.values() if group.sleeping)
        waiting = sum(len(group.pods) for group in self._groups.values())
        return {
            "active": waiting - asleep,
            "backoff": sum(1 for record in self.records.values() if record.due is not None),
            "unschedulable": asleep,
        }

    def asleep(self) -> list[Group]:
        """Groups that wait for an event."""
        return [group for group in self._groups.values() if group.sleeping and group.head()]

    def push(self, pod: PodView, key: bytes, now: float = 0.0) -> Waiting:
        """A pod waits (again); its place is by priority, then by age. Replaces an older view."""
        record = self.records.get(pod.uid)
        if record is None:
            self._counter += 1
            record = self.records[pod.uid] = Waiting(pod, now, self._counter)
        record.pod, before = pod, record.key
        if record.due is not None:
            record.key = key
            return record
        group = self._groups.get(before)
        if group is not None and pod.uid in group.pods:
            if before == key:
                return record
            self._leave(record)
        record.key = key
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        first = group.head()
        heapq.heappush(group.heap, (record.order, pod.uid))
        group.pods[pod.uid] = record
        if not group.sleeping and group.head() is not first:
            self._activate(group)
        return record

    def decided(self, uid: str) -> None:
        """The pod has a place: it keeps its record until the bind is known to have come true."""
        record = self.records.get(uid)
        if record is not None:
            record.due = None
            self._leave(record)

    def remove(self, uid: str) -> Waiting | None:
        """The pod does not wait any more (bound, deleted, or not ours)."""
        record = self.records.get(uid)
        if record is not None:
            self._leave(record)
            del self.records[uid]
        return record

    def _leave(self, record: Waiting) -> None:
        group = self._groups.get(record.key)
        if group is None or group.pods.pop(record.pod.uid, None) is None:
            return
        if not group.pods:
            del self._groups[group.key]
            self._out_of_sleep(group)
            self._wide_awake(group)
        elif not group.sleeping:
            self._activate(group)

    def pop(self, *, quick: bool = False) -> Group | None:
        """The active group whose head is first in order; it stays in the queue.

        ``quick``: of those of which decisions do not take long.
        """
        heaps = [heap for heap in self._active[: 1 if quick else 2] if self._is_active(heap)]
        first = min(heaps, key=lambda heap: heap[0][:2], default=None)
        return heapq.heappop(first)[2] if first is not None else None

    def is_idle(self, *, quick: bool = False) -> bool:
        """Whether nobody is active; ``quick``: see :meth:`pop`."""
        return not any(map(self._is_active, self._active[: 1 if quick else 2]))

    def _is_active(self, heap: _Heap) -> bool:
        """Whether anybody is; who is not any more, or not in this place, is dropped."""
        while heap:
            order, _, group = heap[0]
            current = self._groups.get(group.key) is group
            if current and not group.sleeping and group.head() and group.order() == order:
                return True
            heapq.heappop(heap)
        return False

    def again(self, group: Group) -> None:
        """Keep the group active: its next pod has a turn."""
        if group.head() and not group.sleeping:
            self._activate(group)

    def sleep(
        self,
        group: Group,
        refused_by: frozenset[str],
        kinds: Kind,
        waits_on: frozenset[str] = frozenset(),
    ) -> None:
        """No node takes the group's pods as things are.

        Args:
            group: whose head was tried.
            refused_by: names of the plugins that refused it, this time or before.
            kinds: of events that can end that.
            waits_on: nodes where only what passes by itself stands in the way.
        """
        if self._groups.get(group.key) is not group:
            return  # its pods are gone
        self._wide_awake(group)
        group.sleeping, group.refused_by, group.kinds = True, refused_by, kinds
        group.waits_on = waits_on
        alike = self._asleep.get((kinds, refused_by))
        if alike is None:
            alike = self._asleep[kinds, refused_by] = Sleepers(refused_by, kinds)
        alike.add(group)

    def wake(
        self, events: Sequence[ClusterEvent], helps: Helps, rooms: RoomsOf, sequence: int
    ) -> None:
        """Wake the groups that can be helped.

        Args:
            events: what has happened.
            helps: whether one of them can help a group.
            rooms: which groups that has to be asked of.
            sequence: of the cluster after the events.
        """
        self._widen(events, helps, rooms)
        for alike in list(self._asleep.values()):
            afresh: dict[bytes, Group] = {}
            helped: dict[bytes, Group] = {}
            kinds = alike.kinds.value
            for event in events:
                if not event.kind.value & kinds:
                    continue
                for group in alike.worth_asking(rooms(event, alike.refused_by), event.node):
                    if group.key in afresh:
                        continue
                    said = helps(event, group)
                    if said is None or (said and not event.node):
                        afresh[group.key] = group
                    elif said:
                        group.helped.add(event.node)
                        helped[group.key] = group
            for key, group in {**helped, **afresh}.items():
                if group.seen >= 0:
                    group.seen = sequence
                self._rouse(group, afresh=key in afresh)

    def _widen(self, events: Sequence[ClusterEvent], helps: Helps, rooms: RoomsOf) -> None:
        """Groups that have not had their turn since they were woken look at more nodes."""
        for (kinds, refused_by), alike in list(self._half_awake.items()):
            for event in events:
                if not event.kind.value & kinds.value or rooms(event, refused_by) is not None:
                    continue
                for group in list(alike.values()):
                    said = helps(event, group)
                    if said and event.node:
                        group.helped.add(event.node)
                    elif said is not False:
                        self._wide_awake(group)
                        _forget_refusals(group)

    def rouse(self, uid: str) -> None:
        """Look at the pod's group again, over all nodes."""
        group = self.group_of(uid)
        if group is not None:
            if group.sleeping:
                self._rouse(group, afresh=True)
            group.seen = -1

    def rouse_all(self) -> None:
        """Look at everything again (another replica may have decided meanwhile)."""
        for group in list(self._groups.values()):
            if group.sleeping:
                self._rouse(group, afresh=True)

    def _rouse(self, group: Group, *, afresh: bool) -> None:
        self._out_of_sleep(group)
        if afresh:
            _forget_refusals(group)
        else:
            self._half_awake.setdefault((group.kinds, group.refused_by), {})[group.key] = group
        self._activate(group)

    def _wide_awake(self, group: Group) -> None:
        alike = self._half_awake.get((group.kinds, group.refused_by))
        if alike is not None and alike.pop(group.key, None) is not None and not alike:
            del self._half_awake[group.kinds, group.refused_by]

    def _out_of_sleep(self, group: Group) -> None:
        group.sleeping = False
        alike = self._asleep.get((group.kinds, group.refused_by))
        if alike is not None:
            alike.discard(group)
            if not alike.groups:
                del self._asleep[group.kinds, group.refused_by]

    def back_off(self, pod: PodView, key: bytes, now: float) -> float:
        """A bind has failed: the pod waits for some time; the moment of its return is returned."""
        record = self.push(pod, key, now)
        self._leave(record)
        wait = FIRST_BACKOFF_S * float(1 << min(record.failures, 16))
        record.failures += 1
        record.due = now + min(MOST_BACKOFF_S, wait)
        heapq.heappush(self._backoff, (record.due, pod.uid))
        return record.due

    def release(self, now: float) -> float | None:
        """Pods whose waiting time is over wait normally; when the next one's is, or None."""
        while self._backoff:
            until, uid = self._backoff[0]
            record = self.records.get(uid)
            if record is None or record.due != until:
                heapq.heappop(self._backoff)
            elif until <= now:
                heapq.heappop(self._backoff)
                record.due = None
                self.push(record.pod, record.key, now)
                # Its likes may have been refused meanwhile; it was not.
                self.rouse(uid)
            else:
                return until
        return None

    def _activate(self, group: Group) -> None:
        if group.head() is not None:
            self._counter += 1
            heap = self._active[self._takes_long(group.key)]
            heapq.heappush(heap, (group.order(), self._counter, group))


def _forget_refusals(group: Group) -> None:
    """The group looks at all nodes again."""
    group.seen, group.refused_by, group.waits_on = -1, frozenset(), frozenset()
    group.helped = set()
