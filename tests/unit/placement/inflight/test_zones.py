"""Pods followed zone by zone: the same answers as admissions by prediction give."""

import dataclasses
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rte.placement.inflight.orders import Orders, StepBudget
from rte.placement.inflight.zones import ZoneWalk, is_ample
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, pool, simple


def walk_of(state, pods, steps=1_000):
    return ZoneWalk(state, pods, StepBudget(steps))


@settings(max_examples=scaled(120), deadline=None)
@given(used=build.used_nodes(), pods=st.lists(build.pods(), min_size=1, max_size=3))
def test_a_walk_says_what_all_orders_say(used, pods):
    state, _ = used
    pods = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(pods)]
    orders = Orders([state], pods, StepBudget(20_000))
    if any(orders.refusal((kind,)) for kind in range(len(pods))):
        return
    bundle = tuple(range(len(pods)))
    told = walk_of(state, pods).admits(bundle)
    if told is not None:
        assert told == (orders.refusal(bundle) is None)


def test_what_one_order_spoils_is_not_admitted():
    # 3 CPUs beside 4 leave room for 8; 4 beside 3 do as well; 8 and then both do not.
    walk = walk_of(build.node(), [simple("a", 5), simple("b", 4), simple("c", 8)])
    assert walk.admits((0, 1))
    assert walk.admits((1, 2))
    assert walk.admits((0, 1, 2)) is False


def test_devices_without_a_zone_and_spreading_pods_are_left_to_predictions():
    loose = build.node(devices={GPU: pool(None, None)})
    assert walk_of(loose, [simple("a", gpus=2)]).admits((0, 0)) is None
    spread = build.node(policy="best-effort")
    assert walk_of(spread, [simple("a", 5)]).admits((0, 0)) is True
    assert walk_of(spread, [simple("a", 5)]).admits((0, 0, 0)) is None
    assert walk_of(build.node(policy="none"), [simple("a", 1)]).admits((0,)) is None


@settings(max_examples=scaled(300), deadline=None)
@given(
    units=st.lists(
        st.sampled_from([(1, 1), (4, 4), (6, 0), (0, 6), (3, 0), (0, 3)]), min_size=1, max_size=5
    ),
    room=st.lists(st.tuples(st.integers(4, 9), st.integers(4, 9)), min_size=1, max_size=3),
)
def test_where_zones_are_ample_nobody_can_fill_up_all_of_them(units, room):
    if not is_ample(units, room):
        return
    for index, unit in enumerate(units):
        others = units[:index] + units[index + 1 :]
        for places in itertools.product(range(len(room)), repeat=len(others)):
            left = [list(zone) for zone in room]
            for place, other in zip(places, others, strict=True):
                left[place] = [a - b for a, b in zip(left[place], other, strict=True)]
            assert any(all(a >= b for a, b in zip(zone, unit, strict=True) if b) for zone in left)


def test_zones_are_ample_when_all_others_together_cannot_fill_them_up():
    # For one of 4 CPUs, 7 must be taken in both zones.
    assert is_ample([(4,)] * 4, [(10,), (10,)])
    assert not is_ample([(4,)] * 5, [(10,), (10,)])
    # One zone is filled up by CPUs, the other by memory.
    assert not is_ample([(4, 4), (7, 0), (0, 7)], [(10, 10), (10, 10)])
    assert is_ample([(4, 4), (6, 0), (0, 6)], [(10, 10), (10, 10)])


def test_nobody_is_in_the_way_of_a_unit_with_what_it_does_not_ask_for() -> None:
    assert is_ample([(4, 0), (4, 1), (4, 1)], [(10, 1)] * 3)


def test_a_resource_fills_up_only_as_many_zones_as_it_suffices_for() -> None:
    # CPUs fill up one zone and memory another; the rest of both is not enough for the third.
    assert is_ample([(4, 4), (6, 0), (6, 0), (0, 6), (0, 6)], [(10, 10)] * 3)
