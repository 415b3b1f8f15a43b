"""NodePorts: two pods cannot have the same port of one node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

    Port = tuple[str, str, int]  # address, protocol, port

_WILDCARD = "0.0.0.0"  # noqa: S104 - the API's word for every address


class NodePorts(NodeFilter):
    """Host ports of containers and sidecars."""

    name = "NodePorts"
    owns = frozenset({"containers.ports", "hostNetwork"})
    says = "host ports by address, protocol and number (hostNetwork: the API server fills them in)"
    helped_by = Kind.NODE_ADDED | Kind.POD_GONE

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Only the end of a pod with such a port."""
        gone = event.pod
        return gone is None or collide(pod.shape.ports, gone.shape.ports)

    def concerns(self, shape: Shape) -> bool:
        """Pods with host ports."""
        return bool(shape.ports)

    def is_told(self, shape: Shape) -> bool:
        """Of ports columns know nothing."""
        return not shape.ports

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node where a port is taken."""
        if shape.ports and any(collide(shape.ports, pod.shape.ports) for pod in node.pods.values()):
            why = "node(s) didn't have free ports for the requested pod ports"
            return replace(status, reason=why, resources=True)
        return status


def collide(wanted: Iterable[Port], taken: Iterable[Port]) -> bool:
    """The same protocol and port collide on equal addresses; 0.0.0.0 equals all."""
    held = list(taken)
    return any(
        (protocol, port) == (other_protocol, other_port)
        and (address == other or _WILDCARD in (address, other))
        for address, protocol, port in wanted
        for other, other_protocol, other_port in held
    )
