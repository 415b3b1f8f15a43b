"""A kubelet that is freer than we know: when an ending does no harm, and when it does."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.placement.inflight import futures, zones
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GIB, GPU, container, pod, pool, simple


def admitted_after(state, each, *gone):
    for uid in gone:
        state = placement.remove(state, uid)
    return placement.admit(state, each).admitted


def pair(name, x, y):
    """A pod of two containers that ask for so much of ``cpus`` or ``gpus``."""
    return pod(
        "a", *(container(n, memory=1, **{"cpus": 2, name: a}) for n, a in (("x", x), ("y", y)))
    )


# Properties


@settings(max_examples=scaled(150), deadline=None)
@given(used=build.used_nodes(), each=build.pods("new"), data=st.data())
def test_monotone_admissions_stand_whatever_has_ended(used, each, data):
    state, active = used
    answer = placement.admit(state, each)
    if not answer.admitted or not active:
        return
    if futures.is_monotone(state, each, answer) or zones.find_zones(state, [each], active):
        gone = data.draw(st.sets(st.sampled_from(active)))
        assert admitted_after(state, each, *sorted(gone))


@settings(max_examples=scaled(150), deadline=None)
@given(used=build.used_nodes(), one=build.pods("one"), two=build.pods("two"), data=st.data())
def test_pods_that_fit_together_do_so_in_any_order_whatever_ends(used, one, two, data):
    state, active = used
    if not placement.fit_together(state, [one, two]):
        return
    if not all(placement.certain_under_endings(state, each, active) for each in (one, two)):
        return
    before = data.draw(st.sets(st.sampled_from(active))) if active else ()
    between = data.draw(st.sets(st.sampled_from(active))) if active else ()
    first, second = data.draw(st.permutations([one, two]))
    for uid in sorted(before):
        state = placement.remove(state, uid)
    answer = placement.execute(state, first)
    assert answer.admitted
    assert admitted_after(answer.state, second, *sorted(between))


@settings(max_examples=scaled(60), deadline=None)
@given(used=build.used_nodes(longest=4), each=build.pods("new"))
def test_certainty_is_never_claimed_wrongly(used, each):
    state, active = used
    certain = futures.certain_under_endings(state, each, active)
    endings = futures._endings(state, active)
    if certain:
        for ended in endings:
            answer = placement.admit(ended, each)
            assert answer.admitted
            assert not placement.start_containers(answer.state, each, answer.hints).failed


# Single-container pods, the common case


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_pod_of_one_container_is_safe_under_every_policy(policy):
    state = build.filled(build.node(policy=policy), *(simple(f"h{n}") for n in range(5)))
    endable = [f"h{n}" for n in range(5)]
    assert placement.certain_under_endings(state, simple("a", cpus=4), endable)
    assert futures.is_monotone(
        state, simple("a", cpus=4), placement.admit(state, simple("a", cpus=4))
    )


def test_a_pod_that_does_not_fit_is_not_certain():
    assert not placement.certain_under_endings(build.node(), simple("a", cpus=9), [])


def test_pods_that_ask_for_nothing_are_safe():
    state = build.filled(build.node(), simple("h"))
    burstable = pod("a", container(cpus=2, memory=1), qos="Burstable")
    assert placement.is_monotone(state, burstable, placement.admit(state, burstable))


# Counter-examples: an ending turns an admission into a refusal


def test_a_freer_zone_attracts_the_first_container_and_starves_the_second():
    # Zone 0 has no room for x until h ends; x then goes there, and y's device is out of reach.
    state = build.filled(build.node(devices={GPU: pool(0)}), simple("h", cpus=3, memory=1))
    two = pod("a", container("x", cpus=5, memory=1), container("y", cpus=4, memory=1, gpus=1))
    assert state.holdings["h"]["main"].memory[0].zones == 0b01
    assert admitted_after(state, two)
    assert not admitted_after(state, two, "h")
    assert not placement.certain_under_endings(state, two, ["h"])
    assert placement.certain_under_endings(state, two, [])


def test_a_wide_group_that_ends_lets_a_small_container_into_the_large_ones_zone():
    # Policy none, memory only: y needs both zones; x alone in one of them forbids that.
    state = build.node(build.topology(memory=8 * GIB), "none")
    state = build.filled(state, simple("wide", cpus=0.5, memory=9))
    two = pod("a", container("x", cpus=0.5, memory=1), container("y", cpus=0.5, memory=5))
    assert state.memory[0].group == 0b11
    assert admitted_after(state, two)
    assert placement.certain_under_endings(state, two, ["wide"])
    large = pod("a", container("x", cpus=0.5, memory=1), container("y", cpus=0.5, memory=9))
    assert not admitted_after(state, large)
    assert not admitted_after(state, large, "wide")


def test_pod_scope_does_not_see_memory_that_only_sidecars_ask_for():
    machine = build.topology(memory=8 * GIB)
    zones = (machine.zones[0], dataclasses.replace(machine.zones[1], hugepages={2**21: 64}))
    empty = dataclasses.replace(zones[0], hugepages={2**21: 0})
    machine = dataclasses.replace(machine, zones=(empty, zones[1]))
    state = build.filled(build.node(machine, topology_scope="pod"), simple("h", cpus=4, memory=1))
    life = pod(
        "a",
        container("side", "sidecar", cpus=0.5, memory=1, hugepages=8),
        container("main", cpus=5, memory=1),
    )
    assert admitted_after(state, life)
    assert not admitted_after(state, life, "h")
    assert not placement.certain_under_endings(state, life, ["h"])


def test_best_effort_can_lose_a_lucky_hint():
    state = build.filled(
        build.node(build.topology(memory=8 * GIB), "best-effort"),
        simple("h", cpus=6, memory=1),
        simple("i", cpus=6, memory=1),
    )
    wide = simple("a", cpus=3, memory=1)
    answer = placement.admit(state, wide)
    assert answer.admitted
    assert not answer.hints["main"][1]
    assert not placement.is_monotone(state, wide, answer)
    # No rule covers it, but there are few endings: they are tried.
    assert placement.certain_under_endings(state, wide, ["h", "i"])


# Where no rule applies


def test_many_endings_are_not_tried_one_by_one():
    machine = build.topology(cores=9, memory=64 * GIB)
    names = [f"h{n}" for n in range(7)]
    state = build.filled(
        build.node(machine, "best-effort"), *(simple(name, cpus=4, memory=1) for name in names)
    )
    wide = simple("a", cpus=7, memory=1)
    answer = placement.admit(state, wide)
    assert answer.admitted
    assert not answer.hints["main"][1]
    assert not placement.certain_under_endings(state, wide, names)
    assert placement.certain_under_endings(state, wide, names[:2])
    assert placement.outcomes(state, [simple("b", cpus=1)], names) is None


@pytest.mark.parametrize(
    ("machine", "changes", "monotone"),
    [
        (build.topology(cores=3, offline="1"), {}, False),
        (build.topology(cores=3, offline="1"), {"cpu_policy": "none"}, True),
        (
            build.topology(sockets=1, zones=5, cores=2),
            {"cpu_options": {"distribute-cpus-across-numa": "true"}},
            False,
        ),
        (build.topology(), {"cpu_options": {"distribute-cpus-across-numa": "true"}}, True),
    ],
)
def test_picks_that_may_fail_are_not_trusted(machine, changes, monotone):
    state = build.node(machine, **changes)
    each = simple("a", cpus=1)
    assert futures.is_monotone(state, each, placement.admit(state, each)) is monotone


@pytest.mark.parametrize(("reserved", "monotone"), [(0b1, False), (0b100000001, True)])
def test_whole_cores_need_a_reservation_of_whole_cores(reserved, monotone):
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    state = build.node(
        cpu_options=options,
        reserved_cpus=reserved,
        cpu_reservation_milli=1000 * reserved.bit_count(),
    )
    each = simple("a")
    assert futures.is_monotone(state, each, placement.admit(state, each)) is monotone


def test_reuse_depends_on_picks():
    life = pod("a", container("i", "init", cpus=2, memory=1), container("m", cpus=2, memory=1))
    state = build.filled(build.node(policy="none"), simple("h"))
    assert not futures.is_monotone(state, life, placement.admit(state, life))
    assert not zones.find_zones(build.node(), [life], [])
    assert placement.certain_under_endings(state, life, ["h"])


def test_pod_scope_decides_once():
    two = pod("a", container("x", cpus=2, memory=1), container("y", cpus=2, memory=1))
    state = build.filled(build.node(topology_scope="pod"), simple("h"))
    assert futures.is_monotone(state, two, placement.admit(state, two))
    assert zones.find_zones(state, [two], ["h"])


# Games


def test_two_containers_in_turn():
    state = build.filled(build.node(), simple("h", cpus=4))
    assert zones.find_zones(state, [pair("cpus", 3, 6)], ["h"])
    # x fits zone 1 only, until h ends; y must then find room beside it, in either zone.
    assert not zones.find_zones(state, [pair("cpus", 4, 8)], ["h"])
    assert not zones.find_zones(state, [simple("a", cpus=9)], [])


def test_without_endings_the_game_is_the_prediction():
    state = build.filled(build.node(), simple("h", cpus=4))
    assert zones.find_zones(state, [pair("cpus", 8, 3)], [])


def test_the_game_is_given_up_when_it_gets_long(monkeypatch):
    monkeypatch.setattr(zones, "MAX_MOVES", 1)
    state = build.filled(build.node(), simple("h", cpus=4))
    assert not zones.find_zones(state, [pair("cpus", 3, 6)], ["h"])


@pytest.mark.parametrize(
    ("policy", "own", "follows"),
    [
        ("restricted", 10, True),
        ("restricted", 11, False),
        ("single-numa-node", 11, True),  # it never looks at distances
    ],
)
def test_the_closest_zone_is_the_lowest_one_unless_another_is_nearer_to_itself(
    policy, own, follows
):
    options = {"prefer-closest-numa-nodes": "true"}
    state = build.node(policy=policy, topology_options=options)
    first, second = state.topology.zones
    first = dataclasses.replace(first, distances=(own, 21))
    second = dataclasses.replace(second, distances=(21, 10))
    topology = dataclasses.replace(state.topology, zones=(first, second))
    state = dataclasses.replace(state, topology=topology)
    assert placement.admit(state, pair("cpus", 7, 8)).admitted == follows
    assert zones.find_zones(state, [pair("cpus", 7, 8)], []) == follows
    assert zones.find_zones(state, [simple("a", cpus=3)], [])


def test_devices_take_part():
    state = build.node(devices={GPU: pool(0, 1, (), unhealthy="1")})
    assert zones.find_zones(state, [simple("a", gpus=1)], [])
    assert not zones.find_zones(state, [pair("gpus", 1, 1)], [])
    shared = build.node(devices={GPU: pool((0, 1))})
    assert not zones.find_zones(shared, [simple("a", gpus=1)], [])
    loose = build.node(devices={GPU: pool(None, None)})
    only = dataclasses.replace(container(), limits={GPU: 1}, requests={GPU: 1})
    assert zones.find_zones(loose, [pod("a", only, qos="Burstable")], [])
    assert not zones.find_zones(loose, [simple("a", gpus=3)], [])
    far = build.node(devices={GPU: pool(7, 0)})
    assert zones.find_zones(far, [simple("a", gpus=1)], [])


def test_wide_groups_and_foreign_policies_are_no_game():
    assert not zones.find_zones(build.node(policy="none"), [simple("a")], [])
    wide = build.filled(build.node(policy="restricted"), simple("h", cpus=0.5, memory=20))
    assert not zones.find_zones(wide, [simple("a")], [])
    aligned = build.node(policy="restricted", cpu_options={"align-by-socket": "true"})
    assert not zones.find_zones(aligned, [simple("a")], [])
    sidecar = pod(
        "a",
        container("side", "sidecar", cpus=1, memory=1, hugepages=1),
        container("main", cpus=1, memory=1),
    )
    pages = build.node(build.topology(hugepages={2**21: 64}), topology_scope="pod")
    assert not zones.find_zones(pages, [sidecar], [])


# Outcomes


def test_outcomes_list_every_state_the_first_pod_may_leave():
    state = build.filled(build.node(), simple("h", cpus=6))
    first, second = simple("a", cpus=4), simple("b", cpus=7)
    outcomes = placement.outcomes(state, [first], ["h"])
    assert len(outcomes) == 2
    assert {each.holdings["a"]["main"].memory[0].zones for each in outcomes} == {0b01, 0b10}
    assert not placement.fits_under_every_outcome(outcomes, second)
    assert placement.fits_under_every_outcome(outcomes, simple("b", cpus=1), ["h"])
    assert not placement.fits_under_every_outcome([], second)


def test_a_pod_that_may_be_refused_has_no_outcomes():
    assert placement.outcomes(build.node(), [simple("a", cpus=9)]) is None


# Pods in flight


def lopsided(**changes):
    """Zones with 10 and 13 free CPUs, one GPU in the first."""
    machine = build.topology(cores=14, threads=1, memory=64 * GIB)
    reserved = {"reserved_cpus": 0b100000000001111, "cpu_reservation_milli": 5000}
    return build.node(machine, devices={GPU: pool(0)}, **reserved, **changes)


LARGE_AND_GPU = pod("b", container("x", cpus=7, memory=1), container("y", cpus=2, memory=1, gpus=1))


@pytest.mark.parametrize("steady", [True, False])
def test_an_order_between_the_extremes_is_seen(steady):
    # Behind both others, or before them, "b" is admitted; between them its first container
    # takes the zone of the GPU.
    flying = [simple("a", cpus=2), simple("c", cpus=2), LARGE_AND_GPU]
    state = lopsided()
    between = build.filled(state, flying[0])
    assert not admitted_after(between, flying[2])
    assert admitted_after(build.filled(between, flying[1]), flying[2])
    assert not placement.fit_together(state, flying, steady=steady)


def test_what_no_rule_covers_is_walked_where_nothing_ends():
    # Two containers that may share the pod's zone or not: under restricted no rule follows them.
    state = lopsided(cpu_options={"align-by-socket": "true"}, policy="restricted")
    two = [pair_of(3), pair_of(4)]
    assert not placement.fit_together(state, two)
    assert placement.fit_together(state, two, steady=True)


def pair_of(cpus):
    return pod(f"p{cpus}", container("x", cpus=cpus, memory=1), container("y", cpus=cpus, memory=1))


@settings(max_examples=scaled(150), deadline=None)
@given(
    used=build.used_nodes(),
    flying=st.lists(build.pods(), min_size=2, max_size=3),
    before=st.booleans(),
    data=st.data(),
)
def test_several_pods_find_zones_whatever_ends_before_or_between_them(used, flying, before, data):
    state, active = used
    flying = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(flying)]
    if not all(placement.admit(state, each).admitted for each in flying):
        return
    if not zones.find_zones(state, flying, active, in_order=not before):
        return
    held = list(active)
    for number, each in enumerate(data.draw(st.permutations(flying))):
        if held and (number or not before):
            for uid in data.draw(st.sets(st.sampled_from(held))):
                state = placement.remove(state, uid)
                held.remove(uid)
        answer = placement.execute(state, each)
        assert answer.admitted
        state = answer.state


def test_pods_that_fill_the_last_zones_come_in_any_order_beside_pods_that_may_end():
    state = build.filled(build.node(), simple("h", cpus=4))
    two = [simple("small", cpus=3), simple("large", cpus=8)]
    assert placement.fit_together(state, two, fuller=False)
    # While the node was fuller the small one may have taken the free zone.
    assert not placement.fit_together(state, two)


@settings(max_examples=scaled(60), deadline=None)
@given(state=build.nodes(), flying=st.lists(build.pods(), min_size=3, max_size=3), data=st.data())
def test_three_pods_that_fit_together_do_so_in_any_order_started_or_not(state, flying, data):
    flying = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(flying)]
    fits = placement.fit_together(state, flying)
    if not fits and not placement.fit_together(state, flying, steady=True):
        return
    for each in data.draw(st.permutations(flying)):
        answer = placement.execute(state, each)
        assert answer.admitted
        state = answer.state
        if data.draw(st.booleans()):
            state = placement.start(state, each)


@settings(max_examples=scaled(300), deadline=None)
@given(used=build.used_nodes(longest=4), flying=st.lists(build.pods(), min_size=2, max_size=3))
def test_pods_in_flight_that_fit_by_sums_fit_by_admissions(used, flying):
    state, _ = used
    state = dataclasses.replace(
        state, config=dataclasses.replace(state.config, topology_policy="single-numa-node")
    )
    flying = [dataclasses.replace(each, uid=f"f{number}") for number, each in enumerate(flying)]
    if futures._fit_by_room(state, flying):
        assert all(placement.admit(state, each).admitted for each in flying)
        assert futures._fit_by_rule(state, flying)


@settings(max_examples=scaled(60), deadline=None)
@given(state=build.nodes(), flying=st.lists(build.pods(), min_size=2, max_size=3))
def test_whatever_is_refused_in_an_order_does_not_fit_together(state, flying):
    flying = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(flying)]
    for order in itertools.permutations(flying):
        now = state
        for each in order:
            answer = placement.execute(now, each)
            if not answer.admitted:
                assert not placement.fit_together(state, flying, steady=True)
                return
            now = answer.state


def test_many_pods_in_flight_are_only_followed_where_each_belongs_into_one_zone():
    many = [simple(str(n), cpus=1) for n in range(9)]
    assert placement.fit_together(build.node(), many)
    assert not placement.fit_together(build.node(policy="none"), many)
    unknown = dataclasses.replace(build.node(), kubelet_version="v1.50.0")
    assert not placement.fit_together(unknown, [simple("a")])
