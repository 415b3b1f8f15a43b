"""Explanations: zones, what is short, whose end would help."""

from rte.placement.explain import explain
from tests.unit.placement.build import (
    GIB,
    GPU,
    POD_LEVEL,
    container,
    filled,
    node,
    pod,
    pool,
    simple,
)

EMPTY = node(devices={GPU: pool(0, 0, 1)})


def test_an_admitted_pod_says_where_each_container_lands():
    told = explain(
        EMPTY, pod("p", container("a", cpus=2, memory=1, gpus=1), container("b", cpus=8, memory=1))
    )
    assert told.admission.admitted
    assert told.lands == {"a": (0,), "b": (1,)}
    assert told.container == "b"
    assert [zone.short for zone in told.zones] == [{"cpu": 1}, {}]
    assert told.would_help == ()


def test_a_refused_container_is_measured_against_what_the_ones_before_it_left():
    told = explain(
        EMPTY, pod("p", container("a", cpus=7, memory=1), container("b", cpus=9, memory=1))
    )
    assert told.container == "b"
    assert [(zone.free["cpu"], zone.short["cpu"]) for zone in told.zones] == [(0, 9), (8, 1)]


def test_the_smallest_pod_whose_end_helps_is_named():
    state = filled(EMPTY, simple("small", 2), simple("large", 8))
    assert explain(state, simple("p", 6)).would_help == ("small",)


def test_several_pods_are_named_when_no_single_one_helps():
    state = filled(EMPTY, simple("a", 3), simple("b", 4), simple("c", 4), simple("d", 4))
    told = explain(state, simple("p", 8))
    assert set(told.would_help) == {"c", "d"}


def test_nobody_is_named_when_nothing_helps():
    assert explain(EMPTY, simple("p", 9)).would_help == ()
    assert explain(filled(EMPTY, simple("a", 3)), simple("p", 9)).would_help == ()


def test_pod_scope_measures_the_whole_pod_and_policy_none_counts_no_cpus():
    told = explain(
        node(topology_scope="pod"),
        pod("p", container("a", cpus=5, memory=1), container("b", cpus=5, memory=1)),
    )
    assert told.container == "*"
    assert told.zones[0].wanted["cpu"] == 10
    loose = explain(
        node(policy="none", cpu_policy="none", memory_policy="None", cpu_reservation_milli=0),
        simple("p", 2),
    )
    assert loose.admission.admitted
    assert all(not zone.wanted for zone in loose.zones)


def test_a_pod_as_a_whole_is_measured_by_its_stanza():
    stanza = {"cpu": 9000, "memory": GIB}
    whole = pod("a", container(), pod_requests=stanza, pod_limits=stanza)
    told = explain(node(version="v1.37.1", topology_scope="pod", feature_gates=POD_LEVEL), whole)
    assert told.container == "*"
    assert told.zones[1].short == {"cpu": 1}
