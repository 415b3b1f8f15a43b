"""The nodes on which pods look for places together, and who has a place where."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte.placement.fleet.screen import NodeTable
from rte.placement.joint.node import Classes, Site

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from rte.placement.inflight.orders import Bundle, StepBudget
    from rte.placement.joint.node import JointNode, Kinds


#: Sets of pods, times nodes that take one of them, up to which the exact search is the quicker one.
SMALL = 2000


class JointField:
    """Nodes and kinds of pods; nodes that are alike share what is found out about them.

    Attributes:
        nodes: in the order given.
        kinds: of the pods.
        budget: of all that is asked here.
        sites: node -> what it can take.

    Args:
        totals_only: ask for node totals alone, as if kubelets had no managers.
        sites: what the nodes can take, where that is known already (no two are shared then).
    """

    def __init__(
        self,
        nodes: Sequence[JointNode],
        kinds: Kinds,
        budget: StepBudget,
        *,
        totals_only: bool = False,
        sites: Sequence[Site] | None = None,
    ) -> None:
        self.nodes = nodes
        self.kinds = kinds
        self.budget = budget
        self.sites: list[Site] = []
        classes = Classes()
        numbers: dict[Hashable, int] = {}
        class_of: list[int] = []
        table = NodeTable()
        shared: list[Site] = []
        for place, node in enumerate(nodes):
            key = place if sites else classes.key(node, kinds)
            number = numbers.setdefault(key, len(numbers))
            if number == len(shared):
                known = sites[place] if sites else None
                shared.append(known or Site(node, kinds, budget, totals_only=totals_only))
                table.put(str(number), node.state)
            class_of.append(number)
            self.sites.append(shared[number])
        passes = [
            [
                (totals_only or bool(screened)) and site.shortage((kind,)) is None
                for site, screened in zip(shared, table.screen(pod), strict=True)
            ]
            for kind, pod in enumerate(kinds.pods)
        ]
        useful = [
            sum(count for count, kind in zip(kinds.counts, passes, strict=True) if kind[number])
            for number in range(len(shared))
        ]
        free = table.free_cpus()
        order = sorted(
            range(len(nodes)),
            key=lambda place: (useful[class_of[place]], free[class_of[place]], place),
        )
        #: Kind -> nodes that may take one of it, those that are of least use to others first.
        self.candidates = [[place for place in order if kind[class_of[place]]] for kind in passes]
        #: Kind -> millicores that a pod counts for.
        self.millis = [totals.get("cpu", 0) for totals in kinds.totals]
        #: Node -> millicores that its totals leave.
        self.rooms = [node.room.get("cpu", 0) for node in nodes]
        self.candidate_sets = [frozenset(places) for places in self.candidates]

    @property
    def is_small(self) -> bool:
        """Whether few pods have a choice of few nodes."""
        sets = math.prod(count + 1 for count in self.kinds.counts)
        return sets * len(frozenset().union(*self.candidate_sets)) <= SMALL

    def capacity(self, place: int, kind: int) -> int:
        """How many pods of a kind a node takes when no other comes, up to all of them.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        site, count = self.sites[place], 0
        while count < self.kinds.counts[kind] and site.takes((kind,) * (count + 1)):
            count += 1
        return count


class Bundles:
    """Places of pods: for each node a bundle that it takes.

    Attributes:
        bundles: node -> kinds of its pods.
    """

    def __init__(self, ground: JointField, bundles: Sequence[Bundle] | None = None) -> None:
        self.ground = ground
        self.bundles: list[Bundle] = list(bundles or ((),) * len(ground.nodes))

    @property
    def size(self) -> int:
        """Pods that have a place."""
        return sum(map(len, self.bundles))

    def clear(self) -> None:
        """Give back all places."""
        self.bundles[:] = [()] * len(self.bundles)

    def names(self) -> dict[str, str]:
        """Pod UID -> node name; pods of a kind in the order given."""
        waiting = [iter(uids) for uids in self.ground.kinds.members]
        return {
            next(waiting[kind]): node.name
            for node, bundle in zip(self.ground.nodes, self.bundles, strict=True)
            for kind in bundle
        }
