"""Koordinator's CPU picker, and what its documents promise but its code lacks.

Source of the rules: Koordinator ``pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go``.
Three things are ours: whole cores are never taken beyond the need (the original over-allocates on
machines of three or more sockets), ``DistributeEvenly`` does what its name says, and
``ConstrainedBurst`` exists.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.model.pod import QOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.node import CPUInfo, Topology
    from rte.model.pod import Pod

FULL_PCPUS = "FullPCPUs"
SPREAD_BY_PCPUS = "SpreadByPCPUs"
CONSTRAINED_BURST = "ConstrainedBurst"
PCPU_LEVEL = "PCPULevel"
NUMA_NODE_LEVEL = "NUMANodeLevel"
MOST_ALLOCATED = "MostAllocated"
LEAST_ALLOCATED = "LeastAllocated"
DISTRIBUTE_EVENLY = "DistributeEvenly"

NOT_ENOUGH = "not enough cpus available to satisfy request"


class PickError(errors.RteError):
    """The CPUs asked for cannot be picked; the text is Koordinator's."""


@dataclass(frozen=True, slots=True)
class HeldCPU:
    """A CPU in the ledger: how many pods hold it, and the exclusive policy of the latest one."""

    references: int
    exclusive: str = ""


@dataclass(frozen=True, kw_only=True)
class CPULedger:
    """The CPUs of a node and who holds them.

    Attributes:
        topology: CPUs; cores are told apart and ordered by ``CPUInfo.core``.
        allocated: CPU id -> holder count and exclusive policy.
        max_references: how many pods may share a CPU (1 = exclusive CPUs).
        reserved: CPUs nobody may take.
    """

    topology: Topology
    allocated: Mapping[int, HeldCPU] = field(default_factory=dict)
    max_references: int = 1
    reserved: CPUSet = 0

    def available(self) -> CPUSet:
        """CPUs that may still be taken."""
        full = bits.of(
            cpu
            for cpu, holder in self.allocated.items()
            if holder.references >= self.max_references
        )
        return self.topology.all_cpus & ~full & ~self.reserved


def pick_cpus(
    ledger: CPULedger,
    need: int,
    *,
    available: CPUSet | None = None,
    preferred: CPUSet = 0,
    bind: str = FULL_PCPUS,
    exclusive: str = "",
    strategy: str = LEAST_ALLOCATED,
) -> CPUSet:
    """Pick ``need`` CPUs; those in ``preferred`` first (Koordinator's reusable CPUs).

    Args:
        ledger: topology and holders.
        need: number of CPUs.
        available: CPUs to choose from, default ``ledger.available()``.
        preferred: CPUs to take before all others.
        bind: ``FullPCPUs``, ``SpreadByPCPUs``, or anything else for no wish.
        exclusive: ``PCPULevel``, ``NUMANodeLevel`` or none; best effort, as in the original.
        strategy: ``MostAllocated``, ``LeastAllocated`` or ``DistributeEvenly`` (an even number of
            CPUs from each NUMA zone that has some, as far as there are any).

    Raises:
        PickError: not enough CPUs.
    """
    free = ledger.available() if available is None else available
    if strategy == DISTRIBUTE_EVENLY and not preferred:
        return _distribute(ledger, need, free, bind, exclusive)
    first = free & preferred
    result = 0
    if first:
        result = _CPUAccumulator(
            ledger, min(need, first.bit_count()), first, exclusive, strategy
        ).pick(bind)
        need -= result.bit_count()
        free &= ~first
    if need > 0:
        result |= _CPUAccumulator(ledger, need, free, exclusive, strategy).pick(bind)
    return result


def _distribute(ledger: CPULedger, need: int, free: CPUSet, bind: str, exclusive: str) -> CPUSet:
    """Deal the need over the NUMA zones, one core (or CPU) a zone and round, then pick in each."""
    if need > free.bit_count():
        raise PickError(NOT_ENOUGH)
    cores = len({info.core for info in ledger.topology.cpus})
    step = len(ledger.topology.cpus) // cores if bind == FULL_PCPUS and cores else 1
    room = {
        zone: (free & cpus).bit_count()
        for zone, cpus in ledger.topology.zone_cpus.items()
        if free & cpus
    }
    share = dict.fromkeys(room, 0)
    left = need
    while left > 0:
        for zone in sorted(room, key=lambda zone: (share[zone] - room[zone], zone)):
            take = min(step, left, room[zone] - share[zone])
            share[zone] += take
            left -= take
    result = 0
    for zone, number in share.items():
        inside = free & ledger.topology.zone_cpus[zone]
        result |= _CPUAccumulator(ledger, number, inside, exclusive, LEAST_ALLOCATED).pick(bind)
    return result


