"""Rules out nodes that cannot admit a pod, thousands at once (the only user of NumPy).

Every condition here is necessary for the kubelet's admission, none is sufficient: a node ruled out
is one that :func:`rte.placement.admit` does not admit; what is left needs the exact prediction.
They all compare demands with what is free **before** the pod. That holds for later containers too,
because what a container may reuse was free before its pod came.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rte.model import quantity
from rte.model.pod import QOS, ContainerKind
from rte.placement.kubelet import cpus, devices, layout, memory, merge, outcome
from rte.placement.kubelet.rules import has_pod_level_resources, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    #: Which nodes are tried first: the fullest (packs) or the emptiest (spreads).
    Order: TypeAlias = Literal["fullest", "emptiest"]

_OTHER, _RESTRICTED, _SINGLE = range(3)
_POLICIES = {merge.RESTRICTED: _RESTRICTED, merge.SINGLE_NUMA_NODE: _SINGLE}
#: Larger than any amount that is compared, and small enough to be added up.
_MUCH = 1 << 56
_CHUNK = 32


@dataclass(frozen=True, slots=True)
class _Unit:
    """What has to be satisfied together: a container, or the pod under pod scope."""

    cpus: int
    memory: Mapping[str, int]
    devices: Mapping[str, int]


class _Amounts:
    """Free amounts of one resource: per zone, and summed over the zones that have most."""

    def __init__(self, rows: int, zones: int) -> None:
        self.known = np.zeros(rows, dtype=bool)
        self.zonal = np.zeros(rows, dtype=bool)
        self.total = np.zeros(rows, dtype=np.int64)
        self.free = np.zeros((rows, zones), dtype=np.int64)
        self.most_free = np.zeros((rows, zones), dtype=np.int64)
        self.most_size = np.zeros((rows, zones), dtype=np.int64)

    def put(self, row: int, free: Sequence[int], sizes: Sequence[int], total: int) -> None:
        zones = self.free.shape[1]
        self.known[row] = True
        self.zonal[row] = bool(sizes) and max(sizes) > 0
        self.total[row] = min(total, _MUCH)
        self.free[row] = [*(min(amount, _MUCH) for amount in free), *[0] * (zones - len(free))]
        self.most_free[row] = _most(free, zones)
        self.most_size[row] = _most(sizes, zones)

    def clear(self, row: int) -> None:
        self.known[row] = False

    def resized(self, rows: int, zones: int) -> _Amounts:
        larger = _Amounts(rows, zones)
        for name, old in vars(self).items():
            new = getattr(larger, name)
            if old.ndim == 1:
                new[: len(old)] = old
                continue
            new[: old.shape[0], : old.shape[1]] = old
            if name != "free":
                # Sums stay what they are when further zones have nothing.
                new[: old.shape[0], old.shape[1] :] = old[:, -1:]
        return larger


class NodeTable:
    """Summaries of nodes, updated one row at a time.

    Attributes:
        version: grows with each change.
        row_version: the version at which a row changed last.
        names: node of each row, empty for a row that is not used.
        states: node -> its state.
        cpus: free CPUs; ``memory`` and ``devices`` hold columns by resource name.
        width: zones that a row has room for.
    """

    def __init__(self) -> None:
        self.version = 0
        self.states: dict[str, NodeState] = {}
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._unused: list[int] = []
        self._capacity, self.width = 64, 4
        self._flags = np.zeros((self._capacity, 10), dtype=np.int32)
        self.row_version = np.zeros(self._capacity, dtype=np.int64)
        self.cpus = _Amounts(self._capacity, self.width)
        self.memory: dict[str, _Amounts] = {}
        self.devices: dict[str, _Amounts] = {}

    def __len__(self) -> int:
        return len(self.states)

    def put(self, name: str, state: NodeState) -> None:
        """Add a node, or replace its row; the state must be settled."""
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self._new_row(name)
        self.states[name] = state
        self._grow(zones=len(state.topology.zone_cpus))
        self.version += 1
        self.row_version[row] = self.version
        self._fill(row, state)

    def drop(self, name: str) -> None:
        """Forget a node; unknown names are no error."""
        row = self._rows.pop(name, None)
        if row is None:
            return
        del self.states[name]
        self._flags[row] = 0
        self.names[row] = ""
        self._unused.append(row)
        self.version += 1
        self.row_version[row] = self.version

    def screen(self, pod: Pod, rows: Array | None = None) -> Array:
        """For each row (or each of the rows given) whether the node may admit the pod.

        Nodes whose kubelet the rules do not cover are ruled out: nothing is sure there.
        """
        view = slice(0, len(self.names)) if rows is None else rows
        flags = _Flags(self._flags[view])
        passes = flags.usable.copy()
        units = list(_containers(pod))
        guaranteed = pod.qos is QOS.GUARANTEED
        pod_level = has_pod_level_resources(pod)
        served = np.full(passes.shape, guaranteed)
        if guaranteed and pod_level:
            served = flags.serves_pod_level
        asks_cpus = served & flags.cpu_static
        asks_memory = served & flags.memory_static
        demands = _Demands(self, view, flags, asks_cpus, asks_memory)
        if guaranteed:
            passes &= demands.whole_cores(units)
        passes &= demands.totals(pod, units)
        in_containers = ~flags.pod_scope
        if in_containers.any():
            fits = np.ones(passes.shape, dtype=bool)
            for unit in units:
                fits &= demands.places(unit)
            passes &= fits | ~in_containers
        if flags.pod_scope.any():
            passes &= demands.places(_whole(pod, units)) | ~flags.pod_scope
        if pod_level:
            # Served as a whole, or by some of its containers: no condition of these is sure.
            passes |= flags.usable & flags.pod_level_managers
        return passes

    def free_cpus(self) -> Array:
        """Assignable CPUs of each row."""
        return self.cpus.total[: len(self.names)]

    def _new_row(self, name: str) -> int:
        if self._unused:
            row = self._unused.pop()
            self.names[row] = name
            return row
        self.names.append(name)
        self._grow(rows=len(self.names))
        return len(self.names) - 1

    def _grow(self, *, rows: int = 0, zones: int = 0) -> None:
        capacity, width = self._capacity, self.width
        while capacity < rows:
            capacity *= 2
        while width < zones:
            width *= 2
        if (capacity, width) == (self._capacity, self.width):
            return
        for name in ("_flags", "row_version"):
            old = getattr(self, name)
            larger = np.zeros((capacity, *old.shape[1:]), dtype=old.dtype)
            larger[: len(old)] = old
            setattr(self, name, larger)
        self._capacity, self.width = capacity, width
        self.cpus = self.cpus.resized(capacity, width)
        for table in (self.memory, self.devices):
            for name, amounts in table.items():
                table[name] = amounts.resized(capacity, width)

    def _column(self, table: dict[str, _Amounts], name: str) -> _Amounts:
        if name not in table:
            table[name] = _Amounts(self._capacity, self.width)
        return table[name]

    def _fill(self, row: int, state: NodeState) -> None:
        for amounts in (*self.memory.values(), *self.devices.values()):
            amounts.clear(row)
        try:
            rules = rules_of(state.config, state.kubelet_version)
        except outcome.Unpredictable:
            self._flags[row] = 0
            return
        machine = layout.of(state.topology)
        assignable = state.shared & ~state.reserved
        zone_cpus = list(state.topology.zone_cpus.values())
        self.cpus.put(
            row,
            [(zone & assignable).bit_count() for zone in zone_cpus],
            [zone.bit_count() for zone in zone_cpus],
            assignable.bit_count(),
        )
        full_cores = rules.cpu is not None and rules.cpu.full_pcpus_only
        self._flags[row] = (
            1,
            _POLICIES.get(rules.policy, _OTHER),
            rules.pod_scope and rules.policy != merge.NONE,
            # On irregular machines picks go beyond what is free: no condition on CPUs is sure.
            rules.cpu is not None and machine.is_regular(by_uncore=rules.cpu.prefer_uncore),
            rules.memory,
            not rules.pod_level_ignored,
            machine.cpus_per_core if full_cores else 0,
            (state.shared & ~machine.siblings(state.reserved)).bit_count(),
            rules.cpu is not None and rules.cpu.align_by_socket,
            rules.pod_level_managers,
        )
        if rules.memory:
            for name in {name for zone in state.memory.values() for name in zone.amounts}:
                found = [zone.amounts.get(name) for zone in state.memory.values()]
                free = [amounts.free if amounts else 0 for amounts in found]
                self._column(self.memory, name).put(
                    row,
                    free,
                    [amounts.allocatable if amounts else 0 for amounts in found],
                    sum(free),
                )
        for name, pool in state.devices.items():
            unused = pool.healthy & ~devices.held(state, name)
            attached = [pool.in_zone(zone.id) for zone in state.topology.zones]
            self._column(self.devices, name).put(
                row,
                [(each & unused).bit_count() for each in attached],
                [each.bit_count() for each in attached],
                unused.bit_count(),
            )


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


class _Flags:
    """Named columns of the flags."""

    def __init__(self, flags: Array) -> None:
        self.usable: Array = flags[:, 0] != 0
        self.policy: Array = flags[:, 1]
        self.pod_scope: Array = flags[:, 2] != 0
        self.cpu_static: Array = flags[:, 3] != 0
        self.memory_static: Array = flags[:, 4] != 0
        self.serves_pod_level: Array = flags[:, 5] != 0
        #: Threads of a core under full-pcpus-only, else 0.
        self.threads: Array = flags[:, 6]
        #: Unreserved CPUs of untouched cores.
        self.physical: Array = flags[:, 7]
        self.align_by_socket: Array = flags[:, 8] != 0
        self.pod_level_managers: Array = flags[:, 9] != 0


class _Demands:
    """The conditions on the rows of a view."""

    def __init__(
        self,
        table: NodeTable,
        view: Any,
        flags: _Flags,
        asks_cpus: Array,
        asks_memory: Array,
    ) -> None:
        self.table = table
        self.view = view
        self.flags = flags
        self.asks_cpus = asks_cpus
        self.asks_memory = asks_memory
        self.single = flags.policy == _SINGLE
        self.restricted = flags.policy == _RESTRICTED

    def whole_cores(self, units: Sequence[_Unit]) -> Array:
        """full-pcpus-only: requests split no core, and fit into cores without reserved CPUs."""
        threads = self.flags.threads
        fits = np.ones(threads.shape, dtype=bool)
        for count in {unit.cpus for unit in units if unit.cpus}:
            fits &= (count % np.maximum(threads, 1) == 0) & (count <= self.flags.physical)
        out: Array = fits | (threads == 0) | ~self.asks_cpus
        return out

    def totals(self, pod: Pod, units: Sequence[_Unit]) -> Array:
        """Long-running containers hold different CPUs, bytes and devices at the same time."""
        fits = np.ones(self.single.shape, dtype=bool)
        peak = cpus.pod_exclusive_cpus(pod)
        if peak:
            fits &= (self.table.cpus.total[self.view] >= peak) | ~self.asks_cpus
        for name, amount in _long_running(pod, units).items():
            for table, asks in (
                (self.table.memory, self.asks_memory),
                (self.table.devices, np.ones(fits.shape, dtype=bool)),
            ):
                if name in table:
                    known = table[name].known[self.view]
                    fits &= (table[name].total[self.view] >= amount) | ~known | ~asks
        return fits

    def places(self, unit: _Unit) -> Array:
        """Some zone (single-numa-node) or group of the preferred width (restricted) has it all."""
        fits = np.ones(self.single.shape, dtype=bool)
        columns = list(self._columns(unit))
        if columns and self.single.any():
            zones = np.ones((len(fits), self.table.width), dtype=bool)
            for amounts, amount, asks, _ in columns:
                zones &= (amounts.free[self.view] >= amount) | ~asks[:, None]
            fits &= zones.any(axis=1) | ~self.single
        if columns and self.restricted.any():
            for amounts, amount, _, asks in columns:
                fits &= self._preferred_width(amounts, amount) | ~asks | ~self.restricted
        return fits

    def _columns(self, unit: _Unit) -> Iterator[tuple[_Amounts, int, Array, Array]]:
        """What the unit asks for, where its zone counts, and where its preferred width counts."""
        if unit.cpus:
            # With align-by-socket, wider hints can be preferred too.
            widths = self.asks_cpus & ~self.flags.align_by_socket
            yield self.table.cpus, unit.cpus, self.asks_cpus, widths
        for name, amount in unit.memory.items():
            if name in self.table.memory:
                amounts = self.table.memory[name]
                asks = self.asks_memory & amounts.known[self.view]
                yield amounts, amount, asks, asks
        for name, amount in unit.devices.items():
            if name in self.table.devices:
                amounts = self.table.devices[name]
                # A device on several zones would count several times in a sum.
                asks = amounts.known[self.view] & amounts.zonal[self.view]
                yield amounts, amount, asks, np.zeros_like(asks)

    def _preferred_width(self, amounts: _Amounts, amount: int) -> Array:
        sizes = amounts.most_size[self.view]
        width = np.minimum((sizes < amount).sum(axis=1), sizes.shape[1] - 1)
        most: Array = np.take_along_axis(amounts.most_free[self.view], width[:, None], axis=1)
        return most[:, 0] >= amount


def _containers(pod: Pod) -> Iterator[_Unit]:
    for container in pod.containers:
        yield _Unit(
            cpus.exclusive_cpus(pod, container),
            memory.requested(container.requests) if pod.qos is QOS.GUARANTEED else {},
            _extended(container.limits),
        )


def _whole(pod: Pod, units: Sequence[_Unit]) -> _Unit:
    """The pod under pod scope.

    Where no zones have the memory of a pod of several containers, the memory manager has no
    opinion, and each container may still find its own: no condition.
    """
    return _Unit(
        cpus.pod_exclusive_cpus(pod),
        memory.pod_requested(pod) if units[0].memory and len(units) == 1 else {},
        devices.pod_requested(pod, {name for unit in units for name in unit.devices}),
    )


def _long_running(pod: Pod, units: Sequence[_Unit]) -> dict[str, int]:
    running: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container, unit in zip(pod.containers, units, strict=True):
        wanted = {**unit.memory, **unit.devices}
        largest |= {name: max(largest.get(name, 0), amount) for name, amount in wanted.items()}
        if container.kind is not ContainerKind.INIT:
            quantity.add(running, wanted)
    return {name: max(amount, running.get(name, 0)) for name, amount in largest.items()}


def _extended(limits: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in limits.items() if amount and "/" in name}


def _most(amounts: Sequence[int], zones: int) -> list[int]:
    """Sums over the one, two, three ... zones that have most, for as many zones as asked."""
    largest = sorted((min(amount, _MUCH) for amount in amounts), reverse=True)
    return list(accumulate([*largest, *[0] * (zones - len(largest))]))
