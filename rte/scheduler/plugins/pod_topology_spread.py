"""PodTopologySpread: pods of a kind are spread evenly over the domains of a topology key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.matches import NONE
from rte.scheduler.framework.plugin import Refusal, RowFilter, RowScore, scaled
from rte.scheduler.framework.terms import Term

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Columns, Mask, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.matches import Counts
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.terms import Spread

#: kube-scheduler's system defaults, for pods without constraints of their own.
_DEFAULT_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


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
        if event.pod is None:
            return True
        changed = [view for view in (event.pod, event.old) if view is not None]
        return any(
            view.namespace == pod.namespace and rule.selector.matches(view.labels)
            for rule in pod.shape.spread
            for view in changed
        )

    def prepare(self, pod: PodView, snapshot: Snapshot) -> Sequence[Refusal] | None:
        """Nodes in domains that have too many already."""
        rules = [rule for rule in pod.shape.spread if rule.hard]
        if not rules:
            return None
        out = []
        why = "node(s) didn't match pod topology spread constraints"
        for rule in rules:
            column = snapshot.columns.labels(rule.topology_key)
            domains, counts = _counts(rule, pod, snapshot)
            fewest = counts[domains].min() if 0 < domains.sum() >= rule.min_domains else 0
            after = counts + int(rule.selector.matches(pod.labels))
            excess = (after - fewest - rule.max_skew)[column.of_row]
            out += [
                Refusal(column.of_row == 0, f"{why} (missing required label)"),
                Refusal(excess > 0, why, excess, partial(_counted, rule, pod.namespace)),
            ]
        return out

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether the pod has soft constraints, or siblings to keep away from."""
        return any(not rule.hard for rule in pod.shape.spread) or bool(_siblings(pod, snapshot))

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """Fewer matching pods in the node's domains are better."""
        columns = snapshot.columns
        tables = [
            (rule.topology_key, _counts(rule, pod, snapshot)[1])
            for rule in pod.shape.spread
            if not rule.hard
        ]
        siblings = _siblings(pod, snapshot)
        if siblings:
            found = siblings.arrays()
            tables += [(key, columns.labels(key).sums(*found)) for key in _DEFAULT_KEYS]
        total = np.zeros(len(rows))
        for key, counts in tables:
            # Without the label: as bad as the worst.
            counts[0] = counts.max() + (0 if siblings else 1)
            total += counts[columns.labels(key).of_row[rows]]
        return scaled(total, reverse=True)


def _counts(rule: Spread, pod: PodView, snapshot: Snapshot) -> tuple[Mask, NDArray[np.float64]]:
    """By number of the topology key's value: whether nodes that take part have it, pods there."""
    eligible = _taking_part(rule, pod.shape, snapshot.columns)
    column = snapshot.columns.labels(rule.topology_key)
    domains = np.zeros(len(column.numbers) + 1, dtype=np.bool_)
    domains[column.of_row[eligible]] = True
    if not rule.selector.requirements:
        # Empty, too: kube-scheduler counts nobody then (podtopologyspread/common.go,
        # countPodsMatchSelector), though the API says that it matches all.
        return domains, np.zeros(len(domains))
    term = Term(frozenset({pod.namespace}), None, rule.selector, "")
    rows, numbers = snapshot.matches.matching([term], lasting=True).arrays()
    inside = eligible[rows]
    return domains, column.sums(rows[inside], numbers[inside])


def _counted(rule: Spread, namespace: str, pod: PodView) -> bool:
    """Whether a pod is one of those that the rule counts in its domain."""
    return not pod.deleting and pod.namespace == namespace and rule.selector.matches(pod.labels)


def _taking_part(rule: Spread, shape: Shape, columns: Columns) -> Mask:
    """Nodes that have the keys and that the policies include."""
    keys = {each.topology_key for each in shape.spread if each.hard} | {rule.topology_key}
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
