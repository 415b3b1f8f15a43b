"""Devices: hints, the order of picks, and picks that nobody can know."""

import dataclasses

import pytest

from rte import placement
from rte.placement.kubelet import devices, outcome
from rte.placement.kubelet.devices import Choices
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool, simple

ZONES = (0, 1)


def hints(devs, count, *, in_use=0, reusable=0, narrow=False, zones=ZONES):
    available = devs.healthy & ~in_use
    return devices.hints(devs, zones, available, reusable, count, device_zones_only=narrow)


def node(*zones, policy="single-numa-node", version=build.VERSION, unhealthy="", **changes):
    devs = {GPU: pool(*zones, unhealthy=unhealthy, complete=changes.pop("complete", True))}
    return build.node(policy=policy, devices=devs, version=version, **changes)


def held(answer, name="main"):
    return answer.holdings[name].devices[GPU]


def test_devices_without_any_zone_have_no_opinion():
    assert hints(pool(None, ()), 1) is None


def test_devices_are_offered_where_any_of_their_zones_is():
    assert hints(pool(0, 0, 1), 1) == [(0b01, True), (0b10, True), (0b11, False)]
    assert hints(pool(0, 0, 1), 2) == [(0b01, True), (0b11, False)]
    assert hints(pool((0, 1), 1), 2) == [(0b10, True), (0b11, False)]


def test_used_and_unhealthy_devices_count_for_the_preferred_width_only():
    assert hints(pool(0, 0, 1, unhealthy="0"), 2) == [(0b11, False)]
    assert hints(pool(0, 0, 1), 2, in_use=0b001) == [(0b11, False)]


def test_too_few_devices_cannot_be_satisfied():
    assert hints(pool(0, 1), 3) == []
    assert hints(pool(0, 1), 2, in_use=0b01) == []
    # Enough devices, but too few of them have zones.
    assert hints(pool(0, None), 2) == []


def test_reusable_devices_must_be_part_of_a_hint_unless_they_report_no_topology():
    assert hints(pool(0, 0, 1), 1, in_use=0b100, reusable=0b100) == [(0b10, True), (0b11, False)]
    assert hints(pool(None, 0), 1, in_use=1, reusable=1) == [(0b01, True), (0b11, False)]
    assert hints(pool((), 0), 1, in_use=1, reusable=1) == []


def test_since_1_36_hints_combine_only_zones_that_have_devices():
    assert hints(pool(1), 1, narrow=True) == [(0b10, True)]
    assert hints(pool(7), 1, narrow=True) == []


def test_unseen_unhealthy_devices_make_wide_hints_uncertain():
    few = pool(0, 1, complete=False)
    assert hints(few, 1)
    with pytest.raises(outcome.Unpredictable):
        hints(few, 2)
    answer = placement.admit(node(0, 1, policy="restricted", complete=False), simple("a", gpus=2))
    assert (answer.verdict, answer.reason) == ("uncertain", outcome.DEVICES_INCOMPLETE)


def test_aligned_devices_come_first_then_other_zones_then_none():
    state = node(1, None, 0, 1, policy="restricted")
    assert held(placement.admit(state, simple("a", gpus=1))) == 0b0100
    none = node(1, None, 0, 1, policy="none")
    assert held(placement.admit(none, simple("a", gpus=1))) == 0b0001
    best = node(1, None, 0, 1, policy="best-effort")
    answer = placement.admit(best, simple("a", cpus=2, gpus=4))
    assert held(answer) == 0b1111


def test_resources_without_a_plugin_are_none_of_the_kubelets_business():
    assert placement.admit(build.node(), simple("a", gpus=8)).admitted


def test_no_healthy_device_at_all():
    answer = placement.admit(node(0, unhealthy="0", policy="none"), simple("a", gpus=1))
    assert answer.failed_by == "devices"
    assert answer.message == (
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
        f"{GPU}, which is unexpected"
    )


