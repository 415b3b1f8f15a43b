"""A verdict in words: why a pod fits nowhere, counted over all nodes (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model.words import counted
from rte.scheduler.framework.plugin import PreFilter

if TYPE_CHECKING:
    from collections import Counter

    from rte.scheduler.framework.columns import ZonesShort
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.loop.cycle import Cycle


def explain(pod: PodView, cycle: Cycle) -> tuple[str, Counter[str]]:
    """Why the pod waits, in one line, and the nodes that refuse it by reason."""
    counts, short = cycle.why(pod)
    problem = cycle.problem(pod)
    if cycle.profile.event_for(problem) != PreFilter.tells:
        return problem.reason, counts
    if counts.pop("", 0):
        return "a node has just become available", counts
    return summary(counts, zone_summary(pod.shape, short) if short else ""), counts


def summary(counts: Counter[str], zones: str = "") -> str:
    """A verdict in kube-scheduler's form: ``0/5 nodes are available: 3 Insufficient cpu, 2 …``."""
    total = sum(counts.values())
    if not total:
        return "no nodes available to schedule pods"
    parts = [f"{number} {reason}" for reason, number in sorted(counts.items()) if reason]
    text = f"0/{total} nodes are available: {', '.join(parts)}."
    return f"{text} {zones}" if zones else text


def zone_summary(shape: Shape, short: ZonesShort) -> str:
    """Why zones do not do, counted over all zones of the nodes that were asked for some; empty
    where each of them has enough: something else stands in the way.
    """
    cpus = counted(max(shape.exclusive_cpus, default=0), "CPU")
    counts = {"CPUs": short.cpus, "memory": short.memory, "both": short.both}
    told = [f"{number} without enough {what}" for what, number in counts.items() if number]
    if not told:
        return ""
    asked = f"The largest container asks for {cpus} in one zone"
    return (
        f"{asked}; the largest free zone has {short.largest}."
        f" Of {counted(short.zones, 'NUMA zone')}: {', '.join(told)}."
    )
