from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rte import errors, nrt
from rte.model.machine import Machine, PCIZones
from rte.model.node import ClaimedDevice, NodeReading
from rte.nrt import device_zones
from rte.nrt.device_zones import DeviceZones

ADDRESSES = st.from_regex(r"\A[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")
ROOTS = st.from_regex(r"\Apci[0-9a-f]{4}:[0-9a-f]{2}\Z")
ZONES = st.builds(
    PCIZones,
    roots=st.dictionaries(ROOTS, st.none() | st.integers(0, 70), min_size=1),
    functions=st.dictionaries(ADDRESSES, st.integers(0, 70)),
)


NAMES = st.text(min_size=1, max_size=5)
CLAIMED = st.dictionaries(
    NAMES,
    st.dictionaries(
        NAMES,
        st.lists(
            st.builds(ClaimedDevice, st.just(""), NAMES, NAMES, NAMES, NAMES, st.text(max_size=2))
        ).map(lambda found: tuple(sorted(found, key=structs.astuple))),
    ),
)


def reading(zones: PCIZones, claimed: dict | None = None) -> NodeReading:
    hardware = Machine(cpus=(), zones=(), pci_zones=zones)
    return NodeReading(node_name="n0", machine=hardware, claimed=claimed or {})


@given(ZONES, CLAIMED)
def test_what_is_written_is_read(zones: PCIZones, claimed) -> None:
    read = nrt.decode(nrt.encode(reading(zones, claimed))).device_zones

    assert read == DeviceZones(pci=zones, claimed=claimed)


def test_equal_zones_give_equal_bytes_whatever_their_order() -> None:
    zones = PCIZones(roots={"pci0000:10": 0, "pci0000:20": None}, functions={"0000:21:00.0": 1})
    shuffled = replace(zones, roots=dict(reversed(zones.roots.items())))

    assert device_zones.encode(reading(zones)) == device_zones.encode(reading(shuffled))


def test_a_machine_without_pci_writes_nothing() -> None:
    document = nrt.encode(reading(PCIZones()))

    assert device_zones.ANNOTATION not in document["metadata"]["annotations"]
    assert nrt.decode(document).device_zones is None


def test_a_later_release_may_say_more() -> None:
    text = '{"version":1,"pcieRoots":{"pci0000:10":0},"rails":{"a":1}}'

    assert device_zones.decode(text) == DeviceZones(pci=PCIZones(roots={"pci0000:10": 0}))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version":2}', '{"version":1,"pcieRoots":{"a":"b"}}', "\ud800", None]
)
def test_what_is_malformed_is_named_and_left_out(text: str) -> None:
    document = nrt.encode(reading(PCIZones()))
    document["metadata"]["annotations"] = {device_zones.ANNOTATION: text}

    read = nrt.decode(document)
    assert read.device_zones is None
    assert bool(read.problems) is (text is not None)
    if isinstance(text, str):
        with pytest.raises(errors.ParseError):
            device_zones.decode(text)
