"""Which of the nodes that would take a pod is the best one.

Pods that need a zone go where they leave most room for the pods to come
(:class:`rte.placement.fleet.scores.NextFit`). Ordinary pods go where they do the least harm to
those: nodes that align nothing, then zones that are broken up already. Soft rules of the pod come
on top with kube-scheduler's weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.cache import terms
from rte.scheduler.framework import predicates
from rte.scheduler.plugins import surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.placement.fleet.scores import NextFit
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import Check, NodeEntry
    from rte.scheduler.framework.objects import PodView

#: Weights of kube-scheduler's default profile; ours is 1.
_AFFINITY, _TAINTS, _COMPANY, _SPREAD = 2.0, 3.0, 2.0, 2.0

#: Of an ordinary pod's score: harmlessness against plain load balancing.
_HARMLESS, _BALANCE = 3.0, 1.0


def rank(
    pod: PodView,
    candidates: Sequence[tuple[NodeEntry, Check]],
    cluster: Cluster,
    next_fit: NextFit,
) -> list[tuple[float, NodeEntry, Check]]:
    """The candidates with their scores, best first; equal scores keep the given order."""
    scores = [_place(pod, entry, check, next_fit) for entry, check in candidates]
    entries = [entry for entry, _ in candidates]
    for weight, soft in (
        (_AFFINITY, _node_affinity(pod, entries)),
        (_TAINTS, _taints(pod, entries)),
        (_COMPANY, _company(pod, entries, cluster)),
        (_SPREAD, _spread(pod, entries, cluster)),
    ):
        if soft is not None:
            scores = [score + weight * part for score, part in zip(scores, soft, strict=True)]
    ranked = [(score, *each) for score, each in zip(scores, candidates, strict=True)]
    return sorted(ranked, key=lambda item: -item[0])


def is_soft(pod: PodView, cluster: Cluster) -> bool:
    """Whether the pod prefers some nodes for reasons of its own."""
    affinity = pod.shape.affinity
    return bool(
        any((affinity.get(kind) or {}).get(terms.SOFT) for kind in affinity)
        or pod.shape.spec.get("topologySpreadConstraints")
        or cluster.matches.attracting
    )


def _place(pod: PodView, entry: NodeEntry, check: Check, next_fit: NextFit) -> float:
    verdict = check.verdict
    outlook = entry.outlook()
    if verdict is not None and verdict.holdings and verdict.after and outlook is not None:
        return next_fit(pod.shape.pod, outlook.predicted, verdict.after)
    if pod.shape.may_need_zone and outlook is None:
        # It would fit where nobody aligns it: only when no node with zones takes it.
        return _balance(pod, entry) / 100.0
    parts = _HARMLESS * harmless(pod.shape.totals.get("cpu", 0), entry) + _BALANCE * _balance(
        pod, entry
    )
    return parts / (_HARMLESS + _BALANCE)


def harmless(milli: int, entry: NodeEntry) -> float:
    """100: the node's zones lose nothing that an exclusive pod could use; 0: they lose most.

    What an ordinary pod takes is a share of the node's total, which the kubelet checks as well; as
    long as the total exceeds what the zones can still give exclusively, nothing is lost. Beyond
    that, zones that are broken up already are the ones to use.
    """
    outlook = entry.outlook()
    zones = entry.free_by_zone()
    if outlook is None or zones is None or entry.info is None:
        return 100.0
    config = outlook.base.config
    if config.cpu_policy != "static" or config.topology_policy == "none":
        return 100.0
    free = [cpus for _, cpus, _ in zones]
    size = max((cpus.bit_count() for cpus in outlook.base.topology.zone_cpus.values()), default=0)
    left = entry.info.allocatable.get("cpu", 0) - entry.used.get("cpu", 0) - milli
    if left >= 1000 * sum(free):
        return 90.0
    return 80.0 * (1.0 - max(free, default=0) / size) if size else 90.0


def _balance(pod: PodView, entry: NodeEntry) -> float:
    """kube-scheduler's LeastAllocated over CPU and memory: 100 = the node stays empty."""
    if entry.info is None:
        return 0.0
    parts = []
    for name in ("cpu", "memory"):
        total = entry.info.allocatable.get(name, 0)
        if total > 0:
            left = total - entry.used.get(name, 0) - pod.shape.totals.get(name, 0)
            parts.append(100.0 * max(0, left) / total)
    return sum(parts) / len(parts) if parts else 0.0


def _normal(values: list[float], *, reverse: bool = False) -> list[float] | None:
    """Scaled to 0..100 by the extremes; None where all are alike."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high <= low:
        return None
    scaled = [100.0 * (value - low) / (high - low) for value in values]
    return [100.0 - value for value in scaled] if reverse else scaled


def _node_affinity(pod: PodView, entries: Sequence[NodeEntry]) -> list[float] | None:
    items = (pod.shape.affinity.get("nodeAffinity") or {}).get(terms.SOFT) or ()
    if not items:
        return None
    return _normal(
        [
            sum(
                float(item.get("weight") or 0)
                for item in items
                if entry.info and predicates.term_matches(item.get("preference") or {}, entry.info)
            )
            for entry in entries
        ]
    )


def _taints(pod: PodView, entries: Sequence[NodeEntry]) -> list[float] | None:
    counts = [
        float(
            sum(
                1
                for taint in (entry.info.taints if entry.info else ())
                if taint[2] == "PreferNoSchedule" and not predicates.tolerates(pod.shape, taint)
            )
        )
        for entry in entries
    ]
    return _normal(counts, reverse=True)


def _company(pod: PodView, entries: Sequence[NodeEntry], cluster: Cluster) -> list[float] | None:
    """Preferred inter-pod terms of this pod, and those of the pods already placed towards it."""
    by_domain: dict[tuple[str, str], float] = {}
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for term in terms.terms(pod, kind, terms.SOFT):
            for name, number in cluster.matching(term).items():
                _credit(by_domain, term, cluster.nodes.get(name), sign * term.weight * number)
        for other, name in cluster.matches.attracting.values():
            for term in terms.terms(other, kind, terms.SOFT):
                if term.matches(pod, cluster.namespaces):
                    _credit(by_domain, term, cluster.nodes.get(name), sign * term.weight)
    if not by_domain:
        return None
    return _normal(
        [
            sum(
                worth
                for (key, value), worth in by_domain.items()
                if entry.info and entry.info.labels.get(key) == value
            )
            for entry in entries
        ]
    )


def _credit(
    by_domain: dict[tuple[str, str], float],
    term: terms.Term,
    entry: NodeEntry | None,
    worth: float,
) -> None:
    value = entry.info.labels.get(term.topology_key) if entry and entry.info else None
    if value is not None:
        domain = (term.topology_key, value)
        by_domain[domain] = by_domain.get(domain, 0.0) + worth


def _spread(pod: PodView, entries: Sequence[NodeEntry], cluster: Cluster) -> list[float] | None:
    """Constraints with ``ScheduleAnyway``: fewer matching pods in the domain are better."""
    total = [0.0] * len(entries)
    asked = False
    for item in pod.shape.spec.get("topologySpreadConstraints") or ():
        if item.get("whenUnsatisfiable") != "ScheduleAnyway":
            continue
        asked = True
        counts: Mapping[str, int] = surroundings.spread_counts(item, pod, cluster)
        worst = max(counts.values(), default=0) + 1
        key = str(item.get("topologyKey") or "")
        for index, entry in enumerate(entries):
            value = entry.info.labels.get(key) if entry.info else None
            total[index] += counts.get(value, 0) if value is not None else worst
    return _normal(total, reverse=True) if asked else None
