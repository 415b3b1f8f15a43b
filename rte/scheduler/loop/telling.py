"""Why pods wait: found out once for a group, told to users when it has stood for a while."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rte.scheduler.loop.messages import Due, Unschedulable
from rte.scheduler.loop.verdicts import explain
from rte.telemetry.effects import Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.gangs import Gangs
    from rte.scheduler.loop.messages import Effect, Timers
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import Waiting

#: A verdict is told to users when it has stood for so long: what is placed at once needs no event.
TELL_AFTER_S = 0.3

#: A verdict that stays the same is said again after so long (events of the API expire after 1 h).
REPEAT_S = 300.0

#: So many explanations are made at one deadline; the others follow a moment later.
_EXPLANATIONS, _NEXT_S = 4, 0.01

#: A pod whose verdict was told is explained again after so long at the earliest, and after so long
#: for each shape that waits: together they take a bounded share of the time.
_EXPLAIN_AGAIN_S, _EACH_S = 5.0, 0.05


class Telling:
    """Finds out why pods wait, and says when users are told.

    Args:
        cluster: what is known.
        cycle: the rules.
        queue: who waits.
        gangs: who waits together.
        timers: deadlines.
        is_ours: whether it is for us to say why a pod waits.
    """

    def __init__(
        self,
        cluster: Cluster,
        cycle: Cycle,
        queue: SchedulingQueue,
        gangs: Gangs,
        timers: Timers,
        is_ours: Callable[[PodView], bool],
    ) -> None:
        self._cluster, self._cycle, self._queue = cluster, cycle, queue
        self._gangs, self._timers = gangs, timers
        self._is_ours = is_ours
        self._explained, self._at = 0, 0.0

    def refused(self, record: Waiting, now: float) -> None:
        """The pod fits nowhere: users are told if that stands for a while."""
        if record.refused_since is None:
            record.refused_since = now
            due = now + TELL_AFTER_S
            if record.told:
                after = max(_EXPLAIN_AGAIN_S, _EACH_S * self._queue.shapes())
                due = max(due, record.explained_at + after)
            self._timers.at(due, Due.TELL, record.pod.uid)

    def why(self, pod: PodView) -> tuple[str, list[Effect]]:
        """Why the pod waits, in one line; computed once for a group and state of the cluster."""
        group = self._queue.group_of(pod.uid)
        if group is not None and self._is_explained(pod):
            return group.told[1], []
        if group is not None and group.key.gang is not None:
            text, counts = self._gangs.why(pod), Counter[str]()
        else:
            text, counts = explain(pod, self._cycle)
        if group is not None:
            group.told = (self._cluster.sequence, text)
        return text, [
            Measured("refusals", float(number), (reason,)) for reason, number in counts.items()
        ]

    def _is_explained(self, pod: PodView) -> bool:
        group = self._queue.group_of(pod.uid)
        return group is not None and group.told[0] == self._cluster.sequence and bool(group.told[1])

    def due(self, uid: str, now: float) -> list[Effect]:
        """Tell users why the pod waits: now or, after some others, a moment later."""
        if self._at != now:
            self._at, self._explained = now, 0
        if self._explained >= _EXPLANATIONS:
            self._timers.at(now + _NEXT_S, Due.TELL, uid)
            return []
        record = self._queue.records.get(uid)
        if record is None or record.refused_since is None:
            return []
        record.refused_since = None
        if not self._is_ours(record.pod):
            return []
        self._explained += not self._is_explained(record.pod)
        text, effects = self.why(record.pod)
        record.explained_at = now
        if record.told != text or now - record.told_at >= REPEAT_S:
            record.told, record.told_at = text, now
            reason = self._cycle.profile.event_for(self._cycle.problem(record.pod))
            effects.append(Unschedulable(record.pod, text, reason))
            effects += self._gangs.told(record.pod, text)
        return effects
