"""A large pod that has waited long gets a node that drains towards it (pure).

While others come and go, the zone that it needs may never be empty by chance. So after a time one
node is kept for it: what needs a zone and is not more important stays away, until the pod fits
there or anywhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView


def most(cluster: Cluster) -> int:
    """How many nodes may be kept at a time: an eighth of them, one at least."""
    return max(1, sum(1 for entry in cluster.nodes.values() if entry.info) // 8)


def choose(
    waiting: Iterable[tuple[PodView, float]],
    cluster: Cluster,
    kept: Mapping[str, str],
    oldest: float,
) -> list[tuple[PodView, NodeEntry]]:
    """New reservations: (pod, node).

    Args:
        waiting: heads of the sleeping groups in the order of the queue, and since when they wait.
        cluster: the cluster.
        kept: API UID -> node, the reservations in force.
        oldest: pods that wait since this moment or longer are due.
    """
    taken = set(kept.values()) | set(cluster.nominations.values())
    room = most(cluster) - len(kept)
    found: list[tuple[PodView, NodeEntry]] = []
    for pod, since in waiting:
        if len(found) >= room:
            break
        if since > oldest or pod.uid in kept or pod.uid in cluster.nominations:
            continue
        if not pod.shape.may_need_zone:
            continue
        entry = _quickest(pod, cluster, taken)
        if entry is not None:
            taken.add(entry.name)
            found.append((pod, entry))
    return found


def is_possible(pod: PodView, entry: NodeEntry) -> bool:
    """Whether the node would take the pod once all that may end there has ended."""
    if entry.info is None:
        return False
    drained = entry.without(frozenset(uid for uid, p in entry.pods.items() if not p.mirror))
    return not drained.check(pod.shape).reason


def _quickest(pod: PodView, cluster: Cluster, taken: set[str]) -> NodeEntry | None:
    """The node that has to lose least until it takes the pod."""
    best: tuple[tuple[int, int], NodeEntry] | None = None
    for entry in cluster.nodes.values():
        if entry.name in taken or not is_possible(pod, entry):
            continue
        missing = (_missing(pod, entry), len(entry.pods))
        if best is None or missing < best[0]:
            best = (missing, entry)
    return best[1] if best else None


def _missing(pod: PodView, entry: NodeEntry) -> int:
    """CPUs that the zones lack for the pod's containers, the largest containers first."""
    free = sorted((cpus for _, cpus, _ in entry.free_by_zone() or ()), reverse=True)
    missing = 0
    for need in sorted(pod.shape.exclusive_cpus, reverse=True):
        if not free:
            break
        missing += max(0, need - free[0])
        free[0] = max(0, free[0] - need)
        free.sort(reverse=True)
    return missing
