"""Koordinator's CPU picker, and what its documents promise but its code lacks.

Source of the rules: Koordinator ``pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go``.
Three things are ours: whole cores are never taken beyond the need (the original over-allocates on
machines of three or more sockets), ``DistributeEvenly`` does what its name says, and
``ConstrainedBurst`` exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.model.pod import QOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
        self.blocked_cores: set[int] = set()
        self.blocked_zones: set[int] = set()
        for cpu, holder in ledger.allocated.items():
            info = self.info.get(cpu)
            if info and holder.exclusive == PCPU_LEVEL:
                self.blocked_cores.add(info.core)
            elif info and holder.exclusive == NUMA_NODE_LEVEL:
                self.blocked_zones.add(info.zone)
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
        if by_core and self._take_full_cores():
            return bits.of(self.result)
        if bind != FULL_PCPUS and self._take_from_one_unit():
            return bits.of(self.result)
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
        units: tuple[tuple[int, Callable[..., list[list[int]]]], ...] = (
            (self.per_zone, self._free_by_zone),
            (self.per_socket, self._free_by_socket),
        )
        for size, groups in units:
            if self.need > size:
                continue
            for strict in (True, False):
                spread = [self._spread(group) for group in groups(strict=strict)]
                if self._take_first_fit(spread):
                    return True
        return False

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
            if self.exclusive == PCPU_LEVEL:
                self.blocked_cores.add(self.info[cpu].core)
            elif self.exclusive == NUMA_NODE_LEVEL:
                self.blocked_zones.add(self.info[cpu].zone)
        self.need -= len(cpus)

    # -- what is excluded -----------------------------------------------------------------------

    def _core_blocked(self, cpu: int) -> bool:
        return self.exclusive == PCPU_LEVEL and self.info[cpu].core in self.blocked_cores

    def _zone_blocked(self, cpu: int) -> bool:
        return self.exclusive == NUMA_NODE_LEVEL and self.info[cpu].zone in self.blocked_zones

    # -- orders (all keys ascend) ---------------------------------------------------------------

    def _cores(self, cpus: Iterable[int]) -> dict[int, list[int]]:
        cores: dict[int, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(self.info[cpu].core, []).append(cpu)
        return cores

    def _count(self, cpus: Iterable[int], unit: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for cpu in cpus:
            key = getattr(self.info[cpu], unit)
            counts[key] = counts.get(key, 0) + 1
        return counts

    def _full_cores(self, cpus: Iterable[int], unit: str) -> dict[int, list[int]]:
        whole = [
            (sum(self.free[cpu] for cpu in threads), core, threads)
            for core, threads in self._cores(cpus).items()
            if len(threads) == self.per_core
        ]
        groups: dict[int, list[int]] = {}
        for _, _, threads in sorted(whole):
            groups.setdefault(getattr(self.info[threads[0]], unit), []).extend(threads)
        return groups

    def _full_cores_by_zone(self, *, strict: bool) -> list[list[int]]:
        cpus = [cpu for cpu in self.free if not (strict and self._zone_blocked(cpu))]
        in_socket = self._count(cpus, "socket")
        groups = self._full_cores(cpus, "zone")
        return [
            group
            for zone, group in sorted(
                groups.items(),
                key=lambda item: (
                    self.sign * len(item[1]),
                    self.sign * in_socket[self.info[item[1][0]].socket],
                    item[0],
                ),
            )
        ]

    def _full_cores_by_socket(self) -> list[list[int]]:
        groups = self._full_cores(self.free, "socket")
        order = sorted(groups.items(), key=lambda item: (self.sign * len(item[1]), item[0]))
        return [group for _, group in order]

    def _free_groups(self, cpus: Iterable[int], unit: str) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        for cpu in sorted(cpus, key=lambda cpu: (self.free[cpu], cpu)):
            groups.setdefault(getattr(self.info[cpu], unit), []).append(cpu)
        return groups

    def _one_per_core(self, cpus: Iterable[int]) -> list[int]:
        seen: dict[int, int] = {}
        for cpu in cpus:
            seen.setdefault(self.info[cpu].core, cpu)
        return list(seen.values())

    def _free_by_zone(self, *, strict: bool) -> list[list[int]]:
        cpus = [
            cpu
            for cpu in self.free
            if not (strict and (self._core_blocked(cpu) or self._zone_blocked(cpu)))
        ]
        in_socket = self._count(cpus, "socket")
        order = sorted(
            self._free_groups(cpus, "zone").items(),
            key=lambda item: (
                self.sign * len(item[1]),
                self.sign * in_socket[self.info[item[1][0]].socket],
                item[0],
            ),
        )
        return [self._one_per_core(group) if strict else group for _, group in order]

    def _free_by_socket(self, *, strict: bool) -> list[list[int]]:
        cpus = [cpu for cpu in self.free if not (strict and self._core_blocked(cpu))]
        groups = [
            (socket, self._one_per_core(group) if strict else group)
            for socket, group in self._free_groups(cpus, "socket").items()
        ]
        groups.sort(key=lambda item: (self.sign * len(item[1]), item[0]))
        return [group for _, group in groups]

    def _all_free(self, *, strict: bool) -> list[int]:
        cpus = [
            cpu
            for cpu in self.free
            if not (strict and (self._core_blocked(cpu) or self._zone_blocked(cpu)))
        ]
        in_socket, in_zone = self._count(cpus, "socket"), self._count(cpus, "zone")
        taken = self._count(self.result, "socket")

        def key(item: tuple[int, list[int]]) -> tuple[int, ...]:
            core, threads = item
            info = self.info[threads[0]]
            return (
                -taken.get(info.socket, 0),
                self.sign * in_socket[info.socket],
                self.sign * in_zone[info.zone],
                len(threads),
                info.socket,
                sum(self.free[cpu] for cpu in threads),
                core,
            )

        out: list[int] = []
        for _, threads in sorted(self._cores(cpus).items(), key=key):
            out.extend(sorted(threads, key=lambda cpu: (self.free[cpu], cpu)))
        return out

    def _spread(self, cpus: list[int]) -> list[int]:
        """Round-robin over cores, keeping the order in which the cores appear."""
        if len(cpus) <= self.per_core:
            return cpus
        out: list[int] = []
        rest = cpus
        while rest:
            seen: set[int] = set()
            later: list[int] = []
            for cpu in rest:
                core = self.info[cpu].core
                if core in seen:
                    later.append(cpu)
                else:
                    seen.add(core)
                    out.append(cpu)
            rest = later
        return out


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
