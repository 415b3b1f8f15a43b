"""Thousands of nodes at once: nothing that fits is ruled out, and the rest mostly is."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.model.pod import QOS
from rte.placement.fleet import places, scores, screen
from rte.placement.kubelet.admission import shape_key
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool, simple


def table(*states):
    nodes = screen.NodeTable()
    for number, state in enumerate(states):
        nodes.put(f"node-{number}", state)
    return nodes


def passes(state, each):
    return bool(table(state).screen(each)[0])


# Conditions


@settings(max_examples=scaled(150), deadline=None)
@given(used=build.used_nodes(), each=build.pods("new"))
def test_no_node_is_ruled_out_that_admits_the_pod(used, each):
    state, _ = used
    if placement.execute(state, each).admitted:
        assert passes(state, each)


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_totals_count_under_every_policy(policy):
    state = build.node(policy=policy, devices={GPU: pool(0, 1)})
    assert passes(state, simple("a", cpus=7, gpus=1))
    assert not passes(state, simple("a", cpus=16))
    assert not passes(state, simple("a", memory=40))
    assert not passes(state, simple("a", gpus=3))
    two = pod("a", container("x", cpus=8, memory=1), container("y", cpus=8, memory=1))
    assert not passes(state, two)


def test_a_single_zone_has_to_have_it_all():
    state = build.node(devices={GPU: pool(1)})
    assert passes(state, simple("a", cpus=8))
    assert not passes(state, simple("a", cpus=9))
    assert not passes(state, simple("a", memory=17))
    held = build.filled(state, simple("h", cpus=8, memory=1))
    assert held.holdings["h"]["main"].memory[0].zones == 0b10
    assert passes(held, simple("a", cpus=1))
    assert not passes(held, simple("a", cpus=1, gpus=1))


def test_restricted_needs_the_preferred_width():
    state = build.node(policy="restricted")
    assert passes(state, simple("a", cpus=9))
    held = build.filled(state, simple("h", cpus=5), simple("i", cpus=5))
    assert not passes(held, simple("a", cpus=4))
    assert passes(held, simple("a", cpus=3))
    assert not passes(build.filled(state, simple("h", memory=10)), simple("a", cpus=0.5, memory=31))


def test_align_by_socket_may_prefer_wider_hints():
    machine = build.topology(sockets=1, zones=2)
    state = build.node(machine, "restricted", cpu_options={"align-by-socket": "true"})
    held = build.filled(state, simple("h", cpus=5), simple("i", cpus=5))
    assert passes(held, simple("a", cpus=4))


def test_pod_scope_looks_at_the_whole_pod():
    state = build.node(topology_scope="pod")
    two = pod("a", container("x", cpus=5, memory=1), container("y", cpus=5, memory=1))
    assert not passes(state, two)
    assert passes(build.node(), two)


def test_full_cores():
    state = build.node(cpu_options={"full-pcpus-only": "true"})
    assert not passes(state, simple("a", cpus=3))
    assert passes(state, simple("a", cpus=4))
    assert passes(state, simple("a", cpus=3.5))


def test_pod_level_resources_are_looked_at_where_the_managers_do():
    whole = pod("a", container(cpus=9, memory=1), pod_requests={"cpu": 9000}, pod_limits=None)
    assert passes(build.node(), whole)
    gates = {**build.ALPHA, "PodLevelResources": False}
    assert not passes(build.node(feature_gates=gates), whole)


def test_other_classes_and_other_managers_ask_for_nothing():
    assert passes(build.node(), pod("a", container(cpus=64, memory=99), qos=QOS.BURSTABLE))
    assert passes(build.node(cpu_policy="none", memory_policy="None"), simple("a", cpus=64))


def test_irregular_machines_promise_nothing_about_cpus():
    assert passes(build.node(build.topology(cores=3, offline="1")), simple("a", cpus=64))


def test_kubelets_without_rules_are_ruled_out():
    assert not passes(dataclasses.replace(build.node(), kubelet_version="v1.20.0"), simple("a"))


# The table


def test_rows_are_reused_and_dropped_nodes_are_not_found():
    nodes = table(build.node(), build.node())
    nodes.drop("node-0")
    nodes.drop("nobody")
    assert len(nodes) == 1
    assert nodes.screen(simple("a")).tolist() == [False, True]
    nodes.put("node-2", build.node())
    assert nodes.names == ["node-2", "node-1"]
    assert nodes.screen(simple("a")).tolist() == [True, True]


def test_the_table_grows_in_rows_and_zones():
    nodes = table(build.node(policy="restricted", devices={GPU: pool(0, 0)}))
    before = nodes.screen(simple("a", cpus=9, gpus=2)).tolist()
    wide = build.topology(sockets=1, zones=6, cores=2)
    nodes.put("wide", build.node(wide, devices={"example.com/nic": pool(5)}))
    for number in range(100):
        nodes.put(f"more-{number}", build.node())
    assert nodes.screen(simple("a", cpus=9, gpus=2)).tolist()[:1] == before == [True]
    assert nodes.screen(simple("a", cpus=9)).tolist()[:2] == [True, False]
    nic = dataclasses.replace(container(cpus=1, memory=1), limits={"example.com/nic": 2})
    assert nodes.screen(pod("a", nic)).tolist()[:3] == [True, False, True]


def test_a_change_is_seen_by_looking_at_its_row_alone():
    nodes = table(build.node(), build.node())
    screening = screen.Screening(nodes, simple("a", cpus=8))
    assert screening.passes().tolist() == [True, True]
    nodes.put("node-1", build.filled(build.node(), simple("h", cpus=8)))
    assert screening.passes().tolist() == [True, False]
    nodes.put("node-2", build.node())
    assert screening.passes().tolist() == [True, False, True]
    assert screening.passes() is screening.passes()


def test_candidates_come_in_order_however_many_there_are():
    states = [build.filled(build.node(), simple("h", cpus=n % 7 + 1)) for n in range(8)]
    nodes = table(*(states[number % 8] for number in range(200)))
    screening = screen.Screening(nodes, simple("a", cpus=1))
    fullest = list(screening.candidates())
    free = [int(nodes.free_cpus()[nodes.names.index(name)]) for name in fullest]
    assert len(fullest) == 200
    assert free == sorted(free)
    emptiest = list(screening.candidates("emptiest"))
    assert sorted(emptiest) == sorted(fullest)
    assert emptiest[0] == fullest[free.index(max(free))]


# Places


@st.composite
def clusters(draw):
    return [draw(build.used_nodes(longest=4))[0] for _ in range(draw(st.integers(1, 5)))]


@settings(max_examples=scaled(40), deadline=None)
@given(states=clusters(), each=build.pods("new"))
def test_every_place_is_found(states, each):
    found = places.find_places(table(*states), each, scores.most_allocated, count=99)
    assert {place.node for place in found} == {
        f"node-{number}"
        for number, state in enumerate(states)
        if placement.admit(state, each).admitted
    }
    assert [place.score for place in found] == sorted(
        (place.score for place in found), reverse=True
    )


def test_places_are_as_many_as_asked_and_come_with_the_admission():
    full = build.filled(build.node(), simple("h", cpus=6))
    nodes = table(build.node(), full, build.node())
    found = places.Finder(nodes, scores.most_allocated).find(simple("a", cpus=2), count=1)
    assert [place.node for place in found] == ["node-1"]
    assert found[0].admission.holdings["main"].cpus.bit_count() == 2
    spread = places.Finder(nodes, scores.least_allocated, order="emptiest")
    assert [place.node for place in spread.find(simple("a"), count=2)] == ["node-0", "node-2"]


def test_what_the_screen_lets_through_may_still_be_refused():
    nodes = table(build.node())
    three = pod("a", *(container(name, cpus=5, memory=1) for name in ("x", "y", "z")))
    assert nodes.screen(three).all()
    finder = places.Finder(nodes, scores.most_allocated)
    assert finder.find(three) == finder.find(three) == []


def test_only_changed_nodes_are_predicted_again():
    asked = []

    def score(pod, before, after):
        asked.append(before)
        return 1.0

    nodes = table(build.node(), build.node(), build.node())
    finder = places.Finder(nodes, score)
    assert len(finder.find(simple("a"))) == 3
    assert len(finder.find(simple("b"))) == 3
    assert len(asked) == 3
    nodes.put("node-1", build.filled(build.node(), simple("h")))
    finder.find(simple("c"))
    assert len(asked) == 4
    finder.find(simple("c", cpus=4))
    assert len(asked) == 7


def test_memory_of_shapes_and_nodes_is_bounded(monkeypatch):
    monkeypatch.setattr(places, "MAX_SHAPES", 2)
    nodes = table(build.node())
    finder = places.Finder(nodes, scores.most_allocated)
    for cpus in (1, 2, 3, 4):
        finder.find(simple("a", cpus=cpus))
    assert len(finder._shapes) == 2
    for number in range(5):
        nodes.put(f"other-{number}", build.node())
    finder.find(simple("a", cpus=4))
    for number in range(5):
        nodes.drop(f"other-{number}")
    found = finder.find(simple("a", cpus=4))
    assert [place.node for place in found] == ["node-0"]
    (answers, *_) = (finder._shapes[shape_key(simple("a", cpus=4))],)
    assert set(answers.by_node) == {"node-0"}


def test_shapes_differ_by_what_the_kubelet_looks_at():
    plain = simple("a")
    assert shape_key(plain) == shape_key(simple("b"))
    for other in (
        simple("a", cpus=3),
        pod("a", *plain.containers, qos=QOS.BURSTABLE),
        pod("a", *plain.containers, pod_requests={"cpu": 1}),
        pod("a", *plain.containers, pod_limits={"cpu": 1}),
    ):
        assert shape_key(plain) != shape_key(other)
