"""SharedPool: the option that bounds the CPU limits of sharing containers by the shared pool."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter

if TYPE_CHECKING:
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class SharedPool(NodeFilter):
    """``--shared-limit``. What shares floats over the whole pool, so one bound does for all zones.

    Args:
        most: CPU limits of sharing pods per CPU of the pool.
    """

    name = "SharedPool"
    about_room = True
    helped_by = (
        Kind.NODE_ADDED | Kind.NODE_ALLOCATABLE | Kind.REPORT | Kind.POD_GONE | Kind.POD_CHANGED
    )

    def __init__(self, most: float) -> None:
        self._most = most

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node whose pool would be crowded."""
        view = node.outlook()
        if view is None:
            return status
        after = status.verdict.after if status.verdict and status.verdict.after else None
        pool = (after or view.predicted).shared
        if view.base.config.cpu_policy != "static":
            pool = view.base.topology.all_cpus & ~view.base.reserved
        load = shape.shared_milli + sum(pod.shape.shared_milli for pod in node.pods.values())
        if load <= self._most * 1000 * pool.bit_count():
            return status
        return replace(status, reason="node(s) whose shared CPUs would be crowded", resources=True)
