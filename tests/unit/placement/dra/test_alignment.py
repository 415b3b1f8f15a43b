"""Devices beside CPUs: where they are, which are chosen, and what is said afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rte.model.machine import PCIZones
from rte.placement import admit
from rte.placement.dra import Alignment, AlignmentWish, Reason, align, decode, truth
from rte.placement.dra.zones import Places
from rte.placement.inflight.certainty import ExpectedZones, expect_zones
from tests.unit.placement import build as nodes
from tests.unit.placement.dra.build import (
    GPU,
    NODE,
    allocation,
    claim_of,
    devices_of,
    gpu,
    request,
    slice_of,
    supply_of,
)

EIGHT = slice_of([gpu(f"gpu-{n}", zone=n // 4) for n in range(8)])
PLACES = Places({0: 0x0F, 1: 0xF0, 2: 0})
ZONE_1 = ExpectedZones(0b10, certain=True)


def where(pci: PCIZones | None = None, driver: str = GPU, **attributes: object) -> int | str:
    device = decode.device({"name": "d", "attributes": attributes})
    location = replace(PLACES, pci=pci).locate(driver, device)
    return location.missing if location.zone is None else location.zone


NUMA = "resource.kubernetes.io/numaNode"
ROOT = "resource.kubernetes.io/pcieRoot"
BUS = "resource.kubernetes.io/pciBusID"
PCI = PCIZones(roots={"pci0000:10": 0, "pci0000:90": 1})


def test_the_driver_tells_the_zone() -> None:
    assert where(**{NUMA: {"int": 1}}) == 1
    assert where(**{NUMA: {"ints": [1, 0]}}) == 1
    assert where(**{"dra.net/numaNode": {"int": 0}}) == 0
    assert where(driver="dra.cpu", numaNodeID={"int": 1}) == 1
    assert where(PCI, **{NUMA: {"int": 0}, ROOT: {"string": "pci0000:90"}}) == 0


def test_the_report_tells_where_the_driver_does_not() -> None:
    assert where(PCI, **{ROOT: {"string": "pci0000:90"}}) == 1
    assert where(PCI, **{BUS: {"string": "0000:11:00.0"}}) == 0
    assert where(PCI, **{NUMA: {"int": 7}, BUS: {"string": "0000:91:00.0"}}) == 1


def test_a_zone_of_memory_alone_is_where_the_device_is_only_if_nothing_else_is_known() -> None:
    gpu_memory = {NUMA: {"int": 2}, ROOT: {"string": "pci0000:90"}}

    assert where(PCI, **gpu_memory) == 1
    assert "zone 2 has no CPUs" in where(**gpu_memory)


def test_what_is_not_known_is_said() -> None:
    assert "publishes no resource.kubernetes.io/numaNode" in where(PCI)
    assert "does not tell the zone of its pciBusID" in where(**{BUS: {"string": "0000:11:00.0"}})
    assert "does not tell the zone of its pcieRoot" in where(
        PCI, **{ROOT: {"string": "pci0001:10"}}
    )


def aligned(
    expected: ExpectedZones, wish: AlignmentWish, count: int = 2, *held: str, slices=(EIGHT,)
):
    other = claim_of(name="other", status=allocation(*held))
    return align(
        NODE,
        [claim_of(request(count=count))],
        supply_of(*slices, held=(other,)),
        expected,
        PLACES,
        wish,
    )


def test_devices_of_the_zone_come_first() -> None:
    answer = aligned(ZONE_1, AlignmentWish.PREFERRED)

    assert devices_of(answer.verdict) == ["gpu-4", "gpu-5"]
    assert answer.alignment is Alignment.ALIGNED
    assert not answer.reason


def test_preferred_takes_what_there_is_and_required_does_not() -> None:
    taken = ("gpu-4", "gpu-5", "gpu-6")
    some = aligned(ZONE_1, AlignmentWish.PREFERRED, 2, *taken)
    none = aligned(ZONE_1, AlignmentWish.REQUIRED, 2, *taken)

    assert devices_of(some.verdict) == ["gpu-7", "gpu-0"]
    assert some.alignment is Alignment.ACROSS
    assert "gpu-0 is in zone 0, CPUs and memory in zone 1" in some.reason
    assert none.verdict.reason is Reason.NOT_ALIGNED
    assert not none.verdict.reason.is_fatal
    assert "zone 1" in none.reason


def test_required_waits_for_certainty() -> None:
    answer = aligned(replace(ZONE_1, certain=False), AlignmentWish.REQUIRED)

    assert answer.verdict.reason is Reason.NOT_ALIGNED
    assert "not certain yet" in answer.reason
    alone = aligned(ExpectedZones(0, certain=True), AlignmentWish.REQUIRED)
    assert "no CPUs or memory of its own" in alone.reason


def test_an_unknown_zone_is_not_in_the_zone() -> None:
    mystery = slice_of([gpu("mystery")], name="x", pool="x")

    refused = aligned(ZONE_1, AlignmentWish.REQUIRED, 1, slices=(mystery,))
    assert refused.verdict.reason is Reason.NOT_ALIGNED
    assert f"is not known: the driver publishes no {NUMA}" in refused.reason
    answer = aligned(ZONE_1, AlignmentWish.PREFERRED, 5, slices=(EIGHT, mystery))
    assert devices_of(answer.verdict)[4] == "mystery"
    assert answer.alignment is Alignment.UNKNOWN
    assert "mystery" in answer.reason


def test_without_a_wish_the_devices_are_those_of_kubernetes() -> None:
    answer = aligned(ZONE_1, AlignmentWish.NONE)

    assert devices_of(answer.verdict) == ["gpu-0", "gpu-1"]
    assert answer.alignment is Alignment.ACROSS


def test_a_claim_that_was_allocated_before_counts() -> None:
    before = claim_of(request(), name="before", status=allocation("gpu-0"))
    supply = supply_of(EIGHT, held=(before,))
    claims = [before, claim_of(request())]

    answer = align(NODE, claims, supply, ZONE_1, PLACES, AlignmentWish.PREFERRED)
    assert answer.alignment is Alignment.ACROSS
    answer = align(NODE, claims, supply, ZONE_1, PLACES, AlignmentWish.REQUIRED)
    assert answer.verdict.reason is Reason.NOT_ALIGNED


def test_devices_that_are_only_watched_may_be_anywhere() -> None:
    watch = claim_of(request("watch", allocationMode="All", adminAccess=True), request("use"))

    answer = align(NODE, [watch], supply_of(EIGHT), ZONE_1, PLACES, AlignmentWish.REQUIRED)

    assert len(devices_of(answer.verdict)) == 9
    assert answer.alignment is Alignment.ALIGNED


def test_the_truth_about_running_pods() -> None:
    state = nodes.node(nodes.topology(2, 1, 4, 2))
    pod = nodes.simple("p")
    state = admit(state, pod).state
    users = [{"resource": "pods", "name": "p", "uid": pod.uid}]

    def seen(*devices: str) -> truth.PodTruth:
        status = {**allocation(*devices), "reservedFor": users}
        claims = [
            claim_of(request(), status=status),
            claim_of(request(), name="gone", status={**allocation("gpu-7"), "reservedFor": []}),
        ]
        (found,) = truth.observe(state, None, claims, supply_of(EIGHT))
        return found

    assert seen("gpu-0").alignment is Alignment.ALIGNED
    assert seen("gpu-0", "gpu-4").alignment is Alignment.ACROSS
    unknown = seen("gpu-99")
    assert unknown.alignment is Alignment.UNKNOWN
    assert "no slice of the node has it" in unknown.reason
    assert truth.count([seen("gpu-0"), unknown]) == {
        Alignment.ALIGNED: 1,
        Alignment.ACROSS: 0,
        Alignment.UNKNOWN: 1,
    }


def test_a_lower_zone_that_may_become_free_makes_the_zone_uncertain() -> None:
    state = nodes.node(nodes.topology(2, 1, 4, 2))
    first = nodes.simple("first", 6)
    second = nodes.simple("second", 4)
    state = admit(state, first).state

    assert expect_zones(state, second) == ExpectedZones(0b10, certain=True)
    assert expect_zones(state, second, endable={"first"}) == ExpectedZones(0b10, certain=False)
    small = nodes.simple("small", 1)
    assert expect_zones(state, small, endable={"first"}) == ExpectedZones(0b1, certain=True)


def test_pods_in_flight_come_first() -> None:
    state = nodes.node(nodes.topology(2, 1, 4, 2))
    first = nodes.simple("first", 6)
    second = nodes.simple("second", 4)

    assert expect_zones(state, second).zones == 0b1
    assert expect_zones(state, second, in_flight=[first]) == ExpectedZones(0b10, certain=True)


@pytest.mark.parametrize("cpus", [17, 40])
def test_a_pod_that_is_refused_gets_no_zones(cpus: int) -> None:
    state = nodes.node(nodes.topology(2, 1, 4, 2))

    assert expect_zones(state, nodes.simple("p", cpus)) == ExpectedZones(0, certain=False)
