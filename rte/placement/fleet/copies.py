"""How many copies of one pod each node admits, one after the other: by arrays, where that is exact.

A container (the whole pod, under pod scope) that has to lie in one zone goes to the lowest zone
with room for all of it; where only sums count there is nothing to choose. So counting needs no
prediction where no container reuses what another one held, every pick of free CPUs succeeds, and no
device or memory group spans zones. Elsewhere the answer is :data:`UNKNOWN`, and
:func:`rte.placement.admit` has to be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rte.model import bits, quantity
from rte.model.pod import QOS, ContainerKind
from rte.placement.inflight.zones import is_grouped, merge_sees_all, picks_always_succeed
from rte.placement.kubelet import cpus, devices, layout, memory, merge, outcome
from rte.placement.kubelet.rules import has_pod_level_resources, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.model.node import DevicePool, NodeState
    from rte.model.pod import Pod

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    #: What has to be found together: CPUs (whole), bytes and devices by resource.
    Unit: TypeAlias = Mapping[str, int]

#: Where an answer needs the prediction.
UNKNOWN = -1
#: Larger than any amount that is compared, and small enough to be added up.
_MUCH = 1 << 56
_ABSENT = -1
#: Nodes of one signature treat a pod alike: policy, pod scope, CPU manager, memory manager, threads
#: of a core that must not be split.
_Signature: TypeAlias = tuple[str, bool, bool, bool, int]


class CopyTable:
    """Free amounts of nodes, one row each.

    Attributes:
        names: node of each row.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._signatures: dict[_Signature | None, set[int]] = {}
        self._signature_of: list[_Signature | None] = []
        self._capacity, self._width = 64, 4
        #: resource -> free in each zone, and as columns: in all, of the largest zone's size.
        self._zonal: dict[str, Array] = {}
        self._sums: dict[str, Array] = {}
        self._sizes: dict[str, Array] = {}
        #: resource -> rows of which its devices are not in columns: who asks for none is counted.
        self._uncounted: dict[str, set[int]] = {}
        #: resource -> what node totals leave.
        self._room: dict[str, Array] = {}

    def put(self, name: str, state: NodeState, room: Mapping[str, int]) -> None:
        """Add a node, or replace its row.

        Args:
            name: of the node.
            state: settled.
            room: node totals less what is used (millicores, bytes, units, ``pods``).
        """
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = len(self.names)
            self.names.append(name)
            self._signature_of.append(None)
            self._signatures.setdefault(None, set()).add(row)
        self._grow(row + 1, len(state.topology.zones))
        for columns in (self._zonal, self._sums, self._sizes):
            for column in columns.values():
                column[row] = _ABSENT
        for column in self._room.values():
            column[row] = 0
        for resource, amount in room.items():
            self._column(self._room, resource)[row] = max(0, min(amount, _MUCH))
        signature = _signature(state)
        for others in self._uncounted.values():
            others.discard(row)
        self._signatures[self._signature_of[row]].discard(row)
        self._signature_of[row] = signature
        self._signatures.setdefault(signature, set()).add(row)
        if signature is not None:
            self._fill(row, state)

    def totals(self, wanted: Mapping[str, int]) -> Array:
        """For each row the copies that node totals allow."""
        return self._least(
            (self._room.get(name), amount, 0) for name, amount in wanted.items() if amount
        )

    def count(self, pod: Pod, wanted: Mapping[str, int]) -> Array:
        """For each row the copies that the kubelet admits, or :data:`UNKNOWN`.

        Args:
            pod: what is copied.
            wanted: what one copy counts for on node level.
        """
        out = np.full(len(self.names), UNKNOWN, dtype=np.int64)
        reuses = any(container.kind is ContainerKind.INIT for container in pod.containers)
        if reuses or has_pod_level_resources(pod):
            return out
        totals = self.totals(wanted)
        for signature, members in self._signatures.items():
            if signature is None or not members:
                continue
            rows = np.fromiter(members, dtype=np.int64, count=len(members))
            found = self._count(signature, rows, pod, totals[rows])
            out[rows] = np.where(found == UNKNOWN, UNKNOWN, np.minimum(found, totals[rows]))
        for name in {name for each in pod.containers for name in each.limits}:
            out[list(self._uncounted.get(name, ()))] = UNKNOWN
        return out

    def _count(self, signature: _Signature, rows: Array, pod: Pod, totals: Array) -> Array:
        policy, pod_scope, cpu_static, memory_static, threads = signature
        units = _units(pod, cpu_static=cpu_static, memory_static=memory_static)
        unknown = np.full(len(rows), UNKNOWN, dtype=np.int64)
        if threads and any(unit.get("cpu", 0) % threads for unit in units):
            return unknown
        asks_memory = memory_static and pod.qos is QOS.GUARANTEED
        if asks_memory and not all(memory.requested(each.requests) for each in pod.containers):
            # The memory manager also refuses containers that ask it for nothing.
            return unknown
        if policy in (merge.NONE, merge.BEST_EFFORT):
            return unknown if asks_memory else self._by_sums(rows, units)
        if pod_scope:
            if asks_memory and not merge_sees_all(pod):
                return unknown
            units = [quantity.total(units)]
        return self._by_zones(rows, units, totals, sizes_matter=policy == merge.RESTRICTED)

    def _by_sums(self, rows: Array, units: Sequence[Unit]) -> Array:
        """Whatever zones the parts come from."""
        parts = [(self._sums.get(name), amount) for name, amount in quantity.total(units).items()]
        out = np.full(len(rows), _MUCH, dtype=np.int64)
        for column, amount in parts:
            if column is not None:
                free = column[rows]
                out = np.where(free == _ABSENT, out, np.minimum(out, free // amount))
        return out

    def _by_zones(
        self, rows: Array, units: Sequence[Unit], totals: Array, *, sizes_matter: bool
    ) -> Array:
        """Each unit in one zone, the lowest that has room for it."""
        out = np.full(len(rows), _MUCH, dtype=np.int64)
        known = np.ones(len(rows), dtype=bool)
        refused = np.zeros(len(rows), dtype=bool)
        zonal: dict[str, Array] = {}
        sized: dict[str, Array] = {}
        for name, amount in quantity.total(units).items():
            if name not in self._sums:
                known &= not memory.is_memory(name)
                continue
            sums, free = self._sums[name][rows], self._zonal[name][rows]
            here = sums != _ABSENT
            known &= here | (not memory.is_memory(name))
            # A resource without zones has one size, 0: its devices may come from anywhere.
            loose = here & (self._sizes[name][rows] == 0)
            out = np.where(loose, np.minimum(out, sums // amount), out)
            zonal[name] = np.where((here & ~loose)[:, None], free, _MUCH)
            if sizes_matter:
                sized[name] = np.where(here & ~loose, self._sizes[name][rows], _ABSENT)
        wanted = [
            {name: amount for name, amount in unit.items() if name in zonal} for unit in units
        ]
        wanted = [unit for unit in wanted if unit]
        if len(wanted) == 1:
            copies = np.full((len(rows), self._width), _MUCH, dtype=np.int64)
            for name, amount in wanted[0].items():
                copies = np.minimum(copies, zonal[name] // amount)
            out = np.minimum(out, np.minimum(copies.sum(axis=1), _MUCH))
        elif wanted:
            out = np.minimum(out, _in_turn(zonal, wanted, np.minimum(out, totals)))
        for unit in units:
            narrow, wide = _widths(unit, sized, len(rows))
            known &= ~wide
            # Restricted wants the fewest zones of every manager, and they differ.
            out = np.where(narrow & wide, 0, out)
            refused |= narrow & wide
        return np.where(known | refused, out, UNKNOWN)

    def _least(self, parts: Iterable[tuple[Array | None, int, int]]) -> Array:
        out = np.full(len(self.names), _MUCH, dtype=np.int64)
        for column, amount, absent in parts:
            free = column[: len(out)] if column is not None else np.full(len(out), absent)
            out = np.minimum(out, np.maximum(free, 0) // min(amount, quantity.MOST))
        return out

    def _fill(self, row: int, state: NodeState) -> None:
        assignable = state.shared & ~state.reserved
        zones = [zone.id for zone in state.topology.zones]
        zone_cpus = [state.topology.zone_cpus[zone] for zone in zones]
        self._put(
            "cpu",
            row,
            [(each & assignable).bit_count() for each in zone_cpus],
            [each.bit_count() for each in zone_cpus],
        )
        for name in {name for each in state.memory.values() for name in each.amounts}:
            found = [state.memory[zone].amounts.get(name) for zone in zones]
            if None not in found:
                self._put(
                    name,
                    row,
                    [
                        0 if is_grouped(state.memory[zone]) else amounts.free
                        for zone, amounts in zip(zones, found, strict=True)
                        if amounts
                    ],
                    [amounts.allocatable for amounts in found if amounts],
                )
        for name, pool in state.devices.items():
            if not _counts(pool, state.topology.zone_mask):
                self._uncounted.setdefault(name, set()).add(row)
                continue
            unused = pool.healthy & ~devices.held(state, name)
            free, sizes = dict.fromkeys(zones, 0), dict.fromkeys(zones, 0)
            for home, group in pool.by_zones.items():
                if home:
                    sizes[bits.lowest(home)] += group.bit_count()
                    free[bits.lowest(home)] += (group & unused).bit_count()
            self._put(name, row, list(free.values()), list(sizes.values()), unused.bit_count())

    def _put(
        self,
        name: str,
        row: int,
        free: Sequence[int],
        sizes: Sequence[int],
        total: int | None = None,
    ) -> None:
        amounts = [min(amount, _MUCH) for amount in free]
        zonal = self._column(self._zonal, name, zones=True)
        zonal[row] = 0
        zonal[row, : len(amounts)] = amounts
        self._column(self._sums, name)[row] = min(sum(amounts) if total is None else total, _MUCH)
        self._column(self._sizes, name)[row] = min(max(sizes), _MUCH)

    def _column(self, columns: dict[str, Array], name: str, *, zones: bool = False) -> Array:
        if name not in columns:
            shape = (self._capacity, self._width) if zones else (self._capacity,)
            absent = 0 if columns is self._room else _ABSENT
            columns[name] = np.full(shape, absent, dtype=np.int64)
        return columns[name]

    def _grow(self, rows: int, zones: int) -> None:
        capacity, width = self._capacity, self._width
        while capacity < rows:
            capacity *= 2
        while width < zones:
            width *= 2
        if (capacity, width) == (self._capacity, self._width):
            return
        for columns in (self._zonal, self._sums, self._sizes, self._room):
            for name, old in columns.items():
                shape = (capacity, width) if old.ndim == 2 else (capacity,)
                new = np.full(shape, 0 if columns is self._room else _ABSENT, dtype=np.int64)
                if old.ndim == 2:
                    new[: self._capacity] = 0
                new[tuple(slice(size) for size in old.shape)] = old
                columns[name] = new
        self._capacity, self._width = capacity, width


def _in_turn(zonal: Mapping[str, Array], units: Sequence[Unit], most: Array) -> Array:
    """Copies of several units, each in the lowest zone with room, one after the other."""
    free = {name: table.copy() for name, table in zonal.items()}
    out = np.zeros(len(most), dtype=np.int64)
    active = np.flatnonzero(most > 0)
    while len(active):
        fits = np.ones(len(active), dtype=bool)
        for unit in units:
            room = np.logical_and.reduce(
                [free[name][active] >= amount for name, amount in unit.items()]
            )
            zone = room.argmax(axis=1)
            fits &= room[np.arange(len(active)), zone]
            for name, amount in unit.items():
                free[name][active, zone] -= amount
        out[active[fits]] += 1
        active = active[fits & (out[active] < most[active])]
    return out


def _widths(unit: Unit, sizes: Mapping[str, Array], rows: int) -> tuple[Array, Array]:
    """For each row whether some manager's fewest zones are one, and whether some need several.

    Args:
        unit: what is asked for.
        sizes: resource -> size of the largest zone, :data:`_ABSENT` where zones do not matter.
        rows: their number.
    """
    narrow, wide = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
    # The memory manager counts zones that are large enough for all its resources at once.
    is_joint = sum(map(memory.is_memory, unit)) > 1
    for name, amount in unit.items():
        if name in sizes:
            zoned = sizes[name] != _ABSENT
            wide |= zoned & (sizes[name] < amount)
            if not (is_joint and memory.is_memory(name)):
                narrow |= zoned & (sizes[name] >= amount)
    return narrow, wide


def _units(pod: Pod, *, cpu_static: bool, memory_static: bool) -> list[Unit]:
    """What the managers have to find for each container."""
    pinned = pod.qos is QOS.GUARANTEED
    out: list[Unit] = []
    for container in pod.containers:
        unit = {
            name: amount
            for name, amount in container.limits.items()
            if name != "cpu" and not memory.is_memory(name)
        }
        if pinned and cpu_static:
            unit["cpu"] = cpus.exclusive_cpus(pod, container)
        if pinned and memory_static:
            unit |= memory.requested(container.requests)
        out.append({name: amount for name, amount in unit.items() if amount})
    return out


def _counts(pool: DevicePool, zones: ZoneSet) -> bool:
    """Whether numbers tell which hints there are: all devices are known, each in one zone."""
    return pool.complete and all(
        not home or (not home & (home - 1) and home & zones) for home in pool.by_zones
    )


def _signature(state: NodeState) -> _Signature | None:
    """How the node treats pods, None where counting does not do."""
    try:
        rules = rules_of(state.config, state.kubelet_version)
    except outcome.Unpredictable:
        return None
    if (
        not state.topology.zones
        or (rules.cpu is not None and rules.cpu.align_by_socket)
        or (rules.prefer_closest and rules.policy == merge.RESTRICTED)
        or not picks_always_succeed(state, rules, alone=False)
    ):
        return None
    full_cores = rules.cpu is not None and rules.cpu.full_pcpus_only
    threads = layout.of(state.topology).cpus_per_core if full_cores else 0
    return rules.policy, rules.pod_scope, rules.cpu is not None, rules.memory, threads
