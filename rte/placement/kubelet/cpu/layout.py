"""Masks over the CPUs of a machine, worked out once for each machine.

Source: pkg/kubelet/cm/cpumanager/topology (CPUTopology, CPUDetails).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def of(topology: Topology) -> Layout:
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
