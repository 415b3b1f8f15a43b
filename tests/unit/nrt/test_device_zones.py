from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors, nrt
from rte.model.machine import Machine, PCIZones
from rte.model.node import NodeReading
from rte.nrt import device_zones

ADDRESSES = st.from_regex(r"\A[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")
ROOTS = st.from_regex(r"\Apci[0-9a-f]{4}:[0-9a-f]{2}\Z")
ZONES = st.builds(
    PCIZones,
    roots=st.dictionaries(ROOTS, st.none() | st.integers(0, 70), min_size=1),
    functions=st.dictionaries(ADDRESSES, st.integers(0, 70)),
)


def reading(zones: PCIZones) -> NodeReading:
    return NodeReading(node_name="n0", machine=Machine(cpus=(), zones=(), pci_zones=zones))


@given(ZONES)
def test_what_is_written_is_read(zones: PCIZones) -> None:
    assert nrt.decode(nrt.encode(reading(zones))).pci_zones == zones


def test_equal_zones_give_equal_bytes_whatever_their_order() -> None:
    zones = PCIZones(roots={"pci0000:10": 0, "pci0000:20": None}, functions={"0000:21:00.0": 1})
    shuffled = replace(zones, roots=dict(reversed(zones.roots.items())))

    assert device_zones.encode(reading(zones)) == device_zones.encode(reading(shuffled))


def test_a_machine_without_pci_writes_nothing() -> None:
    document = nrt.encode(reading(PCIZones()))

    assert device_zones.ANNOTATION not in document["metadata"]["annotations"]
    assert nrt.decode(document).pci_zones is None


def test_a_later_release_may_say_more() -> None:
    text = '{"version":1,"pcieRoots":{"pci0000:10":0},"rails":{"a":1}}'

    assert device_zones.decode(text) == PCIZones(roots={"pci0000:10": 0})


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version":2}', '{"version":1,"pcieRoots":{"a":"b"}}', "\ud800", None]
)
def test_what_is_malformed_is_named_and_left_out(text: str) -> None:
    document = nrt.encode(reading(PCIZones()))
    document["metadata"]["annotations"] = {device_zones.ANNOTATION: text}

    read = nrt.decode(document)
    assert read.pci_zones is None
    assert bool(read.problems) is (text is not None)
    if isinstance(text, str):
        with pytest.raises(errors.ParseError):
            device_zones.decode(text)
