"""NodeAffinity: ``nodeSelector``, required and preferred node affinity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal, RowScore, shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import NodeAmounts, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


WHY = "node(s) didn't match Pod's node affinity/selector"


class RequiredNodes(NodeFilter, RowScore):
    """What a pod asks of its node's labels and name."""

    name = "NodeAffinity"
    by_object = True
    owns = frozenset({"nodeSelector", "affinity.nodeAffinity"})
    says = "selectors, required and preferred terms, on labels and on metadata.name"
    helped_by = Kind.NODE_ADDED | Kind.NODE_LABELS
    weight = 2.0

    def concerns(self, shape: Shape) -> bool:
        """Pods that name nodes by labels."""
        return bool(shape.nodes.labels or shape.nodes.terms is not None or shape.preferred_nodes)

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node that the pod does not ask for."""
        if node.info and not shape.nodes.matches(node.name, node.info.labels):
            return replace(status, reason=WHY)
        return status

    def rules_out(
        self, shape: Shape, amounts: NodeAmounts, rows: Rows | slice
    ) -> Iterator[RowRefusal]:
        """Nodes that the pod does not ask for."""
        if shape.nodes.labels or shape.nodes.terms is not None:
            yield RowRefusal(~amounts.columns.selected(shape.nodes)[rows], WHY)

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Whether the pod prefers any nodes."""
        return bool(pod.shape.preferred_nodes)

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """The more weight of preferred terms a node meets, the better."""
        total = np.zeros(len(rows))
        for weight, term in pod.shape.preferred_nodes:
            total += weight * snapshot.columns.meant(term)[rows]
        return shares(total)
