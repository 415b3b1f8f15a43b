from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors
from rte.kubelet import statefiles
from rte.model import bits
from rte.model.kubelet import WHOLE_POD
from rte.model.node import MemoryAmounts, MemoryBlock
from tests.unit.kubelet import samples

GIB = samples.GIB

PARSERS = {
    "cpu": (statefiles.parse_cpu_state, samples.CPU_STATE),
    "memory": (statefiles.parse_memory_state, samples.MEMORY_STATE),
    "allocated": (statefiles.parse_allocated_pods, samples.ALLOCATED_PODS),
    "devices": (statefiles.parse_device_checkpoint, samples.DEVICE_CHECKPOINT),
}

ROW = samples.MEMORY_STATE["machineState"]["0"]

every_parser = pytest.mark.parametrize("parser", PARSERS)


def parse(parser: str, document: object) -> Any:
    return PARSERS[parser][0](json.dumps(document))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    out = copy.deepcopy(document)
    target: Any = out
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return out


def test_cpu_state_names_the_pool_and_every_exclusive_container() -> None:
    state = parse("cpu", samples.CPU_STATE)
    assert state.policy == "static"
    assert bits.format_list(state.default) == "0-1,5-7"
    assert state.entries == {"uid-a": {"main": 0b1100}, "uid-b": {"init": 1 << 4, "app": 1 << 4}}


def test_cpu_state_of_policy_none_holds_nobody() -> None:
    state = statefiles.parse_cpu_state(b'{"policyName":"none","defaultCpuSet":"","checksum":1}')
    assert (state.policy, state.default, state.entries) == ("none", 0, {})


def test_pod_level_cpus_of_newer_kubelets_stand_beside_the_containers() -> None:
    document = samples.CPU_STATE | {"podEntries": {"uid-a": {"cpuSet": "2-4"}}}
    assert parse("cpu", document).entries["uid-a"] == {"main": 0b1100, WHOLE_POD: 0b11100}


def test_memory_state_has_a_row_per_zone_and_blocks_in_file_order() -> None:
    document = changed(
        samples.MEMORY_STATE,
        ("entries", "uid-a", "main"),
        [
            {"numaAffinity": [0, 1], "type": "memory", "size": 5},
            {"numaAffinity": [0, 1], "type": "hugepages-1Gi", "size": 0},
        ],
    )
    document["machineState"]["1"]["cells"] = [1, 0]
    state = parse("memory", document)
    assert list(state.zones) == [0, 1]
    assert (state.zones[0].assignments, state.zones[0].group) == (1, 0b01)
    assert state.zones[1].group == 0b11
    assert state.zones[0].amounts["memory"] == MemoryAmounts(
        16 * GIB, GIB, 15 * GIB, 2 * GIB, 13 * GIB
    )
    assert state.entries["uid-a"]["main"] == (
        MemoryBlock("memory", 0b11, 5),
        MemoryBlock("hugepages-1Gi", 0b11, 0),
    )


def test_a_zone_without_cells_is_a_group_of_its_own() -> None:
    document = changed(samples.MEMORY_STATE, ("machineState", "1", "cells"), [])
    assert parse("memory", document).zones[1].group == 0b10


def test_memory_state_of_policy_none_is_empty() -> None:
    state = statefiles.parse_memory_state('{"policyName":"None","machineState":{},"checksum":1}')
    assert (state.policy, state.zones, state.entries) == ("None", {}, {})
    assert not statefiles.parse_memory_state('{"policyName":"None","machineState":null}').zones


def test_allocated_pods_are_the_admitted_uids_with_their_containers() -> None:
    assert parse("allocated", samples.ALLOCATED_PODS).pods == {
        "uid-a": frozenset({"main"}),
        "uid-b": frozenset({"init", "app"}),
    }
    assert not statefiles.parse_allocated_pods('{"data":"{}","checksum":1}').pods


