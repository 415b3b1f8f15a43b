"""How the CPU manager picks CPUs, packed (pkg/kubelet/cm/cpumanager/cpu_assignment.go).

The masks over the CPUs of a machine are worked out once for each machine (:class:`Layout`; its
package topology: CPUTopology, CPUDetails).

An accumulator claims units (zones, sockets, cores ...) out of the free CPUs until the need is met.
Everywhere the unit with fewest free CPUs comes first, ties by id, nested: outer level, then inner.
Each stage works out its list before it claims anything, and a unit that is reached through two
parents is in that list twice; a claim is always the whole unit and lowers the need by its size. On
machines with off-line threads that hands out CPUs that are not free, as the kubelet does.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rte.model import bits
from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.node import CPUInfo, Topology


class Unit(NamedTuple):
    """A core, uncore cache, zone or socket with its CPUs; ``size`` counts them."""

    id: int
    cpus: CPUSet
    size: int


class Layout:
    """All that the CPU manager derives from a machine, once.

    Attributes:
        zones: zones **that have CPUs**, ascending; likewise ``sockets``, ``uncores``, ``cores``.
        zone_ids: of these zones.
        cpus_per_core: logical CPUs by cores, an integer division also on irregular machines.
        cpus_per_socket: likewise by the number of sockets that the machine reports.
        cpus_per_uncore: likewise by uncore caches.
        zones_first: zones contain sockets (as many sockets as zones, or more).
        zones_of: socket -> its zones; ``sockets_of``: zone -> its sockets; ``uncores_of``: zone ->
            uncore caches that touch it. Each with the CPUs that both have in common.
        cores_of: socket (zones first) or zone (sockets first) -> its cores.
    """

    def __init__(self, cpus: tuple[CPUInfo, ...], reported_sockets: int) -> None:
        self.all_cpus = bits.of(info.cpu for info in cpus)
        self.zones = _units(cpus, lambda info: info.zone)
        self.zone_ids = tuple(zone.id for zone in self.zones)
        self.sockets = _units(cpus, lambda info: info.socket)
        self.uncores = _units(cpus, lambda info: info.uncore)
        self.cores = _units(cpus, lambda info: info.core)
        self.reported_sockets = reported_sockets
        self.cpus_per_core = len(cpus) // max(1, len(self.cores))
        self.cpus_per_socket = len(cpus) // reported_sockets if reported_sockets else 0
        self.cpus_per_uncore = len(cpus) // max(1, len(self.uncores))
        self.zones_first = reported_sockets >= len(self.zones)
        self.zones_of = _parts(self.sockets, self.zones)
        self.sockets_of = _parts(self.zones, self.sockets)
        self.uncores_of = _parts(self.zones, self.uncores)
        parents = self.sockets if self.zones_first else self.zones
        self.cores_of = {
            parent.id: tuple(core for core in self.cores if core.cpus & parent.cpus)
            for parent in parents
        }
        self.smallest_zone = min((zone.size for zone in self.zones), default=0)
        self.smallest_socket = min((socket.size for socket in self.sockets), default=0)
        self.smallest_core = min((core.size for core in self.cores), default=0)
        inner = self.sockets_of if self.zones_first else self.zones_of
        self._is_regular = (
            all(core.size <= self.cpus_per_core for core in self.cores)
            and all(socket.size <= self.cpus_per_socket for socket in self.sockets)
            and _reached_once(inner)
        )
        self._keeps_uncores_apart = _reached_once(self.uncores_of)
        self._fewest_zones = _prefix_sums(sorted((zone.size for zone in self.zones), reverse=True))

    def is_regular(self, *, by_uncore: bool) -> bool:
        """Whether picks stay within what is free, and get as many CPUs as asked for.

        ``by_uncore``: with prefer-align-cpus-by-uncorecache; else a cache may span zones.
        """
        return self._is_regular and (self._keeps_uncores_apart or not by_uncore)

    def fewest_zones(self, cpus: int) -> int:
        """Width of the narrowest combination with that many CPUs, used ones included; all zones
        where none has.
        """
        for width, capacity in enumerate(self._fewest_zones, start=1):
            if capacity >= cpus:
                return width
        return len(self.zones)

    def cpus_in(self, zones: ZoneSet) -> CPUSet:
        """CPUs of the zones."""
        cpus = 0
        for zone in self.zones:
            if zones >> zone.id & 1:
                cpus |= zone.cpus
        return cpus

    def zones_with(self, cpus: CPUSet) -> ZoneSet:
        """Zones that any of the CPUs is in."""
        return sum(1 << zone.id for zone in self.zones if zone.cpus & cpus)

    def sockets_with(self, cpus: CPUSet) -> tuple[Unit, ...]:
        """Sockets that any of the CPUs is in."""
        return tuple(socket for socket in self.sockets if socket.cpus & cpus)

    def siblings(self, cpus: CPUSet) -> CPUSet:
        """All threads of every core that any of the CPUs is in."""
        threads = 0
        for core in self.cores:
            if core.cpus & cpus:
                threads |= core.cpus
        return threads


def layout_of(topology: Topology) -> Layout:
    """The layout of a machine; equal machines share one."""
    # Kept in the value itself, as functools.cached_property does: hashing hundreds of CPUs for
    # each admission would cost more than the admission.
    kept: Layout | None = vars(topology).get("_layout")
    if kept is None:
        kept = _build(topology.cpus, topology.sockets)
        vars(topology)["_layout"] = kept
    return kept


@lru_cache(maxsize=256)
def _build(cpus: tuple[CPUInfo, ...], reported_sockets: int) -> Layout:
    return Layout(cpus, reported_sockets)


def _units(cpus: tuple[CPUInfo, ...], key: Callable[[CPUInfo], int]) -> tuple[Unit, ...]:
    masks: dict[int, int] = {}
    for info in cpus:
        masks[key(info)] = masks.get(key(info), 0) | 1 << info.cpu
    return tuple(Unit(id_, masks[id_], masks[id_].bit_count()) for id_ in sorted(masks))


def _parts(
    wholes: tuple[Unit, ...], units: tuple[Unit, ...]
) -> Mapping[int, tuple[tuple[Unit, CPUSet], ...]]:
    return {
        whole.id: tuple((unit, unit.cpus & whole.cpus) for unit in units if unit.cpus & whole.cpus)
        for whole in wholes
    }


def _reached_once(parts: Mapping[int, tuple[tuple[Unit, CPUSet], ...]]) -> bool:
    """Whether no unit is part of two wholes."""
    reached = [unit.id for units in parts.values() for unit, _ in units]
    return len(reached) == len(set(reached))


def _prefix_sums(values: list[int]) -> tuple[int, ...]:
    totals: list[int] = []
    for value in values:
        totals.append(value + (totals[-1] if totals else 0))
    return tuple(totals)


def take_packed(
    layout: Layout,
    available: CPUSet,
    count: int,
    *,
    spread: bool = False,
    by_core: bool = False,
    uncore: bool = False,
) -> CPUSet:
    """Pick CPUs as close together as possible (takeByTopologyNUMAPacked).

    Args:
        layout: the machine.
        available: CPUs that may be picked.
        count: CPUs wanted.
        spread: distribute-cpus-across-cores.
        by_core: it heeds which CPUs are of one core (since 1.38).
        uncore: prefer-align-cpus-by-uncorecache.

    Raises:
        outcome.Refused: not enough CPUs.
    """
    if count < 1:
        return 0
    check_enough(available, count)
    need = Accumulator(layout, available, count)
    if layout.zones_first:
        need.take_full_zones()
        need.take_full_sockets()
    else:
        need.take_full_sockets()
        need.take_full_zones()
    if uncore and need.count > 0:
        need.take_uncore_caches()
    if not spread and need.count > 0:
        need.take_full_cores()
    if need.count > 0:
        # Always enough: no claim used up more free CPUs than it lowered the need.
        need.take_single_cpus(spread=spread, by_core=by_core)
    return need.result


def check_enough(available: CPUSet, count: int) -> None:
    """Whether so many CPUs are free.

    Raises:
        outcome.Refused: they are not.
    """
    free = available.bit_count()
    if count > free:
        raise outcome.AllocationRefused.unexpected(
            f"not enough cpus available to satisfy request: requested={count}, available={free}"
        )


class Accumulator:
    """CPUs claimed so far (``result``), CPUs left (``free``) and ``count`` still needed."""

    __slots__ = ("count", "free", "layout", "result")

    def __init__(self, layout: Layout, available: CPUSet, count: int) -> None:
        self.layout = layout
        self.free = available
        self.count = count
        self.result = 0

    def take(self, cpus: CPUSet, size: int) -> None:
        """Claim a unit of that size."""
        self.result |= cpus
        self.free &= ~cpus
        self.count -= size

    # Orders: units with at least one free CPU, fewest free CPUs first, then by id.

    def zone_order(self) -> list[Unit]:
        """Zones with a free CPU."""
        if self.layout.zones_first:
            return self._sorted(self.layout.zones)
        return [
            zone
            for socket in self._sorted(self.layout.sockets)
            for zone in self._sorted_parts(self.layout.zones_of[socket.id])
        ]

    def socket_order(self) -> list[Unit]:
        """Sockets with a free CPU."""
        if not self.layout.zones_first:
            return self._sorted(self.layout.sockets)
        return [
            socket
            for zone in self._sorted(self.layout.zones)
            for socket in self._sorted_parts(self.layout.sockets_of[zone.id])
        ]

    def uncore_order(self) -> list[Unit]:
        """Uncore caches with a free CPU."""
        return [
            cache
            for zone in self.zone_order()
            for cache in self._sorted_parts(self.layout.uncores_of[zone.id])
        ]

    def core_groups(self) -> Iterator[tuple[Unit, ...]]:
        """The cores of each socket or zone; their own order is the caller's."""
        parents = self.socket_order() if self.layout.zones_first else self.zone_order()
        for parent in parents:
            yield self.layout.cores_of[parent.id]

    def _sorted(self, units: Iterable[Unit]) -> list[Unit]:
        free = self.free
        return [
            unit
            for _, _, unit in sorted(
                ((unit.cpus & free).bit_count(), unit.id, unit)
                for unit in units
                if unit.cpus & free
            )
        ]

    def _sorted_parts(self, parts: Sequence[tuple[Unit, CPUSet]]) -> list[Unit]:
        return self._sorted(unit for unit, common in parts if common & self.free)

    # Stages.

    def take_full_zones(self) -> None:
        """Claim zones that are free as a whole."""
        if self.count >= self.layout.smallest_zone:
            self._take_full(
                [z for z in self.zone_order() if (z.cpus & self.free).bit_count() == z.size]
            )

    def take_full_sockets(self) -> None:
        """Claim sockets that are free as a whole."""
        if self.count >= self.layout.smallest_socket:
            whole = self.layout.cpus_per_socket
            self._take_full(
                [s for s in self.socket_order() if (s.cpus & self.free).bit_count() == whole]
            )

    def take_full_uncore_caches(self) -> None:
        """Claim uncore caches that are free as a whole."""
        self._take_full(
            [c for c in self.uncore_order() if (c.cpus & self.free).bit_count() == c.size]
        )

    def take_full_cores(self) -> None:
        """Claim cores that are free as a whole."""
        whole = self.layout.cpus_per_core
        free = self.free
        for cores in self.core_groups():
            # Whole cores have equally many free CPUs, which leaves their order to their ids.
            for core in cores:
                if (core.cpus & free).bit_count() == whole and core.size <= self.count:
                    self.take(core.cpus, core.size)
            if self.count < self.layout.smallest_core:
                return

    def take_single_cpus(self, *, spread: bool, by_core: bool) -> None:
        """Claim the rest CPU by CPU."""
        free = self.free
        if spread and by_core:
            order: Iterable[CPUSet] = self._rounds()
        elif spread:
            order = (socket.cpus & free for socket in self.socket_order())
        else:
            # The accumulator changes while the generator runs, hence the second one.
            before = Accumulator(self.layout, free, 0)
            order = (
                core.cpus & free for cores in before.core_groups() for core in before._sorted(cores)
            )
        for cpus in order:
            for cpu in bits.members(cpus):
                self.take(1 << cpu, 1)
                if self.count < 1:
                    return

    def _rounds(self) -> list[CPUSet]:
        """Single CPUs: socket by socket, the first free one of each core, then the second ..."""
        out: list[CPUSet] = []
        for socket in self.socket_order():
            own = socket.cpus & self.free
            cores = self._sorted(core for core in self.layout.cores if core.cpus & own)
            rows = [list(bits.members(core.cpus & own)) for core in cores]
            for turn in zip_longest(*rows):
                out += [1 << cpu for cpu in turn if cpu is not None]
        return out

    def take_uncore_caches(self) -> None:
        """Whole caches while the need is at least an average one, then part of a single cache."""
        for cache in self.uncore_order():
            if self.count >= self.layout.cpus_per_uncore:
                self.take_full_uncore_caches()
                if self.count < 1:
                    return
            self._take_partial(cache)
            if self.count < 1:
                return

    def _take_partial(self, cache: Unit) -> None:
        threads = self.layout.cpus_per_core
        wanted_cores = -(-self.count // threads)
        in_cache = cache.cpus & self.free
        cpus = 0
        for core in self.layout.cores:
            if wanted_cores and core.cpus & in_cache:
                cpus |= core.cpus & self.free
                wanted_cores -= 1
        if self.count % 2 and threads > 1 and cpus.bit_count() > self.count:
            cpus ^= 1 << (cpus.bit_length() - 1)
        if cpus.bit_count() == self.count:
            self.take(cpus, self.count)

    def _take_full(self, units: Iterable[Unit]) -> None:
        for unit in units:
            if unit.size <= self.count:
                self.take(unit.cpus, unit.size)
