"""ScoringStrategy: MostAllocated and its like, for the profiles that name one.

Guaranteed pods are compared by zones, as NodeResourceTopologyMatch does it
(:func:`rte.placement.foreign.zone_scores.score_zones`): with a strategy other than LeastNUMANodes
where the policy is single-numa-node, and 0 where no zones are known. Everything else goes by node
totals, as kube-scheduler's NodeResourcesFit and NodeResourcesBalancedAllocation have it.
LeastNUMANodes says nothing of pods that are not Guaranteed: they go as without a strategy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.model.pod import QOS
from rte.model.quantity import ResourceList
from rte.placement.foreign.zone_scores import STRATEGIES, score_zones
from rte.placement.foreign.zones import ZoneEntry, ZoneTable, overlay
from rte.placement.kubelet.demand import free_of
from rte.placement.kubelet.rules import DEFAULT_MAX_ZONES
from rte.scheduler.framework.plugin import Score

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot
    from rte.scheduler.framework.shape import Shape

__all__ = ["STRATEGIES", "ScoringStrategy"]

_LEAST_ZONES = "LeastNUMANodes"

#: Scores of one state of a node that are kept.
_MOST_KEPT = 32


class ScoringStrategy(Score):
    """Takes the place of ZoneRoom for the pods that it speaks of.

    Args:
        strategies: ``spec.schedulerName`` -> one of :data:`STRATEGIES`.
    """

    name = "ScoringStrategy"
    says = f"instead of ZoneRoom, where `--scores` says so: {', '.join(STRATEGIES)}"

    def __init__(self, strategies: Mapping[str, str]) -> None:
        self._strategies = strategies

    def concerns(self, shape: Shape) -> bool:  # noqa: ARG002
        """Where some profile names a strategy."""
        return bool(self._strategies)

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Whether the pod's profile names a strategy that says something of such pods."""
        strategy = self._strategies.get(pod.scheduler, "")
        if strategy == _LEAST_ZONES:
            return pod.shape.pod.qos is QOS.GUARANTEED
        return bool(strategy)

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[float] | None:
        """0 to 100 each, not stretched: the ancestor's plugins have no normalization either."""
        strategy = self._strategies[pod.scheduler]
        return [self._kept(strategy, pod.shape, node) for node, _ in candidates]

    def _kept(self, strategy: str, shape: Shape, node: NodeEntry) -> int:
        """Remembered as long as the node stays as it is: all nodes are asked for each pod."""
        kept: dict[tuple[str, bytes], int] = node.derived.setdefault(self.name, {})
        found = kept.get((strategy, shape.key))
        if found is None:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            found = kept[strategy, shape.key] = _one(strategy, shape, node)
        return found


def _one(strategy: str, shape: Shape, node: NodeEntry) -> int:
    if shape.pod.qos is QOS.GUARANTEED:
        view, pod = node.outlook(), shape.pod
        table = node.report.table if node.report else None
        if view is not None:
            table = _table(view.predicted)
            pod = _counted(pod, table)
        elif table is not None:
            ahead = [other.shape.pod for uid, other in node.pods.items() if uid in node.unseen]
            table = overlay(table, ahead)
        if table is None or table.policy == "single-numa-node" or strategy == _LEAST_ZONES:
            return score_zones(table, pod, strategy)
    return _by_totals(strategy, shape, node)


def _table(state: NodeState) -> ZoneTable:
    """The zones of a node of ours as NodeResourceTopologyMatch would see them."""
    distances = {zone.id: zone.distances for zone in state.topology.zones}
    zones = tuple(
        ZoneEntry(
            id=zone,
            available={**free, "cpu": 1000 * free["cpu"]},
            costs=dict(zip(distances, distances.get(zone, ()), strict=False)),
        )
        for zone, free in free_of(state).zones.items()
    )
    bound = state.config.cpu_policy == "static"
    return ZoneTable(
        zones=zones,
        policy=state.config.topology_policy if bound else "none",
        scope=state.config.topology_scope,
        max_zones=max(DEFAULT_MAX_ZONES, len(zones)),
    )


def _counted(pod: Pod, table: ZoneTable) -> Pod:
    """The pod with what some zone counts: a manager that is off says nothing of its resource."""
    listed = {name for zone in table.zones for name in zone.available}
    boxes = (
        replace(
            box, requests=ResourceList({n: box.requests[n] for n in box.requests if n in listed})
        )
        for box in pod.containers
    )
    return replace(pod, containers=tuple(boxes))


def _by_totals(strategy: str, shape: Shape, node: NodeEntry) -> int:
    """kube-scheduler's formulas over CPU and memory, with equal weights and its rounding."""
    if strategy == "BalancedAllocation":
        if not (shape.totals.get("cpu") or shape.totals.get("memory")):
            return 0
        gain = _balance(shape.totals, node) - _balance({}, node)
        return 50 + (50 + gain) // 2
    shares = []
    for used, total in _after(node.scored, shape.scored, node):
        if strategy == "MostAllocated":
            shares.append(100 * min(used, total) // total)
        else:
            shares.append(100 * max(0, total - used) // total)
    return sum(shares) // len(shares) if shares else 0


def _balance(asked: Mapping[str, int], node: NodeEntry) -> int:
    """100 less the standard deviation of the used shares."""
    shares = [min(1.0, used / total) for used, total in _after(node.used, asked, node)]
    return int((1 - (abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0)) * 100.0)


def _after(
    used: Mapping[str, int], asked: Mapping[str, int], node: NodeEntry
) -> Iterator[tuple[int, int]]:
    """Used and allocatable amounts with the pod on the node, of what the node has."""
    for name in ("cpu", "memory"):
        total = node.info.allocatable.get(name, 0) if node.info else 0
        if total > 0:
            yield used.get(name, 0) + asked.get(name, 0), total
