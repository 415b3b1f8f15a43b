"""Which of the places where a pod fits is best: scores from 0 (worst) to 100.

A score is a function of the pod and of the node's state before and after its admission, so it
judges what the kubelet will really do. The four classic ones are those of
NodeResourceTopologyMatch (``zone_scores`` has them over foreign NRTs); :class:`NextFit` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rte.model import bits, quantity
from rte.model.pod import QOS, ContainerKind
from rte.model.quantity import ZoneAmounts
from rte.placement.kubelet.demand import free_of, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from rte.model.bits import ZoneSet
    from rte.model.node import KubeletConfig, NodeState
    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.demand import Free

    #: (pod, state before, state after its admission) -> 0..100.
    Score: TypeAlias = Callable[[Pod, NodeState, NodeState], float]

    #: What has to be found at once.
    Unit: TypeAlias = ZoneAmounts
    #: Pods, by the number of their shape.
    Counted: TypeAlias = NDArray[np.int64]

#: Of what a zone does not know, so that it does not count.
_MUCH = 1 << 62

#: Of more zone sets than this none counts as closer.
_MOST_COMPARED = 2048

#: More pods of one shape than this in one node are not told apart.
MAX_ROOM = 64


def room(state: NodeState, pod: Pod) -> int:
    """How many pods of this shape the node could still take one after the other, up to 64.

    Zone arithmetic, not prediction: each container goes to the first zone that holds it (the
    whole pod to one zone in pod scope); where the policy does not bind a container to one zone, or
    none is large enough, zones count together.
    """
    return int(Rooms((pod,)).of(free_of(state), state.config)[0])


class Rooms:
    """:func:`room` for several shapes of pods at once.

    Args:
        pods: one of each shape.
    """

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._needs = {whole: _Needs(pods, whole=whole) for whole in (False, True)}

    def of(self, free: Free, config: KubeletConfig) -> Counted:
        """How many of each shape a node could still take."""
        needs, policy = self._needs[config.topology_scope == "pod"], config.topology_policy
        zones: list[Mapping[str, int]] = list(free.zones.values())
        if policy not in {"restricted", "single-numa-node"}:
            zones = [quantity.total(zones)]
        counts = needs.count(zones)
        for index, units in enumerate(needs.units):
            # Under restricted those that no zone holds may go to several.
            if len(units) > 1 or (policy == "restricted" and not counts[index]):
                counts[index] = _in_turn(zones, units, joins=policy == "restricted")
        return counts


def _in_turn(zones: Iterable[Mapping[str, int]], units: Sequence[Unit], *, joins: bool) -> int:
    """How many pods of these units go one after the other to the first zone that holds each, or
    (``joins``) to all zones together from where no single one does.
    """
    bins = [dict(amounts) for amounts in zones]
    for count in range(MAX_ROOM):
        for unit in units:
            place = next((free for free in bins if times(free, unit)), None)
            if place is None and joins:
                bins = [quantity.total(bins)]
                place = bins[0] if times(bins[0], unit) else None
            if place is None:
                return count
            for name in unit.keys() & place.keys():
                place[name] -= unit[name]
    return MAX_ROOM


class _Needs:
    """What pods need of a zone: their units, and as a matrix the first of each."""

    def __init__(self, pods: Sequence[Pod], *, whole: bool) -> None:
        self.units = [_units(pod, whole=whole) for pod in pods]
        self.names = sorted({name for each in self.units for name in each[0]})
        self.amounts = np.array(
            [[each[0].get(name, 0) for name in self.names] for each in self.units], dtype=np.int64
        ).reshape(len(self.units), len(self.names))

    def count(self, zones: Sequence[Mapping[str, int]]) -> Counted:
        """How many of the first units the zones hold, each in one zone."""
        if not self.names:
            return np.full(len(self.amounts), MAX_ROOM, dtype=np.int64)
        free = np.array(
            [[zone.get(name, _MUCH) for name in self.names] for zone in zones], dtype=np.int64
        ).reshape(len(zones), len(self.names))
        each = np.where(self.amounts > 0, free[:, None, :] // np.maximum(self.amounts, 1), MAX_ROOM)
        counts: Counted = np.minimum(each.min(axis=2), MAX_ROOM).sum(axis=0)
        counts = np.minimum(counts, MAX_ROOM)
        counts[~self.amounts.any(axis=1)] = MAX_ROOM
        return counts


def least_allocated(pod: Pod, before: NodeState, after: NodeState) -> float:
    """The emptier the node stays, the better: spreads load."""
    return 100.0 - most_allocated(pod, before, after)


def most_allocated(pod: Pod, before: NodeState, after: NodeState) -> float:  # noqa: ARG001
    """The fuller the node gets in what the pod asks for, the better: packs nodes."""
    return fullness(pod, after, free_of(after))


def fullness(pod: Pod, state: NodeState, free: Free) -> float:
    """How much of what the pod asks for is used on a node in this state, in percent."""
    fractions = _used_fractions(pod, state, free)
    return 100.0 * sum(fractions) / len(fractions) if fractions else 0.0


def balanced_allocation(pod: Pod, before: NodeState, after: NodeState) -> float:  # noqa: ARG001
    """The more alike the used fractions of the resources, the better (100 less their variance)."""
    fractions = _used_fractions(pod, after, free_of(after))
    if len(fractions) < 2:
        return 100.0
    mean = sum(fractions) / len(fractions)
    variance = sum((part - mean) ** 2 for part in fractions) / (len(fractions) - 1)
    return max(0.0, 100.0 * (1 - variance))


def least_numa_nodes(pod: Pod, before: NodeState, after: NodeState) -> float:  # noqa: ARG001
    """The fewer zones the widest container spans, the better; near zones beat far ones."""
    widest, close = 0, True
    for holding in after.holdings.get(pod.uid, {}).values():
        zones = bits.of(
            zone for zone, cpus in after.topology.zone_cpus.items() if cpus & holding.cpus
        )
        for block in holding.memory:
            zones |= block.zones
        if zones.bit_count() > widest:
            widest = zones.bit_count()
            close = _is_closest(after, zones)
    unit = 100 // max(8, len(after.topology.zones))
    return 100.0 - widest * unit + (unit // 2 if close and widest else 0)


@dataclass(frozen=True)
class NextFit:
    """Fit for what comes next: prefer the place that leaves most room for the pods seen lately.

    Fragmentation is measured in pod shapes, not in free CPUs: a place costs what it takes away from
    the shapes to come, in pods, weighed by how often a shape was seen. Using up a leftover that no
    shape could use costs nothing. Equal costs are decided for the fuller node.

    Attributes:
        shapes: (a pod of the shape, how often it was seen lately).
    """

    shapes: Sequence[tuple[Pod, float]] = field(default=())

    def __call__(self, pod: Pod, before: NodeState, after: NodeState) -> float:
        """The score of one place."""
        rooms = Rooms([shape for shape, _ in self.shapes])
        weights = np.array([weight for _, weight in self.shapes])
        had, left = (rooms.of(free_of(state), state.config) for state in (before, after))
        cost = float(weights @ (had - left))
        cost = max(0.0, cost / weights.sum()) if weights.any() else 0.0
        return 99.0 / (1.0 + cost) + most_allocated(pod, before, after) * 1e-5


CLASSIC: Mapping[str, Score] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced_allocation,
    "LeastNUMANodes": least_numa_nodes,
}


def _units(pod: Pod, *, whole: bool) -> Sequence[Unit]:
    """What has to be found in one zone: CPUs in whole units, others in base units."""
    units = [
        zone_bound(pod, container)
        for container in pod.containers
        if container.kind is not ContainerKind.INIT
    ]
    whole_pod = ZoneAmounts(quantity.total(units))
    return [whole_pod] if whole or not whole_pod else [unit for unit in units if unit]


def zone_bound(pod: Pod, container: Container) -> Unit:
    """What a container needs from its zones: CPUs in whole units (exclusive ones only), memory of
    Guaranteed pods, devices.
    """
    out = {}
    for name, amount in container.requests.items():
        if name == "cpu":
            if pod.qos is QOS.GUARANTEED and amount % 1000 == 0:
                out[name] = amount // 1000
        elif "/" in name or pod.qos is QOS.GUARANTEED:
            out[name] = amount
    return ZoneAmounts({name: amount for name, amount in out.items() if amount})


def _used_fractions(pod: Pod, state: NodeState, free: Free) -> list[float]:
    """Used share of each zone resource that the pod asks for, over the whole node."""
    asked = {
        name: None
        for container in pod.containers
        if container.kind is not ContainerKind.INIT
        for name in zone_bound(pod, container)
    }
    fractions = []
    for name in asked:
        left = sum(zone.get(name, 0) for zone in free.zones.values())
        if name == "cpu":
            total = (state.topology.all_cpus & ~state.reserved).bit_count()
        elif name in state.devices:
            total = state.devices[name].healthy.bit_count()
        else:
            rows = [row.amounts[name] for row in state.memory.values() if name in row.amounts]
            total, left = sum(row.allocatable for row in rows), sum(row.free for row in rows)
        if total:
            fractions.append(1 - left / total)
    return fractions


def _is_closest(state: NodeState, zones: ZoneSet) -> bool:
    """Whether no zone set of the same width has a smaller average distance to its members."""
    order = [zone.id for zone in state.topology.zones]
    mine = [position for position, zone in enumerate(order) if zones >> zone & 1]
    if comb(len(order), len(mine)) > _MOST_COMPARED or any(
        len(zone.distances) != len(order) for zone in state.topology.zones
    ):
        return True

    def spread(chosen: Sequence[int]) -> int:
        return sum(state.topology.zones[a].distances[b] for a in chosen for b in chosen)

    others = combinations(range(len(order)), len(mine))
    return all(spread(mine) <= spread(other) for other in others)
