"""A verdict in words: why a pod fits nowhere, counted over all nodes (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.loop.cycle import Cycle


def explain(pod: PodView, cluster: Cluster, cycle: Cycle) -> tuple[str, Counter[str]]:
    """Why the pod waits, in one line, and the nodes that refuse it by reason."""
    counts = cycle.reasons(pod)
    if counts.pop("", 0):
        return "a node has just become available", counts
    refusing = (
        entry
        for entry in cluster.nodes.values()
        if entry.info is not None and cycle.check_node(entry, pod.shape).verdict is not None
    )
    return summary(counts, zone_summary(pod.shape, refusing)), counts


def summary(counts: Counter[str], zones: str = "") -> str:
    """A verdict in kube-scheduler's form: ``0/5 nodes are available: 3 Insufficient cpu, 2 …``."""
    total = sum(counts.values())
    if not total:
        return "no nodes available to schedule pods"
    parts = [f"{number} {reason}" for reason, number in sorted(counts.items()) if reason]
    text = f"0/{total} nodes are available: {', '.join(parts)}."
    return f"{text} {zones}" if zones else text


def zone_summary(shape: Shape, entries: Iterable[NodeEntry]) -> str:
    """Why zones do not do, counted over all zones of these nodes; empty where that is unknown."""
    cpus = max(shape.exclusive_cpus, default=0)
    memory = max((box.requests.get("memory", 0) for box in shape.pod.containers), default=0)
    zones = short = low = both = 0
    largest = 0
    for entry in entries:
        for _, free, left in entry.free_by_zone() or ():
            zones += 1
            largest = max(largest, free)
            few, little = free < cpus, left < memory
            both += few and little
            short += few and not little
            low += little and not few
    if not zones or not cpus:
        return ""
    return (
        f"Of {zones} NUMA zones {short} lack CPUs, {low} lack memory, {both} lack both for the "
        f"largest container ({cpus} CPUs); the largest free zone has {largest} CPUs."
    )
