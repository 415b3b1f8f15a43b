"""Nodes for tests of the NRT codec: hypothesis strategies, and a regular machine of any size."""

from __future__ import annotations

import random
import uuid

from hypothesis import strategies as st
from msgspec import structs

from rte.model import bits
from rte.model.machine import CPU, Machine, Zone
from rte.model.node import (
    CPUInfo,
    DevicePool,
    Holding,
    KubeletConfig,
    MemoryAmounts,
    MemoryBlock,
    NodeReading,
    NodeState,
    PodRef,
    Topology,
    ZoneInfo,
    ZoneMemory,
)

GIB = 1 << 30
RESOURCES = ("vendor.com/gpu", "example.com/nic")
MEMORY_TYPES = ("memory", "hugepages-2Mi", "hugepages-1Gi")

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
amounts = st.integers(0, 2**63 - 1)
tables = st.dictionaries(names, st.text(max_size=8), max_size=3)


def subsets(whole: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << whole.bit_length()) - 1).map(lambda mask: mask & whole)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    zone_ids = sorted(draw(st.sets(st.integers(0, 70), min_size=1, max_size=3)))
    cpu_ids = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=10)))
    return Topology(
        cpus=tuple(
            CPUInfo(
                cpu,
                draw(st.sampled_from([other for other in cpu_ids if other <= cpu])),
                draw(st.integers(0, 3)),
                draw(st.sampled_from(zone_ids)),
                draw(st.integers(-1, 5)),
            )
            for cpu in cpu_ids
        ),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=draw(amounts),
                hugepages=draw(
                    st.dictionaries(
                        st.sampled_from([1 << 16, 1 << 21, 1 << 30]), st.integers(0, 10**6)
                    )
                ),
                distances=tuple(draw(st.lists(st.integers(10, 255), max_size=4))),
            )
            for zone in zone_ids
        ),
        sockets=draw(st.integers(1, 8)),
        uncore_reported=draw(st.booleans()),
    )


configs = st.builds(
    KubeletConfig,
    topology_policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    topology_scope=st.sampled_from(["container", "pod"]),
    topology_options=tables,
    cpu_policy=st.sampled_from(["none", "static"]),
    cpu_options=tables,
    reserved_cpus=st.none() | st.integers(0, 2**40),
    cpu_reservation_milli=amounts,
    memory_policy=st.sampled_from(["None", "Static"]),
    reserved_memory=st.dictionaries(
        st.integers(0, 70), st.dictionaries(names, amounts, max_size=2), max_size=2
    ),
    node_reserved=st.dictionaries(names, amounts, max_size=2),
    feature_gates=st.dictionaries(names, st.booleans(), max_size=2),
    max_pods=st.integers(0, 1000),
)


@st.composite
def pools(draw: st.DrawFn) -> DevicePool:
    zones = draw(st.lists(st.none() | st.sampled_from([0, 1, 2, 3, 1 << 40]), max_size=8))
    return DevicePool(
        ids=tuple(f"dev-{number:03d}" for number in range(len(zones))),
        zones=tuple(zones),
        healthy=draw(subsets((1 << len(zones)) - 1)),
        complete=draw(st.booleans()),
    )


@st.composite
def states(draw: st.DrawFn) -> NodeState:
    topology = draw(topologies())
    devices = draw(st.dictionaries(st.sampled_from(RESOURCES), pools()))
    cpus = subsets(topology.all_cpus)
    zones = subsets(topology.zone_mask)
    holding = st.builds(
        Holding,
        cpus=cpus,
        memory=st.lists(
            st.builds(MemoryBlock, st.sampled_from(MEMORY_TYPES), zones, amounts), max_size=3
        ).map(tuple),
        devices=st.fixed_dictionaries(
            {},
            optional={name: subsets((1 << len(pool.ids)) - 1) for name, pool in devices.items()},
        ),
    )
    row = st.builds(
        ZoneMemory,
        assignments=st.integers(0, 1000),
        group=zones,
        amounts=st.dictionaries(
            st.sampled_from(MEMORY_TYPES),
            st.builds(MemoryAmounts, amounts, amounts, amounts, amounts, amounts),
        ),
    )
    config = draw(configs)
    # Of each zone, or of none.
    zones = [zone.id for zone in topology.zones]
    if config.memory_policy == "None" and draw(st.booleans()):
        zones = []
    return NodeState(
        topology=topology,
        config=config,
        kubelet_version=draw(names),
        epoch=draw(names),
        synced=draw(st.booleans()),
        reserved=draw(cpus),
        shared=draw(cpus),
        memory={zone: draw(row) for zone in draw(st.permutations(zones))},
        devices=devices,
        admitted=draw(st.frozensets(names, max_size=4)),
        holdings=draw(
            st.dictionaries(names, st.dictionaries(names, holding, max_size=3), max_size=4)
        ),
        pod_holdings=draw(
            st.dictionaries(
                names, holding.map(lambda held: structs.replace(held, devices={})), max_size=2
            )
        ),
    )


