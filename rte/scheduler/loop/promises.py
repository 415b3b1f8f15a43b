"""Room that is promised to pods that wait: how long, and on which nodes (pure).

A large pod that has waited long gets a node that drains towards it.

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
    from collections.abc import Generator, Iterable

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle

#: Room that somebody else makes is kept for so long, from the last word about it.
EXTERNAL_S = 300.0

#: Seconds beyond its grace period that a victim may take to end, until its node is taken for dead.
_LATE_S = 10.0

#: Where victims did not end, nobody is evicted for so long.
AVOID_S = 300.0

#: An eviction that failed is planned afresh after so long.
AGAIN_S = 1.0

#: A reservation lapses when the node has lost nothing towards the pod for so many times the
#: waiting time after which a pod gets one.
PATIENCE = 2.0

#: Nodes that are rated, and that are drained in thought, until others may have a turn; and that
#: are drained for a pod each time it is looked at: the next time it goes on with those behind them.
_RATED_AT_ONCE, _ASKED_AT_ONCE, _MOST_ASKED = 100, 8, 500


def until(cluster: Cluster, victims: Iterable[str], now: float) -> float:
    """When these have ended at the latest."""
    graces = [cluster.pods[uid].grace_s for uid in victims if uid in cluster.pods]
    return now + max(graces, default=0) + _LATE_S


def most(cluster: Cluster) -> int:
    """How many nodes may be kept at a time: an eighth of them, one at least."""
    return max(1, sum(1 for entry in cluster.nodes.values() if entry.info) // 8)


def is_wanted(cycle: Cycle, pod: PodView) -> bool:
    """Whether a node may be kept for the pod."""
    shape = pod.shape
    return (shape.may_need_zone or shape.has_groups) and not cycle.problem(pod).reason


def quickest(
    pod: PodView, cluster: Cluster, cycle: Cycle, asked: int = 0
) -> Generator[None, None, tuple[NodeEntry | None, int]]:
    """The node that has to lose least until it takes the pod; others may have turns meanwhile.

    Returns: the node, and how many were asked for it, the first ``asked`` of them earlier; None and
        0: all were.
    """
    rated = []
    for number, entry in enumerate(list(cluster.nodes.values()), 1):
        if number % _RATED_AT_ONCE == 0:
            yield
        if cycle.profile.allows(pod.shape, entry):
            rated.append((missing(pod, entry, cycle), len(entry.pods), entry.row, entry))
    rated.sort(key=lambda rating: rating[:3])
    for number, (*_, entry) in enumerate(rated[asked : asked + _MOST_ASKED], 1):
        if number % _ASKED_AT_ONCE == 0:
            yield
        stands = cluster.nodes.get(entry.name) is entry
        if stands and not entry.nominated and is_possible(cycle, pod, entry):
            return entry, asked + number
    asked += _MOST_ASKED
    return None, asked if asked < len(rated) else 0


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
