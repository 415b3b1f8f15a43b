"""Offline placement: pods onto nodes by one way of deciding, judged by the kubelet's rules.

The judge is always :func:`rte.placement.admit`; the ways of deciding differ in what they look at:
exact prediction with one of the scores, zone arithmetic (what schedulers with only an NRT can see),
or node totals (what kube-scheduler sees).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte import placement
from rte.placement.explain import lands
from rte.placement.fleet import scores
from rte.placement.foreign import zone_scores, zones
from rte.placement.free import free_of
from rte.scheduler.framework.node import Report, predict
from rte.scheduler.framework.profile import Profile
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.plugins.node_affinity import RequiredNodes
from rte.scheduler.plugins.node_resources_fit import NodeResourcesFit
from rte.scheduler.plugins.node_unschedulable import NodeUnschedulable
from rte.scheduler.plugins.taint_toleration import TaintToleration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView

NEXT_FIT = "NextFit"
ZONE_ARITHMETIC = "zone-arithmetic"
NODE_TOTALS = "node-totals"
EXACT = (NEXT_FIT, *scores.CLASSIC)
STRATEGIES = (*EXACT, ZONE_ARITHMETIC, NODE_TOTALS)

#: What schedulers that know nothing of zones look at.
_BY_TOTALS = Profile([NodeUnschedulable(), RequiredNodes(), TaintToleration(), NodeResourcesFit()])


@dataclass(frozen=True, kw_only=True)
class PlacedPod:
    """A pod that the kubelet runs. ``zones``: container -> zone ids; ``attempts``: 1 = at once."""

    pod: str
    node: str
    zones: Mapping[str, tuple[int, ...]]
    attempts: int = 1


@dataclass(kw_only=True)
class SimulationOutcome:
    """What became of the pods under one strategy.

    ``rejections`` counts the kubelets' refusals by reason (a pod is tried on the next best node
    then), ``unplaced`` holds why each node refused a pod that runs nowhere.
    """

    strategy: str
    placed: list[PlacedPod] = field(default_factory=list)
    rejections: Counter[str] = field(default_factory=Counter)
    unplaced: dict[str, Counter[str]] = field(default_factory=dict)


def simulate(
    cluster: Cluster, pods: Iterable[PodView], strategy: str = NEXT_FIT
) -> SimulationOutcome:
    """Place the pods one after the other, in order; none ends. The cluster is changed."""
    outcome = SimulationOutcome(strategy=strategy)
    cycle = Cycle(cluster)
    for pod in pods:
        cluster.set_pod(pod, 0.0)
        reasons: Counter[str] = Counter()
        for attempt, entry in enumerate(_ranked(cluster, cycle, pod, strategy, reasons), start=1):
            admission = predict(entry, pod)
            if admission is None or admission.admitted:
                where = lands(admission.state, admission) if admission else {}
                outcome.placed.append(
                    PlacedPod(pod=pod.key, node=entry.name, zones=where, attempts=attempt)
                )
                _bind(cluster, entry, pod, admission)
                cycle.placed(pod)
                break
            outcome.rejections[admission.reason] += 1
            reasons[admission.reason] += 1
        else:
            cluster.remove_pod(pod.uid, 0.0)
            outcome.unplaced[pod.key] = reasons
    return outcome


def _bind(
    cluster: Cluster, entry: NodeEntry, pod: PodView, admission: placement.Admission | None
) -> None:
    bound = replace(pod, node=entry.name)
    if admission is not None and entry.report is not None:
        after = placement.start(admission.state, bound.shape.as_pod(bound.kubelet_uid))
        after = replace(after, admitted=after.admitted | {bound.kubelet_uid})
        cluster.set_report(entry.name, Report(state=after, owner=entry.report.owner), 0.0)
    cluster.set_pod(bound, 0.0)


def _ranked(
    cluster: Cluster, cycle: Cycle, pod: PodView, strategy: str, reasons: Counter[str]
) -> list[NodeEntry]:
    """Nodes that the strategy would send the pod to, best first; why not goes to ``reasons``."""
    if strategy == NEXT_FIT:
        chosen = cycle.decide(pod).node
        if chosen is None:
            reasons.update(cycle.reasons(pod))
        return [cluster.nodes[chosen]] if chosen else []
    rated: list[tuple[float, str, NodeEntry]] = []
    for entry in cluster.nodes.values():
        if entry.info is None:
            continue
        value, why = _rate(cycle, entry, pod, strategy)
        if why:
            reasons[why] += 1
        else:
            rated.append((-value, entry.name, entry))
    return [entry for _, _, entry in sorted(rated, key=lambda item: item[:2])]


def _rate(cycle: Cycle, entry: NodeEntry, pod: PodView, strategy: str) -> tuple[float, str]:
    if strategy in scores.CLASSIC:
        check = cycle.check(entry, pod)
        outlook = entry.outlook()
        if check.reason or outlook is None or check.verdict is None or not check.verdict.after:
            return 0.0, check.reason
        score = scores.CLASSIC[strategy]
        return score(pod.shape.pod, outlook.predicted, check.verdict.after), ""
    why = _totals(entry, pod)
    outlook = entry.outlook()
    if why or strategy == NODE_TOTALS or outlook is None or entry.info is None:
        return _emptiness(entry, pod), why
    table = zone_table(outlook.predicted)
    verdict = zones.filter_zones(table, pod.shape.pod, entry.info.allocatable)
    if not verdict:
        return 0.0, ", ".join(verdict.reasons)
    return float(zone_scores.score_zones(table, pod.shape.pod, "LeastAllocated")), ""


def _totals(entry: NodeEntry, pod: PodView) -> str:
    if entry.info is None:
        return "node(s) that have no Node object"
    return _BY_TOTALS.check(pod.shape, entry).reason


def _emptiness(entry: NodeEntry, pod: PodView) -> float:
    """kube-scheduler's default: the emptier the node stays by totals, the better."""
    parts = []
    for name in ("cpu", "memory"):
        total = entry.info.allocatable.get(name, 0) if entry.info else 0
        if total:
            parts.append(1 - (entry.used[name] + pod.shape.totals.get(name, 0)) / total)
    return sum(parts) / len(parts) if parts else 0.0


def zone_table(state: NodeState) -> zones.ZoneTable:
    """What a consumer of NRT zones sees of this state: hardware where no manager counts."""
    hardware = {zone.id: {"memory": zone.memory_bytes} for zone in state.topology.zones}
    entries = []
    for zone, free in free_of(state).zones.items():
        available = {**hardware[zone], **free, "cpu": 1000 * free["cpu"]}
        total = {**available, "cpu": 1000 * state.topology.zone_cpus[zone].bit_count()}
        row = state.memory.get(zone)
        if row:
            total |= {name: amounts.allocatable for name, amounts in row.amounts.items()}
        entries.append(zones.ZoneEntry(id=zone, available=available, total=total))
    return zones.ZoneTable(
        zones=tuple(entries),
        policy=state.config.topology_policy,
        scope=state.config.topology_scope,
    )


def occupancy(cluster: Cluster) -> Mapping[str, NodeState]:
    """Node name -> its state, for nodes that have one."""
    out = {}
    for name, entry in sorted(cluster.nodes.items()):
        outlook = entry.outlook()
        if outlook is not None:
            out[name] = outlook.predicted
    return out


def order_by_name(pods: Sequence[PodView]) -> list[PodView]:
    """Pods in the order of their creation, then by name (for files without creation times)."""
    return sorted(pods, key=lambda pod: (pod.created, pod.key))