class _CPUAccumulator:
    """One run of the picker: what is still free, what has been taken, how many are missing."""

    def __init__(
        self, ledger: CPULedger, need: int, available: CPUSet, exclusive: str, strategy: str
    ) -> None:
        cpus = ledger.topology.cpus
        self.info: dict[int, CPUInfo] = {info.cpu: info for info in cpus}
        number_cores = len({(info.socket, info.zone, info.core) for info in cpus})
        number_zones = len({(info.socket, info.zone) for info in cpus})
        number_sockets = len({info.socket for info in cpus})
        self.per_core = len(cpus) // number_cores if number_cores else 1
        self.per_zone = len(cpus) // number_zones if number_zones else 0
        self.per_socket = len(cpus) // number_sockets if number_sockets else 0
        shared = ledger.max_references > 1
        self.free: dict[int, int] = {
            cpu: ledger.allocated[cpu].references if shared and cpu in ledger.allocated else 0
            for cpu in bits.members(available)
        }
        self.exclusive = exclusive
        self.blocked = {
            self._unit(cpu)
            for cpu, holder in ledger.allocated.items()
            if cpu in self.info and holder.exclusive == exclusive
        }
        self.sign = 1 if strategy == MOST_ALLOCATED else -1
        self.result: set[int] = set()
        self.need = need

    def pick(self, bind: str) -> CPUSet:
        """Run the stages; see Koordinator's takeCPUs.

        Raises:
            PickError: not enough CPUs.
        """
        if self.need < 1:
            return 0
        if self.need > len(self.free):
            raise PickError(NOT_ENOUGH)
        by_core = bind == FULL_PCPUS or self.per_core == 1
        done = by_core and self._take_full_cores()
        done = done or (bind != FULL_PCPUS and self._take_from_one_unit())
        if not done:
            self._take_singles()
        return bits.of(self.result)

    # -- stages ---------------------------------------------------------------------------------

    def _take_full_cores(self) -> bool:
        if self.need <= self.per_zone:
            for strict in (True, False):
                if self._take_first_fit(self._full_cores_by_zone(strict=strict)):
                    return True
        groups = self._full_cores_by_socket()
        if self.need <= self.per_socket and self._take_first_fit(groups):
            return True
        aside: list[list[int]] = []
        for group in sorted(groups, key=len, reverse=True):
            if self.need >= len(group):
                self._take(group)
                if self.need < 1:
                    return True
            else:
                aside.append(group)
        for group in sorted(aside, key=len):
            for start in range(0, len(group), self.per_core):
                # The original checks this after the first core of each group: over-allocation.
                if self.need < self.per_core:
                    break
                self._take(group[start : start + self.per_core])
            if self.need < 1:
                return True
        return False

    def _take_from_one_unit(self) -> bool:
        units = (self.per_zone, self._free_by_zone), (self.per_socket, self._free_by_socket)
        return any(
            self.need <= size
            and any(
                self._take_first_fit(map(self._spread, groups(strict=strict)))
                for strict in (True, False)
            )
            for size, groups in units
        )

    def _take_singles(self) -> None:
        for strict in (True, False):
            for cpu in self._spread(self._all_free(strict=strict)):
                if self.need < 1:
                    return
                self._take([cpu])

    def _take_first_fit(self, groups: Iterable[list[int]]) -> bool:
        for group in groups:
            if len(group) >= self.need:
                self._take(group[: self.need])
                return True
        return False

    def _take(self, cpus: Sequence[int]) -> None:
        for cpu in cpus:
            self.result.add(cpu)
            del self.free[cpu]
            self.blocked.add(self._unit(cpu))
        self.need -= len(cpus)

    # -- orders (all keys ascend) ---------------------------------------------------------------

    def _unit(self, cpu: int) -> int:
        """What the pod wants for itself of pods that want the same: the CPU's core or its zone."""
        info = self.info[cpu]
        return info.core if self.exclusive == PCPU_LEVEL else info.zone

    def _allowed(self, *levels: str, strict: bool) -> list[int]:
        """Free CPUs, those of others' cores or zones left out where that is the pod's level."""
        if not strict or self.exclusive not in levels:
            return list(self.free)
        return [cpu for cpu in self.free if self._unit(cpu) not in self.blocked]

    def _grouped(self, cpus: Iterable[int], unit: str) -> dict[int, list[int]]:
        """CPUs by ``core``, ``zone`` or ``socket``, in the order given."""
        groups: dict[int, list[int]] = {}
        for cpu in cpus:
            groups.setdefault(getattr(self.info[cpu], unit), []).append(cpu)
        return groups

    def _count(self, cpus: Iterable[int], unit: str) -> Counter[int]:
        return Counter(getattr(self.info[cpu], unit) for cpu in cpus)

    def _ordered(
        self, groups: dict[int, list[int]], in_socket: Mapping[int, int] | None = None
    ) -> list[list[int]]:
        """Groups by their size, then by what is free in their socket where that is given."""

        def key(item: tuple[int, list[int]]) -> tuple[int, int, int]:
            number, group = item
            around = in_socket[self.info[group[0]].socket] if in_socket else 0
            return self.sign * len(group), self.sign * around, number

        return [group for _, group in sorted(groups.items(), key=key)]

    def _full_cores(self, cpus: Iterable[int], unit: str) -> dict[int, list[int]]:
        whole = [
            (sum(self.free[cpu] for cpu in threads), core, threads)
            for core, threads in self._grouped(sorted(cpus), "core").items()
            if len(threads) == self.per_core
        ]
        return self._grouped((cpu for *_, threads in sorted(whole) for cpu in threads), unit)

    def _full_cores_by_zone(self, *, strict: bool) -> list[list[int]]:
        cpus = self._allowed(NUMA_NODE_LEVEL, strict=strict)
        return self._ordered(self._full_cores(cpus, "zone"), self._count(cpus, "socket"))

    def _full_cores_by_socket(self) -> list[list[int]]:
        return self._ordered(self._full_cores(self.free, "socket"))

    def _by_use(self, cpus: Iterable[int]) -> list[int]:
        return sorted(cpus, key=lambda cpu: (self.free[cpu], cpu))

    def _one_per_core(self, cpus: Iterable[int]) -> list[int]:
        return [threads[0] for threads in self._grouped(cpus, "core").values()]

    def _free_by_zone(self, *, strict: bool) -> list[list[int]]:
        cpus = self._allowed(PCPU_LEVEL, NUMA_NODE_LEVEL, strict=strict)
        groups = self._grouped(self._by_use(cpus), "zone")
        order = self._ordered(groups, self._count(cpus, "socket"))
        return [self._one_per_core(group) for group in order] if strict else order

    def _free_by_socket(self, *, strict: bool) -> list[list[int]]:
        cpus = self._allowed(PCPU_LEVEL, strict=strict)
        groups = self._grouped(self._by_use(cpus), "socket")
        if strict:
            groups = {socket: self._one_per_core(group) for socket, group in groups.items()}
        return self._ordered(groups)

    def _all_free(self, *, strict: bool) -> list[int]:
        cpus = self._allowed(PCPU_LEVEL, NUMA_NODE_LEVEL, strict=strict)
        in_socket, in_zone = self._count(cpus, "socket"), self._count(cpus, "zone")
        taken = self._count(self.result, "socket")

        def key(item: tuple[int, list[int]]) -> tuple[int, ...]:
            core, threads = item
            info = self.info[threads[0]]
            return (
                -taken[info.socket],
                self.sign * in_socket[info.socket],
                self.sign * in_zone[info.zone],
                len(threads),
                info.socket,
                sum(self.free[cpu] for cpu in threads),
                core,
            )

        cores = sorted(self._grouped(sorted(cpus), "core").items(), key=key)
        return [cpu for _, threads in cores for cpu in self._by_use(threads)]

    def _spread(self, cpus: list[int]) -> list[int]:
        """Round-robin over cores, keeping the order in which the cores appear."""
        if len(cpus) <= self.per_core:
            return cpus
        turns: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)
        # Sorting is stable: within a round the order stays.
        return sorted(cpus, key=lambda cpu: next(turns[self.info[cpu].core]))


