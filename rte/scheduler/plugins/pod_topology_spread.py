"""PodTopologySpread: pods of a kind are spread evenly over the domains of a topology key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.k8s.tolerations import HARD_EFFECTS, tolerates
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Filter, Score, scaled
from rte.scheduler.framework.terms import Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.terms import Spread

#: kube-scheduler's system defaults, for pods without constraints of their own.
_DEFAULT_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")

#: Shapes whose eligible nodes are remembered.
_MOST_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A hard constraint with its counts: domain -> matching pods; ``own``: the pod counts too."""

    rule: Spread
    counts: Mapping[str, int]
    fewest: int
    own: int


class PodTopologySpread(Filter, Score):
    """Hard constraints refuse, soft ones are preferences.

    A pod without constraints that replicates (ReplicaSet, StatefulSet, ReplicationController) and
    needs no zone is spread over nodes and zones away from its siblings, as kube-scheduler's default
    constraints do; their selector is the controller, Services are not looked at. What needs a zone
    goes where it leaves most room.
    """

    name = "PodTopologySpread"
    owns = frozenset({"topologySpreadConstraints"})
    says = (
        "hard and soft constraints, minDomains, matchLabelKeys, both inclusion policies; default "
        "constraints by controller for pods that need no zone"
    )
    helped_by = (
        Kind.NODE_ADDED
        | Kind.NODE_LABELS
        | Kind.NODE_TAINTS
        | Kind.NODE_GONE
        | Kind.POD_PLACED
        | Kind.POD_CHANGED
        | Kind.POD_GONE
    )
    weight = 2.0

    def __init__(self) -> None:
        self._version = -1
        self._eligible: dict[tuple[bytes, bool, bool], dict[str, NodeInfo]] = {}

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Only a pod that some constraint counts: one more may raise the minimum as well."""
        if event.pod is None:
            return True
        changed = [view for view in (event.pod, event.old) if view is not None]
        return any(
            view.namespace == pod.namespace and rule.selector.matches(view.labels)
            for rule in pod.shape.spread
            for view in changed
        )

    def prepare(self, pod: PodView, snapshot: Snapshot) -> list[_Constraint] | None:
        """Counts of each hard constraint."""
        rules = [rule for rule in pod.shape.spread if rule.hard]
        if not rules:
            return None
        out = []
        for rule in rules:
            counts = self._counts(rule, pod, snapshot)
            fewest = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
            own = int(rule.selector.matches(pod.labels))
            out.append(_Constraint(rule, counts, fewest, own))
        return out

    def filter(
        self,
        prepared: Sequence[_Constraint],
        pod: PodView,  # noqa: ARG002
        node: NodeEntry,
    ) -> str:
        """Refuse nodes in domains that have too many already."""
        labels = node.info.labels if node.info else {}
        why = "node(s) didn't match pod topology spread constraints"
        for item in prepared:
            value = labels.get(item.rule.topology_key)
            if value is None:
                return f"{why} (missing required label)"
            if item.counts.get(value, 0) + item.own - item.fewest > item.rule.max_skew:
                return why
        return ""

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether the pod has soft constraints, or siblings to keep away from."""
        return any(not rule.hard for rule in pod.shape.spread) or bool(_siblings(pod, snapshot))

    def score(
        self, pod: PodView, candidates: Sequence[Candidate], snapshot: Snapshot
    ) -> Sequence[float] | None:
        """Fewer matching pods in the node's domains are better."""
        total = [0.0] * len(candidates)
        tables = [
            (rule.topology_key, self._counts(rule, pod, snapshot))
            for rule in pod.shape.spread
            if not rule.hard
        ]
        siblings = _siblings(pod, snapshot)
        if siblings:
            tables += [(key, _by_domain(key, siblings, snapshot)) for key in _DEFAULT_KEYS]
        for key, counts in tables:
            worst = max(counts.values(), default=0) + (0 if siblings else 1)
            for index, (node, _) in enumerate(candidates):
                value = node.info.labels.get(key) if node.info else None
                total[index] += counts.get(value, 0) if value is not None else worst
        return scaled(total, reverse=True)

    def _counts(self, rule: Spread, pod: PodView, snapshot: Snapshot) -> dict[str, int]:
        """Domain -> pods counted there, over the nodes that take part."""
        eligible = self._taking_part(rule, pod.shape, snapshot)
        counts = dict.fromkeys((info.labels[rule.topology_key] for info in eligible.values()), 0)
        if rule.selector.requirements is None:
            return counts
        term = Term(frozenset({pod.namespace}), None, rule.selector, "")
        for name, number in snapshot.matching(term).items():
            info = eligible.get(name)
            if info is not None:
                node = snapshot.nodes[name]
                ending = sum(1 for uid in node.leaving if term.matches(node.pods[uid], {}))
                counts[info.labels[rule.topology_key]] += number - ending
        return counts

    def _taking_part(self, rule: Spread, shape: Shape, snapshot: Snapshot) -> dict[str, NodeInfo]:
        """Nodes that have the keys and that the policies include; remembered until nodes change."""
        if snapshot.topology_version != self._version or len(self._eligible) > _MOST_REMEMBERED:
            self._version = snapshot.topology_version
            self._eligible.clear()
        question = (shape.key, rule.by_affinity, rule.by_taints)
        known = self._eligible.get(question)
        if known is None:
            keys = {each.topology_key for each in shape.spread if each.hard}
            known = self._eligible[question] = {
                name: entry.info
                for name, entry in snapshot.nodes.items()
                if entry.info is not None and _takes_part(rule, shape, entry.info, keys)
            }
        if rule.hard:
            return known
        return {name: info for name, info in known.items() if rule.topology_key in info.labels}


def _takes_part(rule: Spread, shape: Shape, info: NodeInfo, keys: Iterable[str]) -> bool:
    if any(key not in info.labels for key in keys):
        return False
    if rule.by_affinity and not shape.nodes.matches(info.name, info.labels):
        return False
    return not rule.by_taints or all(
        taint.effect not in HARD_EFFECTS or tolerates(shape.tolerations, taint)
        for taint in info.taints
    )


def _siblings(pod: PodView, snapshot: Snapshot) -> Mapping[str, int]:
    """Node -> pods of the same controller, where the default constraints apply."""
    if not pod.owner or pod.shape.rules.topology_spread_constraints or pod.shape.may_need_zone:
        return {}
    return snapshot.matches.siblings(pod.owner)


def _by_domain(key: str, nodes: Mapping[str, int], snapshot: Snapshot) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, number in nodes.items():
        entry = snapshot.nodes.get(name)
        if entry is not None and entry.info is not None and key in entry.info.labels:
            value = entry.info.labels[key]
            counts[value] = counts.get(value, 0) + number
    return counts
