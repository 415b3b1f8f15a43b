"""Which GPUs: by partition, then by the narrowest scope that holds them all.

Source: Koordinator ``pkg/scheduler/plugins/deviceshare/allocator_gpu.go``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.koordinator.devices.node import fits
from rte.placement.koordinator.devices.outcome import DeviceRefusal
from rte.placement.koordinator.devices.request import GPU
from rte.placement.koordinator.devices.scores import score_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.placement.koordinator.devices.node import DeviceInfo, Minors, Partition, SharedDevices
    from rte.placement.koordinator.devices.request import (
        DeviceShareRequest,
        GPURequest,
        PartitionSpec,
    )

#: Scopes by the width of their devices' place, the narrower the higher.
SCOPE_LEVELS = {"Device": 4, "PCIe": 3, "NUMANode": 2, "Node": 1}

INSUFFICIENT = "Insufficient GPU Devices"
INSUFFICIENT_SCOPED = "Insufficient Topology Scoped GPU Devices"
INSUFFICIENT_PARTITIONED = "Insufficient Partitioned GPU Devices"
NO_TABLE = "node(s) missing GPU Partition Table"
NO_TREE = "node(s) missing GPU Device Topology Tree"
BAD_COUNT = "node(s) Unsupported number of GPU requests"
SHARES_OF_SEVERAL = "node(s) Unsupported Multi-Shared GPU"

#: How much a partition that stays whole is worth, by its size.
_WHOLE_WORTH = {8: 10_000, 4: 100, 2: 1}


@dataclass(frozen=True, slots=True)
class _Scope:
    """The node, a zone, or a PCIe switch, with the minors of its GPUs in ascending order."""

    level: int
    minors: tuple[int, ...]
    children: tuple[_Scope, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    minors: tuple[int, ...]
    depth: int
    not_empty: int
    score: int


def choose_gpus(
    request: DeviceShareRequest,
    wanted: GPURequest,
    node: SharedDevices,
    original: SharedDevices,
    strategy: str,
) -> tuple[int, ...] | None:
    """The minors of the GPUs; None where neither partitions nor topology decide.

    Args:
        request: the pod's whole request.
        wanted: its GPUs.
        node: the devices that the pod may have.
        original: all devices of the node.
        strategy: ``LeastAllocated``, ``MostAllocated`` or ``""``.
    """
    honours = request.partition is not None or node.honours_partitions
    usable = {minor for minor, total in node.total.get(GPU, {}).items() if any(total.values())}
    in_use = {minor for minor, used in node.used.get(GPU, {}).items() if any(used.values())}
    in_use |= set(original.used.get(GPU, {})) - set(node.total.get(GPU, {}))
    if not wanted.shared:
        try:
            return _by_partition(wanted, request.partition, node, usable, in_use)
        except DeviceRefusal:
            if honours:
                raise
    return _by_topology(request, wanted, node, usable, in_use, strategy)


def _by_partition(
    wanted: GPURequest,
    spec: PartitionSpec | None,
    node: SharedDevices,
    usable: set[int],
    in_use: set[int],
) -> tuple[int, ...]:
    table = node.partitions
    if table is None:
        raise DeviceRefusal(NO_TABLE, resolvable=False)
    if wanted.count not in table:
        raise DeviceRefusal(BAD_COUNT, resolvable=False)
    bandwidth = None if spec is None else spec.least_bandwidth()
    feasible: list[Partition] = []
    for partitions in table[wanted.count]:
        feasible = [
            partition
            for partition in partitions
            if partition.minors <= usable
            and not partition.minors & in_use
            and (
                bandwidth is None
                or (
                    partition.ring_bus_bandwidth is not None
                    and bandwidth <= partition.ring_bus_bandwidth
                )
            )
        ]
        if feasible or (spec is not None and spec.allocate_policy == "Restricted"):
            break
    if not feasible:
        raise DeviceRefusal(INSUFFICIENT_PARTITIONED)
    # The first of the best: what it leaves whole is worth most.
    return max(feasible, key=lambda it: _left_whole(in_use | it.minors, table, wanted.count)).order


def _left_whole(
    taken: set[int], table: Mapping[int, Sequence[Sequence[Partition]]], count: int
) -> int:
    return sum(
        worth * partition.score
        for size, worth in _WHOLE_WORTH.items()
        if size >= count and table.get(size)
        for partition in table[size][0]
        if not partition.minors & taken
    )


def _by_topology(
    request: DeviceShareRequest,
    wanted: GPURequest,
    node: SharedDevices,
    usable: set[int],
    in_use: set[int],
    strategy: str,
) -> tuple[int, ...] | None:
    required = request.hints[GPU].required_topology_scope if GPU in request.hints else ""
    tree = _tree(node.infos.get(GPU, ()))
    several = wanted.shared and wanted.count > 1
    if tree is None or several:
        if required:
            refusal = NO_TREE if tree is None else SHARES_OF_SEVERAL
            raise DeviceRefusal(refusal, resolvable=False)
        return None
    found = _Chooser(wanted, node, usable, in_use, strategy, required).choose(tree, 0, 0)
    if found is None:
        raise DeviceRefusal(INSUFFICIENT_SCOPED if required else INSUFFICIENT)
    return found.minors


def _tree(infos: Iterable[DeviceInfo]) -> _Scope | None:
    zones: dict[int, dict[str, list[int]]] = {}
    for info in infos:
        if info.zone is None or info.pcie is None:
            return None
        zones.setdefault(info.zone, {}).setdefault(info.pcie, []).append(info.minor)
    of_zones = (
        _around("NUMANode", [_Scope(SCOPE_LEVELS["PCIe"], tuple(sorted(it))) for _, it in switches])
        for switches in (sorted(zones[zone].items()) for zone in sorted(zones))
    )
    return _around("Node", list(of_zones)) if zones else None


def _around(scope: str, children: list[_Scope]) -> _Scope:
    minors = tuple(sorted(minor for child in children for minor in child.minors))
    return _Scope(SCOPE_LEVELS[scope], minors, tuple(children))


class _Chooser:
    def __init__(
        self,
        wanted: GPURequest,
        node: SharedDevices,
        usable: set[int],
        in_use: set[int],
        strategy: str,
        required: str,
    ) -> None:
        self._wanted = wanted
        self._in_use = in_use
        self._level = SCOPE_LEVELS.get(required, 0)
        free: Minors = node.free(GPU)
        self._fit = {minor for minor in usable if fits(wanted.each, free.get(minor, {}))}
        total = node.total.get(GPU, {})
        # Total and free change places here, as they do in the source.
        self._scores = {
            minor: score_device(wanted.each, free[minor], total[minor], strategy) if strategy else 0
            for minor in self._fit
        }

    def choose(self, scope: _Scope, depth: int, not_empty: int) -> _Found | None:
        """The best in the narrowest scope: the deepest, then where most is in use around."""
        if len(scope.minors) < self._wanted.count:
            return None
        depth += 1
        not_empty += bool(self._in_use.intersection(scope.minors))
        best: _Found | None = None
        for child in scope.children:
            found = self.choose(child, depth, not_empty)
            if found is not None and (best is None or self._rank(found) > self._rank(best)):
                best = found
        if best is not None:
            return best
        if self._level > scope.level:
            return None
        fit = [minor for minor in scope.minors if minor in self._fit]
        if self._wanted.shared:
            fit = sorted(fit, key=lambda minor: -self._scores[minor])[:1]
            return _Found(tuple(fit), depth, not_empty, self._scores[fit[0]]) if fit else None
        if len(fit) < self._wanted.count:
            return None
        return _Found(tuple(fit[: self._wanted.count]), depth, not_empty, -1)

    def _rank(self, found: _Found) -> tuple[int, int, int]:
        return found.depth, found.not_empty, found.score if self._wanted.shared else 0
