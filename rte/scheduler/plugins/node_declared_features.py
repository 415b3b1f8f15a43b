"""NodeDeclaredFeatures: what a pod needs of its kubelet must be in ``status.declaredFeatures``.

KEP-5328, as of kube-scheduler 1.37 (``component-helpers/nodedeclaredfeatures``): a node that
declares nothing, as kubelets before 1.36 do by default, takes none of these pods.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.scheduler.framework.columns import NodeAmounts, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

WHY = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures(NodeFilter):
    """Features that a pod specification implies."""

    name = "NodeDeclaredFeatures"
    by_object = True
    owns = frozenset({"hostUsers"})
    says = (
        "`RestartAllContainersOnContainerExits`, `UserNamespacesHostNetworkSupport`, "
        "`VolumeBindMountOptions` where the pod uses them (KEP-5328)"
    )
    helped_by = Kind.NODE_ADDED | Kind.NODE_LABELS

    def concerns(self, shape: Shape) -> bool:
        """Pods that need some feature."""
        return bool(shape.features)

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node that does not declare all of them."""
        if node.info and not node.info.declared_features.issuperset(shape.features):
            return replace(status, reason=WHY)
        return status

    def rules_out(
        self, shape: Shape, amounts: NodeAmounts, rows: Rows | slice
    ) -> Iterator[RowRefusal]:
        """Nodes that lack some of them."""
        if shape.features:
            yield RowRefusal(~amounts.columns.declaring(shape.features)[rows], WHY)
