"""Does it fit? Questions about the cluster as it is now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rte import errors
from rte.placement.joint import fit, gang
from rte.placement.joint.fit import FitTable
from rte.scheduler.loop.candidates import Backlog
from rte.scheduler.loop.gangs.ground import member_of, node_of, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.placement.joint.fit import Fit
    from rte.placement.joint.gang import Answer
    from rte.placement.joint.node import JointNode, Member
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle


class FitDesk:
    """Answers questions about a cluster that changes; what has not changed is not read anew."""

    def __init__(self, cluster: Cluster, cycle: Cycle) -> None:
        self._cluster, self._cycle = cluster, cycle
        self._table = FitTable()
        self._nodes: dict[str, JointNode] = {}
        self._backlog = Backlog(cluster)

    def counting(self, member: Member, *, steps: int = fit.STEPS) -> Callable[[], Fit]:
        """How many copies fit, node by node; what is returned is the long part, which leaves the
        cluster alone.
        """
        self._refresh()
        return partial(self._table.count, member, steps=steps)

    def placing(
        self,
        members: Sequence[Member],
        *,
        min_count: int | None = None,
        topology_key: str = "",
        steps: int = gang.STEPS,
    ) -> Callable[[], Answer]:
        """Whether so many of the pods fit together; what is returned is the long part, as above."""
        self._refresh()
        nodes = sorted(self._nodes.values(), key=lambda node: node.name)
        together = partial(gang.place_together, min_count=min_count, topology_key=topology_key)
        return partial(together, nodes, list(members), steps=steps)

    def left_out(self) -> int:
        """Nodes whose zones are not known exactly: they are not counted."""
        self._refresh()
        return sum(1 for e in self._cluster.nodes.values() if e.info) - len(self._nodes)

    def member(self, pod: PodView) -> Member:
        """The pod as the solver sees it; that takes some time for each shape.

        Raises:
            errors.UsageError: the pod can be placed nowhere, whatever the nodes.
        """
        problem = problem_of(self._cycle, pod)
        if problem:
            raise errors.UsageError(f"{pod.key} cannot be placed anywhere: {problem}")
        return member_of(self._cluster, self._cycle, pod)

    def catch_up(self, most: int | None = None) -> int:
        """Read so many of the nodes that have changed, None: all; how many are left."""
        for name in self._backlog.take(most):
            entry = self._cluster.nodes.get(name)
            node = node_of(entry) if entry is not None else None
            if node is not None:
                self._nodes[name] = node
                self._table.put(node)
            else:
                self._nodes.pop(name, None)
        return len(self._backlog)

    def _refresh(self) -> None:
        self.catch_up()
        gone = self._nodes.keys() - self._cluster.nodes.keys()
        for name in gone:
            del self._nodes[name]
        if gone or len(self._table) != len(self._nodes):
            self._table = FitTable(self._nodes.values())
