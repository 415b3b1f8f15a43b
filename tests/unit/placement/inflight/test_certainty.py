"""Zones that are called certain are those that the kubelet gives, whatever has ended before."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.placement.inflight.certainty import ExpectedZones, expect_zones, zones_of
from tests.depth import scaled
from tests.unit.placement import build


def given_zones(state, each) -> int | None:
    """The zones that a kubelet in this state gives; None where it refuses the pod."""
    answer = placement.execute(state, each)
    if not answer.admitted:
        return None
    return zones_of(answer.holdings.values(), state.topology)


@settings(max_examples=scaled(300))
@given(used=build.used_nodes(longest=5), each=build.pods("new"), data=st.data())
def test_certain_zones_hold_whatever_has_ended(used, each, data) -> None:
    state, active = used
    expected = expect_zones(state, each, endable=frozenset(active))
    if not expected.certain:
        return
    subsets = [gone for size in range(len(active) + 1) for gone in combinations(active, size)]
    gone = data.draw(st.sampled_from(subsets))

    ended = placement.settle(state, frozenset(active).difference(gone))

    assert given_zones(ended, each) == expected.zones


@settings(max_examples=scaled(150))
@given(state=build.nodes(), first=build.pods("first"), each=build.pods("new"))
def test_certain_zones_hold_after_pods_in_flight(state, first, each) -> None:
    expected = expect_zones(state, each, in_flight=[first])
    if not expected.certain:
        return
    before = placement.execute(state, first)

    assert before.admitted
    assert given_zones(before.state, each) == expected.zones


def test_eight_endable_pods_are_told_by_the_rule() -> None:
    """Two to the power of eight sets of endings are not tried one by one."""
    state = build.filled(
        build.node(build.topology(2, 1, 8, 2)), *(build.simple(f"p{n}", 2) for n in range(8))
    )
    endable = frozenset(f"p{n}" for n in range(8))

    assert expect_zones(state, build.simple("big", 14), endable=endable).certain is False
    small = build.simple("small", 2)
    assert expect_zones(state, small, endable=endable).certain is False
    roomy = build.node(build.topology(2, 1, 8, 2))
    assert expect_zones(roomy, small, endable=endable) == ExpectedZones(1, certain=True)
