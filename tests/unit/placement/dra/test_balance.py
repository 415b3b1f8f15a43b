"""Devices and CPUs of a node that run out together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.placement.dra import balance
from rte.placement.dra.zones import Places
from tests.unit.placement import build as nodes
from tests.unit.placement.dra.build import allocation, claim_of, supply_of
from tests.unit.placement.dra.test_alignment import EIGHT

if TYPE_CHECKING:
    from rte.model.node import NodeState
    from rte.placement.dra import DeviceSupply


def score_of(state: NodeState, supply: DeviceSupply, places: Places) -> int:
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
