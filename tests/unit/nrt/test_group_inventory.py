"""The inventory for processing groups: what the agent publishes is what the allocator gets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.model import bits
from rte.model.machine import Machine, PCIDevice
from rte.model.node import NodeReading
from rte.nrt import group_inventory
from rte.nrt.writer import WriterOptions, encode
from rte.sysfs import read_machine
from tests.fixture_machines import ROOT
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.placement.groups.test_live import paths, values


@pytest.fixture(scope="module")
def machine() -> Machine:
    return read_machine(ROOT / "16-2s-groups/sys", ROOT / "16-2s-groups/proc")


def text_of(machine: Machine, **speeds: int) -> str | None:
    reading = NodeReading(node_name="n", machine=machine)
    return group_inventory.encode(group_inventory.published(reading, speeds))


def published(machine: Machine, **speeds: int) -> group_inventory.PublishedInventory:
    text = text_of(machine, **speeds)
    assert text is not None
    return group_inventory.decode(text)


def test_devices_come_with_what_their_drivers_tell(machine: Machine) -> None:
    got = published(machine)

    assert got.cpu_arch == "icelake"
    assert [(gpu.address, gpu.model, gpu.memory_gib, gpu.index) for gpu in got.inventory.gpus] == [
        ("0000:13:00.0", "NVIDIA A100-SXM4-80GB", 80, 0),
        ("0000:93:00.0", "AMD Instinct MI210", 64, 1),
    ]
    port, _, vf, _, infiniband = got.inventory.nics
    assert (port.name, port.mbps, port.link, port.pf) == ("ens1f0np0", 100_000, "up", None)
    assert (vf.name, vf.mbps, vf.pf) == ("ens1f1v0", None, "0000:14:00.1")
    assert (infiniband.rdma, infiniband.rdma_device) == (True, "mlx4_0")
    assert port.domain("switch") == "0000:11:00.0"


def test_cores_pages_and_what_is_not_isolated(machine: Machine) -> None:
    got = published(machine).inventory

    assert [core.cpus for core in got.cores[:2]] == [(0, 8), (1, 9)]
    assert got.cores[-1].zone == 1
    assert got.pages == {0: {"1Gi": 8}, 1: {"1Gi": 8}}
    assert bits.format_list(got.reserved_cpus) == "0-1,4-5,8-9,12-13"


def test_a_configured_speed_stands_in_for_one_that_is_not_told(machine: Machine) -> None:
    nics = published(machine, ens1f1v0=25_000, ens1f0np0=1).inventory.nics

    assert [nic.mbps for nic in nics][:3] == [100_000, 100_000, 25_000]


def test_what_is_read_back_is_what_was_read(machine: Machine) -> None:
    reading = NodeReading(node_name="n", machine=machine)
    got = published(machine)

    assert got.inventory.generation
    generation = got.inventory.generation
    whole = group_inventory.published(reading)
    assert replace(whole, inventory=replace(whole.inventory, generation=generation)) == got


def test_the_generation_is_that_of_the_hardware(machine: Machine) -> None:
    otherwise_reserved = published(replace(machine, isolated=1)).inventory
    without_a_gpu = published(replace(machine, pci=machine.pci[1:])).inventory

    assert otherwise_reserved.generation == published(machine).inventory.generation
    assert without_a_gpu.generation != published(machine).inventory.generation


def test_too_many_devices_are_not_published_at_all(machine: Machine) -> None:
    many = tuple(
        PCIDevice(address=f"0000:20:{i >> 3:02x}.{i & 7}", kind="nic", vendor="", device="", zone=0)
        for i in range(4000)
    )

    assert text_of(replace(machine, pci=many)) is None


def test_the_object_has_the_annotation_only_where_it_is_asked_for(machine: Machine) -> None:
    reading = NodeReading(node_name="n", machine=machine)
    asked = encode(reading, WriterOptions(groups=True))["metadata"]["annotations"]

    assert group_inventory.ANNOTATION in asked
    assert group_inventory.ANNOTATION not in encode(reading)["metadata"]["annotations"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version": 2}', '{"version": 1, "gpus": [{"address": "a", "path": 3}]}',
     '{"version": 1, "cores": {"0": "x"}}'],
)  # fmt: skip
def test_what_is_no_inventory_is_told(text: str) -> None:
    with pytest.raises(errors.ParseError):
        group_inventory.decode(text)


def test_every_machine_can_be_published() -> None:
    for folder in sorted(Path(ROOT).iterdir()):
        text = text_of(read_machine(folder / "sys", folder / "proc"))
        assert text is None or group_inventory.decode(text).inventory.pages


@given(st.data())
def test_no_damaged_inventory_crashes_the_reader(data: st.DataObject) -> None:
    text = group_inventory.encode(group_inventory.PublishedInventory(inventory=two_sockets()))
    assert text is not None
    document: dict[str, Any] = json.loads(text)
    path = data.draw(st.sampled_from(paths(document)))
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(values)
    try:
        read = group_inventory.decode(json.dumps(document)).inventory
    except errors.ParseError as error:
        assert "\n" not in str(error)
    else:
        assert read.shape is not None