def test_device_zones_are_joined_and_minus_one_means_no_zone() -> None:
    checkpoint = parse("devices", samples.DEVICE_CHECKPOINT)
    (holding,) = checkpoint.entries["uid-a"]["main"]
    assert holding.resource == "example.com/gpu"
    assert holding.devices == {"gpu0": 0b11, "gpu1": 0b10, "gpu2": None}
    assert checkpoint.registered == {
        "example.com/gpu": frozenset({"gpu1", "gpu3"}),
        "example.com/gone": frozenset(),
    }


def test_a_container_may_hold_devices_of_several_resources() -> None:
    entry = samples.DEVICE_CHECKPOINT["Data"]["PodDeviceEntries"][0]
    document = changed(
        samples.DEVICE_CHECKPOINT,
        ("Data", "PodDeviceEntries"),
        [entry, entry | {"ResourceName": "example.com/nic", "DeviceIDs": {"0": ["nic"]}}],
    )
    holdings = parse("devices", document).entries["uid-a"]["main"]
    assert [holding.resource for holding in holdings] == ["example.com/gpu", "example.com/nic"]


def test_an_empty_device_checkpoint_is_fine() -> None:
    text = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}'
    checkpoint = statefiles.parse_device_checkpoint(text)
    assert (checkpoint.entries, checkpoint.registered) == ({}, {})


def test_devices_of_kubelets_before_1_20_have_no_zones() -> None:
    path = ("Data", "PodDeviceEntries", 0, "DeviceIDs")
    checkpoint = parse("devices", changed(samples.DEVICE_CHECKPOINT, path, ["gpu0"]))
    assert checkpoint.entries["uid-a"]["main"][0].devices == {"gpu0": None}


@pytest.mark.parametrize(
    ("parser", "path", "value", "why"),
    [
        ("cpu", ("defaultCpuSet",), "0-", "bad"),
        ("cpu", ("defaultCpuSet",), None, "defaultCpuSet"),
        ("cpu", ("defaultCpuSet",), "0-4000000000", "bad"),
        ("cpu", ("policyName",), 1, "policyName"),
        ("cpu", ("entries",), [], "`$.entries`"),
        ("cpu", ("entries", "uid-a"), "2-3", "`$.entries[...]`"),
        ("cpu", ("entries", "uid-a", "main"), [2, 3], "`$.entries[...][...]`"),
        ("cpu", ("entries", "uid-a", "main"), "3-2", "backwards"),
        ("memory", ("machineState", "x"), ROW, "expected a zone id"),
        ("memory", ("machineState", "9" * 5000), ROW, "expected a zone id"),
        ("memory", ("machineState", "0", "cells"), [-1], "cells[0]"),
        ("memory", ("machineState", "0", "cells"), [True], "cells[0]"),
        ("memory", ("machineState", "0", "numberOfAssignments"), -1, "numberOfAssignments"),
        ("memory", ("machineState", "0", "memoryMap", "memory"), {}, "total"),
        ("memory", ("machineState", "0", "memoryMap", "memory", "free"), 1.5, "free"),
        ("memory", ("machineState", "0", "memoryMap", "memory", "free"), "1", "free"),
        ("memory", ("machineState", "0", "memoryMap", "memory", "free"), 1 << 64, "free"),
        ("memory", ("entries", "uid-a", "main", 0), {}, "`type`"),
        ("memory", ("entries", "uid-a", "main", 0, "numaAffinity"), [70000], "numaAffinity[0]"),
        ("allocated", ("data",), {}, "data"),
        ("allocated", ("data",), "", "empty"),
        ("allocated", ("data",), '{"entries":[]}', "entries"),
        ("devices", ("Data",), [], "Data"),
        ("devices", ("Data", "PodDeviceEntries"), {}, "PodDeviceEntries"),
        ("devices", ("Data", "PodDeviceEntries", 0), {}, "`PodUID`"),
        ("devices", ("Data", "PodDeviceEntries", 0, "DeviceIDs"), {"-2": ["a"]}, "zone id"),
        ("devices", ("Data", "PodDeviceEntries", 0, "DeviceIDs"), {"0": [1]}, "DeviceIDs[...][0]"),
        ("devices", ("Data", "RegisteredDevices"), {"r": "a"}, "RegisteredDevices"),
    ],
)
def test_a_damaged_file_gives_one_line_that_names_the_part(
    parser: str, path: tuple[Any, ...], value: object, why: str
) -> None:
    with pytest.raises(errors.ParseError) as caught:
        parse(parser, changed(PARSERS[parser][1], path, value))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@every_parser