def constrained_burst_zones(pod: Pod, shared_pools: Mapping[int, CPUSet]) -> list[int]:
    """Zones where a Burstable pod with the policy ``ConstrainedBurst`` may run, ascending.

    Koordinator's documents: the pod keeps to the shared pool of one NUMA zone, so the pool must
    hold all that the pod may burst to, its CPU **limit** (a container without one: the pod has no
    bound and fits nowhere). The chosen pool is the pod's place.

    Args:
        pod: any other QoS class than Burstable has no such zones.
        shared_pools: zone id -> CPUs of its shared pool.
    """
    if pod.qos is not QOS.BURSTABLE:
        return []
    if pod.pod_limits is not None and "cpu" in pod.pod_limits:
        limit = pod.pod_limits["cpu"]
    elif all("cpu" in container.limits for container in pod.containers):
        limit = sum(container.limits["cpu"] for container in pod.containers)
    else:
        return []
    return [zone for zone, pool in sorted(shared_pools.items()) if pool.bit_count() * 1000 >= limit]


@dataclass(frozen=True, slots=True)
class BurstPlace:
    """The place of a ``ConstrainedBurst`` pod: it runs in this zone's shared pool, no further."""

    zone: int
    pool: CPUSet


def constrained_burst_place(pod: Pod, shared_pools: Mapping[int, CPUSet]) -> BurstPlace | None:
    """The largest shared pool that holds the pod's limit (of equal ones the lowest zone)."""
    zones = constrained_burst_zones(pod, shared_pools)
    if not zones:
        return None
    zone = max(zones, key=lambda zone: (shared_pools[zone].bit_count(), -zone))
    return BurstPlace(zone, shared_pools[zone])
