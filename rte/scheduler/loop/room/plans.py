"""Where a pod could go if others left (pure); whom it may evict is ``DefaultPreemption``'s rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.plugins import default_preemption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.profile import Around
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.plugins.default_preemption import EvictionPlan


def plans(
    cycle: Cycle, cluster: Cluster, pod: PodView, avoid: frozenset[str] = frozenset()
) -> Iterator[EvictionPlan | NodeEntry | None]:
    """Whom to evict for the pod, node by node; the caller takes the cheapest.

    A generator, so that the caller may attend to other things between nodes; None is yielded
    where a node offers nothing, and the node where it is not known yet what it offers. Empty
    when evictions cannot help the pod, or when it needs none: some node takes it, though not well
    perhaps, or will when a pod in flight is confirmed.

    Args:
        cycle: the rules.
        cluster: what is known.
        pod: that fits nowhere.
        avoid: nodes whose pods did not end when they should have.
    """
    if cycle.problem(pod).reason:
        return
    sequence, around = cluster.sequence, cycle.around(pod)
    able = []
    for number, entry in enumerate(list(cluster.nodes.values())):
        if number % 64 == 63:
            yield None
        if sequence != cluster.sequence:
            sequence, around = cluster.sequence, cycle.around(pod)
        if entry.info is None:
            continue
        status = cycle.check(entry, pod, around)
        alone = cycle.profile.check(pod.shape, entry).verdict
        if not status.reason or status.second_best or (alone is not None and alone.waits):
            return
        if (
            entry.name not in avoid
            and default_preemption.could_make_room(pod, entry, status)
            and _may_make_room(cycle, around, pod, entry)
        ):
            able.append(entry)
    yield from _cheapest(cycle, cluster, pod, able)


def _cheapest(
    cycle: Cycle, cluster: Cluster, pod: PodView, able: Iterable[NodeEntry]
) -> Iterator[EvictionPlan | NodeEntry | None]:
    """Plans, node by node, until no other node could do with less."""
    sequence, around = -1, cycle.around(pod)
    best: EvictionPlan | None = None
    found = 0
    for least, entry in default_preemption.cheapest_first(pod, able):
        if found >= default_preemption.MOST or (best is not None and best.cost <= least):
            return
        if sequence != cluster.sequence:
            sequence, around = cluster.sequence, cycle.around(pod)
        if not default_preemption.is_settled(entry):
            yield entry
            continue
        plan = plan_on(cycle, cluster, pod, entry, around=around)
        if plan is not None:
            found += 1
            best = plan if best is None else min(best, plan, key=lambda plan: plan.cost)
        yield plan


def _may_make_room(cycle: Cycle, around: Around, pod: PodView, entry: NodeEntry) -> bool:
    """Whether the rules that look around allow the node, or would if pods left it."""
    refusal = cycle.profile.refused_around(around, pod, entry)
    return not refusal.reason or refusal.resources


def plan_on(
    cycle: Cycle,
    cluster: Cluster,
    pod: PodView,
    entry: NodeEntry,
    *,
    around: Around = (),
) -> EvictionPlan | None:
    """Whom to evict on one node for the pod; ``around``: what the cycle says of it."""
    budgets = list(cluster.budgets.values())
    companions = cluster.gangs.companions
    return default_preemption.plan_for(
        pod, entry, budgets, cycle.profile, companions, around=around
    )
