from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from rte.accounting import kubelet_topology
from rte.model import bits
from rte.model.machine import CPU, Machine, Zone
from rte.sysfs import read_machine
from tests.unit.accounting import nodes

FIXTURES = Path(__file__).parents[3] / "fixtures/sysfs"


def machine(*cpus: CPU, zones: int = 1) -> Machine:
    return Machine(
        cpus=cpus,
        zones=tuple(
            Zone(
                id=zone,
                cpus=bits.of(cpu.id for cpu in cpus if cpu.zone == zone and cpu.online),
                memory_bytes=1,
                distances=dict.fromkeys(range(zones), 10),
            )
            for zone in range(zones)
        ),
    )


def cpu(number: int, core: int, **place: int) -> CPU:
    parts = {"die": 0, "socket": 0, "zone": 0, "l3": 0} | place
    return CPU(id=number, core=core, **parts)


def cores(topology_of: Machine) -> list[int]:
    return [info.core for info in kubelet_topology(topology_of).cpus]


def test_without_numa_packages_are_zones_and_books_keep_their_cores_apart() -> None:
    """getCPUTopology and getCoresInfo of cadvisor on s390: no memory, no distances to others."""
    place = FIXTURES / "24-s390-no-node"
    topology = kubelet_topology(read_machine(place / "sys", place / "proc"))
    assert (
        {info.zone for info in topology.cpus} == {info.socket for info in topology.cpus} == {0, 1}
    )
    assert len({info.core for info in topology.cpus}) == 12
    assert [(zone.id, zone.memory_bytes, zone.hugepages) for zone in topology.zones] == [
        (0, 0, {}),
        (1, 0, {}),
    ]
    assert topology.sockets == 2


def test_a_core_is_named_by_its_lowest_cpu_and_unique_over_the_machine() -> None:
    """getUniqueCoreID: core ids of the kernel repeat on every socket."""
    topology = kubelet_topology(nodes.build_machine(zones=2, cores=2))
    assert [info.core for info in topology.cpus] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [info.socket for info in topology.cpus] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_dies_of_one_zone_with_equal_core_ids_are_one_core_to_the_kubelet() -> None:
    """getCoresInfo compares core_id and physical_package_id within a node, and nothing else."""
    assert cores(machine(cpu(0, 0, die=0), cpu(1, 0, die=1))) == [0, 0]
    assert cores(machine(cpu(0, 0, zone=0), cpu(1, 0, zone=1), zones=2)) == [0, 1]


def test_cores_and_sockets_are_what_the_kernel_calls_so() -> None:
    """GetNodesInfo reads core_id and physical_package_id, and neither lists nor books."""
    ids = {"core_id": 0, "package_id": -1}
    told = machine(*(structs.replace(cpu(n, n, socket=n), **ids) for n in range(2)))
    assert cores(told) == [0, 0]
    assert [info.socket for info in kubelet_topology(told).cpus] == [-1, -1]
    assert kubelet_topology(told).sockets == 1


def test_offline_cpus_are_absent_and_may_name_no_core() -> None:
    topology = kubelet_topology(
        machine(CPU(id=0, core=-1, die=-1, socket=-1, zone=0, online=False), cpu(1, 0), cpu(4, 0))
    )
    assert [(info.cpu, info.core) for info in topology.cpus] == [(1, 1), (4, 1)]


def test_a_cpu_of_no_zone_is_unknown_to_the_kubelet() -> None:
    assert cores(machine(cpu(0, 0), cpu(1, 1, zone=-1))) == [0]


def test_the_cpus_of_a_running_kubelet_may_differ_from_those_on_line() -> None:
    grown = machine(cpu(0, 0), cpu(1, 0), structs.replace(cpu(2, 1), online=False))
    assert [info.cpu for info in kubelet_topology(grown, 0b110).cpus] == [1, 2]
    assert [info.core for info in kubelet_topology(grown, 0b110).cpus] == [1, 2]


def uncores(topology_of: Machine) -> tuple[list[int], bool]:
    topology = kubelet_topology(topology_of)
    return [info.uncore for info in topology.cpus], topology.uncore_reported


def test_an_l3_cache_of_part_of_a_zone_is_an_uncore_cache() -> None:
    split = machine(*(cpu(number, number, l3=number // 2) for number in range(4)))
    assert uncores(split) == ([0, 0, 1, 1], True)


def test_an_l3_cache_of_a_whole_zone_is_none_and_the_socket_stands_in() -> None:
    """addCacheInfo: threads of the cache == cores of the zone x threads of the core."""
    whole = machine(*(cpu(number, number, socket=3, l3=7) for number in range(4)))
    assert uncores(whole) == ([3, 3, 3, 3], False)


def test_caches_without_ids_are_none_to_the_kubelet() -> None:
    """GetCacheInfo fails on a cache without an id file, and no cache of the core counts."""
    split = machine(*(cpu(number, number, l3=number // 2) for number in range(4)))
    assert uncores(replace(split, l3_ids_told=False)) == ([0, 0, 0, 0], False)


def test_an_l3_cache_over_several_zones_is_an_uncore_cache() -> None:
    """Sub-NUMA clustering: one cache per socket, and more CPUs than the zone has."""
    snc = machine(*(cpu(number, number, zone=number // 2, l3=5) for number in range(4)), zones=2)
    assert uncores(snc) == ([5, 5, 5, 5], True)


def test_hybrid_cores_are_judged_each_by_its_own_threads() -> None:
    """One cache of six threads: 4 cores x 2 threads are not six, 4 cores x 1 are not either."""
    hybrid = machine(cpu(0, 0), cpu(1, 0), cpu(2, 1), cpu(3, 1), cpu(4, 2), cpu(5, 3))
    assert uncores(hybrid) == ([0] * 6, True)


def test_a_machine_without_cache_information_has_sockets_in_their_place() -> None:
    bare = machine(*(CPU(id=n, core=n, die=0, socket=n, zone=0) for n in range(2)))
    assert uncores(bare) == ([0, 1], False)


def test_the_number_of_sockets_is_what_the_platform_reports() -> None:
    two = nodes.build_machine(zones=2)
    assert kubelet_topology(two).sockets == 2
    assert kubelet_topology(replace(two, sockets=1)).sockets == 1


def test_zones_keep_memory_pools_and_distances_also_without_cpus() -> None:
    base = nodes.build_machine(zones=2)
    far = Zone(id=5, cpus=0, memory_bytes=7, distances={0: 40, 1: 41, 5: 10})
    zones = tuple(
        replace(zone, distances={**zone.distances, 5: 40 + zone.id}) for zone in base.zones
    )
    topology = kubelet_topology(replace(base, zones=(*zones, far)))
    assert [zone.id for zone in topology.zones] == [0, 1, 5]
    assert [zone.distances for zone in topology.zones] == [(10, 20, 40), (20, 10, 41), (40, 41, 10)]
    assert topology.zones[0].hugepages == {2 << 20: 1024, 1 << 30: 0}
    assert topology.zone_cpus[5] == 0


def test_unknown_distances_stay_unknown() -> None:
    base = nodes.build_machine()
    zones = tuple(replace(zone, distances={}) for zone in base.zones)
    assert {zone.distances for zone in kubelet_topology(replace(base, zones=zones)).zones} == {()}
