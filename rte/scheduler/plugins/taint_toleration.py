"""TaintToleration: taints keep pods away that do not tolerate them, or make nodes less liked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.k8s.tolerations import HARD_EFFECTS, tolerates
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, Score, scaled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rte.k8s.tolerations import Taint
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class TaintToleration(NodeFilter, Score):
    """NoSchedule and NoExecute refuse, PreferNoSchedule is a preference."""

    name = "TaintToleration"
    owns = frozenset({"tolerations"})
    says = "operators Equal, Exists, Lt and Gt; NoSchedule, NoExecute, PreferNoSchedule"
    helped_by = Kind.NODE_ADDED | Kind.NODE_TAINTS
    weight = 3.0

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node with a taint that the pod does not tolerate."""
        taint = untolerated(shape, node.info.taints if node.info else ())
        if taint is not None:
            return replace(status, reason=f"node(s) had untolerated taint(s) {taint.key}")
        return status

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Any node may have such a taint."""
        return True

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[float] | None:
        """The fewer PreferNoSchedule taints that the pod does not tolerate, the better."""
        counts = [float(disliked(pod.shape, node)) for node, _ in candidates]
        return scaled(counts, reverse=True)


def untolerated(shape: Shape, taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps the pod away."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerates(shape.tolerations, taint):
            return taint
    return None


def disliked(shape: Shape, node: NodeEntry) -> int:
    """Taints of the node that the pod should rather avoid."""
    return sum(
        1
        for taint in (node.info.taints if node.info else ())
        if taint.effect == "PreferNoSchedule" and not tolerates(shape.tolerations, taint)
    )
