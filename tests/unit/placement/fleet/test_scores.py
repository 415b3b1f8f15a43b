"""Scores: which of the places where a pod fits is best."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import placement
from rte.model import quantity
from rte.model.node import Topology
from rte.model.pod import QOS
from rte.placement.fleet import scores
from rte.placement.kubelet.demand import free_of, times
from tests.unit.placement.build import (
    GPU,
    container,
    filled,
    node,
    nodes,
    pod,
    pods,
    pool,
    simple,
    topology,
    used_nodes,
)

EMPTY = node()  # 2 zones x 8 CPUs, one CPU and 1 GiB of zone 0 reserved


def place(state, each):
    answer = placement.admit(state, each)
    assert answer.admitted
    return each, state, answer.state


def test_what_a_zone_can_give_leaves_out_what_is_reserved_and_held():
    state = filled(node(devices={GPU: pool(0, 1, (0, 1), None)}), simple("a", 2, 3, gpus=1))
    free = free_of(state)
    assert free.zones == {
        0: {"cpu": 5, GPU: 1, "memory": 12 << 30},
        1: {"cpu": 8, GPU: 2, "memory": 16 << 30},
    }
    assert free.devices == {GPU: 3}


@pytest.mark.parametrize(
    ("policy", "shape", "want"),
    [
        ("single-numa-node", simple("s", 4), 3),
        ("single-numa-node", simple("s", 8), 1),
        ("single-numa-node", simple("s", 9), 0),
        ("best-effort", simple("s", 9), 1),
        ("best-effort", simple("s", 5), 3),
        ("restricted", simple("s", 9), 1),
        ("restricted", simple("s", 8), 1),
        (
            "single-numa-node",
            pod("s", container("a", cpus=4, memory=1), container("b", cpus=4, memory=1)),
            1,
        ),
        (
            "restricted",
            pod("s", container("a", cpus=9, memory=1), container("b", cpus=2, memory=1)),
            1,
        ),
        ("single-numa-node", simple("s", 1, 15), 2),
        ("single-numa-node", pod("s", container(cpus=0.5), qos=QOS.BURSTABLE), scores.MAX_ROOM),
    ],
)
def test_room_counts_pods_of_a_shape(policy, shape, want):
    assert scores.room(node(policy=policy), shape) == want


def test_room_in_pod_scope_takes_the_pod_as_one():
    shape = pod("s", container("a", cpus=5, memory=1), container("b", cpus=5, memory=1))
    assert scores.room(node(topology_scope="container"), shape) == 1
    assert scores.room(node(topology_scope="pod"), shape) == 0


def test_room_is_bounded():
    shape = pod("s", container("a", cpus=1), container("b", cpus=1))
    huge = node(topology(sockets=1, cores=200, threads=1), memory_policy="None")
    assert scores.room(huge, shape) == scores.MAX_ROOM


@given(nodes(), pods())
def test_a_place_never_makes_room_and_scores_stay_within_bounds(state, each):
    answer = placement.admit(state, each)
    if not answer.admitted:
        return
    for name, score in {**scores.CLASSIC, "next": scores.NextFit(((each, 1.0),))}.items():
        assert 0 <= score(each, state, answer.state) <= 100.01, name
    assert scores.room(answer.state, each) <= scores.room(state, each)


@given(used_nodes(longest=3), st.lists(pods(), max_size=4))
def test_rooms_of_several_shapes_are_those_of_each(used, shapes):
    state, _ = used
    zones = list(free_of(state).zones.values())
    if state.config.topology_policy not in {"restricted", "single-numa-node"}:
        zones = [quantity.total(zones)]
    joins = state.config.topology_policy == "restricted"

    def by_turns(each):
        units = scores._units(each, whole=state.config.topology_scope == "pod")
        # One unit that fits into some zone goes to no more than one.
        single = len(units) == 1 and any(times(zone, units[0]) for zone in zones)
        return scores._in_turn(zones, units, joins=joins and not single)

    counted = scores.Rooms(shapes).of(free_of(state), state.config).tolist()
    assert counted == [by_turns(each) for each in shapes]


def test_most_allocated_prefers_the_fuller_node_and_least_the_emptier():
    full = filled(EMPTY, simple("x", 6))
    a, b = place(full, simple("p")), place(EMPTY, simple("p"))
    assert scores.most_allocated(*a) > scores.most_allocated(*b)
    assert scores.least_allocated(*a) < scores.least_allocated(*b)


def test_a_pod_that_asks_for_nothing_of_a_zone_is_neither_packed_nor_balanced():
    each = pod("p", container(cpus=0.5), qos=QOS.BURSTABLE)
    assert scores.most_allocated(each, EMPTY, EMPTY) == 0
    assert scores.balanced_allocation(each, EMPTY, EMPTY) == 100


def test_balanced_allocation_prefers_resources_used_alike():
    much_memory = filled(EMPTY, simple("x", 1, 12))
    assert scores.balanced_allocation(
        *place(EMPTY, simple("p", 4, 4))
    ) > scores.balanced_allocation(*place(much_memory, simple("p", 1, 1)))


def test_devices_count_by_their_healthy_ones():
    state = node(devices={GPU: pool(0, 0, 1, 1, unhealthy="3")})
    before = scores.most_allocated(*place(state, simple("p", 1, 1, gpus=1)))
    after = scores.most_allocated(*place(state, simple("p", 1, 1, gpus=2)))
    assert after > before


def test_fewer_zones_are_better_and_near_ones_beat_far_ones():
    state = node(topology(sockets=2, zones=2, cores=2), policy="best-effort")
    one = scores.least_numa_nodes(*place(state, simple("p", 3, 1)))
    near = scores.least_numa_nodes(*place(state, simple("p", 5, 1)))
    assert one > near
    apart = filled(state, *(simple(f"x{zone}", 4 if zone else 3, 1) for zone in range(3)))
    assert (
        scores.least_numa_nodes(*place(state, pod("p", container(cpus=0.5), qos=QOS.BURSTABLE)))
        == 100
    )
    assert apart.holdings.keys() == {"x0", "x1", "x2"}
    far = placement.remove(placement.remove(apart, "x0"), "x2")
    held = filled(far, simple("y", 4, 1), simple("z", 3, 1))
    assert held.holdings


def test_without_distances_every_zone_set_is_near():
    machine = topology()
    blank = Topology(
        cpus=machine.cpus,
        zones=tuple(
            type(zone)(id=zone.id, memory_bytes=zone.memory_bytes) for zone in machine.zones
        ),
        sockets=2,
    )
    assert scores.least_numa_nodes(*place(node(blank), simple("p", 2, 1))) == 100 - 12 + 6


def test_next_fit_keeps_room_for_the_large_pods_to_come():
    """A small pod goes to the node that is broken up already, not to the one with a whole zone."""
    broken = filled(EMPTY, simple("x", 4), simple("y", 4))
    score = scores.NextFit(((simple("big", 8), 1.0),))
    assert score(*place(broken, simple("p"))) > score(*place(node(), simple("p", 2)))
    whole_zone = filled(EMPTY, simple("x", 6))
    assert score(*place(broken, simple("p"))) > score(*place(whole_zone, simple("p")))


def test_next_fit_without_memory_packs():
    full = filled(EMPTY, simple("x", 6))
    score = scores.NextFit()
    assert score(*place(full, simple("p", 1))) > score(*place(EMPTY, simple("p", 1)))
