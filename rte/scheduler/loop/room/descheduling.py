"""Pods that said they may be moved make room for one that has waited long (pure; off by default).

The plan is that of ``rte defrag``; of it the first move is made, and the next one is planned with
the cluster as it is when the moved pod runs again. One pod is moved at a time, and at most one in
so many seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.joint.gang import GangVerdict
from rte.scheduler.loop.gangs.ground import member_of, snapshot
from rte.scheduler.loop.messages import EvictPod, PlanMoves, Post
from rte.scheduler.loop.room import moves
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.messages import Effect, Moved, Planned
    from rte.scheduler.loop.room.making_room import MakingRoom
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import Waiting

#: Pods with this label, of the value ``true``, may be moved.
LABEL = "topology.rte.dev/may-move"

#: For a pod for which no moves are known, or did not help, none are looked for during this.
REST_S = 300.0

#: A moved pod that does not run again within this is not waited for.
SETTLES_WITHIN_S = 300.0

#: So many pods, the least important ones, of so many kinds are considered in one plan.
MOST_MOVABLE, MOST_KINDS = 200, 8

#: Admissions that one plan may predict.
STEPS = 10_000


@dataclass(frozen=True, slots=True)
class _Moving:
    """A pod on its way.

    Attributes:
        pod: as it was.
        likes: how many pods its controller had on nodes.
        since: when it was evicted.
    """

    pod: PodView
    likes: int
    since: float


class Descheduling:
    """Plans moves, and watches over the one that is under way.

    Args:
        cluster: what is known.
        cycle: the rules.
        queue: who waits.
        room: keeps a node for who waits.
        every: seconds between two moves, and for which a pod has waited before any; 0: no moves.
    """

    def __init__(
        self, cluster: Cluster, cycle: Cycle, queue: SchedulingQueue, room: MakingRoom, every: float
    ) -> None:
        self._cluster, self._cycle, self._queue, self._room = cluster, cycle, queue, room
        self._every = every
        self._next = 0.0
        self._asked = ""
        self._moving: _Moving | None = None
        self._left: dict[str, int] = {}
        self._rests: dict[str, float] = {}

    def second(self, now: float) -> list[Effect]:
        """Ask for a plan if it is time for one; to be called each second."""
        if not self._every:
            return []
        self._forget(now)
        if self._asked or now < self._next or not self._has_settled(now):
            return []
        record = self._longest(now)
        return [] if record is None else [self._question(record)]

    def _forget(self, now: float) -> None:
        waiting = self._queue.records
        self._left = {uid: left for uid, left in self._left.items() if uid in waiting}
        self._rests = {u: until for u, until in self._rests.items() if until > now and u in waiting}

    def _longest(self, now: float) -> Waiting | None:
        """The most important pod that has waited long and fits nowhere."""
        heads = (group.head() for group in self._queue.asleep() if group.key.gang is None)
        due = [
            head
            for head in heads
            if head is not None
            and now - head.since >= self._every
            and head.pod.uid not in self._rests
            and (head.pod.uid not in self._cluster.promises or head.pod.uid in self._left)
            and not head.evicting
        ]
        return min(due, key=lambda head: head.order, default=None)

    def _question(self, record: Waiting) -> PlanMoves:
        nodes, _ = snapshot(self._cluster)
        names = {node.name for node in nodes}
        pods = self._least(pod for pod in self._willing(record.pod) if pod.node in names)
        self._asked = record.pod.uid
        return PlanMoves(
            record.pod.uid,
            tuple(nodes),
            member_of(self._cluster, self._cycle, record.pod),
            tuple(moves.movables(self._cluster, self._cycle, pods)),
            tuple(moves.disruptions(self._cluster, pods)),
            STEPS,
        )

    def _least(self, pods: Iterable[PodView]) -> list[PodView]:
        """The least important ones, of as many kinds as can be looked at."""
        kinds: set[int] = set()
        found = []
        for pod in sorted(pods, key=lambda pod: (pod.priority, pod.uid)):
            if id(pod.shape) in kinds or len(kinds) < MOST_KINDS:
                kinds.add(id(pod.shape))
                found.append(pod)
        return found[:MOST_MOVABLE]

    def _willing(self, pod: PodView) -> Iterable[PodView]:
        """Pods that may be moved for that one: a gang is not taken apart for it."""
        return (
            each
            for each in self._cluster.pods.values()
            if each.labels.get(LABEL) == "true"
            and each.controller
            and each.priority <= pod.priority
            and each.gang is None
            and moves.may_leave(each)
        )

    # --- what comes of it ------------------------------------------------------------------------

    def planned(self, event: Planned, now: float) -> list[Effect]:
        """A plan was made: its first move, if it still can be made."""
        self._asked = ""
        plan = event.plan
        if plan is None:
            self._rests[event.uid] = now + REST_S
            return []
        effects: list[Effect] = [Measured("move_plans", labels=(str(plan.verdict),))]
        record = self._queue.records.get(event.uid)
        if record is None or self._queue.group_of(event.uid) is None:
            return effects
        left = self._left.setdefault(event.uid, len(plan.moves))
        if plan.verdict is not GangVerdict.FITS or not plan.moves or not left:
            self._rests[event.uid] = now + REST_S
            self._left.pop(event.uid, None)
            return effects
        first = plan.moves[0]
        pod = next((each for each in self._on(first.source) if each.kubelet_uid == first.pod), None)
        target = self._cluster.nodes.get(first.target)
        if pod is None or pod.deleting or target is None:
            return effects
        if self._cycle.check(target, pod, self._cycle.around(pod)).reason:
            # The cluster has changed since; the next plan is made with what it is now.
            return effects
        place = plan.places[record.pod.kubelet_uid]
        going = {move.pod for move in plan.moves if move.source == place}
        victims = frozenset(each.uid for each in self._on(place) if each.kubelet_uid in going)
        self._left[event.uid] = left - 1
        self._next = now + self._every
        self._moving = _Moving(pod, self._placed(pod.controller), now)
        self._cluster.evicting(pod.uid)
        note = f"makes room for {record.pod.key}; there is a place for it on {first.target}"
        return [
            *effects,
            *self._room.keep(record, place, victims, now + SETTLES_WITHIN_S),
            Said("info", f"{pod.key} is moved away from {first.source}: {note}"),
            Post(pod, "Normal", "Descheduled", note, "Descheduling"),
            EvictPod(event.uid, pod),
        ]

    def moved(self, event: Moved, now: float) -> list[Effect]:
        """The eviction was carried out, or refused."""
        if event.done:
            return [Measured("moves", labels=("evicted",))]
        self._moving = None
        self._rests[event.uid] = now + REST_S
        self._left.pop(event.uid, None)
        record = self._queue.records.get(event.uid)
        ended = [] if record is None else self._room.end(record)
        return [Measured("moves", labels=("refused",)), *ended]

    def _on(self, node: str) -> Iterable[PodView]:
        entry = self._cluster.nodes.get(node)
        return entry.pods.values() if entry is not None else ()

    def _placed(self, controller: str) -> int:
        """How many of its pods have a node and are not about to leave it."""
        pods = (each for entry in self._cluster.nodes.values() for each in entry.pods.values())
        return sum(1 for each in pods if each.controller == controller and not each.deleting)

    def _has_settled(self, now: float) -> bool:
        """Whether no moved pod is on its way any more: it has gone, and another one runs for it."""
        moving = self._moving
        if moving is None:
            return True
        gone = moving.pod.uid not in self._cluster.pods
        if gone and self._placed(moving.pod.controller) >= moving.likes:
            self._moving = None
        elif now - moving.since >= SETTLES_WITHIN_S:
            # It was not created again, or finds no place: no further pod is moved for this one.
            self._moving = None
            self._rests |= dict.fromkeys(self._left, now + REST_S)
            self._left.clear()
        return self._moving is None
