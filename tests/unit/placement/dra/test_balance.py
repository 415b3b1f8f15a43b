"""Devices and CPUs that run out together: nodes for a pod, and pods for a node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as some

from rte.placement.dra import balance
from rte.placement.dra.balance import Asking, ZoneRoom
from rte.placement.dra.zones import Places
from tests.unit.placement import build as nodes
from tests.unit.placement.dra.build import allocation, claim_of, supply_of
from tests.unit.placement.dra.test_alignment import EIGHT

if TYPE_CHECKING:
    from rte.model.node import NodeState
    from rte.placement.dra import Supply


def score_of(state: NodeState, supply: Supply, places: Places) -> int:
    return balance.score(
        balance.rooms(state, supply, places), lowest_first=balance.fills_lowest_first(state)
    )


def test_the_score_falls_where_devices_are_left_without_cpus() -> None:
    state = nodes.node(nodes.topology(2, 1, 4, 2), "none")
    places = Places.of(state.topology, None)
    supply = supply_of(EIGHT)
    full = score_of(state, supply, places)
    zone_1 = state.topology.zone_cpus[1]
    spent = replace(state, shared=state.shared & ~zone_1)

    assert full == 100
    assert score_of(spent, supply, places) == 50
    held = claim_of(name="other", status=allocation(*(f"gpu-{n}" for n in range(4, 8))))
    assert score_of(spent, supply_of(EIGHT, held=(held,)), places) == 100
    assert score_of(state, supply_of(), places) == 100


def test_the_score_rises_when_a_lower_zone_is_closed_to_pods() -> None:
    """While the kubelet chooses zone 0, nobody gets the devices of zone 1."""
    state = nodes.node(nodes.topology(2, 1, 4, 2), "single-numa-node")
    places = Places.of(state.topology, None)
    held = claim_of(name="other", status=allocation(*(f"gpu-{n}" for n in range(4))))
    supply = supply_of(EIGHT, held=(held,))
    zone_0 = state.topology.zone_cpus[0]
    closed = replace(state, shared=state.shared & ~zone_0)

    assert score_of(closed, supply, places) == 100
    assert score_of(state, supply, places) < 60


def two_zones(free_0: int, free_1: int, devices_0: int, devices_1: int) -> dict[int, ZoneRoom]:
    return {
        0: ZoneRoom(cpus=32, free_cpus=free_0, devices=4, free_devices=devices_0),
        1: ZoneRoom(cpus=32, free_cpus=free_1, devices=4, free_devices=devices_1),
    }


SMALL = Asking(cpus=4, devices=4, certain=False)
LARGE = Asking(cpus=16, devices=1, certain=False)


def test_the_pod_that_closes_the_lower_zone_to_others_goes_there_first() -> None:
    """With it in zone 0 only 2 CPUs are left there, so the small one reaches zone 1."""
    waiting = (SMALL, LARGE)
    large = balance.precedence(two_zones(2, 32, 2, 4), 0, LARGE, waiting)
    small = balance.precedence(two_zones(14, 32, 0, 4), 0, SMALL, waiting)
    assert large > small


def test_a_pod_that_goes_nowhere_else_goes_to_the_lowest_zone_before_one_that_could() -> None:
    zones = two_zones(8, 0, 0, 0)
    bound = replace(SMALL, certain=True)
    assert balance.precedence(zones, 0, bound, ()) > balance.precedence(zones, 0, SMALL, ())


def test_in_a_higher_zone_many_devices_with_few_cpus_come_first() -> None:
    small = balance.precedence(two_zones(2, 28, 0, 0), 1, SMALL, ())
    large = balance.precedence(two_zones(2, 16, 0, 3), 1, LARGE, ())
    assert small > large


@given(
    some.tuples(
        *(some.integers(0, 32) for _ in range(2)), *(some.integers(0, 4) for _ in range(2))
    ),
    some.sampled_from([0, 1]),
    some.lists(
        some.builds(
            Asking,
            cpus=some.integers(0, 40),
            devices=some.integers(0, 6),
            certain=some.booleans(),
            pods=some.integers(1, 3),
        ),
        min_size=1,
    ),
)
def test_no_pod_opens_more_devices_than_are_free_in_higher_zones(
    free: tuple[int, int, int, int], zone: int, asking: list[Asking]
) -> None:
    zones = two_zones(*free)
    pod = asking[0]
    own = balance.precedence(zones, zone, pod, ())
    opened = balance.precedence(zones, zone, pod, asking) - own
    assert 0 <= opened <= (free[3] if zone == 0 else 0) + 1e-9


def test_pods_alike_count_as_often_as_they_wait() -> None:
    zones = two_zones(3, 32, 0, 4)
    thrice = balance.precedence(zones, 0, LARGE, (SMALL, replace(LARGE, cpus=2, pods=3)))
    single = balance.precedence(
        zones, 0, LARGE, (SMALL, *(replace(LARGE, cpus=2) for _ in range(3)))
    )
    assert thrice == single
