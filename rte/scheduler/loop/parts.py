"""What turns and wake-ups work with, and who shares whose fate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.loop.gangs.unit import is_placed_as_one
from rte.scheduler.queue.waiting import UnitKey

if TYPE_CHECKING:
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.cache.intake import Intake
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.binding import Binding
    from rte.scheduler.loop.bulkheads import Bulkheads
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.gangs import Gangs
    from rte.scheduler.loop.messages import Effect, Timers
    from rte.scheduler.loop.room.making_room import MakingRoom
    from rte.scheduler.loop.telling import Telling
    from rte.scheduler.queue.queue import SchedulingQueue


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
