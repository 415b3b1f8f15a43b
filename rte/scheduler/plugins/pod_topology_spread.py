"""PodTopologySpread: pods of a kind are spread evenly over the domains of a topology key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.matches import NONE
from rte.scheduler.framework.plugin import RowFilter, RowRefusal, RowScore, Surroundings
from rte.scheduler.framework.terms import Term

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Column, Columns, Labels, Mask, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.matches import Counts
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import PodChange, Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.terms import ResolvedSpread

_HOSTNAME = "kubernetes.io/hostname"

#: Key and skew of kube-scheduler's system defaults, for pods without constraints of their own.
_DEFAULTS = ((_HOSTNAME, 3), ("topology.kubernetes.io/zone", 5))


class PodTopologySpread(RowFilter, RowScore):
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

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Only a pod that some constraint counts: one more may raise the minimum as well."""
        rules = [rule for rule in pod.shape.spread if rule.hard]
        if event.pod is None:
            return bool(rules)
        changed = [view for view in (event.pod, event.old) if view is not None]
        return any(
            view.namespace == pod.namespace and rule.selector.matches(view.labels)
            for rule in rules
            for view in changed
        )

    def concerns(self, shape: Shape) -> bool:
        """Pods with constraints, and those to which the default ones may apply."""
        return bool(shape.spread) or not shape.may_need_zone

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _SpreadState | None:
        """How many are in each domain already."""
        rules = [_RuleDomains.of(rule, pod, snapshot) for rule in pod.shape.spread if rule.hard]
        return _SpreadState(pod, snapshot, rules) if rules else None

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether the pod has soft constraints, or siblings to keep away from."""
        return any(not rule.hard for rule in pod.shape.spread) or bool(_siblings(pod, snapshot))

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """Fewer matching pods in a node's domains are better (podtopologyspread/scoring.go)."""
        columns = snapshot.columns
        siblings = _siblings(pod, snapshot)
        rules: list[tuple[str, int, Rows, Column]] = [
            (rule.topology_key, rule.max_skew, *_liked(rule, pod, snapshot))
            for rule in pod.shape.spread
            if not rule.hard
        ]
        rules += [(key, skew, *siblings.arrays()) for key, skew in _DEFAULTS if siblings]
        total = np.zeros(len(rows))
        # What lacks a key is left out, but for the default constraints.
        scored = np.ones(len(rows), dtype=np.bool_)
        for key, *_ in () if siblings else rules:
            scored &= columns.labels(key).of_row[rows] > 0
        for key, skew, where, numbers in rules:
            column = columns.labels(key)
            domains = column.of_row[rows]
            found = scored.sum() if key == _HOSTNAME else len(np.unique(domains[scored]))
            each = column.sums(where, numbers)[domains] * log(found + 2) + (skew - 1)
            total += np.where(domains > 0, each, 0.0)
        if not scored.any():
            return None
        total = np.rint(total)
        low, high = total[scored].min(), total[scored].max()
        if low == high and scored.all():
            return None
        found = np.floor(100.0 * (high + low - total) / high) if high else np.full(len(rows), 100.0)
        return np.where(scored, found, 0.0)


@dataclass(frozen=True, slots=True)
class _RuleDomains:
    """A hard constraint, the domains that take part, and how many of its pods each has, by number.

    ``takes_part``: by row; ``own``: whether the pod to be placed is one of them.
    """

    rule: ResolvedSpread
    column: Labels
    takes_part: Mask
    domains: Mask
    counts: NDArray[np.float64]
    own: int

    @classmethod
    def of(cls, rule: ResolvedSpread, pod: PodView, snapshot: Snapshot) -> _RuleDomains:
        """As things are."""
        takes_part = _taking_part(rule, pod.shape, snapshot.columns)
        column = snapshot.columns.labels(rule.topology_key)
        domains = np.zeros(len(column.numbers) + 1, dtype=np.bool_)
        domains[column.of_row[takes_part]] = True
        counts = column.sums(*_counted(rule, pod, snapshot, takes_part))
        return cls(
            rule, column, takes_part, domains, counts, int(rule.selector.matches(pod.labels))
        )

    def excess(self, rows: Rows | slice) -> NDArray[np.float64]:
        """How many pods too many the domains of these rows would have."""
        inside = self.counts[self.domains]
        fewest = inside.min() if 0 < len(inside) >= self.rule.min_domains else 0
        after = self.counts[self.column.of_row[rows]] + self.own
        found: NDArray[np.float64] = after - fewest - self.rule.max_skew
        return found


