"""Inter-pod terms and spread constraints made ready, and how many pods on each node match them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from rte.k8s import selectors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from rte.k8s import wire
    from rte.k8s.selectors import Selector
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView

_MOST_TERMS = 512

#: kube-scheduler's hardPodAffinityWeight.
_HARD_WEIGHT = 1

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Term:
    """One inter-pod term, resolved for the pod that has it: whom it matches, over which domains."""

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector
    topology_key: str
    weight: int = 0

    @property
    def key(self) -> Hashable:
        """Identifies whom it matches (domains aside)."""
        return (self.namespaces, self.namespace_selector, self.selector)

    def matches(self, pod: PodView, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the pod is one of those meant. ``namespaces``: name -> labels."""
        inside = pod.namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespaces.get(pod.namespace, {}))
        )
        return inside and self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class Company:
    """A pod's inter-pod terms: those that must hold and those that it would like."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    liked: tuple[Term, ...] = ()
    disliked: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.liked or self.disliked)

    def attraction(self) -> Iterable[Term]:
        """What a placed pod means for the scores of others, dislikes with a weight below zero.

        A required affinity counts as liked a little (hardPodAffinityWeight 1).
        """
        yield from self.liked
        for term in self.affinity:
            yield replace(term, weight=_HARD_WEIGHT)
        for term in self.disliked:
            yield replace(term, weight=-term.weight)


@dataclass(frozen=True, slots=True)
class Spread:
    """One topology spread constraint, resolved for the pod that has it."""

    topology_key: str
    selector: Selector
    max_skew: int
    min_domains: int
    hard: bool
    by_affinity: bool
    by_taints: bool


def company(rules: wire.PodRules, namespace: str, labels: Mapping[str, str]) -> Company:
    """The terms of a pod with these labels."""
    affinity = rules.affinity
    if affinity is None:
        return Company()
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity

    def hard(part: wire.PodAffinity | None) -> tuple[Term, ...]:
        given = (part.required if part else None) or ()
        return tuple(_term(item, namespace, labels) for item in given)

    def soft(part: wire.PodAffinity | None) -> tuple[Term, ...]:
        given = (part.preferred if part else None) or ()
        return tuple(
            _term(item.pod_affinity_term, namespace, labels, item.weight or 0)
            for item in given
            if item.pod_affinity_term is not None
        )

    return Company(hard(near), hard(far), soft(near), soft(far))


def spread(item: wire.SpreadConstraint, labels: Mapping[str, str]) -> Spread:
    """The constraint of a pod with these labels."""
    base = selectors.selector(item.label_selector)
    return Spread(
        topology_key=item.topology_key or "",
        selector=base.narrowed(item.match_label_keys or (), labels, "In"),
        max_skew=item.max_skew or 1,
        min_domains=item.min_domains or 1,
        hard=(item.when_unsatisfiable or "DoNotSchedule") == "DoNotSchedule",
        by_affinity=(item.node_affinity_policy or "Honor") == "Honor",
        by_taints=(item.node_taints_policy or "Ignore") == "Honor",
    )


def _term(
    item: wire.PodAffinityTerm, namespace: str, labels: Mapping[str, str], weight: int = 0
) -> Term:
    every = item.namespace_selector
    names = item.namespaces or ()
    if not names and every is None:
        names = (namespace,)
    chosen = selectors.selector(item.label_selector)
    chosen = chosen.narrowed(item.match_label_keys or (), labels, "In")
    chosen = chosen.narrowed(item.mismatch_label_keys or (), labels, "NotIn")
    return Term(
        namespaces=frozenset(names),
        namespace_selector=None if every is None else selectors.selector(every),
        selector=chosen,
        topology_key=item.topology_key or "",
        weight=weight,
    )


class MatchIndex:
    """How many pods on each node match what somebody asks about, and what placed pods ask.

    Counted once over all pods when a question is first asked, then kept up by :meth:`count`. Pods
    that are being deleted count here; topology spread leaves them out itself.

    Attributes:
        refusing: required anti-affinity of placed pods: term -> nodes with how many of them.
        attracting: what placed pods like (their weights below zero: dislike), likewise.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[Hashable, tuple[tuple[Term, ...], Counter[str]]] = OrderedDict()
        self._owners: dict[str, Counter[str]] = {}
        self.refusing: dict[Term, Counter[str]] = {}
        self.attracting: dict[Term, Counter[str]] = {}

    def count(self, pod: PodView, name: str, change: int) -> None:
        """A pod came to a node (+1) or left it (-1)."""
        for terms, counts in self._counts.values():
            if all(term.matches(pod, {}) for term in terms):
                counts[name] += change
                if not counts[name]:
                    del counts[name]
        if pod.owner:
            _add(self._owners, pod.owner, name, change)
        own = pod.shape.company
        for term in own.anti_affinity:
            _add(self.refusing, term, name, change)
        for term in own.attraction():
            _add(self.attracting, term, name, change)

    def siblings(self, owner: str) -> Mapping[str, int]:
        """Node -> number of its pods that this controller keeps."""
        return self._owners.get(owner, {})

    def on_nodes(
        self,
        terms: Sequence[Term],
        nodes: Mapping[str, NodeEntry],
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> Mapping[str, int]:
        """Node -> number of its pods that all terms match. ``namespaces``: name -> labels."""
        if any(term.namespace_selector is not None for term in terms):
            return _scan(terms, nodes.values(), namespaces)
        key = tuple(term.key for term in terms)
        known = self._counts.get(key)
        if known is None:
            known = self._counts[key] = (tuple(terms), _scan(terms, nodes.values(), namespaces))
            if len(self._counts) > _MOST_TERMS:
                self._counts.popitem(last=False)
        self._counts.move_to_end(key)
        return known[1]


def _add(table: dict[K, Counter[str]], key: K, name: str, change: int) -> None:
    counts = table.setdefault(key, Counter())
    counts[name] += change
    if not counts[name]:
        del counts[name]
        if not counts:
            del table[key]


def _scan(
    terms: Sequence[Term],
    nodes: Iterable[NodeEntry],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in nodes:
        for pod in entry.pods.values():
            if all(term.matches(pod, namespaces) for term in terms):
                counts[entry.name] += 1
    return counts
