"""Families of zone sets are what the kubelet's walk over all combinations finds."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.model import bits
from rte.model.node import CPUInfo, MemoryAmounts, ZoneMemory
from rte.placement.kubelet import devices, memory, merge, outcome
from rte.placement.kubelet.cpu import pickers, static
from rte.placement.kubelet.rules import CPUOptions
from tests.unit.placement import build

FAMILIES = st.integers(0, (1 << 16) - 1)


def walk(zones):
    """IterateBitMasks."""
    for width in range(1, len(zones) + 1):
        for chosen in itertools.combinations(sorted(zones), width):
            yield bits.of(chosen), chosen


def preferred(offered, fewest):
    return [(mask, mask.bit_count() == fewest) for mask in offered]


def by_walking_cpus(machine, available, reusable, count, *, by_socket):
    """generateCPUTopologyHints."""
    zones = [zone.id for zone in machine.zones]
    home = {cpu: zone.id for zone in machine.zones for cpu in bits.members(zone.cpus)}
    fewest, offered = len(zones), []
    for mask, chosen in walk(zones):
        if machine.cpus_in(mask).bit_count() >= count:
            fewest = min(fewest, len(chosen))
        if any(home[cpu] not in chosen for cpu in bits.members(reusable)):
            continue
        free = sum(home[cpu] in chosen for cpu in bits.members(available))
        if free + reusable.bit_count() >= count:
            offered.append(mask)
    each = len(zones) // machine.reported_sockets
    if not by_socket or not each:
        return preferred(offered, fewest)
    return [
        (
            mask,
            mask.bit_count() == fewest
            or len(machine.sockets_with(machine.cpus_in(mask))) == -(-fewest // each),
        )
        for mask in offered
    ]


@given(
    homes=st.lists(st.sampled_from([0, 1, 3, 4, 6]), min_size=1, max_size=14),
    sockets=st.integers(1, 3),
    draw=st.data(),
)
def test_hints_for_cpus_are_those_of_the_walk(homes, sockets, draw):
    everything = (1 << len(homes)) - 1
    machine = pickers.Layout(
        tuple(
            CPUInfo(cpu, cpu, draw.draw(st.integers(0, sockets - 1)), zone, zone)
            for cpu, zone in enumerate(homes)
        ),
        sockets,
    )
    available = draw.draw(st.integers(0, everything))
    reusable = draw.draw(st.integers(0, everything)) & draw.draw(st.integers(0, everything))
    reusable &= ~available
    count, by_socket = draw.draw(st.integers(1, len(homes) + 1)), draw.draw(st.booleans())
    found = static.hints(machine, CPUOptions(align_by_socket=by_socket), available, reusable, count)
    assert list(found) == by_walking_cpus(machine, available, reusable, count, by_socket=by_socket)


def by_walking_memory(rows, wanted, reusable):
    """calculateHints."""
    fewest, offered = len(rows), []
    for mask, chosen in walk(rows):
        parts = [rows[zone] for zone in chosen]
        if any(
            sum(row.amounts[name].allocatable for row in parts) < amount
            for name, amount in wanted.items()
        ):
            continue
        fewest = min(fewest, len(chosen))
        if len(chosen) == 1 and parts[0].group.bit_count() > 1:
            continue
        if len(chosen) > 1 and any(
            row.assignments > 0 and (row.group.bit_count() == 1 or row.group != mask)
            for row in parts
        ):
            continue
        if all(
            sum(row.amounts[name].free for row in parts) + reusable.get((mask, name), 0) >= amount
            for name, amount in wanted.items()
        ):
            offered.append(mask)
    return preferred(offered, fewest)


AMOUNTS = st.builds(
    lambda size, free: MemoryAmounts(size, 0, size, size - min(size, free), min(size, free)),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(zones=st.sets(st.integers(0, 6), min_size=1, max_size=5), draw=st.data())
def test_hints_for_memory_are_those_of_the_walk(zones, draw):
    mask = st.sets(st.sampled_from(sorted(zones)), min_size=1).map(bits.of)
    rows = {
        zone: ZoneMemory(
            draw.draw(st.integers(0, 2)),
            draw.draw(st.one_of(st.just(1 << zone), mask)) | 1 << zone,
            {name: draw.draw(AMOUNTS) for name in ("memory", "hugepages-2Mi")},
        )
        for zone in sorted(zones)
    }
    names = st.sampled_from(["memory", "hugepages-2Mi"])
    wanted = draw.draw(st.dictionaries(names, st.integers(0, 20), min_size=1))
    reusable = draw.draw(st.dictionaries(st.tuples(mask, names), st.integers(0, 9)))
    found = memory.hints(rows, wanted, reusable)
    assert list(found) == by_walking_memory(rows, wanted, reusable)
    ranked = [(not liked, each.bit_count(), each) for each, liked in found]
    best = min(ranked, default=None)
    assert found.best() == (best and (best[2], not best[0]))
    having = draw.draw(mask)
    best = min((each for each in ranked if each[2] & having == having), default=None)
    assert found.best(having) == (best and (best[2], not best[0]))


def by_walking_devices(pool, zones, available, reusable, count):
    """generateDeviceTopologyHints."""
    fewest, offered = len(zones), []
    for mask, chosen in walk(zones):
        if sum(bool((each or 0) & mask) for each in pool.zones) >= count:
            fewest = min(fewest, len(chosen))
        again = [pool.zones[each] for each in bits.members(reusable)]
        again = [each for each in again if each is not None]
        if not all(each & mask for each in again):
            continue
        free = sum(bool((pool.zones[each] or 0) & mask) for each in bits.members(available))
        if len(again) + free >= count:
            offered.append(mask)
    return preferred(offered, fewest)


@given(
    homes=st.lists(
        st.one_of(st.none(), st.sets(st.integers(0, 4), max_size=3).map(tuple)), max_size=8
    ),
    narrow=st.booleans(),
    draw=st.data(),
)
def test_hints_for_devices_are_those_of_the_walk(homes, narrow, draw):
    pool = build.pool(*homes)
    everything = (1 << len(homes)) - 1
    available = draw.draw(st.integers(0, everything))
    reusable = draw.draw(st.integers(0, everything)) & ~available
    count = draw.draw(st.integers(1, len(homes) + 1))
    found = devices.hints(pool, (0, 1, 2, 4), available, reusable, count, device_zones_only=narrow)
    if not devices.has_zones(pool):
        assert found is None
        return
    if (available | reusable).bit_count() < count:
        assert found == []
        return
    zones = (0, 1, 2, 4)
    if narrow:
        zones = tuple(zone for zone in zones if any((each or 0) >> zone & 1 for each in pool.zones))
    assert found is not None
    assert list(found) == by_walking_devices(
        pool, zones or (0, 1, 2, 4), available, reusable, count
    )


@given(values=st.lists(st.integers(0, 50), max_size=11), least=st.integers(-5, 200))
def test_sums_of_more_zones_than_are_sorted_at_once(values, least):
    family = merge.at_least(tuple(values), least)
    for index in range(1 << len(values)):
        total = sum(value for place, value in enumerate(values) if index >> place & 1)
        assert (family >> index & 1) == (total >= least)


@given(some=FAMILIES, others=FAMILIES)
def test_a_meeting_has_the_intersection_of_every_pair(some, others):
    pairs = itertools.product(bits.members(some), bits.members(others))
    assert merge.meet(4, some, others) == bits.of(a & b for a, b in pairs)


@given(among=st.sets(st.integers(0, 9), min_size=1, max_size=6), draw=st.data())
def test_a_family_is_the_same_among_more_zones(among, draw):
    every = tuple(sorted(among))
    zones = tuple(sorted(draw.draw(st.sets(st.sampled_from(every)))))
    family = draw.draw(st.integers(0, (1 << (1 << len(zones))) - 1))
    wide = merge.spread(family, zones, every)
    assert {merge.zones_at(every, index) for index in bits.members(wide)} == {
        merge.zones_at(zones, index) for index in bits.members(family)
    }


@pytest.mark.parametrize("count", range(6))
def test_families_by_width_by_members_and_by_what_they_touch(count):
    for places in range(1 << count):
        every = range(1 << count)
        assert merge.containing(count, places) == bits.of(
            index for index in every if index & places == places
        )
        assert merge.within(count, places) == bits.of(
            index for index in every if not index & ~places
        )
        assert merge.touching(count, places) == bits.of(index for index in every if index & places)
    for width, family in enumerate(merge.by_width(count)):
        assert family == bits.of(i for i in range(1 << count) if i.bit_count() == width)


def test_hints_read_like_a_list():
    hints = merge.Hints((0, 2), 0b1111, 0b0110)
    assert hints == [(0b001, True), (0b100, True), (0b101, False)]
    assert hints[0] == (0b001, True)
    assert hints[1:] == [(0b100, True), (0b101, False)]
    assert repr(hints) == "[(1, True), (4, True), (5, False)]"
    assert hash(hints) == hash(merge.Hints((0, 2), 0b1110, 0b0110))


def test_the_bound_is_told():
    merge.check(range(merge.MAX_ZONES))
    with pytest.raises(outcome.Unpredictable, match="17 NUMA zones have too many combinations"):
        merge.check(range(merge.MAX_ZONES + 1))
