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
from rte.model.quantity import ResourceList
from rte.placement.explain import lands
from rte.placement.fleet import scores
from rte.placement.foreign import zone_scores, zones
from rte.placement.kubelet.demand import free_of
from rte.scheduler.framework.node import Report, predict
from rte.scheduler.framework.profile import Profile
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.plugins.node_affinity import RequiredNodes
from rte.scheduler.plugins.node_resources_fit import NodeResourcesFit
from rte.scheduler.plugins.node_unschedulable import NodeUnschedulable
from rte.scheduler.plugins.taint_toleration import TaintToleration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
    placing = Placing(cluster, Cycle(cluster), strategy)
    for pod in pods:
        one = placing.place(pod)
        outcome.placed += one.placed
        outcome.rejections += one.rejections
        outcome.unplaced |= one.unplaced
    return outcome


class Placing:
    """Places pods on a cluster, and takes them away, by one way of deciding."""

    def __init__(self, cluster: Cluster, cycle: Cycle, strategy: str) -> None:
        self._cluster, self._cycle, self._strategy = cluster, cycle, strategy
        #: Shape and node -> the states that were rated, and how.
        self._rated: dict[
            tuple[int, str], tuple[tuple[NodeState, NodeState], tuple[float, str]]
        ] = {}

    def place(self, pod: PodView) -> SimulationOutcome:
        """Try the nodes that the strategy would send the pod to, the best first."""
        cluster, outcome = self._cluster, SimulationOutcome(strategy=self._strategy)
        cluster.set_pod(pod, 0.0)
        reasons: Counter[str] = Counter()
        for attempt, entry in enumerate(self._ranked(pod, reasons), start=1):
            admission = predict(entry, pod)
            if admission is None or admission.admitted:
                where = lands(admission.state, admission) if admission else {}
                outcome.placed.append(
                    PlacedPod(pod=pod.key, node=entry.name, zones=where, attempts=attempt)
                )
                _bind(cluster, entry, pod, admission)
                self._cycle.zone_room.placed(pod.shape)
                return outcome
            outcome.rejections[admission.reason] += 1
            reasons[admission.reason] += 1
        cluster.remove_pod(pod.uid, 0.0)
        outcome.unplaced[pod.key] = reasons
        return outcome

    def end(self, pod: PodView) -> None:
        """A pod that was placed ends, and its kubelet has noticed."""
        known = self._cluster.pods[pod.uid]
        entry = self._cluster.nodes[known.node]
        if entry.report is not None and entry.report.state is not None:
            state = placement.remove(entry.report.state, known.kubelet_uid)
            state = replace(state, admitted=state.admitted - {known.kubelet_uid})
            report = Report(state=state, owner=entry.report.owner)
            self._cluster.set_report(known.node, report, 0.0)
        self._cluster.remove_pod(pod.uid, 0.0)

    def _ranked(self, pod: PodView, reasons: Counter[str]) -> list[NodeEntry]:
        """Nodes that the strategy would send the pod to, best first; why not: ``reasons``."""
        if self._strategy == NEXT_FIT:
            chosen = self._cycle.decide(pod).node
            if chosen is None:
                reasons.update(self._cycle.reasons(pod))
            return [self._cluster.nodes[chosen]] if chosen else []
        rated: list[tuple[float, str, NodeEntry]] = []
        for entry in self._cluster.nodes.values():
            if entry.info is None:
                continue
            value, why = self._rate(entry, pod)
            if why:
                reasons[why] += 1
            else:
                rated.append((-value, entry.name, entry))
        return [entry for _, _, entry in sorted(rated, key=lambda item: item[:2])]

    def _rate(self, entry: NodeEntry, pod: PodView) -> tuple[float, str]:
        outlook = entry.outlook()
        if self._strategy in scores.CLASSIC:
            check = self._cycle.check(entry, pod)
            after = check.verdict.after if check.verdict else None
            if check.reason or outlook is None or after is None:
                return 0.0, check.reason
            score, before = scores.CLASSIC[self._strategy], outlook.predicted
            return self._remembered(
                entry, pod, (before, after), lambda: (score(pod.shape.pod, before, after), "")
            )
        why = _totals(entry, pod)
        if why or self._strategy == NODE_TOTALS or outlook is None:
            return _emptiness(entry, pod), why
        seen = outlook.predicted
        return self._remembered(entry, pod, (seen, seen), lambda: _by_zones(entry, pod, seen))

    def _remembered(
        self,
        entry: NodeEntry,
        pod: PodView,
        states: tuple[NodeState, NodeState],
        rate: Callable[[], tuple[float, str]],
    ) -> tuple[float, str]:
        """The rating, made anew when one of the states that it follows from is another one."""
        key = (id(pod.shape), entry.name)
        known = self._rated.get(key)
        if known is None or known[0][0] is not states[0] or known[0][1] is not states[1]:
            known = self._rated[key] = (states, rate())
        return known[1]


def _by_zones(entry: NodeEntry, pod: PodView, state: NodeState) -> tuple[float, str]:
    table = zone_table(state)
    allocatable = entry.info.allocatable if entry.info else ResourceList({})
    verdict = zones.filter_zones(table, pod.shape.pod, allocatable)
    if not verdict:
        return 0.0, ", ".join(verdict.reasons)
    return float(zone_scores.score_zones(table, pod.shape.pod, "LeastAllocated")), ""


def _bind(
    cluster: Cluster, entry: NodeEntry, pod: PodView, admission: placement.Admission | None
) -> None:
    bound = replace(pod, node=entry.name)
    if admission is not None and entry.report is not None:
        after = placement.start(admission.state, bound.shape.as_pod(bound.kubelet_uid))
        after = replace(after, admitted=after.admitted | {bound.kubelet_uid})
        cluster.set_report(entry.name, Report(state=after, owner=entry.report.owner), 0.0)
    cluster.set_pod(bound, 0.0)


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
