"""ZoneRoom: which of the nodes that would take a pod is the best one.

Pods that need a zone go where they leave most room for the pods to come
(:class:`rte.placement.fleet.scores.NextFit`), to nodes without a report only when no other takes
them. Ordinary pods go where they do the least harm to those: nodes that align nothing, then node
totals that no zone could use, then zones that are broken up already.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rte.placement.fleet import scores
from rte.placement.kubelet.demand import free_of
from rte.scheduler.framework.columns import MANY, SCORED
from rte.scheduler.framework.outlook import UNBOUNDED
from rte.scheduler.framework.plugin import Ranks, Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.model.node import NodeState
    from rte.scheduler.framework.columns import Column, NodeAmounts, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot
    from rte.scheduler.framework.shape import Shape

#: Of an ordinary pod's score: harmlessness against plain load balancing.
HARMLESS, BALANCE = 3.0, 1.0

#: Lately placed shapes that the choice of a place has in mind.
_SHAPES_IN_MIND = 12


class ZoneRoom(Score, Ranks):
    """Keeps what was asked for lately.

    Attributes:
        instead: what takes its place where it is concerned.
    """

    name = "ZoneRoom"
    says = "room that is left in the zones for the pods to come"
    weight = 1.0
    exact = True

    def __init__(self) -> None:
        self.instead: Score | None = None
        self._lately: Counter[bytes] = Counter()
        self._samples: dict[bytes, Shape] = {}
        self._in_mind: tuple[bytes, ...] = ()
        self._weights = np.zeros(0)
        self._rooms = scores.Rooms(())

    def placed(self, shape: Shape) -> None:
        """A pod of this shape was given a place: others like it may come."""
        if not shape.may_need_zone:
            return
        self._lately[shape.key] += 1
        self._samples[shape.key] = shape
        if len(self._lately) > 4 * _SHAPES_IN_MIND:
            kept = self._lately.most_common(2 * _SHAPES_IN_MIND)
            self._lately = Counter({name: max(1, count // 2) for name, count in kept})
            self._samples = {name: self._samples[name] for name, _ in kept}
        weights: dict[bytes, int] = {}
        pods = {}
        for name, count in self._lately.most_common(_SHAPES_IN_MIND):
            other = self._samples[name]
            weights[other.kubelet_key] = weights.get(other.kubelet_key, 0) + count
            pods[other.kubelet_key] = other.pod
        if weights.keys() != set(self._in_mind):
            self._in_mind = tuple(weights)
            self._rooms = scores.Rooms([pods[key] for key in self._in_mind])
        self._weights = np.array([weights[key] for key in self._in_mind], dtype=np.float64)

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Every pod takes room."""
        return self.instead is None or not self.instead.is_concerned(pod, snapshot)

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[float] | None:
        """0 to 100 each; they are comparable between decisions, so they are not stretched."""
        return [self._one(pod.shape, candidate) for candidate in candidates]

    def ranks(self, shape: Shape, amounts: NodeAmounts, rows: Rows) -> Column:
        """By fit for pods that may need a zone, by harm for the others."""
        if not shape.may_need_zone:
            return _harm(shape, amounts, rows)
        need = max(shape.exclusive_cpus, default=0)
        keys: Column = amounts.kept(
            ("zones", need), slice(None), lambda some: _tightness(need, amounts, some)
        )
        return keys[rows]

    def _one(self, shape: Shape, candidate: Candidate) -> float:
        node, status = candidate
        verdict = status.verdict
        if verdict is not None and verdict.holdings and verdict.after:
            return self._next_fit(shape, node, verdict.after)
        if shape.may_need_zone and node.outlook() is None:
            return balance(shape, node) / 100.0
        parts = HARMLESS * harmless(shape.totals.get("cpu", 0), node)
        return (parts + BALANCE * balance(shape, node)) / (HARMLESS + BALANCE)

    def _next_fit(self, shape: Shape, node: NodeEntry, after: NodeState) -> float:
        """:class:`scores.NextFit`, with the rooms remembered as long as the node stays as it is."""
        had, _ = self._left(b"", shape, node, after)
        left, fullness = self._left(shape.kubelet_key, shape, node, after)
        cost = float(self._weights @ (had - left))
        weights = float(self._weights.sum())
        cost = max(0.0, cost / weights) if weights else 0.0
        return 99.0 / (1.0 + cost) + fullness * 1e-11

    def _left(
        self, own: bytes, shape: Shape, node: NodeEntry, after: NodeState
    ) -> tuple[scores.Counted, int]:
        """Room for the shapes in mind on the node, and how full it is then.

        Remembered as long as the node stays as it is; ``own`` says what was placed there, empty:
        nothing yet.
        """
        known = node.rooms.get(own)
        if known is None or known[0] is not self._rooms:
            free = free_of(after) if own else node.free()
            if free is None:
                raise LookupError(f"node {node.name}: its managers are not known")
            rooms = self._rooms.of(free, after.config)
            # In millionths of a percent: what decides between equal costs.
            fullness = round(1e6 * scores.fullness(shape.pod, after, free)) if own else 0
            known = node.rooms[own] = (self._rooms, rooms, fullness)
        return known[1], known[2]


