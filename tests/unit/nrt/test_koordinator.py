"""Koordinator's annotations, read back as its scheduler and koordlet read them.

The tables are those of koordinator's own tests (``states_noderesourcetopology_test.go``) and of its
``apis/extension`` schemas.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from rte.accounting.koordlet import koordlet_pod
from rte.accounting.liveness import node_pod
from rte.model import bits
from rte.model.machine import CPU, CPUBasics, Machine
from rte.model.node import (
    CPUInfo,
    Holding,
    KoordletNode,
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
        "node.koordinator.sh/cpu-basic-info",
        "node.koordinator.sh/cpu-topology",
        "node.koordinator.sh/cpu-shared-pools",
        "node.koordinator.sh/be-cpu-shared-pools",
        "node.koordinator.sh/pod-cpu-allocs",
        "node.koordinator.sh/reservation",
        "node.koordinator.sh/system-qos-resource",
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


# What koordlet's own report says, on random nodes


def koordlets_report(
    held: dict[str, str], pods: dict[str, dict], annotations: dict[str, str]
) -> dict[str, object]:
    """States_noderesourcetopology.go, step by step, on sets of CPUs, of the machine above."""

    def cpus_of(text: str) -> set[int]:
        return set(bits.members(bits.parse_list(text)))

    def pinned(uid: str) -> set[int]:
        return cpus_of(pods.get(uid, {}).get("cpuset", ""))

    best_effort = {cpu.cpu for cpu in TOPOLOGY.cpus}
    allocs = []
    for uid in sorted(held):
        if pods.get(uid, {}).get("qos") not in ("LS", "BE") and not pinned(uid):
            allocs.append({"uid": uid, "cpuset": held[uid], "managedByKubelet": True})
            best_effort -= cpus_of(held[uid])
    shared = set(best_effort)
    for uid, pod in pods.items():
        shared -= pinned(uid)
        best_effort -= pinned(uid) if pod["qos"] == "LSE" else set()
    reservation = json.loads(annotations.get("node.koordinator.sh/reservation", "{}"))
    number = int(reservation.get("resources", {}).get("cpu", "0"))
    if "reservedCPUs" not in reservation and number:  # whole cores of the first socket
        reservation["reservedCPUs"] = bits.format_list((1 << number) - 1)
    system = json.loads(annotations.get("node.koordinator.sh/system-qos-resource", "{}"))
    away = cpus_of(reservation.get("reservedCPUs", ""))
    if system.get("cpusetExclusive", True):
        away |= cpus_of(system.get("cpuset", ""))

    def pools(free: set[int]) -> list[dict]:
        rows = []
        for zone in (0, 1):
            mine = {cpu for cpu in free if cpu // 4 == zone}
            left = bits.format_list(bits.of(mine - away))
            if mine:
                rows.append({"socket": zone, "node": zone} | ({"cpuset": left} if left else {}))
        return rows

    return {
        "node.koordinator.sh/cpu-shared-pools": pools(shared),
        "node.koordinator.sh/be-cpu-shared-pools": pools(best_effort),
        "node.koordinator.sh/pod-cpu-allocs": allocs or None,
        "node.koordinator.sh/reservation": reservation,
        "node.koordinator.sh/system-qos-resource": system,
    }


def _random_node(rng: random.Random) -> tuple[dict[str, str], dict[str, dict], dict[str, str]]:
    """Who holds which CPUs, what Koordinator says of pods, the Node's annotations."""
    left = list(range(8))
    rng.shuffle(left)
    held = {}
    for number in range(rng.randint(0, 3)):
        taken = [left.pop() for _ in range(rng.randint(1, 2))]
        held[f"k{number}"] = bits.format_list(bits.of(taken))
    pods: dict[str, dict] = {}
    for uid in (*held, "p0", "p1"):
        pod = {"qos": rng.choice(["", "LSE", "LSR", "LS", "BE", "SYSTEM"])}
        if rng.random() < 0.4:
            pod["cpuset"] = bits.format_list(bits.of(rng.sample(range(8), 2)))
        if rng.random() < 0.8:
            pods[uid] = pod
    annotations = {}
    reservation = rng.choice(
        [{}, {"reservedCPUs": "0-1"}, {"reservedCPUs": "4-7", "applyPolicy": "ReservedCPUsOnly"},
         {"resources": {"cpu": "2"}}, {"resources": {"cpu": "2"}, "reservedCPUs": "3"}]
    )  # fmt: skip
    if reservation:
        annotations["node.koordinator.sh/reservation"] = json.dumps(reservation)
    system = rng.choice([{}, {"cpuset": "6-7"}, {"cpuset": "2", "cpusetExclusive": False}])
    if system:
        annotations["node.koordinator.sh/system-qos-resource"] = json.dumps(system)
    return held, pods, annotations


