"""Room for pods that fit nowhere: evictions, nominations and reservations (pure).

One preemption is in force for a pod at a time. A nomination is looked at again whenever its node
changes and when its time is over, and ends when nothing speaks for it any more.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.scheduler.framework.node import NodeEntry, Promise, PromiseKind
from rte.scheduler.loop import promises
from rte.scheduler.loop.messages import Evict, Nominate, Post
from rte.scheduler.loop.room import plans
from rte.scheduler.loop.room.openings import FREES, Openings
from rte.scheduler.plugins import default_preemption
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.decide import Asking
    from rte.scheduler.loop.messages import Effect, Evicted
    from rte.scheduler.plugins.default_preemption import EvictionPlan
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import Order, UnitKey, Waiting

#: Pods for which a node to keep is looked for in one second.
_MOST_LOOKED_AT = 4


@dataclass(slots=True)
class _VictimSearch:
    """A search for victims that is under way."""

    record: Waiting
    plans: Iterator[EvictionPlan | NodeEntry | None]
    sequence: int
    best: EvictionPlan | None = None


class MakingRoom:
    """Plans evictions and reservations, and watches over them.

    Args:
        cluster: what is known.
        cycle: the rules.
        queue: who waits.
        key: of the group to which a pod belongs; a nomination sets it apart from its likes.
        preempts: whether evictions are allowed.
        reserve_after: seconds of waiting after which a pod gets a node reserved; 0: never.

    Attributes:
        unsettled: node -> UIDs of pods that could not tell what it offers.
    """

    def __init__(
        self,
        cluster: Cluster,
        cycle: Cycle,
        queue: SchedulingQueue,
        key: Callable[[PodView], UnitKey],
        *,
        preempts: bool,
        reserve_after: float,
    ) -> None:
        self._cluster, self._cycle, self._queue = cluster, cycle, queue
        self._key = key
        self._preempts = preempts
        self._reserve_after = reserve_after
        self._crowded_out: dict[str, None] = {}
        self._asking: list[tuple[Order, str]] = []
        self._search: _VictimSearch | None = None
        self.unsettled: dict[str, set[str]] = {}
        self._openings = Openings(cluster, queue)

    # --- preemption ------------------------------------------------------------------------------

    def wants(self, record: Waiting) -> None:
        """The pod fits nowhere, and nothing that passes by itself is in the way."""
        if self._preempts and record.pod.preempts and record.key.gang is None:
            self._crowded_out[record.pod.uid] = None
            heapq.heappush(self._asking, (record.order, record.pod.uid))

    def is_idle(self) -> bool:
        """Whether no search is waiting or under way."""
        return self._search is None and not (self._crowded_out or self._openings.pairs)

    def order(self) -> Order | None:
        """The place of the pod whose turn it is; None: nobody asks for room."""
        record = self._whose()
        return None if record is None else record.order

    def _whose(self) -> Waiting | None:
        return self._search.record if self._search is not None else self._first()

    def whose(self) -> str:
        """For whom the next step is, as far as that is known before."""
        record = self._whose()
        return record.pod.key if record is not None else ""

    def abandon(self, until: float) -> str:
        """The last step has raised: its pod evicts nobody until then; its UID."""
        search, self._search = self._search, None
        if search is None:
            return ""
        search.record.preempt_after = until
        return search.record.pod.uid

    def _first(self) -> Waiting | None:
        """The most important of those who ask for room."""
        while self._asking:
            record = self._queue.records.get(self._asking[0][1])
            if record is not None and record.pod.uid in self._crowded_out:
                return record
            heapq.heappop(self._asking)
        self._crowded_out.clear()
        return None

    def step(self, now: float) -> list[Effect]:
        """Look at one more node for the pod whose turn it is."""
        search = self._search
        if search is None:
            return self._begin(now) if self._crowded_out else self._look_again(now)
        if self._queue.group_of(search.record.pod.uid) is None:
            self._search = None
            return []
        try:
            plan = next(search.plans)
        except StopIteration:
            self._search = None
            return self._finish(search, now)
        if isinstance(plan, NodeEntry):
            self.unsettled.setdefault(plan.name, set()).add(search.record.pod.uid)
        elif plan is not None and (search.best is None or plan.cost < search.best.cost):
            search.best = plan
        return []

    def changed(self, name: str) -> None:
        """Something about the node has changed: who could not tell what it offers looks again."""
        waiting = self.unsettled.get(name)
        entry = self._cluster.nodes.get(name)
        if not waiting or (entry is not None and not default_preemption.is_settled(entry)):
            return
        for uid in self.unsettled.pop(name):
            if uid in self._queue.records:
                self.wants(self._queue.records[uid])

    def note(self, events: Iterable[ClusterEvent]) -> None:
        """What has happened may bring nodes within reach of evictions."""
        for event in events if self._preempts else ():
            if event.node and event.kind.value & FREES.value:
                self._openings.freed[event.node] = None

    def second(self, now: float) -> None:
        """See whom that may help; to be called each second."""
        for record in self._openings.second(now) if self._preempts else ():
            self.wants(record)

    def _look_again(self, now: float) -> list[Effect]:
        found = self._openings.take()
        if found is not None and self._may(found[0], now):
            record, name = found
            entry = self._cluster.nodes.get(name)
            if entry is not None and self._plan_again(record.pod, entry) is not None:
                self.wants(record)
        return []

    def forget(self, uid: str) -> None:
        """The pod does not wait any more."""
        self._crowded_out.pop(uid, None)
        if not self._crowded_out:
            self._asking.clear()
        for name, waiting in list(self.unsettled.items()):
            waiting.discard(uid)
            if not waiting:
                del self.unsettled[name]

    def _begin(self, now: float) -> list[Effect]:
        record = self._first()
        if record is None:
            return []
        del self._crowded_out[record.pod.uid]
        if not self._may(record, now):
            return []
        avoid = frozenset(name for name, until in record.avoid.items() if until > now)
        found = plans.plans(self._cycle, self._cluster, record.pod, avoid)
        self._search = _VictimSearch(record, found, self._cluster.sequence)
        return [Measured("preemption_attempts")]

    def _may(self, record: Waiting, now: float) -> bool:
        pod = record.pod
        promise = self._cluster.promises.get(pod.uid)
        nominated = promise.places[pod.uid] if promise is not None else ""
        waits_for = promise.victims if promise is not None else frozenset()
        return (
            not record.evicting
            and self._queue.group_of(pod.uid) is not None
            and not any(uid in self._cluster.pods for uid in waits_for)
            and now >= record.preempt_after
            and self._cluster.has_lower(pod.priority)
            and default_preemption.may_preempt(pod, self._cluster, nominated)
        )

    def _finish(self, search: _VictimSearch, now: float) -> list[Effect]:
        record, plan = search.record, search.best
        if plan is None or not self._may(record, now):
            return []
        if search.sequence != self._cluster.sequence:
            decision = self._cycle.decide(record.pod)
            if decision.node is not None:
                self._queue.rouse(record.pod.uid)
                return []
            if decision.hopes:
                return []
            entry = self._cluster.nodes.get(plan.node)
            if entry is None or self._plan_again(record.pod, entry) != plan:
                self.wants(record)
                return []
        return self._carry_out(record, plan, now)

    def _plan_again(self, pod: PodView, entry: NodeEntry) -> EvictionPlan | None:
        around = self._cycle.around(pod)
        return plans.plan_on(self._cycle, self._cluster, pod, entry, around=around)

    def _carry_out(self, record: Waiting, plan: EvictionPlan, now: float) -> list[Effect]:
        uids = frozenset(victim.uid for victim in plan.victims) | plan.leaving
        until = promises.until(self._cluster, uids, now)
        self._next_of_its_kind(record)
        self._promise(record, plan.node, until, victims=uids)
        if not plan.victims:
            return [Nominate(record.pod, plan.node)]
        record.evicting = True
        for victim in plan.victims:
            self._cluster.evicting(victim.uid)
        count = float(len(plan.victims))
        return [
            Measured("preemption_victims", count, how="observe"),
            Evict(record.pod, plan.node, plan.victims),
        ]

    def _next_of_its_kind(self, record: Waiting) -> None:
        """Those who wait with the pod were not tried themselves: they need room as well."""
        group = self._queue.group_of(record.pod.uid)
        others = [
            other
            for other in (() if group is None else group.pods.values())
            if other.pod.uid not in self._cluster.promises and not other.evicting
        ]
        if others:
            self.wants(min(others, key=lambda each: each.order))

    def evicted(self, event: Evicted, now: float) -> tuple[list[Effect], float | None]:
        """What became of evictions; the moment at which to try again, if they failed."""
        record = self._queue.records.get(event.uid)
        if record is None:
            return [], None
        record.evicting = False
        promise = self._cluster.promises.get(event.uid)
        if event.complete and promise is not None:
            return [Nominate(record.pod, promise.places[event.uid])], None
        # The rest would be evicted in vain.
        record.preempt_after = now + promises.AGAIN_S
        return self.end(record), record.preempt_after

    def keep(
        self, record: Waiting, node: str, victims: frozenset[str], until: float
    ) -> list[Effect]:
        """Keep a node for the pod, which fits there when these have been moved."""
        self._promise(record, node, until, victims=victims)
        return [Nominate(record.pod, node)]

    def _promise(self, record: Waiting, node: str, until: float, **more: Any) -> None:
        self._cluster.nominate(Promise(places={record.pod.uid: node}, until=until, **more))
        self._regroup(record)

    def _regroup(self, record: Waiting) -> None:
        """Whether something is promised to it decides with whom a pod shares its fate."""
        if record.pod.uid in self._queue:
            self._queue.push(record.pod, self._key(record.pod))

    # --- nominations -----------------------------------------------------------------------------

    def end(self, record: Waiting) -> list[Effect]:
        """The pod waits for no node in particular any more."""
        had = self._cluster.promises.get(record.pod.uid)
        self._cluster.unnominate(record.pod.uid)
        self._regroup(record)
        if had is None or had.reserved:
            return []
        return [Nominate(record.pod, "")]

    def renominated(self, record: Waiting, now: float) -> list[Effect]:
        """The pod's nomination in the API has changed, by us or by somebody else (KEP-5278).

        Our own plans come before those of others.
        """
        node, promise = record.pod.nominated, self._cluster.promises.get(record.pod.uid)
        if promise is not None and not promise.external:
            return []
        entry = self._cluster.nodes.get(node)
        if entry is not None and entry.info is not None:
            until = now + promises.EXTERNAL_S
            self._promise(record, node, until, kind=PromiseKind.EXTERNAL)
            return []
        return self.end(record) if promise is not None else []

    def recover(self, record: Waiting, now: float) -> None:
        """Take up the nomination that the replica before us, or somebody else, has written."""
        pod = record.pod
        entry = self._cluster.nodes.get(pod.nominated)
        if pod.uid in self._cluster.promises or entry is None or entry.info is None:
            return
        if record.key.gang is not None:
            # Its room is planned as a whole.
            return
        leaving = entry.preempted
        if not leaving:
            self.renominated(record, now)
            return
        until = promises.until(self._cluster, leaving, now)
        self._promise(record, pod.nominated, until, victims=leaving)

    def review(self, record: Waiting, now: float) -> list[Effect]:
        """Whether something still speaks for the pod's nomination; if not, it ends."""
        promise = self._cluster.promises.get(record.pod.uid)
        if promise is None or record.evicting:
            return []
        if record.key.gang is not None:
            # Its room is planned as a whole; what others make may be from before it was a gang.
            return self.end(record) if promise.external and now >= promise.until else []
        node = promise.places[record.pod.uid]
        entry = self._cluster.nodes[node]
        if promise.reserved:
            return self._review_reservation(record, promise, entry, now)
        late = now >= promise.until
        going = promise.victims | entry.leaving
        if promise.external:
            # Whom others evict there, and when, is not known.
            going = frozenset(uid for uid, pod in entry.pods.items() if not pod.mirror)
        after = entry.without(going)
        ahead = entry.ahead_of(record.pod)
        status = self._cycle.profile.check(
            record.pod.shape, after.beside(ahead) if ahead else after
        )
        if status.reason and not status.waits:
            return self._give_up(record)
        if not late:
            return []
        if any(uid in self._cluster.pods for uid in promise.victims):
            record.avoid[node] = now + promises.AVOID_S
        return self._give_up(record)

    def _give_up(self, record: Waiting) -> list[Effect]:
        effects = self.end(record)
        self._queue.rouse(record.pod.uid)
        self.wants(record)
        return effects

    def refused(self, record: Waiting, now: float) -> list[Effect]:
        """The pod was refused everywhere although it has a nomination."""
        promise = self._cluster.promises.get(record.pod.uid)
        if promise is None or promise.reserved or record.evicting:
            return []
        if any(uid in self._cluster.pods for uid in promise.victims) or now < promise.until:
            return []
        return self.end(record)

    # --- reservations ----------------------------------------------------------------------------

    def reserve(self, now: float) -> Asking[list[Effect]]:
        """Give nodes to those who have waited too long; to be begun each second."""
        if not self._reserve_after:
            return []
        kept = sum(
            1
            for uid, promise in self._cluster.promises.items()
            if promise.reserved and uid in self._queue.records
        )
        room = promises.most(self._cluster) - kept
        effects: list[Effect] = []
        for record in self._due(now)[:_MOST_LOOKED_AT] if room > 0 else ():
            # Whoever gets nothing now comes again after those who have not had a look yet.
            record.lapsed, pod = now, record.pod
            if not promises.is_wanted(self._cycle, pod):
                continue
            entry, record.drained = yield from promises.quickest(
                pod, self._cluster, self._cycle, record.drained
            )
            group = self._queue.group_of(pod.uid)
            told = pod.uid in self._cluster.promises
            if entry is None or group is None or not group.sleeping or told:
                continue
            until = now + promises.PATIENCE * self._reserve_after
            missing = promises.missing(pod, entry, self._cycle)
            kind = PromiseKind.RESERVATION
            self._promise(record, entry.name, until, kind=kind, missing=missing)
            record.drained = 0
            text = f"node {entry.name} is kept for {pod.key}, which has waited long"
            effects += [
                Said("info", text),
                Post(pod, "Normal", "NodeReserved", f"node {entry.name} drains towards the pod"),
            ]
            kept += 1
            if kept >= promises.most(self._cluster):
                break
        return [*effects, Measured("reservations", float(kept), how="set")]

    def _due(self, now: float) -> list[Waiting]:
        """Heads of the sleeping groups that have waited long, those with fewer turns first."""
        found = []
        for group in self._queue.asleep():
            head = group.head()
            if head is None or head.pod.uid in self._cluster.promises or group.key.gang is not None:
                continue
            since = head.since if head.lapsed is None else head.lapsed
            if now - since >= self._reserve_after:
                found.append(head)
        return sorted(found, key=lambda record: (record.turns, record.order))

    def _review_reservation(
        self, record: Waiting, promise: Promise, entry: NodeEntry, now: float
    ) -> list[Effect]:
        if not promises.is_possible(self._cycle, record.pod, entry):
            return self._lapse(record, now)
        missing = promises.missing(record.pod, entry, self._cycle)
        if missing < promise.missing:
            promise.missing = missing
            promise.until = now + promises.PATIENCE * self._reserve_after
        return self._lapse(record, now) if now >= promise.until else []

    def _lapse(self, record: Waiting, now: float) -> list[Effect]:
        record.lapsed, record.turns = now, record.turns + 1
        self._queue.rouse(record.pod.uid)
        return self.end(record)
