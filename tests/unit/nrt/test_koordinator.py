"""Koordinator's annotations, read back as its scheduler and koordlet read them.

The tables are those of koordinator's own tests (``states_noderesourcetopology_test.go``) and of its
``apis/extension`` schemas.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rte.model import bits
from rte.model.node import (
    CPUInfo,
    Holding,
    KubeletConfig,
    NodeReading,
    NodeState,
    PodRef,
    Topology,
    ZoneInfo,
)
from rte.nrt import koordinator

from .states import machine_of

#: The machine of koordinator's report tests: 8 CPUs, two zones of four, each a socket.
TOPOLOGY = Topology(
    cpus=tuple(CPUInfo(cpu, cpu - cpu % 2, cpu // 4, cpu // 4, cpu // 4) for cpu in range(8)),
    zones=(ZoneInfo(id=0, memory_bytes=1 << 30), ZoneInfo(id=1, memory_bytes=1 << 30)),
    sockets=2,
)


def node(
    holdings: dict[str, dict[str, Holding]] | None = None,
    pods: tuple[PodRef, ...] = (),
    reserved: int = 0,
    **config: object,
) -> NodeReading:
    settings = {"cpu_policy": "static", **config}
    state = NodeState(
        topology=TOPOLOGY,
        config=KubeletConfig(**settings),
        reserved=reserved,
        holdings=holdings or {},
    )
    return NodeReading(node_name="n", machine=machine_of(TOPOLOGY), state=state, pods=pods)


def cpus(text: str) -> Holding:
    return Holding(cpus=bits.parse_list(text))


def read(reading: NodeReading, key: str) -> object:
    return json.loads(koordinator.encode(reading)[key])


def test_the_keys_are_koordinators() -> None:
    assert set(koordinator.encode(node())) == {
        "node.koordinator.sh/cpu-topology",
        "node.koordinator.sh/cpu-shared-pools",
        "node.koordinator.sh/pod-cpu-allocs",
        "kubelet.koordinator.sh/cpu-manager-policy",
    }


def test_cpu_topology_lists_every_cpu_by_id_with_zeros_written() -> None:
    detail = read(node(), koordinator.CPU_TOPOLOGY)["detail"]

    assert detail[0] == {"id": 0, "core": 0, "socket": 0, "node": 0}
    assert detail[5] == {"id": 5, "core": 4, "socket": 1, "node": 1}
    assert [row["id"] for row in detail] == list(range(8))


def test_cpu_topology_is_valid_for_the_scheduler() -> None:
    """Effective core id = (socket << 16) | core; all four counters must be above zero."""
    detail = read(node(), koordinator.CPU_TOPOLOGY)["detail"]

    cores = {(row["socket"], row["node"], row["socket"] << 16 | row["core"]) for row in detail}
    assert len(cores) == 4
    assert all(row["core"] < 1 << 16 for row in detail)
    assert len(detail) // len(cores) == 2


@pytest.mark.parametrize(
    ("held", "pools"),
    [
        (
            {},
            [
                {"socket": 0, "node": 0, "cpuset": "0-3"},
                {"socket": 1, "node": 1, "cpuset": "4-7"},
            ],
        ),
        (
            {"a": {"c": cpus("3,4,5")}},
            [
                {"socket": 0, "node": 0, "cpuset": "0-2"},
                {"socket": 1, "node": 1, "cpuset": "6-7"},
            ],
        ),
        (
            {"a": {"c": cpus("1")}},
            [
                {"socket": 0, "node": 0, "cpuset": "0,2-3"},
                {"socket": 1, "node": 1, "cpuset": "4-7"},
            ],
        ),
        ({"a": {"c": cpus("4-7")}}, [{"socket": 0, "node": 0, "cpuset": "0-3"}]),
        ({"a": {"c": cpus("0-3")}, "b": {"c": cpus("4-7")}}, []),
    ],
)
def test_shared_pools_are_what_nobody_holds_by_zone(held: dict, pools: list) -> None:
    assert read(node(held), koordinator.CPU_SHARED_POOLS) == pools


def test_cpus_reserved_by_the_kubelet_stay_in_the_pools() -> None:
    pools = read(node(reserved=0b11, reserved_cpus=0b11), koordinator.CPU_SHARED_POOLS)

    assert pools[0] == {"socket": 0, "node": 0, "cpuset": "0-3"}


def test_pod_cpu_allocs_is_null_without_exclusive_pods() -> None:
    assert koordinator.encode(node())[koordinator.POD_CPU_ALLOCS] == "null"
    memory_only = node({"a": {"c": Holding()}})
    assert koordinator.encode(memory_only)[koordinator.POD_CPU_ALLOCS] == "null"


def test_pod_cpu_allocs_unite_containers_and_sort_by_uid() -> None:
    """The union of 1-2 and 2-3 is 1-3; a pod that is not known keeps its UID alone."""
    held = {"uid-b": {"main": cpus("1-2"), "side": cpus("2-3")}, "uid-a": {"main": cpus("5")}}
    pods = (PodRef(uid="uid-b", namespace="default", name="job"),)

    assert read(node(held, pods), koordinator.POD_CPU_ALLOCS) == [
        {"uid": "uid-a", "cpuset": "5", "managedByKubelet": True},
        {
            "namespace": "default",
            "name": "job",
            "uid": "uid-b",
            "cpuset": "1-3",
            "managedByKubelet": True,
        },
    ]


@pytest.mark.parametrize(
    ("reading", "policy"),
    [
        (node(), {"policy": "static"}),
        (
            node(reserved=bits.parse_list("0,6"), cpu_reservation_milli=2000),
            {"policy": "static", "reservedCPUs": "0,6"},
        ),
        (
            node(reserved=0b11110, cpu_options={"full-pcpus-only": "true"}),
            {
                "policy": "static",
                "options": {"full-pcpus-only": "true"},
                "reservedCPUs": "1-4",
            },
        ),
        (node(reserved=0b11, cpu_policy="none"), {"policy": "none"}),
        (replace(node(), state=None), {"policy": "none"}),
    ],
)
def test_cpu_manager_policy(reading: NodeReading, policy: dict) -> None:
    assert read(reading, koordinator.CPU_MANAGER_POLICY) == policy


def test_a_bare_machine_has_its_whole_topology_in_the_pools() -> None:
    bare = replace(node(), state=None)

    assert len(read(bare, koordinator.CPU_TOPOLOGY)["detail"]) == 8
    assert [pool["cpuset"] for pool in read(bare, koordinator.CPU_SHARED_POOLS)] == ["0-3", "4-7"]


@pytest.mark.parametrize("held", [{}, {"a": {"c": cpus("0-1,7")}}])
def test_every_cpuset_follows_koordinators_grammar(held: dict) -> None:
    """Comma-separated ``a`` or ``a-b``, no white space, ends up to 4096."""
    documents = [
        read(node(held, reserved=0b100), key)
        for key in (
            koordinator.CPU_SHARED_POOLS,
            koordinator.POD_CPU_ALLOCS,
            koordinator.CPU_MANAGER_POLICY,
        )
    ]
    rows = [*documents[0], *(documents[1] or []), {"cpuset": documents[2]["reservedCPUs"]}]
    for row in rows:
        for item in row["cpuset"].split(","):
            first, _, last = item.partition("-")
            assert first.isdigit()
            assert not last or int(first) < int(last) <= 4096
