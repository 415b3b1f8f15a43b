"""NodeAffinity: ``nodeSelector``, required and preferred node affinity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, Score, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class NodeAffinity(NodeFilter, Score):
    """What a pod asks of its node's labels and name."""

    name = "NodeAffinity"
    owns = frozenset({"nodeSelector", "affinity.nodeAffinity"})
    says = "selectors, required and preferred terms, on labels and on metadata.name"
    helped_by = Kind.NODE_ADDED | Kind.NODE_LABELS
    weight = 2.0

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node that the pod does not ask for."""
        if node.info and not shape.nodes.matches(node.name, node.info.labels):
            return replace(status, reason="node(s) didn't match Pod's node affinity/selector")
        return status

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Whether the pod prefers any nodes."""
        return bool(pod.shape.preferred_nodes)

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[float] | None:
        """The more weight of preferred terms a node meets, the better."""
        return scaled([_weight(pod.shape, node) for node, _ in candidates])


def _weight(shape: Shape, node: NodeEntry) -> float:
    labels = node.info.labels if node.info else {}
    return float(sum(w for w, term in shape.preferred_nodes if term.matches(node.name, labels)))
