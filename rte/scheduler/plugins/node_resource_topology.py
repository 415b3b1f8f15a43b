"""NodeResourceTopology: the managers of a node's kubelet must be sure to admit the pod.

By exact prediction where the node has a report of ours (:mod:`rte.scheduler.framework.outlook`), by
zone arithmetic where another exporter publishes zones, by plain totals where nothing is known;
there a refusal of the kubelet is evidence, and such pods come back only as a last resort.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rte.model.pod import ContainerKind
from rte.model.words import counted
from rte.placement.foreign import zones
from rte.scheduler.framework import outlook
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.outlook import NO_ROOM
from rte.scheduler.framework.plugin import NodeFilter, RowRefusal
from rte.scheduler.plugins.node_resources_fit import lacking, left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.model.pod import Container
    from rte.scheduler.framework.columns import Mask, NodeAmounts, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class NodeResourceTopology(NodeFilter):
    """Topology, CPU, memory and device manager of the kubelet."""

    name = "NodeResourceTopology"
    about_room = bounds = True
    says = "the kubelet's admission by NUMA zone, predicted"
    helped_by = (
        Kind.NODE_ADDED | Kind.NODE_ALLOCATABLE | Kind.REPORT | Kind.POD_GONE | Kind.POD_CHANGED
    )

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """Only a node whose zones may now hold the pod.

        Where its totals lack room, the end of that is an event of these kinds as well.
        """
        node = snapshot.nodes.get(event.node)
        if node is None or lacking(pod.shape.totals, node):
            return False
        if node.distrust():
            return _gives_nothing(pod.shape, node)
        return bool(node.zone_bound().lets(pod.shape.needs))

    def room(self, event: ClusterEvent, snapshot: Snapshot) -> Room:
        """What the node has left, in total and in its zones."""
        node = snapshot.nodes.get(event.node)
        if node is None or (node.distrust() and (node.report is None or not node.report.state)):
            return NO_ROOM
        # Where the report is not to be built on, it still says whom the managers give nothing.
        return left(node) if node.distrust() else left(node, node.zone_bound())

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """The managers' verdict; refused unless they are sure to admit the pod."""
        if not shape.may_need_zone or node.info is None:
            return status
        report = node.report
        if report is None:
            return self._unknown(shape, node, status)
        if _gives_nothing(shape, node):
            return status
        why = node.distrust()
        if why:
            return replace(status, reason=why)
        if node.held_off:
            return replace(status, reason=node.held_off, waits=True)
        view = node.outlook()
        if view is None:
            return _by_zones(report.table, shape, node, status)
        short = _lacks_zone(shape, node)
        if short:
            return replace(
                status,
                reason="TopologyAffinityError",
                message=short,
                resources=True,
                verdict=outlook.AdmissionOutlook(admitted=False, reason="TopologyAffinityError"),
            )
        verdict = node.verdicts.get(shape.kubelet_key)
        if verdict is None:
            verdict = outlook.judge(view, shape.as_pod(""))
            node.verdicts[shape.kubelet_key] = verdict
        return _of_verdict(verdict, status)

    def rules_out(
        self, shape: Shape, amounts: NodeAmounts, rows: Rows | slice
    ) -> Iterator[RowRefusal]:
        """Nodes where a container, or the pod, must find one zone for its CPUs and finds none."""
        if not any(shape.exclusive_cpus) or shape.pod.pod_requests is not None:
            return
        refused = amounts.kept(
            shape.kubelet_key, rows, lambda some: _finds_no_zone(shape, amounts, some)
        )
        yield RowRefusal(refused, "TopologyAffinityError", sure=amounts.plain[rows])

    def lacks_room(self, shape: Shape, node: NodeEntry) -> bool:
        """Whether no zone has the CPUs."""
        return not node.zone_bound().lets(shape.needs)

    def _unknown(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """No report: plain rules, and what refusals have told."""
        why = node.distrust()
        if why:
            return replace(status, reason=why)
        known = node.evidence
        if known is None or not known.speaks_of(shape):
            return status
        why = "node(s) without a report whose kubelet has refused such a pod"
        return replace(status, reason=why, uncertain=not known.fresh)


def _finds_no_zone(shape: Shape, amounts: NodeAmounts, rows: Rows | slice) -> Mask:
    """Rows where a container, or the pod, must go to one zone, and none has room for it.

    It must under single-numa-node, and under restricted where
    :class:`rte.scheduler.framework.outlook.ZoneBound` says so.
    """
    needs, boxes = shape.needs, shape.pod.containers
    running = sum(_bytes(box) for box in boxes if box.kind is not ContainerKind.INIT)
    whole = _in_zones(amounts, needs.pod_cpus, running, needs.pod_memory, rows)
    each = np.ones_like(whole)
    for box, cpus, tie in zip(boxes, shape.exclusive_cpus, shape.memory_ties, strict=True):
        if cpus:
            each &= _in_zones(amounts, cpus, _bytes(box), tie, rows)
    fits: Mask = np.where(amounts.by_pod[rows], whole, each)
    return amounts.zoned[rows] & ~(fits & (amounts.together[rows] >= needs.pod_cpus))


def _in_zones(amounts: NodeAmounts, cpus: int, memory: int, tie: int, rows: Rows | slice) -> Mask:
    enough = amounts.cpus[:, rows] >= cpus
    single = np.logical_or.reduce(enough & (amounts.memory[:, rows] >= memory), axis=0)
    wide = (amounts.bound[rows] < cpus) & (amounts.tied[rows] < tie)
    found: Mask = np.where(amounts.single[rows], single, wide | enough.any(axis=0))
    return found


def _bytes(container: Container) -> int:
    return container.requests.get("memory", 0)


def _gives_nothing(shape: Shape, node: NodeEntry) -> bool:
    """Whether the kubelet's managers are known to give such a pod nothing of its own."""
    state = node.report.state if node.report else None
    return state is not None and not outlook.is_exacting(shape.pod, state)


def _of_verdict(verdict: outlook.AdmissionOutlook, status: Status) -> Status:
    if verdict.admitted:
        return replace(status, verdict=verdict)
    return replace(
        status,
        reason=verdict.reason,
        message=verdict.message,
        waits=verdict.waits,
        resources=not verdict.waits,
        uncertain=verdict.uncertain,
        verdict=verdict,
    )


def _lacks_zone(shape: Shape, node: NodeEntry) -> str:
    """A refusal that needs no admission: some container, or the pod, finds no zone for its CPUs.

    Saves a prediction for each waiting shape whenever a node changes a little.
    """
    bound, needs = node.zone_bound(), shape.needs
    if bound.lets(needs):
        return ""
    cpus = needs.pod_cpus if bound.by_pod else needs.cpus
    if cpus > bound.size:
        return f"{counted(cpus, 'CPU')} need several NUMA zones, the memory with them one"
    return f"no NUMA zone has {counted(cpus, 'free CPU')} (at most {bound.free})"


def _by_zones(
    table: zones.ZoneTable | None, shape: Shape, node: NodeEntry, status: Status
) -> Status:
    """A foreign exporter's NRT: pods that it may not count yet are taken off every zone."""
    if table is None or node.info is None:
        return status
    ahead = [pod.shape.pod for uid, pod in node.pods.items() if uid in node.unseen]
    verdict = zones.filter_zones(
        zones.overlay(table, ahead), shape.pod, node.info.allocatable.keys()
    )
    if verdict:
        return status
    return replace(
        status,
        reason=", ".join(verdict.reasons),
        message=f"container {verdict.container!r}, resource {verdict.resource!r}",
        resources=True,
        waits=bool(ahead),
    )
