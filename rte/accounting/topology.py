"""The machine as a kubelet reads it at its start.

Sources: cadvisor utils/sysinfo (GetNodesInfo, getCoresInfo, addCacheInfo) and machine/machine.go
(GetSockets); pkg/kubelet/cm/cpumanager/topology (Discover, getUncoreCacheID).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from rte.model import bits
from rte.model.node import CPUInfo, Topology, ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.bits import CPUSet
    from rte.model.machine import Machine

#: A core as cadvisor tells it from others: zone, package id, core id.
_Core: TypeAlias = tuple[int, int, int]


def kubelet_topology(machine: Machine, known: CPUSet | None = None) -> Topology:
    """What a kubelet makes of this machine: on-line CPUs, all on-line zones.

    A core is what shares zone, package id and ``core_id`` as the kernel writes them (cadvisor knows
    no dies and no sibling lists) and is named by its lowest CPU. A level-3 cache counts as uncore
    cache only where it is not the cache of a whole zone; without one the socket's id stands in.
    So it does where caches have no ids: cadvisor reads none of such caches.

    ``known`` names the CPUs that a running kubelet goes by, where they differ from what is on-line
    now: hot-plugged since its start. Those of them that the machine no longer describes are left
    out.
    """
    if known is None:
        known = machine.online
    ids = set(bits.members(known))
    places: dict[int, _Core] = {}
    caches: dict[int, int | None] = {}
    for cpu in machine.cpus:
        if cpu.id in ids and cpu.zone >= 0 and cpu.socket >= 0 and cpu.core >= 0:
            places[cpu.id] = (
                cpu.zone,
                cpu.socket if cpu.package_id is None else cpu.package_id,
                cpu.core if cpu.core_id is None else cpu.core_id,
            )
            caches[cpu.id] = cpu.l3
    # The lowest CPU of a core comes last here, and stays.
    firsts = {place: number for number, place in reversed(places.items())}
    uncore = _uncore_caches(places, firsts, caches) if machine.l3_ids_told else {}
    order = [zone.id for zone in machine.zones]
    return Topology(
        cpus=tuple(
            [
                CPUInfo(number, firsts[place], place[1], place[0], uncore.get(place, place[1]))
                for number, place in places.items()
            ]
        ),
        zones=tuple(
            ZoneInfo(
                id=zone.id,
                memory_bytes=zone.memory_bytes,
                hugepages=zone.hugepages,
                distances=tuple(
                    zone.distances[other] for other in order if other in zone.distances
                ),
            )
            for zone in machine.zones
        ),
        sockets=machine.sockets or len({socket for _, socket, _ in firsts}),
        uncore_reported=bool(uncore),
    )


def _uncore_caches(
    places: Mapping[int, _Core], firsts: Mapping[_Core, int], caches: Mapping[int, int | None]
) -> dict[_Core, int]:
    """Core -> its L3 cache (its first CPU's), but for caches that serve exactly a zone."""
    sizes = Counter(caches.values())
    threads = Counter(places.values())
    cores_in = Counter(zone for zone, _, _ in firsts)
    found = {}
    for core, first in firsts.items():
        cache = caches[first]
        if cache is not None and sizes[cache] != cores_in[core[0]] * threads[core]:
            found[core] = cache
    return found