@pytest.mark.parametrize("seed", range(200))
def test_annotations_are_those_of_koordlet_on_random_nodes(seed: int) -> None:
    held, pods, annotations = _random_node(random.Random(seed))
    objects = [
        {
            "metadata": {
                "uid": uid,
                "name": uid,
                "labels": {"koordinator.sh/qosClass": pod["qos"]} if pod["qos"] else None,
                "annotations": {
                    "scheduling.koordinator.sh/resource-status": json.dumps(
                        {"cpuset": pod["cpuset"]}
                    )
                }
                if "cpuset" in pod
                else None,
            },
            "status": {"phase": "Running"},
        }
        for uid, pod in pods.items()
    ]
    seen = {each.uid: each.koordlet for each in map(node_pod, objects) if each.koordlet is not None}
    reading = replace(
        node({uid: {"c": cpus(text)} for uid, text in held.items()}),
        koordlet=KoordletNode(seen, annotations),
    )
    told = koordinator.encode(reading)
    expected = koordlets_report(held, pods, annotations)
    assert {key: json.loads(told[key]) for key in expected} == expected


@pytest.mark.parametrize("text", ["{", "[]", '{"cpuset": 3}', '{"cpuset": "x"}', '"' + "[" * 999])
def test_a_malformed_annotation_says_nothing(text: str) -> None:
    annotations = {koordinator.RESERVATION: text, koordinator.SYSTEM_QOS: text}
    metadata = {"annotations": {"scheduling.koordinator.sh/resource-status": text}}
    told = koordinator.encode(replace(node(), koordlet=KoordletNode({}, annotations)))
    assert read_pools(told) == ["0-3", "4-7"]
    assert koordlet_pod(metadata) is None


def test_more_reserved_than_there_is_reserves_nothing_by_name() -> None:
    annotations = {koordinator.RESERVATION: '{"resources":{"cpu":"99"}}'}
    told = koordinator.encode(replace(node(), koordlet=KoordletNode({}, annotations)))
    assert json.loads(told[koordinator.RESERVATION]) == {"resources": {"cpu": "99"}}
    assert read_pools(told) == ["0-3", "4-7"]


def read_pools(told: dict[str, str]) -> list[str]:
    return [pool["cpuset"] for pool in json.loads(told[koordinator.CPU_SHARED_POOLS])]


# cpu-basic-info (getCPUBasicInfo in koordlet's util/cpuinfo.go)


@pytest.mark.parametrize(
    ("basics", "threads", "told"),
    [
        (CPUBasics(), 1, {"cpuModel": "unknown", "vendorID": "unknown"}),
        (
            CPUBasics(name="Xeon", vendor="GenuineIntel", turbo=True, l3_ways="fff"),
            2,
            {
                "cpuModel": "Xeon",
                "hyperThreadEnabled": True,
                "turboEnabled": True,
                "catL3CbmMask": "fff",
                "vendorID": "GenuineIntel",
            },
        ),
    ],
)
def test_what_cpus_are_compared_by(basics, threads, told):
    cpus = tuple(CPU(id=i, core=i - i % threads, die=0, socket=0, zone=0) for i in range(4))
    machine = Machine(cpus=cpus, zones=(), basics=basics)
    reading = replace(node(), machine=machine)
    assert json.loads(koordinator.encode(reading)[koordinator.CPU_BASIC_INFO]) == told


def test_a_core_of_which_one_thread_is_off_line_has_no_hyper_threads():
    cpus = tuple(CPU(id=i, core=0, die=0, socket=0, zone=0, online=i == 0) for i in range(2))
    reading = replace(node(), machine=Machine(cpus=cpus, zones=()))
    told = json.loads(koordinator.encode(reading)[koordinator.CPU_BASIC_INFO])
    assert "hyperThreadEnabled" not in told
