"""Whether a pod leaves a node to another waiting pod that uses it better (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.framework.plugin import Candidate, Queued

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Precedence
    from rte.scheduler.framework.profile import Around
    from rte.scheduler.loop.cycle import Cycle

#: Nodes for which one decision asks whether others use them better; any further one is taken.
_MOST_NODES = 16


class Contest:
    """One decision about a pod that may still wait.

    Args:
        cycle: the rules.
        pod: that is decided about.
        rivals: asked for once, when some node takes the pod.
    """

    def __init__(self, cycle: Cycle, pod: PodView, rivals: Callable[[], Sequence[Queued]]) -> None:
        self._cycle = cycle
        self._pod = pod
        self._ask = rivals
        self._rivals: Sequence[Queued] | None = None
        self._around: dict[str, Around] = {}
        self._nodes = 0
        self._winners: set[str] = set()

    @property
    def winners(self) -> frozenset[str]:
        """UIDs of the pods that nodes were left to."""
        return frozenset(self._winners)

    def is_lost(self, candidate: Candidate) -> bool:
        """Whether a rival that the node takes as well uses it better; of equal ones the first."""
        return any(self._loses(plugin, candidate) for plugin in self._cycle.profile.precedences)

    def _loses(self, plugin: Precedence, candidate: Candidate) -> bool:
        if self._rivals is None:
            self._rivals = self._ask()
        if not self._rivals or self._nodes >= _MOST_NODES:
            return False
        self._nodes += 1
        waiting = [Queued(self._pod, 1), *self._rivals]
        own = plugin.precedence(self._pod, candidate, waiting)
        if own is None:
            return False
        for rival in self._rivals:
            theirs = self._theirs(plugin, rival.pod, candidate, waiting)
            if theirs is not None and theirs > own:
                self._winners.add(rival.pod.uid)
                return True
        return False

    def _theirs(
        self, plugin: Precedence, rival: PodView, candidate: Candidate, waiting: Sequence[Queued]
    ) -> float | None:
        """What the rule says of a rival on the node; None where the node does not take it."""
        if self._cycle.problem(rival).reason:
            return None
        if rival.uid not in self._around:
            self._around[rival.uid] = self._cycle.around(rival)
        status = self._cycle.check(candidate.node, rival, self._around[rival.uid])
        if status.reason:
            return None
        return plugin.precedence(rival, Candidate(candidate.node, status), waiting)
