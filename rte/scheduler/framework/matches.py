"""How many pods on each node match the inter-pod terms that somebody asks about.

Nodes are their rows in the columns, so that counts by domain are sums over a column of labels.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.terms import ALONE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from rte.scheduler.framework.columns import Column, Rows
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.terms import Term

    #: What a pod needs to be matched: namespace, key and value of a label; empty where that is
    #: open.
    _Bucket = tuple[str, str, str]

_MOST_ASKED = 512


class Counts:
    """Row -> number of pods; rows without one are not there."""

    __slots__ = ("_arrays", "_by_row")

    def __init__(self) -> None:
        self._by_row: dict[int, int] = {}
        self._arrays: tuple[Rows, Column] | None = None

    def __bool__(self) -> bool:
        return bool(self._by_row)

    def add(self, row: int, change: int) -> None:
        """So many pods more, or fewer."""
        number = self._by_row.get(row, 0) + change
        if number:
            self._by_row[row] = number
        else:
            self._by_row.pop(row, None)
        self._arrays = None

    def merge(self, other: Counts) -> None:
        """Those of the other in addition."""
        for row, number in other._by_row.items():
            self.add(row, number)

    def arrays(self) -> tuple[Rows, Column]:
        """The rows, and the number of pods of each."""
        if self._arrays is None:
            count = len(self._by_row)
            self._arrays = (
                np.fromiter(self._by_row.keys(), dtype=np.intp, count=count),
                np.fromiter(self._by_row.values(), dtype=np.int64, count=count),
            )
        return self._arrays


NONE = Counts()


class TermCounts:
    """Terms that placed pods have, and where; a pod is compared with few of them."""

    def __init__(self) -> None:
        self._counts: dict[Term, Counts] = {}
        #: Keys of labels that they look at, and how many of them do.
        self.labels: Counter[str] = Counter()
        self._buckets: dict[_Bucket, dict[Term, Counts]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, term: Term, row: int, change: int) -> None:
        """So many pods more, or fewer, that have the term."""
        counts = self._counts.get(term)
        if counts is None:
            counts = self._counts[term] = Counts()
            self.labels.update(_looked_at(term))
            for bucket in _buckets(term):
                self._buckets.setdefault(bucket, {})[term] = counts
        counts.add(row, change)
        if not counts:
            del self._counts[term]
            for key in _looked_at(term):
                self.labels[key] -= 1
                if not self.labels[key]:
                    del self.labels[key]
            for bucket in _buckets(term):
                del self._buckets[bucket][term]
                if not self._buckets[bucket]:
                    del self._buckets[bucket]

    def matching(
        self, pod: PodView, namespaces: Mapping[str, Mapping[str, str]]
    ) -> Iterator[tuple[Term, Counts]]:
        """Those that match the pod. ``namespaces``: name -> labels."""
        if not self._counts:
            return
        for bucket in _buckets_of(pod):
            for term, counts in self._buckets.get(bucket, {}).items():
                if term.matches(pod, namespaces, absent={}):
                    yield term, counts


class _TermsAsked:
    """Pods that all of some terms match; ``lasting``: only those that are not being deleted."""

    def __init__(self, terms: Sequence[Term], *, lasting: bool) -> None:
        self.terms = tuple(terms)
        self.lasting = lasting
        self.counts = Counts()
        self.by_namespace = any(term.namespace_selector is not None for term in terms)


class _Alike:
    """Placed pods with the same namespace and labels, and how many of them are being deleted."""

    __slots__ = ("all", "lasting", "pod")

    def __init__(self, pod: PodView) -> None:
        self.pod = pod
        self.all = Counts()
        self.lasting = Counts()


class MatchIndex:
    """How many pods on each node match what somebody asks about, and what placed pods ask.

    Counted over all pods when a question is first asked, then kept up by :meth:`count`.

    Args:
        namespaces: name -> labels; whoever changes it calls :meth:`namespaces_changed`.

    Attributes:
        refusing: required anti-affinity of placed pods.
        attracting: what placed pods like (their weights below zero: dislike).
    """

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._namespaces = namespaces
        self._asked: OrderedDict[Hashable, _TermsAsked] = OrderedDict()
        self._buckets: dict[_Bucket, dict[Hashable, _TermsAsked]] = {}
        self._alike: dict[str, dict[tuple[tuple[str, str], ...], _Alike]] = {}
        self._owners: dict[str, Counts] = {}
        self._users: dict[str, dict[str, int]] = {}
        self.refusing = TermCounts()
        self.attracting = TermCounts()

    def count(self, pod: PodView, row: int, change: int) -> None:
        """A pod came to a node (+1) or left it (-1)."""
        # What looks at the pod comes first: where that raises, nothing was counted.
        own = pod.shape.company
        repelled, attracted = own.anti_affinity, list(own.attraction()) if own is not ALONE else []
        matched = [
            asked
            for bucket in _buckets_of(pod)
            for asked in self._buckets.get(bucket, {}).values()
            if not (asked.lasting and pod.deleting)
            and all(term.matches(pod, self._namespaces) for term in asked.terms)
        ]
        self._count_alike(pod, row, change)
        for asked in matched:
            asked.counts.add(row, change)
        if pod.owner and not pod.deleting:
            owned = self._owners.setdefault(pod.owner, Counts())
            owned.add(row, change)
            if not owned:
                del self._owners[pod.owner]
        for name, _ in pod.shape.claims:
            self._count_user(f"{pod.namespace}/{name}", pod.uid, row, change)
        for term in repelled:
            self.refusing.add(term, row, change)
        for term in attracted:
            self.attracting.add(term, row, change)

    def _count_user(self, claim: str, uid: str, row: int, change: int) -> None:
        users = self._users.setdefault(claim, {})
        if change > 0:
            users[uid] = row
        else:
            users.pop(uid, None)
        if not users:
            del self._users[claim]

    def users(self, claim: str) -> Mapping[str, int]:
        """UID -> row of the placed pods that use this claim (``namespace/name``)."""
        return self._users.get(claim, {})

    def _count_alike(self, pod: PodView, row: int, change: int) -> None:
        inside = self._alike.setdefault(pod.namespace, {})
        labels = tuple(sorted(pod.labels.items()))
        alike = inside.get(labels)
        if alike is None:
            alike = inside[labels] = _Alike(pod)
        alike.all.add(row, change)
        if not pod.deleting:
            alike.lasting.add(row, change)
        if not alike.all:
            del inside[labels]
            if not inside:
                del self._alike[pod.namespace]

    def siblings(self, owner: str) -> Counts:
        """Pods that this controller keeps, and that are not being deleted."""
        return self._owners.get(owner, NONE)

    def matching(self, terms: Sequence[Term], *, lasting: bool = False) -> Counts:
        """Pods that every one of the terms matches.

        Args:
            terms: at least one.
            lasting: pods that are being deleted do not count.
        """
        key = (lasting, *(term.key for term in terms))
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _TermsAsked(terms, lasting=lasting)
            for bucket in _buckets(asked.terms[0]):
                self._buckets.setdefault(bucket, {})[key] = asked
            self._scan(asked)
            if len(self._asked) > _MOST_ASKED:
                self._forget(next(iter(self._asked)))
        self._asked.move_to_end(key)
        return asked.counts

    def namespaces_changed(self) -> None:
        """A namespace has other labels: what was counted by them is counted anew when asked for."""
        for key in [key for key, asked in self._asked.items() if asked.by_namespace]:
            self._forget(key)

    def _forget(self, key: Hashable) -> None:
        asked = self._asked.pop(key)
        for bucket in _buckets(asked.terms[0]):
            del self._buckets[bucket][key]
            if not self._buckets[bucket]:
                del self._buckets[bucket]

    def _scan(self, asked: _TermsAsked) -> None:
        first = asked.terms[0]
        names: Iterable[str] = self._alike
        if first.namespace_selector is None:
            names = first.namespaces & self._alike.keys()
        for name in names:
            for alike in self._alike[name].values():
                if all(term.matches(alike.pod, self._namespaces) for term in asked.terms):
                    asked.counts.merge(alike.lasting if asked.lasting else alike.all)


def _looked_at(term: Term) -> set[str]:
    """Keys of the labels by which it tells pods apart."""
    return {item.key for item in term.selector.requirements or ()}


def _buckets(term: Term) -> list[_Bucket]:
    """Where a term is kept: a pod that it matches looks there."""
    if term.namespace_selector is not None:
        return [("", "", "")]
    for item in term.selector.requirements or ():
        if item.operator == "In":
            return [(name, item.key, value) for name in term.namespaces for value in item.values]
    return [(name, "", "") for name in term.namespaces]


def _buckets_of(pod: PodView) -> Iterator[_Bucket]:
    yield ("", "", "")
    yield (pod.namespace, "", "")
    for key, value in pod.labels.items():
        yield (pod.namespace, key, value)