def harmless(milli: int, node: NodeEntry) -> float:
    """100: the node's zones lose nothing that an exclusive pod could use; 0: they lose most.

    What an ordinary pod takes is a share of the node's total, which the kubelet checks as well; as
    long as the total exceeds what the zones can still give exclusively, nothing is lost. Beyond
    that, zones that are broken up already are the ones to use.
    """
    view, zones = node.outlook(), node.free_by_zone()
    if view is None or zones is None or node.info is None:
        return 100.0
    config = view.base.config
    if config.cpu_policy != "static" or config.topology_policy == "none":
        return 100.0
    left = node.info.allocatable.get("cpu", 0) - node.used["cpu"] - milli
    return 90.0 if left >= 1000 * sum(cpus for _, cpus, _ in zones) else node.broken_up()


def balance(shape: Shape, node: NodeEntry) -> float:
    """kube-scheduler's LeastAllocated over CPU and memory: 100 = the node stays empty."""
    if node.info is None:
        return 0.0
    parts = []
    for name in SCORED:
        total = node.info.allocatable.get(name, 0)
        if total > 0:
            left = total - node.scored[name] - shape.scored.get(name, 0)
            parts.append(100.0 * max(0, left) / total)
    return sum(parts) / len(parts) if parts else 0.0


def _tightness(need: int, amounts: NodeAmounts, rows: Rows | slice) -> Column:
    """Best fit: free CPUs of the tightest zone that holds the largest container, then of the node.

    A node with a pod in flight costs more predictions and may have to wait for it; one without a
    report comes last.
    """
    # Too small becomes very large.
    over = (amounts.cpus[:, rows] - np.int32(min(need, 2 * MANY))).view(np.uint32)
    tightest = np.minimum(over.min(axis=0), 1 << 16).astype(np.int64)
    left = np.clip(amounts.of("cpu", rows), 0, (1 << 24) - 1)
    in_flight = np.minimum(amounts.in_flight[rows], 255)
    bare = (~amounts.zoned[rows]).astype(np.int64)
    keys: Column = (bare << 52) | (in_flight << 44) | (tightest << 24) | left
    return keys


def _harm(shape: Shape, amounts: NodeAmounts, rows: Rows) -> Column:
    """What an ordinary pod's score is made of (:func:`harmless` and :func:`balance`), turned round,
    in millionths.
    """
    free = amounts.of("cpu", rows) - shape.totals.get("cpu", 0)
    inside = np.where(free >= 1000 * amounts.together[rows], 90.0, amounts.broken_up[rows] / 1e6)
    parts = np.where(amounts.aligning[rows], inside, 100.0) * HARMLESS
    known = [name for name in SCORED if name in amounts.allocatable]
    for name in known:
        total, used = amounts.allocatable[name][rows], amounts.scored[name][rows]
        after = np.maximum(total - used - min(shape.scored.get(name, 0), UNBOUNDED), 0)
        parts += BALANCE / len(known) * 100.0 * after / np.maximum(total, 1)
    score = 1000.0 * parts / (HARMLESS + BALANCE)
    return np.rint((1e5 - score) * 1e6).astype(np.int64)
