"""The cluster as the joint solver sees it (:mod:`rte.placement.joint`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.joint.node import Member, Node
from rte.scheduler.framework import predicates

if TYPE_CHECKING:
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle


def snapshot(cluster: Cluster) -> tuple[list[Node], dict[str, str]]:
    """The nodes whose zones are known exactly, and why the others are left out, by name.

    Pods in flight are on their node, in an order that nobody knows.
    """
    nodes: list[Node] = []
    left_out: dict[str, str] = {}
    for name, entry in sorted(cluster.nodes.items()):
        if entry.info is None:
            continue
        outlook = entry.outlook()
        if outlook is None or entry.distrust():
            left_out[name] = entry.distrust() or "node(s) without a report of rte's agent"
            continue
        nodes.append(
            Node(
                name=name,
                state=outlook.base,
                allocatable=entry.info.allocatable,
                used=dict(entry.used),
                labels=entry.info.labels,
                arriving=outlook.in_flight,
            )
        )
    return nodes, left_out


def allowed_nodes(cluster: Cluster, cycle: Cycle, pod: PodView) -> frozenset[str]:
    """Names of the nodes that all rules but zones and totals allow.

    Rules between pods (affinity, spread, host ports) are those against the pods that run now.
    """
    if cycle.problem(pod):
        return frozenset()
    around = cycle.around(pod)
    return frozenset(
        name
        for name, entry in cluster.nodes.items()
        if entry.info is not None
        and predicates.constraints(pod.shape, entry.info) is None
        and predicates.ports(
            pod.shape.ports,
            (port for each in entry.pods.values() for port in each.shape.ports),
        )
        is None
        and not cycle.refuses_company(entry, pod, around)
    )


def member_of(cluster: Cluster, cycle: Cycle, pod: PodView) -> Member:
    """A pod that wants a place."""
    return Member(pod=pod.shape.as_pod(pod.kubelet_uid), nodes=allowed_nodes(cluster, cycle, pod))
