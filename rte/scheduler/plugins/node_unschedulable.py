"""NodeUnschedulable: a cordoned node takes nothing that does not tolerate it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.k8s.tolerations import UNSCHEDULABLE, tolerates
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.scheduler.framework.columns import NodeAmounts, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


WHY = "node(s) were unschedulable"


class NodeUnschedulable(NodeFilter):
    """``kubectl cordon``."""

    name = "NodeUnschedulable"
    by_object = True
    helped_by = Kind.NODE_ADDED | Kind.NODE_TAINTS

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse while the node is cordoned."""
        info = node.info
        if info and info.unschedulable and not tolerates(shape.tolerations, UNSCHEDULABLE):
            return replace(status, reason=WHY)
        return status

    def rules_out(
        self, shape: Shape, amounts: NodeAmounts, rows: Rows | slice
    ) -> Iterator[RowRefusal]:
        """Nodes that are cordoned."""
        cordoned = amounts.columns.cordoned(shape.tolerations)
        if cordoned is not None:
            yield RowRefusal(cordoned[rows], WHY)
