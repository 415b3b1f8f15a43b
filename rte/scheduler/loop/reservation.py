"""A large pod that has waited long gets a node that drains towards it (pure).

While others come and go, the zone that it needs may never be empty by chance. So after a time one
node is kept for it: what wants the same (a zone, or processing groups) and is not more important
stays away, until the pod fits there or anywhere else. Ordinary pods are let in as long as they
leave its share of the node's total. A reservation under which nothing comes nearer lapses, and
others that wait have their turn first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.framework.plugin import Drains

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle

#: A reservation lapses when the node has lost nothing towards the pod for so many times the
#: waiting time after which a pod gets one.
PATIENCE = 2.0

#: Nodes that are drained in thought for one pod: those that have to lose least.
_MOST_NODES = 16


def most(cluster: Cluster) -> int:
    """How many nodes may be kept at a time: an eighth of them, one at least."""
    return max(1, sum(1 for entry in cluster.nodes.values() if entry.info) // 8)


def choose(
    waiting: Iterable[PodView], cluster: Cluster, cycle: Cycle, room: int
) -> list[tuple[PodView, NodeEntry]]:
    """New reservations: (pod, node).

    Args:
        waiting: pods that are due, those first whose turn it is.
        cluster: the cluster.
        cycle: its rules.
        room: how many more nodes may be kept.
    """
    taken = set(cluster.nominations.values())
    found: list[tuple[PodView, NodeEntry]] = []
    for pod in waiting:
        if len(found) >= room:
            break
        shape = pod.shape
        if not (shape.may_need_zone or shape.has_groups) or cycle.problem(pod).reason:
            continue
        entry = _quickest(pod, cluster, cycle, taken)
        if entry is not None:
            taken.add(entry.name)
            found.append((pod, entry))
    return found


def _quickest(
    pod: PodView, cluster: Cluster, cycle: Cycle, taken: Collection[str]
) -> NodeEntry | None:
    """The node that has to lose least until it takes the pod."""
    rated = sorted(
        (
            (missing(pod, entry, cycle), len(entry.pods), entry.row)
            for entry in cluster.nodes.values()
            if entry.info is not None and entry.name not in taken
        ),
    )
    for _, _, row in rated[:_MOST_NODES]:
        entry = cluster.rows[row]
        if is_possible(cycle, pod, entry):
            return entry
    return None


def is_possible(cycle: Cycle, pod: PodView, entry: NodeEntry) -> bool:
    """Whether the node would take the pod once all that ends by itself there has ended."""
    if entry.info is None:
        return False
    ends = frozenset(
        uid for uid, p in entry.pods.items() if p.deleting or not (p.mirror or p.lasting)
    )
    drained = entry.without(ends)
    if cycle.profile.check(pod.shape, drained).reason:
        return False
    return not cycle.profile.refused_around(cycle.around(pod), pod, entry).reason


def missing(pod: PodView, entry: NodeEntry, cycle: Cycle) -> int:
    """How far the node is from taking the pod: less means nearer."""
    drains = (plugin for plugin in cycle.profile.plugins if isinstance(plugin, Drains))
    return _missing_cpus(pod, entry) + sum(it.missing(pod.shape, entry) for it in drains)


def _missing_cpus(pod: PodView, entry: NodeEntry) -> int:
    """CPUs that the zones lack for the pod's containers, the largest containers first."""
    free = sorted((cpus for _, cpus, _ in entry.free_by_zone() or ()), reverse=True)
    lack = 0
    for need in sorted(pod.shape.exclusive_cpus, reverse=True):
        if not free:
            break
        lack += max(0, need - free[0])
        free[0] = max(0, free[0] - need)
        free.sort(reverse=True)
    return lack
