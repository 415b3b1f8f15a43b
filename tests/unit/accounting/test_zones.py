from __future__ import annotations

from dataclasses import replace

from rte.accounting import zone_resources
from rte.model.node import (
    Amounts,
    DevicePool,
    Holding,
    KubeletConfig,
    MemoryAmounts,
    NodeReading,
    NodeState,
    ZoneMemory,
)
from tests.unit.nrt.states import GIB, machine_of, regular_topology

TOPOLOGY = regular_topology(8, 2)  # zone 0: 0,1,4,5; zone 1: 2,3,6,7; 64 GiB and 2 GiB huge each


def zones(**parts: object) -> dict:
    config = parts.pop("config", KubeletConfig())
    state = NodeState(topology=TOPOLOGY, config=config, **parts)
    reading = NodeReading(node_name="n", machine=machine_of(TOPOLOGY), state=state)
    return zone_resources(reading)


def test_an_amount_of_reserved_cpus_comes_off_the_first_zones() -> None:
    table = zones(config=KubeletConfig(cpu_reservation_milli=4500))

    assert table[0]["cpu"] == Amounts(4000, 0, 0)
    assert table[1]["cpu"] == Amounts(4000, 3000, 3000)


def test_listed_reserved_cpus_come_off_where_they_are() -> None:
    table = zones(config=KubeletConfig(reserved_cpus=1 << 2, cpu_reservation_milli=1000))

    assert table[0]["cpu"] == Amounts(4000, 4000, 4000)
    assert table[1]["cpu"] == Amounts(4000, 3000, 3000)


def test_cpus_that_anybody_holds_are_not_available() -> None:
    held = {"half-admitted": {"a": Holding(cpus=0b10), "b": Holding(cpus=0b110)}}
    table = zones(reserved=1, holdings=held)

    assert table[0]["cpu"] == Amounts(4000, 3000, 2000)
    assert table[1]["cpu"] == Amounts(4000, 4000, 3000)


def test_without_a_memory_manager_the_nodes_reservation_is_shared_by_size() -> None:
    table = zones(config=KubeletConfig(node_reserved={"memory": 3 * GIB + 1}))

    offered = [table[zone]["memory"].allocatable for zone in (0, 1)]
    assert sum(offered) == 2 * 62 * GIB - 3 * GIB - 1
    assert abs(offered[0] - offered[1]) <= 1
    assert table[0]["memory"].capacity == 64 * GIB
    assert table[0]["hugepages-2Mi"] == Amounts(2 * GIB, 2 * GIB, 2 * GIB)


def test_the_memory_managers_rows_count_where_there_are_any() -> None:
    row = ZoneMemory(
        assignments=1,
        group=0b11,
        amounts={
            "memory": MemoryAmounts(64 * GIB, GIB, 61 * GIB, 40 * GIB, 21 * GIB),
            "hugepages-1Gi": MemoryAmounts(GIB, 0, GIB, 0, GIB),
        },
    )
    table = zones(memory={1: row})

    assert table[1]["memory"] == Amounts(64 * GIB, 61 * GIB, 21 * GIB)
    assert table[1]["hugepages-1Gi"] == Amounts(GIB, GIB, GIB)


def test_devices_count_in_every_zone_they_are_attached_to() -> None:
    pool = DevicePool(
        ids=("a", "b", "c", "d", "e"),
        zones=(0b01, 0b11, None, 0, 0b01),
        healthy=0b01111,
    )
    held = {"uid": {"c": Holding(devices={"vendor.com/gpu": 0b00011})}}
    table = zones(devices={"vendor.com/gpu": pool}, holdings=held)

    assert table[0]["vendor.com/gpu"] == Amounts(3, 2, 0)
    assert table[1]["vendor.com/gpu"] == Amounts(1, 1, 0)


def test_a_device_of_a_zone_that_the_machine_lacks_is_in_no_zone() -> None:
    pool = DevicePool(ids=("a",), zones=(1 << 9,), healthy=1)

    assert sorted(zones(devices={"vendor.com/gpu": pool})) == [0, 1]


def test_a_bare_machine_offers_all_it_has() -> None:
    reading = NodeReading(node_name="n", machine=machine_of(TOPOLOGY))

    for amounts in zone_resources(reading).values():
        for amount in amounts.values():
            assert amount.capacity == amount.allocatable == amount.available
    assert list(zone_resources(replace(reading, state=None))[0]) == [
        "cpu",
        "hugepages-1Gi",
        "hugepages-2Mi",
        "memory",
    ]
