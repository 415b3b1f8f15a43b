from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors
from rte.kubelet import checkpoints, statefiles
from rte.model import bits
from rte.model.node import MemoryAmounts, MemoryBlock
from tests.checkpoints import embedded, sealed
from tests.depth import scaled
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


def parse(parser: str, document: dict[str, Any]) -> Any:
    """As a kubelet would have written it: with the checksum of this content."""
    return PARSERS[parser][0](json.dumps(sealed(document)))


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
    state = parse("cpu", {"policyName": "none", "defaultCpuSet": ""})
    assert (state.policy, state.default, state.entries) == ("none", 0, {})


# Formats, as kubelets of 1.34 to 1.37 wrote them

V3 = (
    '{"policyName":"static","defaultCpuSet":"1,3","entries":{"p1":{"c0":"4-7"}},'
    '"podEntries":{"p1":{"cpuSet":"4-7"}},"checksum":2134999175}'
)
V4 = (
    '{"policyName":"static","defaultCpuSet":"2-3","entries":{"p8":{"c0":"4"}},'
    '"checksum":2063335765,"data":"{\\"policyName\\":\\"static\\",\\"defaultCpuSet\\":\\"2-3\\",'
    '\\"entries\\":{\\"p8\\":{\\"c0\\":\\"4\\"}},\\"podEntries\\":{\\"p8\\":{\\"cpuSet\\":\\"4-5\\"}}}",'
    '"dataChecksum":401459741}'
)


def test_a_file_of_1_36_tells_what_a_pod_holds_as_a_whole() -> None:
    state = statefiles.parse_cpu_state(V3)
    assert state.entries == {"p1": {"c0": 0b11110000}}
    assert state.pod_entries == {"p1": 0b11110000}
    assert not state.embedded


def test_a_file_of_1_37_is_read_from_its_data() -> None:
    state = statefiles.parse_cpu_state(V4)
    assert (state.default, state.entries) == (0b1100, {"p8": {"c0": 1 << 4}})
    assert state.pod_entries == {"p8": 0b110000}
    assert state.embedded


@pytest.mark.parametrize("parser", ["cpu", "memory"])
def test_what_stands_beside_the_data_is_for_older_kubelets(parser: str) -> None:
    """1.37 reads nothing but ``data`` and ``dataChecksum``."""
    parse_text, document = PARSERS[parser]
    whole = embedded(document)
    for beside in ({"entries": {}}, {"checksum": 1}, {"entries": {}, "checksum": 0}):
        state = parse_text(json.dumps(whole | beside))
        assert state.entries == parse(parser, document).entries


@pytest.mark.parametrize("parser", ["cpu", "memory"])
@pytest.mark.parametrize(
    "damage",
    [
        {"dataChecksum": 1},
        {"dataChecksum": 0},
        {"data": ""},
        {"data": "{}"},
        {"data": "x", "dataChecksum": checkpoints.text_checksum("x")},
        {"data": 1},
        {"dataChecksum": "1"},
    ],
)
def test_damaged_data_is_no_reason_to_read_what_stands_beside_it(
    parser: str, damage: dict[str, Any]
) -> None:
    parse_text, document = PARSERS[parser]
    with pytest.raises(errors.ParseError):
        parse_text(json.dumps(embedded(document) | damage))


@pytest.mark.parametrize("parser", ["cpu", "memory"])
def test_without_data_and_its_checksum_the_older_format_is_read(parser: str) -> None:
    parse_text, document = PARSERS[parser]
    state = parse_text(json.dumps(sealed(document) | {"data": "", "dataChecksum": 0}))
    assert state == parse(parser, document)


def test_pod_entries_that_the_checksum_does_not_cover_were_not_written_by_a_kubelet() -> None:
    """1.37 falls back to the oldest format, which has none (loadAndMigrateCheckpointV3)."""
    document = sealed(samples.CPU_STATE) | {"podEntries": {"uid-a": {"cpuSet": "2-4"}}}
    state = statefiles.parse_cpu_state(json.dumps(document))
    assert state == parse("cpu", samples.CPU_STATE)


def test_a_gate_that_is_on_changes_the_checksum_of_a_file_without_pod_entries() -> None:
    state = parse("cpu", samples.CPU_STATE | {"podEntries": {}})
    assert state == parse("cpu", samples.CPU_STATE)


def test_blocks_of_a_pod_as_a_whole() -> None:
    block = {"numaAffinity": [0], "type": "memory", "size": 3 * GIB}
    document = samples.MEMORY_STATE | {"podEntries": {"uid-a": {"memoryBlocks": [block]}}}
    whole = (MemoryBlock("memory", 0b1, 3 * GIB),)
    assert parse("memory", document).pod_entries == {"uid-a": whole}
    state = statefiles.parse_memory_state(json.dumps(embedded(document)))
    assert (state.pod_entries, state.embedded) == ({"uid-a": whole}, True)


@pytest.mark.parametrize("parser", ["cpu", "memory"])
def test_an_old_file_backend_wrote_no_checksum(parser: str) -> None:
    parse_text, document = PARSERS[parser]
    assert parse_text(json.dumps(document | {"checksum": 0})) == parse(parser, document)


@every_parser
def test_a_file_that_fails_its_own_checksum_is_torn(parser: str) -> None:
    parse_text, document = PARSERS[parser]
    field = "Checksum" if "Checksum" in document else "checksum"
    with pytest.raises(errors.ParseError, match="checksum") as caught:
        parse_text(json.dumps(document | {field: document[field] + 1}))
    assert "\n" not in str(caught.value)


@every_parser
@settings(max_examples=scaled(300), deadline=None)
@given(data=st.data())
def test_a_changed_value_never_passes_the_checksum(parser: str, data: st.DataObject) -> None:
    parse_text, document = PARSERS[parser]
    path = data.draw(st.sampled_from(paths(document)[1:]))
    damaged = changed(document, path, data.draw(json_values))
    original = parse(parser, document)
    try:
        state = parse_text(json.dumps(damaged))
    except errors.ParseError:
        return
    assert state == original or damaged.get("checksum") == 0


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
    state = parse("memory", {"policyName": "None", "machineState": {}})
    assert (state.policy, state.zones, state.entries) == ("None", {}, {})
    assert not parse("memory", {"policyName": "None", "machineState": None}).zones


def test_allocated_pods_are_the_admitted_uids_with_their_containers() -> None:
    assert parse("allocated", samples.ALLOCATED_PODS).pods == {
        "uid-a": frozenset({"main"}),
        "uid-b": frozenset({"init", "app"}),
    }
    assert not parse("allocated", {"data": "{}"}).pods


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
    checkpoint = parse("devices", {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}})
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
        return json.dumps(sealed(changed(document, path, draw(json_values)))).encode()
    text = bytearray(json.dumps(document).encode())
    place = draw(st.integers(0, len(text) - 1))
    text[place : place + draw(st.integers(1, 4))] = draw(st.binary(max_size=3))
    return bytes(text)


@every_parser
@settings(max_examples=scaled(1000), deadline=None)
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