@dataclass(slots=True)
class _SpreadState(Surroundings):
    """What each hard constraint of the pod counts."""

    pod: PodView
    snapshot: Snapshot
    rules: list[_RuleDomains]
    _everywhere: tuple[RowRefusal, ...] | None = None

    def refusals(self, rows: Rows | slice) -> Iterator[RowRefusal]:
        """Rows without the key, and those in domains that have too many already."""
        why = "node(s) didn't match pod topology spread constraints"
        for each in self.rules:
            yield RowRefusal(each.column.of_row[rows] == 0, f"{why} (missing required label)")
            yield RowRefusal(each.excess(rows) > 0, why, resources=True)

    def changed(self, changes: Sequence[PodChange]) -> _SpreadState:
        """With pods more or fewer."""
        rules = self.rules
        for other, name, number in changes:
            row = self.snapshot.columns.row_of(name)
            if row is not None and not other.deleting and other.namespace == self.pod.namespace:
                rules = [
                    replace(each, counts=each.column.moved(each.counts, row, number))
                    if each.takes_part[row] and _counts(each.rule, other)
                    else each
                    for each in rules
                ]
        return _SpreadState(self.pod, self.snapshot, rules)


def _counts(rule: ResolvedSpread, pod: PodView) -> bool:
    """Whether the rule counts a pod with these labels.

    An empty selector counts nobody (podtopologyspread/common.go, countPodsMatchSelector), though
    the API says that it matches all.
    """
    return bool(rule.selector.requirements) and rule.selector.matches(pod.labels)


def _counted(
    rule: ResolvedSpread, pod: PodView, snapshot: Snapshot, takes_part: Mask | None = None
) -> tuple[Rows, Column]:
    """Rows, of those that take part, and how many pods there the rule counts."""
    if not rule.selector.requirements:
        return NONE.arrays()
    term = Term(frozenset({pod.namespace}), None, rule.selector, "")
    rows, numbers = snapshot.matches.matching([term], lasting=True).arrays()
    if takes_part is None:
        return rows, numbers
    inside = takes_part[rows]
    return rows[inside], numbers[inside]


def _liked(rule: ResolvedSpread, pod: PodView, snapshot: Snapshot) -> tuple[Rows, Column]:
    """What a soft rule counts: on a node whatever is there, in larger domains what takes part."""
    if rule.topology_key == _HOSTNAME:
        return _counted(rule, pod, snapshot)
    return _counted(rule, pod, snapshot, _taking_part(rule, pod.shape, snapshot.columns))


def _taking_part(rule: ResolvedSpread, shape: Shape, columns: Columns) -> Mask:
    """Nodes that have the keys of all hard constraints, or all soft ones, and are included."""
    keys = {each.topology_key for each in shape.spread if each.hard == rule.hard}
    ok = columns.present.copy()
    for key in keys:
        ok &= columns.labels(key).of_row > 0
    if rule.by_affinity:
        # A pool is to its scheduler's pods what a node selector would be.
        ok &= columns.selected(shape.nodes) & columns.pooled()
    if rule.by_taints:
        ok &= columns.tolerated(shape.tolerations)
    return ok


def _siblings(pod: PodView, snapshot: Snapshot) -> Counts:
    """Pods of the same controller, where the default constraints apply."""
    if not pod.owner or pod.shape.rules.topology_spread_constraints or pod.shape.may_need_zone:
        return NONE
    return snapshot.matches.siblings(pod.owner)
