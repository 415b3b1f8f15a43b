from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rte.model.machine import PCIZones
from rte.sysfs.pci import summarize


def test_a_root_tells_the_zone_of_its_functions() -> None:
    zones = summarize(
        [
            ("0000:17:00.0", "pci0000:16", 0),
            ("0000:18:00.0", "pci0000:16", 0),
            ("0000:18:00.1", "pci0000:16", None),
            ("0000:97:00.0", "pci0000:96", 1),
        ]
    )

    assert zones == PCIZones(roots={"pci0000:16": 0, "pci0000:96": 1})
    assert zones.of_function("0000:18:00.1") == 0
    assert zones.of_function("0000:ff:1f.7") == 1
    assert zones.of_root("pci0000:96") == 1


def test_a_root_with_several_zones_tells_none_and_its_functions_do() -> None:
    zones = summarize(
        [
            ("0000:01:00.0", "pci0000:00", 0),
            ("0000:21:00.0", "pci0000:20", 0),
            ("0000:22:00.0", "pci0000:20", 1),
            ("0000:23:00.0", "pci0000:20", None),
        ]
    )

    assert zones.of_root("pci0000:20") is None
    assert zones.of_function("0000:22:00.0") == 1
    # Not the zone of the root before it.
    assert zones.of_function("0000:23:00.0") is None


def test_a_domain_of_its_own_is_told_by_function() -> None:
    zones = summarize([("10000:01:00.0", "pci0000:20", 1), ("0000:21:00.5", "pci0000:20", 1)])

    assert zones.roots == {"pci0000:20": 1}
    assert zones.functions == {"10000:01:00.0": 1}


def test_nothing_is_told_of_what_is_not_there() -> None:
    zones = PCIZones(roots={"pci0000:40": 1})

    assert zones.of_function("0000:17:00.0") is None
    assert zones.of_function("0001:47:00.0") is None
    assert zones.of_function("nonsense") is None
    assert zones.of_root("pci0000:17") is None


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.integers(0, 3) | st.none()), unique_by=lambda row: row[0]
    ),
    st.sets(st.integers(0, 15), min_size=1),
)
def test_every_known_function_keeps_its_zone(rows, starts) -> None:
    """Roots have buses of their own, each from its number up."""
    roots = sorted(start * 16 for start in starts)
    found = [
        (f"0000:{bus:02x}:00.0", f"pci0000:{max(r for r in roots if r <= bus):02x}", zone)
        for bus, zone in rows
        if bus >= roots[0]
    ]

    zones = summarize(found)

    for address, root, zone in found:
        answer = zones.of_function(address)
        siblings = {z for _, r, z in found if r == root and z is not None}
        assert answer == zone or (zone is None and siblings == {answer})
