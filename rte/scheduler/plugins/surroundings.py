"""Rules that look at pods of other nodes: inter-pod affinity, anti-affinity, topology spread.

Semantics of kube-scheduler's InterPodAffinity and PodTopologySpread plugins, ``matchLabelKeys``,
``mismatchLabelKeys``, ``namespaceSelector``, ``minDomains`` and the two node-inclusion policies
included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.scheduler.cache.terms import Term, terms, with_keys
from rte.scheduler.framework import predicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView


class Surroundings:
    """What the pods already placed mean for one pod; built once for each decision."""

    def __init__(self, pod: PodView, cluster: Cluster) -> None:
        self._pod = pod
        self._refused = _refused_domains(pod, cluster)
        self._shunned = [
            (term.topology_key, _domains(term, cluster)) for term in terms(pod, "podAntiAffinity")
        ]
        wanted = terms(pod, "podAffinity")
        self._wanted = [(term.topology_key, _domains(term, cluster)) for term in wanted]
        # The first pod of a group that wants to be together has nobody to join: it may go anywhere
        # that has the domains, if its own labels match its own terms.
        self._first = (
            bool(wanted)
            and not any(domains for _, domains in self._wanted)
            and all(term.matches(pod, cluster.namespaces) for term in wanted)
        )
        self._spread = [_Spread(item, pod, cluster) for item in hard_spread(pod.shape.spec)]

    def refuses(self, entry: NodeEntry) -> str | None:
        """None when the node is acceptable, else why not."""
        labels = entry.info.labels if entry.info else {}
        for key, value in self._refused:
            if labels.get(key) == value:
                return "node(s) didn't satisfy existing pods anti-affinity rules"
        for key, domains in self._wanted:
            if key not in labels or (labels[key] not in domains and not self._first):
                return "node(s) didn't match pod affinity rules"
        for key, domains in self._shunned:
            if labels.get(key) in domains:
                return "node(s) didn't match pod anti-affinity rules"
        for spread in self._spread:
            why = spread.refuses(labels)
            if why:
                return why
        return None


def hard_spread(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Topology spread constraints that must hold."""
    return [
        item
        for item in spec.get("topologySpreadConstraints") or ()
        if item.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]


def needed(pod: PodView, cluster: Cluster) -> bool:
    """Whether other nodes' pods can matter to this pod at all."""
    return pod.shape.looks_around or bool(cluster.matches.refusing)


def _refused_domains(pod: PodView, cluster: Cluster) -> set[tuple[str, str]]:
    """Domains (key, value) in which some pod's required anti-affinity refuses this one."""
    found = set()
    for other, name in cluster.matches.refusing.values():
        info = cluster.nodes[name].info if name in cluster.nodes else None
        if info is None:
            continue
        for term in terms(other, "podAntiAffinity"):
            value = info.labels.get(term.topology_key)
            if value is not None and term.matches(pod, cluster.namespaces):
                found.add((term.topology_key, value))
    return found


def _domains(term: Term, cluster: Cluster) -> set[str]:
    """Values of the topology key where pods that the term matches run."""
    found = set()
    for name, number in cluster.matching(term).items():
        entry = cluster.nodes.get(name)
        if number > 0 and entry is not None and entry.info is not None:
            value = entry.info.labels.get(term.topology_key)
            if value is not None:
                found.add(value)
    return found


class _Spread:
    """One hard topology spread constraint, counted over the nodes that take part."""

    def __init__(self, item: Mapping[str, Any], pod: PodView, cluster: Cluster) -> None:
        self.key = str(item.get("topologyKey") or "")
        self._most = int(item.get("maxSkew") or 1)
        self.counts = spread_counts(item, pod, cluster)
        fewest = min(self.counts.values(), default=0)
        self._fewest = 0 if len(self.counts) < int(item.get("minDomains") or 1) else fewest
        self._self = int(predicates.label_selector(spread_selector(item, pod), pod.labels))

    def refuses(self, labels: Mapping[str, str]) -> str | None:
        value = labels.get(self.key)
        if value is None:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        if self.counts.get(value, 0) + self._self - self._fewest > self._most:
            return "node(s) didn't match pod topology spread constraints"
        return None


def spread_selector(item: Mapping[str, Any], pod: PodView) -> Mapping[str, Any] | None:
    """Whom a spread constraint counts, ``matchLabelKeys`` included."""
    selector = item.get("labelSelector")
    if selector is None:
        return None
    return with_keys(selector, item.get("matchLabelKeys"), pod.labels, "In")


def spread_counts(item: Mapping[str, Any], pod: PodView, cluster: Cluster) -> dict[str, int]:
    """Domain -> pods counted there, over nodes that have all keys and that the policies include."""
    keys = _all_keys(pod.shape.spec)
    term = Term(frozenset({pod.namespace}), None, spread_selector(item, pod), "")
    on_nodes = cluster.matching(term) if term.selector is not None else {}
    by_affinity = item.get("nodeAffinityPolicy", "Honor") == "Honor"
    by_taints = item.get("nodeTaintsPolicy", "Ignore") == "Honor"
    key = str(item.get("topologyKey") or "")
    counts: dict[str, int] = {}
    for entry in cluster.nodes.values():
        info = entry.info
        if info is None or any(name not in info.labels for name in keys):
            continue
        if by_affinity and not predicates.selects(pod.shape, info):
            continue
        if by_taints and not _endures(pod, info.taints):
            continue
        leaving = 0
        if on_nodes.get(entry.name):
            leaving = sum(
                1
                for other in entry.pods.values()
                if other.deleting and term.matches(other, cluster.namespaces)
            )
        number = on_nodes.get(entry.name, 0) - leaving
        counts[info.labels[key]] = counts.get(info.labels[key], 0) + number
    return counts


def _all_keys(spec: Mapping[str, Any]) -> Sequence[str]:
    return [str(item.get("topologyKey") or "") for item in hard_spread(spec)]


def _endures(pod: PodView, taints: Iterable[tuple[str, str, str]]) -> bool:
    return all(
        effect == "PreferNoSchedule" or predicates.tolerates(pod.shape, (key, value, effect))
        for key, value, effect in taints
    )
