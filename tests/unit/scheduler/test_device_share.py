"""Koordinator's devices in the scheduler: chosen by its Device objects, written by the bind."""

from __future__ import annotations

import json
from typing import Any

from rte.placement.koordinator.devices.request import ALLOCATED, JOINT_ALLOCATE
from rte.scheduler.loop import messages
from rte.scheduler.plugins.registry import RuleOptions
from tests.unit.scheduler.desk import Desk

JOINT = {JOINT_ALLOCATE: json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})}
WHOLE = {"koordinator.sh/gpu": "100", "koordinator.sh/rdma": "100"}
GPU = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def device(kind: str, minor: int, switch: int) -> dict[str, Any]:
    resources = GPU if kind == "gpu" else {"koordinator.sh/rdma": "100"}
    topology = {"nodeID": 0, "pcieID": f"0-{switch}"}
    return {
        "type": kind, "minor": minor, "health": True, "resources": resources, "topology": topology
    }  # fmt: skip


def a_desk(*devices: dict[str, Any]) -> Desk:
    desk = Desk(options=RuleOptions(device_share=True))
    amounts = {"koordinator.sh/gpu": "400", "koordinator.sh/rdma": "400"}
    desk.node("n", bare=True, allocatable=amounts)
    show(desk, *devices)
    return desk


def show(desk: Desk, *devices: dict[str, Any]) -> None:
    desk.put(
        "koordinator-devices", "n", {"metadata": {"name": "n"}, "spec": {"devices": list(devices)}}
    )


def minors(desk: Desk, uid: str) -> dict[str, list[int]]:
    text = desk.objects["pods", uid]["metadata"]["annotations"][ALLOCATED]
    return {kind: [it["minor"] for it in items] for kind, items in json.loads(text).items()}


def test_gpu_and_nic_of_one_switch_are_chosen_and_written_by_the_bind() -> None:
    desk = a_desk(device("gpu", 0, 0), device("gpu", 1, 1), device("rdma", 7, 1))

    uid = desk.pod(extra=WHOLE, annotations=JOINT)

    assert minors(desk, uid) == {"gpu": [1], "rdma": [7]}


def test_what_a_pod_holds_is_what_its_annotation_says() -> None:
    desk = a_desk(device("gpu", 0, 0), device("rdma", 0, 0))
    first = desk.pod(extra=WHOLE, annotations=JOINT)
    second = desk.pod(extra=WHOLE, annotations=JOINT)
    assert not desk.where(second)

    desk.delete("pods", first)

    assert minors(desk, second) == {"gpu": [0], "rdma": [0]}


def test_devices_that_come_wake_a_pod() -> None:
    desk = a_desk(device("gpu", 0, 0))
    uid = desk.pod(extra=WHOLE, annotations=JOINT)
    assert not desk.where(uid)

    show(desk, device("gpu", 0, 0), device("rdma", 3, 0))

    assert desk.where(uid) == "n"


def test_what_is_wrong_with_a_request_or_an_object_is_told() -> None:
    desk = a_desk(device("gpu", 0, 0), device("rdma", 0, 0))
    wrong = desk.pod(extra=WHOLE, annotations={JOINT_ALLOCATE: "{"})
    assert "invalid DeviceJointAllocate annotation" in desk.machine.why(desk.view(wrong))

    desk.put(
        "koordinator-devices",
        "n",
        {"metadata": {"name": "n"}, "spec": {"devices": [{"minor": "x"}]}},
    )

    fine = desk.pod(extra=WHOLE, annotations=JOINT)
    assert "without a Device object" in desk.machine.why(desk.view(fine))
    assert any(said.text.startswith("koordinator-devices n: ") for said in desk.told(messages.Said))


def test_annotations_that_nobody_can_read_hold_nothing() -> None:
    desk = a_desk(device("gpu", 0, 0), device("rdma", 0, 0))
    less = '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "-100"}}]}'
    for number, text in enumerate(["{", "[]", '{"gpu": [{"minor": {}}]}', '{"gpu": 3}', less]):
        desk.pod(f"odd{number}", "1", annotations={ALLOCATED: text}, node_name="n")

    assert desk.where(desk.pod(extra=WHOLE, annotations=JOINT)) == "n"
    assert not desk.where(desk.pod(extra=WHOLE, annotations=JOINT))
