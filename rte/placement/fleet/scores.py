"""Which of the places where a pod fits is best: scores from 0 (worst) to 100.

A score is a function of the pod and of the node's state before and after its admission, so it
judges what the kubelet will really do. The four classic ones are those of
NodeResourceTopologyMatch (``zone_scores`` has them over foreign NRTs); :class:`NextFit` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rte.model import bits, quantity
from rte.model.pod import QOS, ContainerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from rte.model.bits import Mask, ZoneSet
    from rte.model.node import KubeletConfig, NodeState
    from rte.model.pod import Container, Pod

    #: (pod, state before, state after its admission) -> 0..100.
    Score: TypeAlias = Callable[[Pod, NodeState, NodeState], float]

    #: Pods, by the number of their shape.
    Counted: TypeAlias = NDArray[np.int64]

#: Of what a zone does not know, so that it does not count.
_MUCH = 1 << 62

#: Of more zone sets than this none counts as closer.
_MOST_COMPARED = 2048

#: More pods of one shape than this in one node are not told apart.
MAX_ROOM = 64


class ZoneFree(NamedTuple):
    """What a zone can still give exclusively: whole CPUs, and bytes or devices by resource."""

    zone: int
    cpus: int
    others: Mapping[str, int]


def free_by_zone(state: NodeState) -> tuple[ZoneFree, ...]:
    """What each zone can still give exclusively, in zone order.

    A device on several zones counts in each; one without a zone counts in none.
    """
    assignable = state.shared & ~state.reserved
    devices = _free_devices(state)
    out = []
    for zone, cpus in state.topology.zone_cpus.items():
        row = state.memory.get(zone)
        others = {name: amounts.free for name, amounts in row.amounts.items()} if row else {}
        for resource, unused in devices.items():
            others[resource] = (state.devices[resource].in_zone(zone) & unused).bit_count()
        out.append(ZoneFree(zone, (assignable & cpus).bit_count(), others))
    return tuple(out)


def room(state: NodeState, pod: Pod) -> int:
    """How many pods of this shape the node could still take one after the other, up to 64.

    Zone arithmetic, not prediction: each container goes to the first zone that holds it (the
    whole pod to one zone in pod scope); where the policy does not bind a container to one zone, or
    none is large enough, zones count together.
    """
    return room_in(free_by_zone(state), state.config, pod)


def room_in(zones: Iterable[ZoneFree], config: KubeletConfig, pod: Pod) -> int:
    """:func:`room` of a node whose zones have so much left: for several shapes of pods in turn."""
    bins = [_Bin(free.cpus, dict(free.others)) for free in zones]
    units = _units(pod, whole=config.topology_scope == "pod")
    if not any(units):
        return MAX_ROOM
    policy = config.topology_policy
    if policy not in {"restricted", "single-numa-node"}:
        bins = [_join(bins)]
    if len(units) == 1 and any(free.holds(units[0]) for free in bins):
        return min(MAX_ROOM, sum(free.holds(units[0]) for free in bins))
    for count in range(MAX_ROOM):
        for unit in units:
            place = next((free for free in bins if free.holds(unit)), None)
            if place is None and policy == "restricted":
                place = _join(bins) if _join(bins).holds(unit) else None
                bins = [place] if place else bins
            if place is None:
                return count
            place.take(unit)
    return MAX_ROOM


class Rooms:
    """:func:`room_in` for several shapes of pods at once.

    Args:
        pods: one of each shape.
    """

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = tuple(pods)
        self._needs = {whole: _Needs(pods, whole=whole) for whole in (False, True)}

    def of(self, zones: Sequence[ZoneFree], config: KubeletConfig) -> Counted:
        """Of a node whose zones have so much left, how many of each shape it could still take."""
        needs = self._needs[config.topology_scope == "pod"]
        joined = config.topology_policy not in {"restricted", "single-numa-node"}
        counts = needs.count(_joined(zones) if joined else zones)
        for index in needs.others:
            counts[index] = room_in(zones, config, self._pods[index])
        if config.topology_policy == "restricted":
            # Those that no zone holds may go to several.
            for index in np.flatnonzero(counts == 0).tolist():
                counts[index] = room_in(zones, config, self._pods[index])
        return counts


class _Needs:
    """What pods of one unit each need of a zone, as a matrix; ``others`` have several units."""

    def __init__(self, pods: Sequence[Pod], *, whole: bool) -> None:
        units = [_units(pod, whole=whole) for pod in pods]
        self.others = [index for index, each in enumerate(units) if len(each) > 1]
        self.names = sorted({name for each in units for name in each[0]})
        self.amounts = np.array(
            [[each[0].get(name, 0) for name in self.names] for each in units], dtype=np.int64
        ).reshape(len(units), len(self.names))

    def count(self, zones: Sequence[ZoneFree]) -> Counted:
        """How many of each fit into all zones together."""
        if not self.names:
            return np.full(len(self.amounts), MAX_ROOM, dtype=np.int64)
        free = np.array(
            [
                [
                    zone.cpus if name == "cpu" else zone.others.get(name, _MUCH)
                    for name in self.names
                ]
                for zone in zones
            ],
            dtype=np.int64,
        ).reshape(len(zones), len(self.names))
        each = np.where(self.amounts > 0, free[:, None, :] // np.maximum(self.amounts, 1), MAX_ROOM)
        counts: Counted = np.minimum(each.min(axis=2), MAX_ROOM).sum(axis=0)
        counts = np.minimum(counts, MAX_ROOM)
        counts[~self.amounts.any(axis=1)] = MAX_ROOM
        return counts


def _joined(zones: Sequence[ZoneFree]) -> tuple[ZoneFree, ...]:
    whole = _join([_Bin(zone.cpus, dict(zone.others)) for zone in zones])
    return (ZoneFree(-1, whole.cpus, whole.others),)


def least_allocated(pod: Pod, before: NodeState, after: NodeState) -> float:
    """The emptier the node stays, the better: spreads load."""
    return 100.0 - most_allocated(pod, before, after)


def most_allocated(pod: Pod, before: NodeState, after: NodeState) -> float:  # noqa: ARG001
    """The fuller the node gets in what the pod asks for, the better: packs nodes."""
    fractions = _used_fractions(pod, after)
    return 100.0 * sum(fractions) / len(fractions) if fractions else 0.0


def balanced_allocation(pod: Pod, before: NodeState, after: NodeState) -> float:  # noqa: ARG001
    """The more alike the used fractions of the resources, the better (100 less their variance)."""
    fractions = _used_fractions(pod, after)
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
        cost = 0.0
        for shape, weight in self.shapes:
            had = room(before, shape)
            if had:
                cost += weight * (had - room(after, shape))
        weights = sum(weight for _, weight in self.shapes)
        cost = max(0.0, cost / weights) if weights else 0.0
        return 99.0 / (1.0 + cost) + most_allocated(pod, before, after) * 1e-5


CLASSIC: Mapping[str, Score] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced_allocation,
    "LeastNUMANodes": least_numa_nodes,
}


def _units(pod: Pod, *, whole: bool) -> list[dict[str, int]]:
    """What has to be found in one zone: CPUs in whole units, others in base units."""
    units = [
        zone_bound(pod, container)
        for container in pod.containers
        if container.kind is not ContainerKind.INIT
    ]
    if not whole:
        return [unit for unit in units if unit] or [{}]
    return [quantity.total(units)]


def zone_bound(pod: Pod, container: Container) -> dict[str, int]:
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
    return {name: amount for name, amount in out.items() if amount}


@dataclass
class _Bin:
    """Room that shrinks while pods are counted."""

    cpus: int
    others: dict[str, int]

    def holds(self, unit: Mapping[str, int]) -> int:
        """How many times it holds the unit; what a zone does not know does not count."""
        count = MAX_ROOM
        for name, amount in unit.items():
            have = self.cpus if name == "cpu" else self.others.get(name)
            if have is not None:
                count = min(count, have // amount)
        return count

    def take(self, unit: Mapping[str, int]) -> None:
        self.cpus -= unit.get("cpu", 0)
        for name in unit.keys() & self.others.keys():
            self.others[name] -= unit[name]


def _join(bins: Iterable[_Bin]) -> _Bin:
    joined = list(bins)
    return _Bin(sum(free.cpus for free in joined), quantity.total(free.others for free in joined))


def _free_devices(state: NodeState) -> dict[str, Mask]:
    """Resource -> its free devices, for resources that know zones at all."""
    held: dict[str, Mask] = {}
    for containers in state.holdings.values():
        for holding in containers.values():
            for resource, mask in holding.devices.items():
                held[resource] = held.get(resource, 0) | mask
    return {
        resource: pool.healthy & ~held.get(resource, 0)
        for resource, pool in state.devices.items()
        if any(pool.by_zones)
    }


def _used_fractions(pod: Pod, state: NodeState) -> list[float]:
    """Used share of each zone resource that the pod asks for, over the whole node."""
    free = _join(_Bin(zone.cpus, dict(zone.others)) for zone in free_by_zone(state))
    fractions = []
    for name in _units(pod, whole=True)[0]:
        if name == "cpu":
            total, left = (state.topology.all_cpus & ~state.reserved).bit_count(), free.cpus
        elif name in state.devices:
            total, left = state.devices[name].healthy.bit_count(), free.others.get(name, 0)
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