def machine_of(topology: Topology) -> Machine:
    """Hardware that reads like this topology."""
    return Machine(
        cpus=tuple(
            CPU(id=info.cpu, core=info.core, die=0, socket=info.socket, zone=info.zone)
            for info in topology.cpus
        ),
        zones=tuple(
            Zone(
                id=zone.id,
                cpus=topology.zone_cpus[zone.id],
                memory_bytes=zone.memory_bytes,
                hugepages=zone.hugepages,
                distances=dict(zip((z.id for z in topology.zones), zone.distances, strict=False)),
            )
            for zone in topology.zones
        ),
    )


def regular_topology(cpus: int, zones: int) -> Topology:
    """Two sockets, two threads per core (siblings half the CPUs apart), equal zones."""
    cores = cpus // 2
    infos = []
    for cpu in range(cpus):
        zone = cpu % cores // (cores // zones)
        infos.append(CPUInfo(cpu, cpu % cores, zone * 2 // zones, zone, zone))
    return Topology(
        cpus=tuple(infos),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=64 * GIB,
                hugepages={1 << 21: 1024, 1 << 30: 0},
                distances=tuple(10 if other == zone else 21 for other in range(zones)),
            )
            for zone in range(zones)
        ),
        sockets=2,
    )


def busy_reading(cpus: int, zones: int, pods: int) -> NodeReading:
    """A node with exclusive pods (UIDs of 36 characters): a core, memory, huge pages each."""
    topology = regular_topology(cpus, zones)
    half = cpus // 2
    seeded = random.Random(7)
    holdings: dict[str, dict[str, Holding]] = {}
    refs: list[PodRef] = []
    held = 0
    for number in range(pods):
        uid = str(uuid.UUID(int=seeded.getrandbits(128), version=4))
        core = 1 + number % (half - 1)
        zone = 1 << topology.cpus[core].zone
        mine = bits.of((core, core + half))
        held |= mine
        holdings[uid] = {
            "application": Holding(
                cpus=mine,
                memory=(
                    MemoryBlock("memory", zone, GIB),
                    MemoryBlock("hugepages-2Mi", zone, 2 << 20),
                ),
            )
        }
        refs.append(
            PodRef(
                uid=uid,
                namespace=f"team-{number % 9}",
                name=f"a-deployment-{number}-6d5f8c9b47-x{number:04d}",
                exclusive=True,
            )
        )
    amounts_of_zone = {
        "memory": MemoryAmounts(64 * GIB, GIB, 61 * GIB, 0, 61 * GIB),
        "hugepages-2Mi": MemoryAmounts(2 * GIB, 0, 2 * GIB, 0, 2 * GIB),
        "hugepages-1Gi": MemoryAmounts(0, 0, 0, 0, 0),
    }
    state = NodeState(
        topology=topology,
        config=KubeletConfig(
            topology_policy="single-numa-node",
            cpu_policy="static",
            memory_policy="Static",
            reserved_cpus=1 | 1 << half,
            cpu_reservation_milli=2000,
        ),
        kubelet_version="v1.35.4",
        epoch="4711",
        reserved=1 | 1 << half,
        shared=topology.all_cpus & ~held,
        memory={
            zone.id: ZoneMemory(assignments=0, group=1 << zone.id, amounts=amounts_of_zone)
            for zone in topology.zones
        },
        admitted=frozenset(holdings),
        holdings=holdings,
    )
    return NodeReading(
        node_name="worker-1", machine=machine_of(topology), state=state, pods=tuple(refs)
    )
