"""Who waits, in which order, and who is worth another look.

The queue holds *groups*: all waiting pods of one shape, priority and label set. They share their
fate, so only the first of a group is tried; when it cannot be placed the group sleeps until an
event that can help it, and then only changed nodes are looked at, if the event speaks of one alone.
Nothing polls, so nothing spins.

Everybody gets a turn. Of groups of one priority, those that were refused and those that were not
take turns, so nobody who comes now is behind all who cannot go. A refused group backs off, as in
kube-scheduler: an event that may have changed any node's answer gives it a turn after 1 to 10 s, or
when nobody else wants one. An event that is known to help it gives it a turn at once.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Help
from rte.scheduler.queue.sleepers import Sleepers
from rte.scheduler.queue.waiting import EquivalenceClass, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rte.scheduler.framework.events import ClusterEvent, Kind
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.queue.waiting import Order, UnitKey

    #: What the event can do for the group.
    Helps = Callable[[ClusterEvent, EquivalenceClass], Help]
    #: All of them hold a pod refused by these plugins that is helped; None: that is open.
    RoomsOf = Callable[[ClusterEvent, frozenset[str]], Sequence[Room] | None]

    _Heap = list[tuple[Order, int, EquivalenceClass]]

#: Waiting time after a failed bind, and after a refusal (kube-scheduler's
#: ``podInitialBackoffSeconds`` and ``podMaxBackoffSeconds``).
FIRST_BACKOFF_S, FIRST_REST_S = 0.1, 1.0
MOST_BACKOFF_S = 10.0

#: Places of groups that were given up may stay until there are so many of them.
_SPARE = 64


class SchedulingQueue:
    """All pods that wait for us: active, unschedulable until an event, or backing off.

    Attributes:
        records: UID -> record; a pod that was decided keeps its own until it is bound.
    """

    def __init__(self) -> None:
        self.records: dict[str, Waiting] = {}
        self._groups: dict[UnitKey, EquivalenceClass] = {}
        #: By whether they were refused before, and whether they are gangs, which take long.
        self._active: dict[tuple[bool, bool], _Heap] = {
            (refused, long): [] for refused in (False, True) for long in (False, True)
        }
        #: Those that were woken while they back off, by the end of that.
        self._resting: dict[bool, list[tuple[float, int, EquivalenceClass]]] = {False: [], True: []}
        #: Whether a group that was refused before has the next turn among equals.
        self._turn_of_refused = True
        self._asleep: dict[tuple[Kind, frozenset[str]], Sleepers] = {}
        #: Groups that will look only at the nodes that have changed since they fell asleep.
        self._half_awake: dict[tuple[Kind, frozenset[str]], dict[UnitKey, EquivalenceClass]] = {}
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

    def group_of(self, uid: str) -> EquivalenceClass | None:
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

    def asleep(self) -> list[EquivalenceClass]:
        """Groups that wait for an event."""
        return [group for group in self._groups.values() if group.sleeping and group.head()]

    def push(self, pod: PodView, key: UnitKey, now: float = 0.0) -> Waiting:
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
            group = self._groups[key] = EquivalenceClass(key)
        first = group.head()
        heapq.heappush(group.heap, (record.order, pod.uid))
        group.pods[pod.uid] = record
        if not group.sleeping and group.head() is not first:
            self._activate(group)
        return record

    def regroup(self, uid: str, key: UnitKey) -> None:
        """The pod shares the fate of others than before; what is known of its own stays known."""
        before, record = self.group_of(uid), self.records[uid]
        if before is None:
            record.key = key
            return
        if before.key == key:
            return
        slept, joined = before.sleeping, self._groups.get(key)
        self.push(record.pod, key)
        group = self._groups[key]
        if not slept or (joined is not None and not joined.sleeping):
            if group.sleeping:
                self._rouse(group, afresh=True)
            self._wide_awake(group)
            _forget_refusals(group)
            return
        if joined is not None:
            self._out_of_sleep(group)
        group.unite(before)
        self._fall_asleep(group)

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

    def pop(self, now: float = 0.0, *, quick: bool = False) -> EquivalenceClass | None:
        """The group whose turn it is; it stays in the queue.

        ``quick``: of those of which decisions do not take long.
        """
        heap = self._next(now, quick=quick)
        if heap is not None:
            _, _, group = heapq.heappop(heap)
            self._turn_of_refused = not group.was_refused
            return group
        heaps = [heap for heap in self._waking(quick=quick) if heap]
        first = min(heaps, key=lambda heap: heap[0][:2], default=None)
        if first is None:
            return None
        _, _, group = heapq.heappop(first)
        group.resting = False
        return group

    def first(self, now: float, *, quick: bool = False) -> Order | None:
        """The place of the group whose turn it is; None: only such as back off want one."""
        heap = self._next(now, quick=quick)
        return heap[0][0] if heap is not None else None

    def is_idle(self, *, quick: bool = False) -> bool:
        """Whether nobody is active; ``quick``: see :meth:`pop`."""
        return not any(self._lanes(quick=quick)) and not any(self._waking(quick=quick))

    def _next(self, now: float, *, quick: bool) -> _Heap | None:
        """Where the group is that does not back off and whose turn it is."""
        for heap in self._waking(quick=quick):
            while heap and heap[0][0] <= now:
                _, _, group = heapq.heappop(heap)
                group.resting = False
                self._activate(group)
                self._drop_stale(heap)
        return min(
            filter(None, self._lanes(quick=quick)),
            key=lambda heap: (
                heap[0][0][0],
                heap[0][2].was_refused is not self._turn_of_refused,
                heap[0][:2],
            ),
            default=None,
        )

    def _lanes(self, *, quick: bool) -> Iterator[_Heap]:
        """Those who do not back off, each in order."""
        for (refused, long), heap in self._active.items():
            if long and quick:
                continue
            while heap and not self._is_due(heap[0], refused=refused):
                heapq.heappop(heap)
            yield heap

    def _is_due(self, entry: tuple[Order, int, EquivalenceClass], *, refused: bool) -> bool:
        """Whether the group is active still, and in this place."""
        order, _, group = entry
        return (
            self._is_awake(group)
            and not group.resting
            and group.order() == order
            and refused is group.was_refused
        )

    def _waking(self, *, quick: bool) -> list[list[tuple[float, int, EquivalenceClass]]]:
        """Those who were woken while they back off."""
        heaps = [heap for long, heap in self._resting.items() if not (long and quick)]
        for heap in heaps:
            self._drop_stale(heap)
        return heaps

    def _drop_stale(self, heap: list[tuple[float, int, EquivalenceClass]]) -> None:
        while heap:
            until, _, group = heap[0]
            if self._is_awake(group) and group.resting and group.rests_until == until:
                return
            heapq.heappop(heap)

    def _is_awake(self, group: EquivalenceClass) -> bool:
        current = self._groups.get(group.key) is group
        return current and not group.sleeping and group.head() is not None

    def again(self, group: EquivalenceClass) -> None:
        """Keep the group active: its turn is not over."""
        if group.head() and not group.sleeping:
            self._turn_of_refused = group.was_refused
            self._activate(group)

    def placed(self, group: EquivalenceClass) -> None:
        """One of its pods was given a place, and the next one wants a turn."""
        group.refusals = 0
        if group.head():
            self._activate(group)

    def sleep(
        self,
        group: EquivalenceClass,
        refused_by: frozenset[str],
        kinds: Kind,
        waits_on: frozenset[str] = frozenset(),
        now: float = 0.0,
    ) -> None:
        """No node takes the group's pods as things are.

        Args:
            group: whose head was tried.
            refused_by: names of the plugins that refused it, this time or before.
            kinds: of events that can end that.
            waits_on: nodes where only what passes by itself stands in the way.
            now: seconds of the machine's clock.
        """
        if self._groups.get(group.key) is not group:
            return  # its pods are gone
        self._wide_awake(group)
        group.refused_by, group.kinds, group.waits_on = refused_by, kinds, waits_on
        group.rests_until = now + _backoff(FIRST_REST_S, group.refusals)
        group.refusals, group.was_refused = group.refusals + 1, True
        self._fall_asleep(group)

    def _fall_asleep(self, group: EquivalenceClass) -> None:
        group.sleeping, group.resting = True, False
        group.names = group.first().claim_paths
        why = group.kinds, group.refused_by
        alike = self._asleep.get(why)
        if alike is None:
            alike = self._asleep[why] = Sleepers(group.refused_by, group.kinds)
        alike.add(group)

    def wake(
        self,
        events: Sequence[ClusterEvent],
        helps: Helps,
        rooms: RoomsOf,
        sequence: int,
        now: float = 0.0,
    ) -> None:
        """Wake the groups that can be helped.

        Args:
            events: what has happened.
            helps: what one of them can do for a group.
            rooms: which groups that has to be asked of.
            sequence: of the cluster after the events.
            now: seconds of the machine's clock.
        """
        self._widen(events, helps, rooms)
        for alike in list(self._asleep.values()):
            afresh: dict[UnitKey, EquivalenceClass] = {}
            helped: dict[UnitKey, EquivalenceClass] = {}
            backs_off: set[UnitKey] = set()
            kinds = alike.kinds.value
            for event in events:
                if not event.kind.value & kinds:
                    continue
                for group in alike.worth_asking(rooms(event, alike.refused_by), event):
                    if group.key in afresh and group.key not in backs_off:
                        continue
                    match helps(event, group):
                        case Help.NODE if event.node:
                            group.helped.add(event.node)
                            helped[group.key] = group
                        case Help.NAMED:
                            afresh[group.key] = group
                            backs_off.discard(group.key)
                        case Help.NODE | Help.ANY if group.key not in afresh:
                            afresh[group.key] = group
                            backs_off.add(group.key)
            for key, group in {**helped, **afresh}.items():
                if group.seen >= 0:
                    group.seen = sequence
                backs_off -= helped.keys()
                group.resting = key in backs_off and now < group.rests_until
                self._rouse(group, afresh=key in afresh)

    def _widen(self, events: Sequence[ClusterEvent], helps: Helps, rooms: RoomsOf) -> None:
        """Groups that have not had their turn since they were woken look at more nodes."""
        for (kinds, refused_by), alike in list(self._half_awake.items()):
            for event in events:
                if not event.kind.value & kinds.value or rooms(event, refused_by) is not None:
                    continue
                for group in list(alike.values()):
                    match helps(event, group):
                        case Help.NONE:
                            pass
                        case Help.NODE if event.node:
                            group.helped.add(event.node)
                        case _:
                            self._wide_awake(group)
                            _forget_refusals(group)

    def rouse(self, uid: str) -> None:
        """Look at the pod's group again, over all nodes."""
        group = self.group_of(uid)
        if group is not None:
            self.rouse_unit(group.key)

    def rouse_unit(self, key: UnitKey) -> bool:
        """Look at the group of that key again, over all nodes; whether there is one."""
        group = self._groups.get(key)
        if group is not None:
            rested, group.resting = group.resting, False
            if group.sleeping:
                self._rouse(group, afresh=True)
            elif rested:
                self._activate(group)
            group.seen = -1
        return group is not None

    def rouse_all(self) -> None:
        """Look at everything again (another replica may have decided meanwhile)."""
        for group in list(self._groups.values()):
            if group.sleeping:
                group.refusals, group.was_refused = 0, False
                self._rouse(group, afresh=True)

    def _rouse(self, group: EquivalenceClass, *, afresh: bool) -> None:
        self._out_of_sleep(group)
        if afresh:
            _forget_refusals(group)
        else:
            self._half_awake.setdefault((group.kinds, group.refused_by), {})[group.key] = group
        self._activate(group)

    def _wide_awake(self, group: EquivalenceClass) -> None:
        alike = self._half_awake.get((group.kinds, group.refused_by))
        if alike is not None and alike.pop(group.key, None) is not None and not alike:
            del self._half_awake[group.kinds, group.refused_by]

    def _out_of_sleep(self, group: EquivalenceClass) -> None:
        group.sleeping = False
        alike = self._asleep.get((group.kinds, group.refused_by))
        if alike is not None:
            alike.discard(group)
            if not alike.groups:
                del self._asleep[group.kinds, group.refused_by]

    def back_off(self, pod: PodView, key: UnitKey, now: float) -> float:
        """A bind has failed: the pod waits for some time; the moment of its return is returned."""
        record = self.push(pod, key, now)
        self._leave(record)
        record.due = now + _backoff(FIRST_BACKOFF_S, record.failures)
        record.failures += 1
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

    def _activate(self, group: EquivalenceClass) -> None:
        if group.head() is None:
            return
        self._counter += 1
        long = group.key.gang is not None
        if group.resting:
            heapq.heappush(self._resting[long], (group.rests_until, self._counter, group))
        else:
            heap = self._active[group.was_refused, long]
            if len(heap) > 2 * len(self._groups) + _SPARE:
                # A replica that does not lead takes nobody out, so nothing else drops who left.
                due = {
                    entry[2].key: entry
                    for entry in heap
                    if self._is_due(entry, refused=group.was_refused)
                }
                heap[:] = due.values()
                heapq.heapify(heap)
            heapq.heappush(heap, (group.order(), self._counter, group))


def _backoff(first_s: float, before: int) -> float:
    """Seconds, doubled each time."""
    return min(MOST_BACKOFF_S, first_s * float(1 << min(before, 16)))


def _forget_refusals(group: EquivalenceClass) -> None:
    """The group looks at all nodes again."""
    group.seen, group.refused_by, group.waits_on = -1, frozenset(), frozenset()
    group.helped = set()
