"""Inter-pod terms, and how many pods on each node match them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from rte.scheduler.framework import predicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"

_MOST_TERMS = 512


@dataclass(frozen=True, slots=True)
class Term:
    """One inter-pod term, resolved for the pod that has it: whom it matches, over which domains."""

    namespaces: frozenset[str]
    namespace_selector: Mapping[str, Any] | None
    selector: Mapping[str, Any] | None
    topology_key: str
    weight: int = 0

    @property
    def key(self) -> bytes:
        """Identifies whom it matches (domains aside)."""
        return orjson.dumps(
            [sorted(self.namespaces), self.namespace_selector, self.selector],
            option=orjson.OPT_SORT_KEYS,
        )

    def matches(self, pod: PodView, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the pod is one of those meant. ``namespaces``: name -> labels."""
        inside = pod.namespace in self.namespaces or (
            self.namespace_selector is not None
            and predicates.label_selector(
                self.namespace_selector, namespaces.get(pod.namespace, {})
            )
        )
        return inside and predicates.label_selector(self.selector, pod.labels)


def terms(pod: PodView, kind: str, strength: str = HARD) -> list[Term]:
    """The pod's terms; ``kind`` is ``podAffinity`` or ``podAntiAffinity``."""
    items = (pod.shape.affinity.get(kind) or {}).get(strength) or ()
    out = []
    for item in items:
        weight = int(item.get("weight") or 0)
        body = item.get("podAffinityTerm") or item
        out.append(_term(body, pod, weight))
    return out


def _term(item: Mapping[str, Any], pod: PodView, weight: int) -> Term:
    selector = item.get("labelSelector")
    every = item.get("namespaceSelector")
    names = item.get("namespaces") or ()
    if not names and every is None:
        names = (pod.namespace,)
    if selector is not None:
        selector = with_keys(selector, item.get("matchLabelKeys"), pod.labels, "In")
        selector = with_keys(selector, item.get("mismatchLabelKeys"), pod.labels, "NotIn")
    return Term(frozenset(names), every, selector, str(item.get("topologyKey") or ""), weight)


def with_keys(
    selector: Mapping[str, Any],
    keys: Iterable[str] | None,
    labels: Mapping[str, str],
    operator: str,
) -> Mapping[str, Any]:
    """The selector and, for each key that the pod has, a requirement on its value."""
    extra = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for key in keys or ()
        if key in labels
    ]
    if not extra:
        return selector
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *extra]}


class MatchIndex:
    """How many pods on each node match each selector that somebody asks about.

    Counted once over all pods when a selector is first seen, then kept up by :meth:`count`. Pods
    that are being deleted count here; topology spread leaves them out itself.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, tuple[Term, Counter[str]]] = OrderedDict()
        self.refusing: dict[str, tuple[PodView, str]] = {}
        self.attracting: dict[str, tuple[PodView, str]] = {}

    def count(self, pod: PodView, name: str, change: int) -> bool:
        """A pod came to a node (+1) or left it (-1); True when it refuses company."""
        for term, counts in self._counts.values():
            if term.matches(pod, {}):
                counts[name] += change
                if not counts[name]:
                    del counts[name]
        affinity = pod.shape.affinity
        if not affinity:
            return False
        if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
            _register(self.attracting, pod, name, change)
        if (affinity.get("podAntiAffinity") or {}).get(HARD):
            _register(self.refusing, pod, name, change)
            return True
        return False

    def on_nodes(
        self,
        term: Term,
        nodes: Mapping[str, NodeEntry],
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> Mapping[str, int]:
        """Node -> number of its pods that the term matches. ``namespaces``: name -> labels."""
        if term.namespace_selector is not None:
            return _scan(term, nodes, namespaces)
        key = term.key
        known = self._counts.get(key)
        if known is None:
            known = self._counts[key] = (term, _scan(term, nodes, namespaces))
            if len(self._counts) > _MOST_TERMS:
                self._counts.popitem(last=False)
        self._counts.move_to_end(key)
        return known[1]


def _register(table: dict[str, tuple[PodView, str]], pod: PodView, name: str, change: int) -> None:
    if change > 0:
        table[pod.uid] = (pod, name)
    else:
        table.pop(pod.uid, None)


def _scan(
    term: Term, nodes: Mapping[str, NodeEntry], namespaces: Mapping[str, Mapping[str, str]]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in nodes.values():
        for pod in entry.pods.values():
            if term.matches(pod, namespaces):
                counts[entry.name] += 1
    return counts