@pytest.mark.parametrize("text", ["", " \n", b"\0\0\0\0"])
def test_an_empty_file_is_no_state(parser: str, text: str | bytes) -> None:
    with pytest.raises(errors.ParseError):
        PARSERS[parser][0](text)


@every_parser
def test_a_key_that_is_no_text_is_not_passed_over(parser: str) -> None:
    parse_text, document = PARSERS[parser]
    text = json.dumps(document).encode()
    for key in (
        b'"entries"',
        b'"machineState"',
        b'"RegisteredDevices"',
        b'"checksum"',
        b'"Checksum"',
    ):
        if key in text:
            with pytest.raises(errors.ParseError):
                parse_text(text.replace(key, key[:3] + b"\xdd" + key[4:]))


@every_parser
def test_a_half_written_file_is_never_taken_for_a_whole_one(parser: str) -> None:
    parse_text, document = PARSERS[parser]
    text = json.dumps(document)
    for end in range(len(text)):
        with pytest.raises(errors.ParseError):
            parse_text(text[:end])


@every_parser
def test_a_file_of_another_kind_is_refused(parser: str) -> None:
    for other, (_, document) in PARSERS.items():
        if other != parser:
            with pytest.raises(errors.ParseError):
                parse(parser, document)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["0-3", "1,5", "3-1", "-1", "0", "99999999", "{}", "[]"])
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["0", "-1", "size"]), inner)
    ),
    max_leaves=6,
)


def paths(document: object) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [()]
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        found += [(key, *rest) for rest in paths(value)]
    return found


@st.composite
def garbage(draw: st.DrawFn, document: dict[str, Any]) -> bytes:
    """Bytes, JSON of any shape, a file with one part replaced, or one cut or spoilt somewhere."""
    kind = draw(st.sampled_from(["bytes", "json", "replaced", "spoilt"]))
    if kind == "bytes":
        return draw(st.binary(max_size=64))
    if kind == "json":
        return json.dumps(draw(json_values)).encode()
    if kind == "replaced":
        path = draw(st.sampled_from(paths(document)[1:]))
        return json.dumps(changed(document, path, draw(json_values))).encode()
    text = bytearray(json.dumps(document).encode())
    place = draw(st.integers(0, len(text) - 1))
    text[place : place + draw(st.integers(1, 4))] = draw(st.binary(max_size=3))
    return bytes(text)


@every_parser
@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_garbage_is_a_sound_value_or_one_clear_line(parser: str, data: st.DataObject) -> None:
    parse_text, document = PARSERS[parser]
    text = data.draw(garbage(document))
    try:
        value = parse_text(text)
    except errors.ParseError as error:
        assert str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 400
    else:
        check_sound(value)


def check_sound(value: Any) -> None:
    """What was read is within what a kubelet can say."""
    for name in ("entries", "pods", "registered"):
        for uid, containers in getattr(value, name, {}).items():
            assert isinstance(uid, str)
            for held in containers.values() if isinstance(containers, dict) else ():
                if isinstance(held, int):
                    assert 0 <= held.bit_length() <= bits.MAX_ID + 1
                for block in held if isinstance(held, tuple) else ():
                    if isinstance(block, MemoryBlock):
                        assert 0 <= block.size < 1 << 64
    for zone, row in getattr(value, "zones", {}).items():
        assert 0 <= zone <= bits.MAX_ID
        assert row.group
        for amounts in row.amounts.values():
            assert all(0 <= amount < 1 << 64 for amount in vars_of(amounts))


def vars_of(amounts: MemoryAmounts) -> tuple[int, ...]:
    return (
        amounts.total,
        amounts.system_reserved,
        amounts.allocatable,
        amounts.reserved,
        amounts.free,
    )
