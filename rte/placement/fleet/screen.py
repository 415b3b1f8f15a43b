"""Nodes as columns, and which of them cannot admit a pod: thousands at once.

Every condition here is necessary for the kubelet's admission, none is sufficient: a node ruled out
is one that :func:`rte.placement.admit` does not admit; what is left needs the exact prediction.
They all compare demands with what is free **before** the pod. That holds for later containers too,
because what a container may reuse was free before its pod came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rte.model.quantity import ZoneAmounts
from rte.placement.inflight.zones import picks_always_succeed
from rte.placement.kubelet import demand, merge, outcome
from rte.placement.kubelet.cpu import pickers
from rte.placement.kubelet.demand import Demand, free_of
from rte.placement.kubelet.rules import KubeletRules, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.model.bits import ZoneSet
    from rte.model.node import DevicePool, NodeState
    from rte.model.pod import Pod

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    #: What has to be found at once: CPUs (whole), bytes and devices by resource.
    Unit: TypeAlias = Mapping[str, int]
    #: Which nodes are tried first: the fullest (packs) or the emptiest (spreads).
    Order: TypeAlias = Literal["fullest", "emptiest"]

#: Larger than any amount that is compared, and small enough to be added up.
MUCH = 1 << 56
#: Stands for a resource that a node does not count.
ABSENT = -1
_CHUNK = 32


class Treatment(NamedTuple):
    """How a node treats pods; those that have it in common are asked together.

    Attributes:
        rules: of its kubelet.
        threads: CPUs of a core where none may be split, else 1.
        regular: what is free says whether CPUs can be picked.
        counts: one pod after the other is a matter of numbers (:mod:`rte.placement.fleet.copies`).
    """

    rules: KubeletRules
    threads: int
    regular: bool
    counts: bool


class NodeTable:
    """What nodes have free, one row each.

    Attributes:
        version: grows with each change.
        row_version: the version at which a row changed last.
        names: node of each row, empty for a row that is not used.
        states: node -> its state.
        treatments: those that nodes have had, by their number.
        treatment: number of each row's, -1 where nothing is known of it.
        width: zones that a row has room for.
        zones: resource -> what is free in each zone.
        sums: resource -> what is free on the node.
        sizes: resource -> size of the largest zone, 0 where zones do not matter.
        pools: resource that has devices -> rows of which zones do not tell all about them.
        room: resource -> what node totals leave.
    """

    def __init__(self) -> None:
        self.version = 0
        self.states: dict[str, NodeState] = {}
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._unused: list[int] = []
        self._capacity, self.width = 64, 4
        self.treatments: list[Treatment] = []
        self._numbers: dict[Treatment, int] = {}
        self.treatment: Array = np.full(self._capacity, -1, dtype=np.int64)
        self.row_version: Array = np.zeros(self._capacity, dtype=np.int64)
        self.zones: dict[str, Array] = {}
        self.sums: dict[str, Array] = {}
        self.sizes: dict[str, Array] = {}
        self.pools: dict[str, set[int]] = {}
        self.room: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self.states)

    def put(self, name: str, state: NodeState, room: Mapping[str, int] | None = None) -> None:
        """Add a node, or replace its row.

        Args:
            name: of the node.
            state: settled.
            room: node totals less what is used (millicores, bytes, units, ``pods``).
        """
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self._new_row(name)
        else:
            self._clear(row)
        self.states[name] = state
        self._grow(row + 1, len(state.topology.zone_cpus))
        self.version += 1
        self.row_version[row] = self.version
        for resource, amount in (room or {}).items():
            self._column(self.room, resource)[row] = max(0, min(amount, MUCH))
        treatment = _treatment_of(state)
        if treatment is not None:
            number = self._numbers.setdefault(treatment, len(self.treatments))
            if number == len(self.treatments):
                self.treatments.append(treatment)
            self.treatment[row] = number
            self._fill(row, state)

    def drop(self, name: str) -> None:
        """Forget a node; unknown names are no error."""
        row = self._rows.pop(name, None)
        if row is not None:
            del self.states[name]
            self.names[row] = ""
            self._unused.append(row)
            self.version += 1
            self.row_version[row] = self.version
            self._clear(row)

    def screen(self, pod: Pod, rows: Array | None = None) -> Array:
        """For each row (or each of the rows given) whether the node may admit the pod.

        Nodes whose kubelet the rules do not cover are ruled out: nothing is sure there.
        """
        asked = np.arange(len(self.names)) if rows is None else rows
        passes = np.zeros(len(asked), dtype=bool)
        for treatment, places in self.alike(asked):
            passes[places] = self._may_admit(treatment, asked[places], pod)
        return passes

    def alike(self, rows: Array) -> Iterator[tuple[Treatment, Array]]:
        """Treatments, and the places of those of the rows that have each."""
        numbers = self.treatment[rows]
        for number in np.unique(numbers).tolist():
            if number >= 0:
                yield self.treatments[number], np.flatnonzero(numbers == number)

    def free_cpus(self) -> Array:
        """Assignable CPUs of each row."""
        return self._column(self.sums, "cpu")[: len(self.names)]

    def copies_by_zone(self, unit: Unit, rows: Array) -> Array:
        """How many such units each zone of these rows holds; resources that are not counted by
        zone bound nothing.
        """
        copies = np.full((len(rows), self.width), MUCH, dtype=np.int64)
        for name, amount in unit.items():
            if name in self.zones:
                free, zoned = self.zones[name][rows], self.sizes[name][rows] > 0
                copies = np.minimum(copies, np.where(zoned[:, None], free, MUCH) // amount)
        return copies

    def _may_admit(self, treatment: Treatment, rows: Array, pod: Pod) -> Array:
        rules = treatment.rules
        passes = np.ones(len(rows), dtype=bool)
        if demand.is_pod_level(pod, rules):
            # Served as a whole, or by some of its containers: no condition of these is sure.
            return passes
        asked = Demand(pod, rules, self.pools)
        units, together = asked.each, asked.peak
        if treatment.regular and any(unit.get("cpu", 0) % treatment.threads for unit in units):
            return ~passes
        if rules.pod_scope and len(units) > 1:
            # Where no zones have all its memory, each container may still find its own.
            elsewhere = {n: amount for n, amount in together.items() if not demand.is_memory(n)}
            units = [ZoneAmounts(elsewhere)]
        if not treatment.regular:
            for each in (*units, together):
                each.pop("cpu", None)
        for name, amount in together.items():
            if name in self.sums:
                free = self.sums[name][rows]
                passes &= (free >= amount) | (free == ABSENT)
        for unit in units:
            if rules.policy == merge.SINGLE_NUMA_NODE:
                passes &= (self.copies_by_zone(unit, rows) > 0).any(axis=1)
            elif rules.policy == merge.RESTRICTED:
                for name in self._narrow(unit, rules):
                    held = (self.copies_by_zone({name: unit[name]}, rows) > 0).any(axis=1)
                    passes &= held | (self.sizes[name][rows] < unit[name])
        return passes

    def _narrow(self, unit: Unit, rules: KubeletRules) -> Iterator[str]:
        """Resources of which restricted wants one zone wherever one is large enough."""
        is_joint = sum(map(demand.is_memory, unit)) > 1
        for name in unit:
            # With align-by-socket, wider hints of CPUs can be preferred too.
            wider = name == "cpu" and rules.cpu is not None and rules.cpu.align_by_socket
            if name in self.zones and not wider and not (is_joint and demand.is_memory(name)):
                yield name

    def _new_row(self, name: str) -> int:
        if self._unused:
            row = self._unused.pop()
            self.names[row] = name
            return row
        self.names.append(name)
        return len(self.names) - 1

    def _clear(self, row: int) -> None:
        self.treatment[row] = -1
        for columns in (self.zones, self.sums, self.sizes, self.room):
            for column in columns.values():
                column[row] = self._nothing(columns)
        for rows in self.pools.values():
            rows.discard(row)

    def _fill(self, row: int, state: NodeState) -> None:
        free = free_of(state)
        cpus = state.topology.zone_cpus.values()
        sizes = {"cpu": max((zone.bit_count() for zone in cpus), default=0)}
        if state.memory.keys() >= free.zones.keys():
            for name in {name for each in state.memory.values() for name in each.amounts}:
                found = [each.amounts.get(name) for each in state.memory.values()]
                if None not in found:
                    sizes[name] = max(amounts.allocatable for amounts in found if amounts)
        for name, pool in state.devices.items():
            sizes[name] = max((pool.in_zone(zone).bit_count() for zone in free.zones), default=0)
            rows = self.pools.setdefault(name, set())
            if not _tell_all(pool, state.topology.zone_mask):
                rows.add(row)
        zones, single = free.zones.values(), free.single.values()
        for name, size in sizes.items():
            total = free.devices.get(name)
            if total is None:
                total = sum([zone[name] for zone in zones])
            amounts = [zone.get(name, 0) for zone in single]
            if total > MUCH:
                total, amounts = MUCH, [min(amount, MUCH) for amount in amounts]
            self._column(self.sums, name)[row] = total
            self._column(self.sizes, name)[row] = min(size, MUCH)
            self._column(self.zones, name)[row, : len(amounts)] = amounts

    def _column(self, columns: dict[str, Array], name: str) -> Array:
        if name not in columns:
            shape = (self._capacity, self.width) if columns is self.zones else (self._capacity,)
            columns[name] = np.full(shape, self._nothing(columns), dtype=np.int64)
        return columns[name]

    def _nothing(self, columns: dict[str, Array]) -> int:
        return 0 if columns is self.room or columns is self.zones else ABSENT

    def _grow(self, rows: int, zones: int) -> None:
        capacity, width = self._capacity, self.width
        while capacity < rows:
            capacity *= 2
        while width < zones:
            width *= 2
        if (capacity, width) == (self._capacity, self.width):
            return
        self._capacity, self.width = capacity, width
        self.treatment = self._larger(self.treatment, ABSENT)
        self.row_version = self._larger(self.row_version, 0)
        for columns in (self.zones, self.sums, self.sizes, self.room):
            for name, old in columns.items():
                columns[name] = self._larger(old, self._nothing(columns))

    def _larger(self, old: Array, nothing: int) -> Array:
        new: Array = np.full((self._capacity, self.width)[: old.ndim], nothing, dtype=np.int64)
        new[tuple(slice(size) for size in old.shape)] = old
        return new


class Screening:
    """The screen for one pod shape, kept up to date by looking at changed rows only."""

    def __init__(self, table: NodeTable, pod: Pod) -> None:
        self.table = table
        self.pod = pod
        self._version = -1
        self._passes: Array = np.zeros(0, dtype=bool)

    def passes(self) -> Array:
        """For each row whether the node may admit the pod."""
        if self._version < 0:
            self._passes = self.table.screen(self.pod)
        elif self._version != self.table.version:
            rows = len(self.table.names)
            changed = np.flatnonzero(self.table.row_version[:rows] > self._version)
            passes = np.zeros(rows, dtype=bool)
            passes[: len(self._passes)] = self._passes
            passes[changed] = self.table.screen(self.pod, changed)
            self._passes = passes
        self._version = self.table.version
        return self._passes

    def candidates(self, order: Order = "fullest") -> Iterator[str]:
        """Nodes that are not ruled out, by free CPUs; equals in the order of their rows."""
        rows = np.flatnonzero(self.passes())
        free = self.table.free_cpus()[rows]
        ranks = (free if order == "fullest" else -free) * (len(self.table.names) + 1) + rows
        # Sorted a chunk at a time: most often the first few are enough.
        done, size = 0, _CHUNK
        while done < len(rows):
            end = min(done + size, len(rows))
            if end < len(rows):
                parted = np.argpartition(ranks, end - 1)
                rows, ranks = rows[parted], ranks[parted]
            for row in rows[done + np.argsort(ranks[done:end])].tolist():
                yield self.table.names[row]
            done, size = end, size * 4


def _tell_all(pool: DevicePool, zones: ZoneSet) -> bool:
    """Whether numbers tell which hints there are: all devices are known, each in one zone."""
    return pool.complete and all(
        not home or (not home & (home - 1) and home & zones) for home in pool.by_zones
    )


def _treatment_of(state: NodeState) -> Treatment | None:
    """How the node treats pods; None where nothing is known of its kubelet."""
    try:
        rules = rules_of(state.config, state.kubelet_version)
    except outcome.Unpredictable:
        return None
    machine = pickers.layout_of(state.topology)
    counts = (
        bool(state.topology.zones)
        and not (rules.cpu is not None and rules.cpu.align_by_socket)
        and not (rules.prefer_closest and rules.policy == merge.RESTRICTED)
        and picks_always_succeed(state, rules, alone=False)
    )
    return Treatment(
        rules=rules,
        threads=machine.cpus_per_core if rules.cpu and rules.cpu.full_pcpus_only else 1,
        # On irregular machines picks go beyond what is free: no condition on CPUs is sure.
        regular=rules.cpu is None or machine.is_regular(by_uncore=rules.cpu.prefer_uncore),
        counts=counts,
    )
