"""InterPodAffinity: pods that want company, or none, over the domains of a topology key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.matches import NONE
from rte.scheduler.framework.plugin import RowFilter, RowRefusal, RowScore, Surroundings, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Columns, Labels, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.matches import Counts
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import PodChange, Snapshot
    from rte.scheduler.framework.terms import Term


class InterPodAffinity(RowFilter, RowScore):
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
        own, names = pod.shape.company, snapshot.namespaces
        if event.pod is None:
            return bool(own.affinity or own.anti_affinity or snapshot.matches.refusing)
        if event.kind is Kind.POD_PLACED:
            return any(term.matches(event.pod, names) for term in own.affinity)
        changed = [view for view in (event.pod, event.old) if view is not None]
        terms = (*own.affinity, *own.anti_affinity)
        return any(term.matches(view, names) for term in terms for view in changed) or any(
            term.matches(pod, names)
            for view in changed
            for term in view.shape.company.anti_affinity
        )

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _AffinityState | None:
        """Who is where of those whom the terms of either side speak of."""
        own, columns, matches = pod.shape.company, snapshot.columns, snapshot.matches
        # A pod counts for an affinity only if all its terms match it.
        joined = matches.matching(own.affinity) if own.affinity else NONE
        wanted = [_TermDomains.of(term, joined, columns) for term in own.affinity]
        shunned = [
            _TermDomains.of(term, matches.matching([term]), columns) for term in own.anti_affinity
        ]
        shunning = [
            _TermDomains.of(term, counts, columns)
            for term, counts in matches.refusing.matching(pod, snapshot.namespaces)
        ]
        # Without any of them who is nominated is not asked either (PreFilter says Skip).
        if not (wanted or shunned or shunning):
            return None
        return _AffinityState(pod, snapshot, wanted, shunned, shunning)

    def joins(self, prepared: _AffinityState, pod: PodView, other: PodView) -> bool:  # noqa: ARG002
        """Whether it is one of those that the pod wants to be with."""
        return prepared.is_joined(other)

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether the pod, or a placed one, prefers company or none."""
        own = pod.shape.company
        return bool(own.liked or own.disliked or snapshot.matches.attracting)

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """Weights of the preferred terms of this pod and of those already placed towards it."""
        own, matches = pod.shape.company, snapshot.matches
        worth: list[tuple[str, int, Counts]] = []
        for terms, sign in ((own.liked, 1), (own.disliked, -1)):
            worth += [(t.topology_key, sign * t.weight, matches.matching([t])) for t in terms]
        worth += [
            (term.topology_key, term.weight, counts)
            for term, counts in matches.attracting.matching(pod, snapshot.namespaces)
        ]
        total = np.zeros(len(rows))
        for key, weight, counts in worth:
            column = snapshot.columns.labels(key)
            total += weight * column.sums(*counts.arrays())[column.of_row[rows]]
        return scaled(total)


@dataclass(frozen=True, slots=True)
class _TermDomains:
    """A term, and how many of the pods that it is about each domain of its key has, by number."""

    term: Term
    column: Labels
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, term: Term, counts: Counts, columns: Columns) -> _TermDomains:
        """``counts``: the pods by row."""
        column = columns.labels(term.topology_key)
        return cls(term, column, column.sums(*counts.arrays()))

    def at(self, rows: Rows | slice) -> NDArray[np.float64]:
        """How many the domains of these rows have."""
        found: NDArray[np.float64] = self.counts[self.column.of_row[rows]]
        return found

    def changed(self, row: int, number: int) -> _TermDomains:
        """With so many more in the domain of that row."""
        return replace(self, counts=self.column.moved(self.counts, row, number))


@dataclass(slots=True)
class _AffinityState(Surroundings):
    """Domains where those are whom the pod wants, shuns, and is shunned by.

    ``lasting``: of the wanted ones only those count who are not being deleted.
    """

    pod: PodView
    snapshot: Snapshot
    wanted: list[_TermDomains]
    shunned: list[_TermDomains]
    shunning: list[_TermDomains]
    lasting: bool = False
    _staying: list[_TermDomains] | None = None
    _everywhere: tuple[RowRefusal, ...] | None = None

    def refusals(self, rows: Rows | slice) -> Iterator[RowRefusal]:
        """Rows in the wrong domains."""
        if self.wanted:
            # Nobody to join yet, and the pod matches its own terms: anywhere that has the keys.
            first = not any(each.counts.any() for each in self.wanted) and self.is_joined(self.pod)
            for each in self.wanted:
                there = each.column.of_row[rows] > 0 if first else each.at(rows) > 0
                yield RowRefusal(~there, "node(s) didn't match pod affinity rules")
        for each in self.shunned:
            why = "node(s) didn't match pod anti-affinity rules"
            yield RowRefusal(each.at(rows) > 0, why, resources=True)
        for each in self.shunning:
            why = "node(s) didn't satisfy existing pods anti-affinity rules"
            yield RowRefusal(each.at(rows) > 0, why, resources=True)

    def is_joined(self, other: PodView) -> bool:
        """Whether all terms of the pod's affinity match that one."""
        names = self.snapshot.namespaces
        return bool(self.wanted) and all(it.term.matches(other, names) for it in self.wanted)

    def changed(self, changes: Sequence[PodChange]) -> _AffinityState:
        """With pods more or fewer.

        Where pods are taken to leave, so have all that are being deleted, on whatever node: nobody
        can count on the company of those.
        """
        shunned, shunning = self.shunned, self.shunning
        lasting = self.lasting or any(number < 0 for *_, number in changes)
        wanted = self._those_who_stay() if lasting else self.wanted
        names = self.snapshot.namespaces
        for other, name, number in changes:
            row = self.snapshot.columns.row_of(name)
            if row is None:
                continue
            if self.is_joined(other) and not (lasting and other.deleting):
                wanted = [each.changed(row, number) for each in wanted]
            shunned = [
                each.changed(row, number) if each.term.matches(other, names) else each
                for each in shunned
            ]
            for term in other.shape.company.anti_affinity:
                if term.matches(self.pod, names, absent={}):
                    shunning = self._shunning(shunning, term, row, number)
        return _AffinityState(self.pod, self.snapshot, wanted, shunned, shunning, lasting)

    def _those_who_stay(self) -> list[_TermDomains]:
        if self.lasting or not self.wanted:
            return self.wanted
        if self._staying is None:
            terms, snapshot = self.pod.shape.company.affinity, self.snapshot
            joined = snapshot.matches.matching(terms, lasting=True)
            self._staying = [_TermDomains.of(term, joined, snapshot.columns) for term in terms]
        return self._staying

    def _shunning(
        self, known: list[_TermDomains], term: Term, row: int, number: int
    ) -> list[_TermDomains]:
        if not any(each.term == term for each in known):
            known = [*known, _TermDomains.of(term, NONE, self.snapshot.columns)]
        return [each.changed(row, number) if each.term == term else each for each in known]
