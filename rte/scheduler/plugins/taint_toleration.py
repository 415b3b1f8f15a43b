"""TaintToleration: taints keep pods away that do not tolerate them, or make nodes less liked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rte.k8s.tolerations import HARD_EFFECTS, tolerates
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal, RowScore, shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rte.k8s.wire import Taint
    from rte.scheduler.framework.columns import Column, NodeAmounts, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class TaintToleration(NodeFilter, RowScore):
    """NoSchedule and NoExecute refuse, PreferNoSchedule is a preference."""

    name = "TaintToleration"
    by_object = True
    owns = frozenset({"tolerations"})
    says = "operators Equal, Exists, Lt and Gt; NoSchedule, NoExecute, PreferNoSchedule"
    helped_by = Kind.NODE_ADDED | Kind.NODE_TAINTS
    weight = 3.0

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node with a taint that the pod does not tolerate."""
        taint = untolerated(shape, node.info.taints if node.info else ())
        if taint is not None:
            return replace(status, reason=why(taint.key))
        return status

    def rules_out(
        self, shape: Shape, amounts: NodeAmounts, rows: Rows | slice
    ) -> Iterator[RowRefusal]:
        """Nodes by the first such taint."""
        for key, refused in amounts.columns.untolerated(shape.tolerations):
            yield RowRefusal(refused[rows], why(key))

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Wherever nodes have such taints."""
        return snapshot.columns.has_avoided

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """The fewer PreferNoSchedule taints that the pod does not tolerate, the better."""
        counts = snapshot.columns.disliked(pod.shape.tolerations)
        return None if counts is None else shares(counts[rows].astype(np.float64), reverse=True)

    def ranks(self, shape: Shape, amounts: NodeAmounts, rows: Rows) -> Column | None:
        """Before all else: any such taint is worse than none."""
        counts = amounts.columns.disliked(shape.tolerations)
        return None if counts is None else counts[rows] << 56


def why(key: str) -> str:
    """The reason for a taint with this key."""
    return f"node(s) had untolerated taint(s) {key}"


def untolerated(shape: Shape, taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps the pod away."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerates(shape.tolerations, taint):
            return taint
    return None
