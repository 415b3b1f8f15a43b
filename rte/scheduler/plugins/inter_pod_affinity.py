"""InterPodAffinity: pods that want company, or none, over the domains of a topology key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.matches import NONE
from rte.scheduler.framework.plugin import Refusal, RowFilter, RowScore, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Columns, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.matches import Counts
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
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

    def prepare(self, pod: PodView, snapshot: Snapshot) -> Sequence[Refusal] | None:
        """Nodes in the wrong domains."""
        own = pod.shape.company
        columns, matches = snapshot.columns, snapshot.matches
        out = []
        # A pod counts for an affinity only if all its terms match it.
        joined = matches.matching(own.affinity) if own.affinity else NONE
        wanted = [_number(term.topology_key, joined, columns) > 0 for term in own.affinity]
        # Nobody to join yet, and the pod matches its own terms: anywhere that has the keys.
        first = not any(rows.any() for rows in wanted) and all(
            term.matches(pod, snapshot.namespaces) for term in own.affinity
        )
        for term, rows in zip(own.affinity, wanted, strict=True):
            allowed = columns.labels(term.topology_key).of_row > 0 if first else rows
            out.append(Refusal(~allowed, "node(s) didn't match pod affinity rules"))
        for term in own.anti_affinity:
            found = _number(term.topology_key, matches.matching([term]), columns)
            why = "node(s) didn't match pod anti-affinity rules"
            matched = partial(term.matches, namespaces=snapshot.namespaces)
            out.append(Refusal(found > 0, why, found, matched))
        for term, counts in matches.refusing.matching(pod, snapshot.namespaces):
            found = _number(term.topology_key, counts, columns)
            why = "node(s) didn't satisfy existing pods anti-affinity rules"
            out.append(Refusal(found > 0, why, found, partial(_has, term)))
        return out or None

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


def _number(key: str, counts: Counts, columns: Columns) -> NDArray[np.float64]:
    """By row, how many of these pods its domain of the topology key has."""
    column = columns.labels(key)
    number: NDArray[np.float64] = column.sums(*counts.arrays())[column.of_row]
    return number


def _has(term: Term, pod: PodView) -> bool:
    return term in pod.shape.company.anti_affinity