def test_too_few_devices_are_refused_by_the_merge_or_the_allocation():
    assert placement.admit(node(0), simple("a", gpus=2)).reason == "TopologyAffinityError"
    answer = placement.admit(node(0, policy="none"), simple("a", gpus=2))
    assert answer.message == (
        "Allocate failed due to requested number of devices unavailable for "
        f"{GPU}. Requested: 2, Available: 1, which is unexpected"
    )


def test_init_containers_devices_are_reused_first():
    life = pod(
        "a",
        container("init", "init", cpus=1, memory=1, gpus=2),
        container("side", "sidecar", cpus=1, memory=1, gpus=1),
        container("main", cpus=1, memory=1, gpus=1),
    )
    answer = placement.admit(node(0, 0, 0), life)
    assert held(answer, "init") == 0b011
    assert held(answer, "side") | held(answer, "main") == 0b011
    assert placement.admit(answer.state, simple("b", gpus=2)).reason == "TopologyAffinityError"
    after = placement.remove(answer.state, "a")
    assert held(placement.admit(after, simple("b", gpus=3))) == 0b111


def test_pod_scope_counts_devices_at_their_peak():
    life = pod(
        "a",
        container("side", "sidecar", cpus=1, memory=1, gpus=1),
        container("init", "init", cpus=1, memory=1, gpus=2),
        container("main", cpus=1, memory=1, gpus=1),
    )
    assert placement.admit(node(0, 0, 0, topology_scope="pod"), life).admitted
    assert not placement.admit(node(0, 0, 1, topology_scope="pod"), life).admitted


def test_zero_devices_are_no_devices():
    none = dataclasses.replace(container(cpus=1, memory=1), limits={GPU: 0})
    answer = placement.admit(node(0), pod("a", none))
    assert answer.admitted
    assert "main" in answer.holdings
    assert not answer.holdings["main"].devices


# Random picks


def test_equal_zone_sets_are_interchangeable():
    answer = placement.admit(node(0, 0, 1), simple("a", gpus=1))
    assert answer.exact
    assert placement.possible_states(node(0, 0, 1), simple("a", gpus=1)) == (answer.state,)


def test_a_pick_between_zone_sets_leaves_several_states():
    state = node((0,), (0, 1), 1)
    answer = placement.admit(state, simple("a", gpus=1))
    assert answer.admitted
    assert not answer.exact
    states = placement.possible_states(state, simple("a", gpus=1))
    assert [one.holdings["a"]["main"].devices[GPU] for one in states] == [0b001, 0b010]


def test_a_pick_that_decides_about_a_later_container_is_uncertain():
    # Both devices are aligned with zone 0; if the shared one goes first, the other is left.
    state = node(0, (0, 1), 1, 1, policy="single-numa-node")
    two = pod(
        "a", container("x", cpus=1, memory=1, gpus=1), container("y", cpus=1, memory=1, gpus=3)
    )
    answer = placement.admit(state, two)
    assert (answer.verdict, answer.reason) == ("uncertain", outcome.DEVICE_CHOICE)
    assert placement.execute(state, two).admitted
    assert placement.possible_states(state, two) is None


def test_a_pick_that_cannot_matter_is_certain():
    state = node(0, (0, 1), 0, (0, 1))
    two = pod(
        "a", container("x", cpus=1, memory=1, gpus=1), container("y", cpus=1, memory=1, gpus=1)
    )
    assert placement.admit(state, two).admitted
    assert len(placement.possible_states(state, two)) == 4


def test_too_many_picks_are_not_followed():
    state = node(*[0, (0, 1), (0, 2), (0, 3)] * 8, policy="none")
    crowd = pod("a", *(container(f"c{n}", cpus=0.5, memory=1, gpus=4) for n in range(4)))
    assert placement.admit(state, crowd).reason == outcome.DEVICE_CHOICE
    assert placement.possible_states(state, crowd) is None


def test_scripts_walk_through_every_option():
    choices = Choices((1,))
    choices.options = [2, 2]
    assert choices.next_script() == (1, 1)
    choices = Choices((1, 1))
    choices.options = [2, 2]
    assert choices.next_script() is None
