"""Who may be moved so that others get a place (:mod:`rte.placement.joint.defrag`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.joint.defrag import Disruptions, Movable
from rte.scheduler.loop.gangs.ground import allowed_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle


def may_leave(pod: PodView) -> bool:
    """Whether the pod could run on another node as well."""
    return not (pod.terminal or pod.deleting or pod.mirror or pod.stays)


def movables(cluster: Cluster, cycle: Cycle, pods: Iterable[PodView]) -> list[Movable]:
    """These pods, which run, as the solver sees them; those of one shape may go to the same nodes.

    Rules between pods count against those that run now.
    """
    allowed: dict[int, frozenset[str]] = {}
    found = []
    for pod in pods:
        nodes = allowed.get(id(pod.shape))
        if nodes is None:
            nodes = allowed[id(pod.shape)] = allowed_nodes(cluster, cycle, pod)
        found.append(
            Movable(
                pod=pod.shape.as_pod(pod.kubelet_uid),
                node=pod.node,
                priority=pod.priority,
                nodes=nodes,
            )
        )
    return found


def disruptions(cluster: Cluster, pods: Collection[PodView]) -> list[Disruptions]:
    """What PodDisruptionBudgets leave of these pods, our own evictions included."""
    return [
        Disruptions(
            pods=frozenset(pod.kubelet_uid for pod in pods if budget.covers(pod)),
            allowed=max(0, budget.left),
        )
        for budget in cluster.budgets.values()
    ]
