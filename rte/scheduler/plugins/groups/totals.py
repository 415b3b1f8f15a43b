"""What all nodes together have for processing groups, kept up node by node (pure)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from rte.placement.groups.explain import amounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rte.placement.groups.answers import GroupGround

#: Resource and state, as in :func:`rte.placement.groups.explain.amounts`.
State: TypeAlias = tuple[str, str]


class Totals:
    """Sums over nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, Counter[State]]] = {}
        self._sum: Counter[State] = Counter()
        self._told: Counter[State] = Counter()

    def set(self, node: str, ground: GroupGround | None) -> None:
        """What a node is now; None: it has no inventory."""
        known = self._nodes.get(node)
        if known is not None and ground is not None and known[0] == ground.number:
            return
        if known is not None:
            del self._nodes[node]
            self._sum.subtract(known[1])
        if ground is not None:
            counts = Counter(
                {
                    (resource, state): amount
                    for resource, states in amounts(ground.inventory, ground.used).items()
                    for state, amount in states.items()
                }
            )
            self._nodes[node] = ground.number, counts
            self._sum.update(counts)

    def keep(self, nodes: Collection[str]) -> None:
        """Nodes that are not among these are gone."""
        for name in self._nodes.keys() - nodes:
            self.set(name, None)

    def changed(self) -> Iterator[tuple[State, int]]:
        """Sums that are not what this told before."""
        for state, amount in self._sum.items():
            if amount != self._told.get(state):
                self._told[state] = amount
                yield state, amount
