"""InterPodAffinity: pods that want company, or none, over the domains of a topology key."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Filter, Score, scaled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot

    Domain = tuple[str, str]  # topology key, value


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Domains: where placed pods refuse this one, where it joins, where it shuns.

    ``first``: nobody to join yet, and the pod would match its own terms: it may go anywhere that
    has the keys.
    """

    refused: frozenset[Domain]
    refusing_keys: frozenset[str]
    wanted: Sequence[tuple[str, frozenset[str]]]
    first: bool
    shunned: Sequence[tuple[str, frozenset[str]]]


class InterPodAffinity(Filter, Score):
    """Required terms of the pod and, against it, of the pods already placed; preferred ones."""

    name = "InterPodAffinity"
    owns = frozenset({"affinity.podAffinity", "affinity.podAntiAffinity"})
    says = (
        "required and preferred terms in both directions, namespaceSelector, matchLabelKeys, "
        "mismatchLabelKeys"
    )
    helped_by = (
        Kind.NODE_ADDED
        | Kind.NODE_LABELS
        | Kind.NODE_GONE
        | Kind.POD_PLACED
        | Kind.POD_CHANGED
        | Kind.POD_GONE
        | Kind.NAMESPACE
    )
    weight = 2.0

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """Only a pod that some term of the two speaks of."""
        if event.pod is None:
            return True
        own, names = pod.shape.company, snapshot.namespaces
        if event.kind is Kind.POD_PLACED:
            return any(term.matches(event.pod, names) for term in own.affinity)
        changed = [view for view in (event.pod, event.old) if view is not None]
        terms = (*own.affinity, *own.anti_affinity)
        return any(term.matches(view, names) for term in terms for view in changed) or any(
            term.matches(pod, names)
            for view in changed
            for term in view.shape.company.anti_affinity
        )

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _Prepared | None:
        """The domains that matter to the pod."""
        own = pod.shape.company
        refused = frozenset(_refused(pod, snapshot))
        if not (refused or own.affinity or own.anti_affinity):
            return None
        # A pod counts for an affinity only if all its terms match it.
        joined = snapshot.matching(*own.affinity) if own.affinity else {}
        wanted = [
            (t.topology_key, _domains(t.topology_key, joined, snapshot)) for t in own.affinity
        ]
        first = not any(domains for _, domains in wanted) and all(
            term.matches(pod, snapshot.namespaces) for term in own.affinity
        )
        shunned = [
            (term.topology_key, _domains(term.topology_key, snapshot.matching(term), snapshot))
            for term in own.anti_affinity
        ]
        return _Prepared(refused, frozenset(key for key, _ in refused), wanted, first, shunned)

    def filter(self, prepared: _Prepared, pod: PodView, node: NodeEntry) -> str:  # noqa: ARG002
        """Refuse nodes in the wrong domains."""
        labels = node.info.labels if node.info else {}
        for key, domains in prepared.wanted:
            if key not in labels or (labels[key] not in domains and not prepared.first):
                return "node(s) didn't match pod affinity rules"
        for key, domains in prepared.shunned:
            if labels.get(key) in domains:
                return "node(s) didn't match pod anti-affinity rules"
        for key in prepared.refusing_keys:
            if (key, labels.get(key)) in prepared.refused:
                return "node(s) didn't satisfy existing pods anti-affinity rules"
        return ""

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether the pod, or a placed one, prefers company or none."""
        own = pod.shape.company
        return bool(own.liked or own.disliked or snapshot.matches.attracting)

    def score(
        self, pod: PodView, candidates: Sequence[Candidate], snapshot: Snapshot
    ) -> Sequence[float] | None:
        """Weights of the preferred terms of this pod and of those already placed towards it."""
        own = pod.shape.company
        worth: Counter[Domain] = Counter()
        for terms, sign in ((own.liked, 1), (own.disliked, -1)):
            for term in terms:
                _credit(
                    worth, term.topology_key, snapshot.matching(term), sign * term.weight, snapshot
                )
        for term, nodes in snapshot.matches.attracting.items():
            if term.matches(pod, snapshot.namespaces):
                _credit(worth, term.topology_key, nodes, term.weight, snapshot)
        if not worth:
            return None
        keys = {key for key, _ in worth}
        return scaled([_sum(worth, keys, node) for node, _ in candidates])


def _refused(pod: PodView, snapshot: Snapshot) -> Iterable[Domain]:
    """Domains in which some pod's required anti-affinity refuses this one."""
    for term, nodes in snapshot.matches.refusing.items():
        if term.matches(pod, snapshot.namespaces):
            for value in _domains(term.topology_key, nodes, snapshot):
                yield (term.topology_key, value)


def _domains(key: str, nodes: Mapping[str, int], snapshot: Snapshot) -> frozenset[str]:
    """Values of the topology key on these nodes."""
    found = set()
    for name in nodes:
        entry = snapshot.nodes.get(name)
        if entry is not None and entry.info is not None and key in entry.info.labels:
            found.add(entry.info.labels[key])
    return frozenset(found)


def _credit(
    worth: Counter[Domain], key: str, nodes: Mapping[str, int], weight: int, snapshot: Snapshot
) -> None:
    for name, number in nodes.items():
        entry = snapshot.nodes.get(name)
        if entry is not None and entry.info is not None and key in entry.info.labels:
            worth[key, entry.info.labels[key]] += weight * number


def _sum(worth: Counter[Domain], keys: Iterable[str], node: NodeEntry) -> float:
    labels = node.info.labels if node.info else {}
    return float(sum(worth[key, labels[key]] for key in keys if key in labels))
