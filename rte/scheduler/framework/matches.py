"""How many pods on each node match the inter-pod terms that somebody asks about."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.terms import Term

_MOST_TERMS = 512

K = TypeVar("K")


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
