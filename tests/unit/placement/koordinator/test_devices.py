"""Koordinator's joint allocation of GPUs and NICs; tests/conformance holds its recorded answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.placement.koordinator.devices.allocate import allocate_devices
from rte.placement.koordinator.devices.node import SharedDevices, read_node_devices
from rte.placement.koordinator.devices.outcome import DeviceRefusal, KoordinatorDevices
from rte.placement.koordinator.devices.request import (
    ALLOCATE_HINT,
    GPU_PARTITION_SPEC,
    JOINT_ALLOCATE,
    DeviceRequestError,
    read_device_request,
)

SAME_PCIE = json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
WHOLE = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def device(kind: str, minor: int, switch: str, **fields: Any) -> dict[str, Any]:
    resources = WHOLE if kind == "gpu" else {"koordinator.sh/rdma": "100"}
    place = {"nodeID": 0, "pcieID": switch}
    return {"type": kind, "minor": minor, "health": True, "resources": resources, "topology": place,
            **fields}  # fmt: skip


def node(*devices: dict[str, Any], held: tuple[dict[str, Any], ...] = ()) -> SharedDevices:
    return read_node_devices({"spec": {"devices": list(devices)}}, held)


def ask(where: SharedDevices, gpus: int, percent: int, joint: str = SAME_PCIE, **hints: Any) -> Any:
    annotations = {JOINT_ALLOCATE: joint}
    if hints:
        annotations[ALLOCATE_HINT] = json.dumps(hints)
    resources = {"nvidia.com/gpu": str(gpus), "koordinator.sh/rdma": str(percent)}
    request = read_device_request(resources, annotations)
    assert request is not None
    return allocate_devices(request, where)


def minors(outcome: KoordinatorDevices) -> dict[str, list[int]]:
    return {kind: [it.minor for it in given_] for kind, given_ in outcome.devices.items()}


def test_a_place_that_the_greedy_search_misses_is_found() -> None:
    """The lowest GPU is taken first, on a switch whose NIC is gone."""
    where = node(
        device("gpu", 0, "a"),
        device("gpu", 1, "b"),
        device("rdma", 0, "a"),
        device("rdma", 1, "b"),
        held=({"rdma": [{"minor": 0, "resources": {"koordinator.sh/rdma": "100"}}]},),
    )

    got = ask(where, 1, 100)

    assert isinstance(got, KoordinatorDevices)
    assert got.beyond_koordinator
    assert minors(got) == {"gpu": [1], "rdma": [1]}


def test_where_there_is_no_place_the_answer_is_koordinators() -> None:
    where = node(device("gpu", 0, "a"), device("rdma", 0, "b"))

    with pytest.raises(DeviceRefusal, match="Device Joint-Allocate rules violation"):
        ask(where, 1, 100)


def test_other_restrictions_keep_koordinators_answer() -> None:
    where = node(
        device("gpu", 0, "a", labels={"m": "x"}), device("gpu", 1, "b"), device("rdma", 1, "b")
    )

    assert isinstance(ask(where, 1, 100), KoordinatorDevices)
    with pytest.raises(DeviceRefusal):
        ask(where, 1, 100, gpu={})


def test_a_vf_is_given_by_bus_id() -> None:
    vfs = [{"labels": {"k": "v"}, "vfs": [{"minor": 3, "busID": "b"}, {"minor": 4, "busID": "a"}]}]
    where = node(device("gpu", 0, "a"), device("rdma", 0, "a", vfGroups=vfs))

    got = ask(where, 1, 1, rdma={"vfSelector": {"matchExpressions": [
        {"key": "k", "operator": "In", "values": ["v"]}]}})  # fmt: skip

    assert isinstance(got, KoordinatorDevices)
    assert got.document()["rdma"] == [
        {
            "minor": 0,
            "resources": {"koordinator.sh/rdma": "1"},
            "extension": {"vfs": [{"minor": 4, "busID": "a"}]},
        }
    ]


def test_memory_is_written_as_kubernetes_does() -> None:
    total = {**WHOLE, "koordinator.sh/gpu-memory": "80Gi"}
    request = read_device_request({"koordinator.sh/gpu-memory": "8Gi"}, {})
    assert request is not None
    got = allocate_devices(request, node(device("gpu", 0, "a", resources=total)))

    assert isinstance(got, KoordinatorDevices)
    assert got.document()["gpu"][0]["resources"] == {"koordinator.sh/gpu-memory": "8Gi"}


@pytest.mark.parametrize(
    ("resources", "annotations"),
    [
        ({"koordinator.sh/gpu": "150"}, {}),
        ({"koordinator.sh/gpu-core": "50"}, {}),
        ({"nvidia.com/gpu": "1", "koordinator.sh/gpu": "100"}, {}),
        ({"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory-ratio": "75"}, {}),
        ({"koordinator.sh/rdma": "1"}, {JOINT_ALLOCATE: "[]"}),
        ({"koordinator.sh/rdma": "1"}, {ALLOCATE_HINT: '{"rdma": 3}'}),
        ({"koordinator.sh/rdma": "1"}, {ALLOCATE_HINT: '{"rdma": {"selector": []}}'}),
        ({"nvidia.com/gpu": "1"}, {GPU_PARTITION_SPEC: '{"ringBusBandwidth": "fast"}'}),
        ({"koordinator.sh/rdma": "1"}, {ALLOCATE_HINT: "[" * 100_000}),
    ],
)
def test_a_wrong_request_is_told_in_one_line(
    resources: dict[str, str], annotations: dict[str, str]
) -> None:
    with pytest.raises(DeviceRequestError) as caught:
        read_device_request(resources, annotations)
    assert "\n" not in str(caught.value)


switch_sizes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=3)


@given(switch_sizes, st.integers(1, 4), st.integers(1, 3))
def test_whole_gpus_on_the_switches_of_their_nics_are_found_wherever_they_are(
    sizes: list[tuple[int, int]], gpus: int, nics: int
) -> None:
    devices = []
    for number, (gpu_count, nic_count) in enumerate(sizes):
        devices += [device("gpu", 10 * number + i, f"s{number}") for i in range(gpu_count)]
        devices += [device("rdma", 10 * number + i, f"s{number}") for i in range(nic_count)]
    possible = any(
        len(chosen) <= gpus <= sum(sizes[i][0] for i in chosen)
        and max(nics, len(chosen)) <= sum(sizes[i][1] for i in chosen)
        for mask in range(1, 1 << len(sizes))
        if (chosen := [i for i in range(len(sizes)) if mask >> i & 1])
        and all(min(sizes[i]) > 0 for i in chosen)
    )

    try:
        got = ask(node(*devices), gpus, 100 * nics)
    except DeviceRefusal:
        assert not possible
    else:
        assert possible
        switches = [{minor // 10 for minor in of_kind} for of_kind in minors(got).values()]
        assert switches[0] == switches[1]
