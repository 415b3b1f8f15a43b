"""The machine as a kubelet reads it at its start.

Sources: cadvisor utils/sysinfo (GetNodesInfo, getCoresInfo, addCacheInfo) and machine/machine.go
(GetSockets); pkg/kubelet/cm/cpumanager/topology (Discover, getUncoreCacheID).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.node import CPUInfo, Topology, ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.bits import CPUSet
    from rte.model.machine import CPU, Machine


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
    cpus = [
        cpu
        for cpu in machine.cpus
        if cpu.id in ids and cpu.zone >= 0 and cpu.socket >= 0 and cpu.core >= 0
    ]
    cores: dict[tuple[int, int, int], list[CPU]] = {}
    for cpu in cpus:
        core = cpu.core if cpu.core_id is None else cpu.core_id
        cores.setdefault((cpu.zone, _socket(cpu), core), []).append(cpu)
    caches = _uncore_caches(cores, cpus) if machine.l3_ids_told else {}
    infos = {}
    for (zone, socket, _), threads in cores.items():
        first = threads[0].id
        cache = caches.get(first, socket)
        for cpu in threads:
            infos[cpu.id] = CPUInfo(cpu.id, first, socket, zone, cache)
    order = [zone.id for zone in machine.zones]
    return Topology(
        cpus=tuple(infos[cpu.id] for cpu in cpus),
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
        sockets=machine.sockets or len({_socket(cpu) for cpu in cpus}),
        uncore_reported=bool(caches),
    )


def _socket(cpu: CPU) -> int:
    return cpu.socket if cpu.package_id is None else cpu.package_id


def _uncore_caches(
    cores: Mapping[tuple[int, int, int], list[CPU]], cpus: Iterable[CPU]
) -> dict[int, int]:
    """Core (lowest CPU) -> its L3 cache, but for caches that serve exactly a zone."""
    sizes = Counter(cpu.l3 for cpu in cpus)
    cores_in = Counter(zone for zone, _, _ in cores)
    caches = {}
    for (zone, _, _), threads in cores.items():
        cache = threads[0].l3
        if cache is not None and sizes[cache] != cores_in[zone] * len(threads):
            caches[threads[0].id] = cache
    return caches
