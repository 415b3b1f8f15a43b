"""NodeResourcesFit: the requests of a node's pods must fit its allocatable."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.outlook import ANY_ZONES, NO_ROOM, Room, ZoneBound
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.scheduler.framework.columns import NodeAmounts, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class NodeResourcesFit(NodeFilter):
    """Node totals; the kubelet checks the same sum after its managers (:mod:`rte.k8s.requests`)."""

    name = "NodeResourcesFit"
    about_room = bounds = True
    owns = frozenset({"containers", "initContainers", "overhead", "resources"})
    says = (
        "requests of containers, init containers and sidecars (KEP-753), pod-level resources "
        "(KEP-2837), in-place resize (KEP-1287), overhead, number of pods"
    )
    helped_by = Kind.NODE_ADDED | Kind.NODE_ALLOCATABLE | Kind.POD_GONE | Kind.POD_CHANGED

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """Only a node that now has room for the pod."""
        node = snapshot.nodes.get(event.node)
        return node is not None and not lacking(pod.shape.totals, node)

    def may_have_refused(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """Not where the pod had room before, and nobody to whom some of it was promised."""
        node = snapshot.nodes.get(event.node)
        return (
            node is None
            or event.used is None
            or bool(node.nominated)
            or bool(_lacking(pod.shape.totals, node.allocatable(), event.used))
        )

    def room(self, event: ClusterEvent, snapshot: Snapshot) -> Room:
        """What the node has left."""
        node = snapshot.nodes.get(event.node)
        return NO_ROOM if node is None else left(node)

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node without room."""
        name = lacking(shape.totals, node)
        if name:
            return replace(status, reason=why(name), resources=True)
        return status

    def rules_out(self, shape: Shape, amounts: NodeAmounts, rows: Rows | slice) -> list[RowRefusal]:
        """Nodes without room, by the first resource that they lack."""
        short = amounts.short_of(shape.totals, rows)
        return [RowRefusal(refused, why(name)) for name, refused in short.items()]

    def lacks_room(self, shape: Shape, node: NodeEntry) -> bool:
        """Whether CPU or memory of the node are too little."""
        return not left(node).holds(shape.needs)


def why(name: str) -> str:
    """The reason for want of this resource."""
    return "Too many pods" if name == "pods" else f"Insufficient {name}"


def left(node: NodeEntry, zones: ZoneBound = ANY_ZONES) -> Room:
    """What a node has left, and what its zones bind pods to.

    A node that holds more than it has (allocatable has shrunk, a pod was bound by its spec) still
    takes pods that ask for nothing of that.
    """
    given = node.allocatable()
    milli, memory = (max(0, given.get(name, 0) - node.used[name]) for name in ("cpu", "memory"))
    return Room(milli, memory, zones)


def lacking(totals: Mapping[str, int], node: NodeEntry) -> str:
    """The first resource that the node has too little of, empty when all fit."""
    return _lacking(totals, node.allocatable(), node.used)


def _lacking(
    totals: Mapping[str, int], allocatable: Mapping[str, int], used: Mapping[str, int]
) -> str:
    for name, amount in totals.items():
        if amount > allocatable.get(name, 0) - used.get(name, 0):
            return name
    return ""
