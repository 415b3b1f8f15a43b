"""NodePool: of several schedulers each places on its own nodes (``--nodes SELECTOR``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.k8s.selectors import NodeTerm
    from rte.scheduler.framework.columns import NodeAmounts, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

WHY = "node(s) of another pool"


class NodePool(NodeFilter):
    """Nodes outside are known, with their pods, so that rules between pods hold across pools."""

    name = "NodePool"
    says = "`--nodes SELECTOR`: nodes with other labels take nothing from this scheduler"
    by_object = True
    helped_by = Kind.NODE_ADDED | Kind.NODE_LABELS

    def __init__(self, pool: NodeTerm) -> None:
        self._pool = pool

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:  # noqa: ARG002
        """Refuse a node that is not ours."""
        if node.info and not self._pool.matches(node.name, node.info.labels):
            return replace(status, reason=WHY)
        return status

    def rules_out(
        self,
        shape: Shape,  # noqa: ARG002
        amounts: NodeAmounts,
        rows: Rows | slice,
    ) -> Iterator[RowRefusal]:
        """Nodes that are not ours."""
        yield RowRefusal(~amounts.columns.meant(self._pool)[rows], WHY)
