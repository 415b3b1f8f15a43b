"""The machine as a kubelet reads it at its start.

Sources: cadvisor utils/sysinfo (GetNodesInfo, getCoresInfo, addCacheInfo) and machine/machine.go
(GetSockets); pkg/kubelet/cm/cpumanager/topology (Discover, getUncoreCacheID).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from rte.model import bits
from rte.model.machine import CPU, Machine, Zone
from rte.model.node import CPUInfo, Topology, ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.model.bits import CPUSet

#: ``vendor_id`` of machines whose packages are numbered anew in each book.
_S390 = "IBM/S390"

#: CPU, lowest CPU of its core, socket, zone, L3 cache.
_Row: TypeAlias = "tuple[int, int, int, int, int | None]"


def kubelet_topology(machine: Machine, known: CPUSet | None = None) -> Topology:
    """What a kubelet makes of this machine: on-line CPUs, all on-line zones.

    A core is what shares zone, package id and ``core_id`` as the kernel writes them (cadvisor knows
    no dies and no sibling lists; on s390 book and drawer as well) and is named by its lowest CPU. A
    level-3 cache counts as uncore cache only where it is not the cache of a whole zone; without one
    the socket's id stands in. So it does where caches have no ids: cadvisor reads none of such
    caches.

    ``known`` names the CPUs that a running kubelet goes by, where they differ from what is on-line
    now: hot-plugged since its start. Those of them that the machine no longer describes are left
    out.
    """
    if known is None:
        known = machine.online
    ids = set(bits.members(known))
    has_books = machine.vendor == _S390
    firsts: dict[tuple[int, int, int, int], int] = {}
    rows: list[_Row] = []
    for cpu in machine.cpus:
        if cpu.id in ids and cpu.zone >= 0 and cpu.socket >= 0 and cpu.core >= 0:
            socket = cpu.socket if cpu.package_id is None else cpu.package_id
            core = cpu.core if cpu.core_id is None else cpu.core_id
            book = cpu.socket if has_books else 0
            first = firsts.setdefault((cpu.zone, socket, book, core), cpu.id)
            rows.append((cpu.id, first, socket, cpu.zone, cpu.l3))
    caches = _uncore_caches(rows) if machine.l3_ids_told else {}
    order = [zone.id for zone in machine.zones]
    return Topology(
        cpus=tuple(
            [
                CPUInfo(cpu, first, socket, zone, caches.get(first, socket))
                for cpu, first, socket, zone, _ in rows
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
        sockets=machine.sockets or len({socket for _, socket, _, _ in firsts}),
        uncore_reported=bool(caches),
    )


def machine_of(topology: Topology) -> Machine:
    """The hardware as far as a kubelet's topology tells it: no dies, no devices."""
    cores: dict[int, CPUSet] = {}
    for info in topology.cpus:
        cores[info.core] = cores.get(info.core, 0) | 1 << info.cpu
    order = [zone.id for zone in topology.zones]
    return Machine(
        cpus=tuple(
            CPU(
                id=info.cpu,
                core=info.core,
                die=0,
                socket=max(info.socket, 0),
                package_id=info.socket if info.socket < 0 else None,
                zone=info.zone,
                l3=info.uncore if topology.uncore_reported else None,
                siblings=cores[info.core],
            )
            for info in topology.cpus
        ),
        zones=tuple(
            Zone(
                id=zone.id,
                cpus=topology.zone_cpus[zone.id],
                memory_bytes=zone.memory_bytes,
                hugepages=zone.hugepages,
                distances=dict(zip(order, zone.distances, strict=False)),
            )
            for zone in topology.zones
        ),
        memory_bytes=sum(zone.memory_bytes for zone in topology.zones),
        sockets=topology.sockets,
    )


def _uncore_caches(rows: Sequence[_Row]) -> dict[int, int]:
    """Core (lowest CPU) -> its L3 cache, but for caches that serve exactly a zone."""
    sizes = Counter([cache for _, _, _, _, cache in rows])
    threads = Counter([first for _, first, _, _, _ in rows])
    cores = [(first, zone, cache) for cpu, first, _, zone, cache in rows if cpu == first]
    cores_in = Counter([zone for _, zone, _ in cores])
    return {
        first: cache
        for first, zone, cache in cores
        if cache is not None and sizes[cache] != cores_in[zone] * threads[first]
    }
