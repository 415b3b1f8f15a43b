"""Zone arithmetic where the recorded cases do not reach."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.placement.foreign import zone_scores, zone_sets, zones
from rte.placement.kubelet import outcome
from tests.unit.placement.build import GIB, container, pod, simple

NAMES = ("cpu", "memory")


def table(*free, policy="single-numa-node", scope="container", **more):
    return zones.ZoneTable(
        zones=tuple(
            zones.ZoneEntry(
                id=place,
                available={"cpu": 1000 * cpus, "memory": 64 * GIB},
                total={"cpu": 8000, "memory": 64 * GIB},
                costs={
                    other: 10 if other == place else 20 + abs(other - place)
                    for other in range(len(free))
                },
            )
            for place, cpus in enumerate(free)
        ),
        policy=policy,
        scope=scope,
        **more,
    )


def test_restricted_wants_the_narrowest_set_that_could_ever_hold_the_pod():
    assert zones.filter_zones(table(8, 8, policy="restricted"), simple("p", 8), NAMES)
    assert not zones.filter_zones(table(7, 7, policy="restricted"), simple("p", 8), NAMES), (
        "two would do, one is the minimum"
    )
    assert zones.filter_zones(
        table(8, 8, policy="restricted"), pod("p", container(cpus=16, memory=65)), NAMES
    )
    assert not zones.filter_zones(table(8, 8, policy="restricted"), simple("p", 9), NAMES), (
        "memory wants one zone, CPUs two"
    )


def test_best_effort_refuses_only_what_no_zones_together_have():
    assert zones.filter_zones(table(3, 3, policy="best-effort"), simple("p", 6), NAMES)
    assert not zones.filter_zones(table(3, 3, policy="best-effort"), simple("p", 7), NAMES)


def test_containers_of_a_pod_follow_each_other():
    two = pod("p", container("a", cpus=6, memory=1), container("b", cpus=6, memory=1))
    assert zones.filter_zones(table(8, 8), two, NAMES)
    verdict = zones.filter_zones(table(8, 5), two, NAMES)
    assert (verdict.container, verdict.reasons) == ("b", ("cannot align container",))


def test_an_unknown_score_is_named():
    with pytest.raises(errors.UsageError, match="Best"):
        zone_scores.score_zones(table(8), simple("p"), "Best")


def test_containers_that_ask_for_no_zone_resource_do_not_count():
    odd = pod("p", container("a"), container("b", cpus=2, memory=1))
    assert zone_scores.score_zones(table(8, 8), odd, "LeastNUMANodes") == 94
    assert zone_scores.score_zones(table(8, 8), pod("p", container("a")), "LeastNUMANodes") == 100


def test_far_zones_score_less_than_near_ones():
    wide = table(4, 0, 4, policy="best-effort")
    near = table(4, 4, 0, policy="best-effort")
    each = simple("p", 8)
    assert zone_scores.score_zones(near, each, "LeastNUMANodes") > zone_scores.score_zones(
        wide, each, "LeastNUMANodes"
    )


def test_with_very_many_zone_sets_distances_are_not_compared():
    many = table(*([1] * 40), policy="best-effort")
    assert zone_scores.score_zones(many, simple("p", 8), "LeastNUMANodes") == 100 - 8 * 12


ROWS = st.lists(st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 4)}), max_size=7)


@given(rows=ROWS, width=st.integers(1, 5), a=st.integers(1, 12), b=st.integers(1, 12))
def test_the_lowest_set_is_the_smallest_mask_of_all_that_hold_the_request(rows, width, a, b):
    holding = [
        chosen
        for chosen in itertools.combinations(range(len(rows)), width)
        if sum(rows[z]["a"] for z in chosen) >= a and sum(rows[z]["b"] for z in chosen) >= b
    ]
    smallest = min(holding, key=lambda chosen: sum(1 << z for z in chosen), default=None)
    assert zone_sets.lowest(rows, width, {"a": a, "b": b}) == smallest


@pytest.mark.parametrize("count", [24, 64])
def test_many_zones_are_searched_or_given_up_at_once(count):
    half = table(*([4] * count), policy="restricted", max_zones=64)
    assert zones.filter_zones(half, simple("p", 4 * count), NAMES).reasons == (
        "cannot align container",
    ), "memory wants one zone"
    fits = pod("p", container(cpus=8 * count // 2, memory=64 * count // 2))
    full = table(*([8] * count), policy="restricted", max_zones=64)
    assert zones.filter_zones(full, fits, NAMES)
    none = table(*([7] * count), policy="restricted", max_zones=64)
    assert not zones.filter_zones(none, fits, NAMES)


def test_resources_in_different_zones_are_too_many_sets_to_try():
    rows = [{"a": place % 2, "b": 1 - place % 2} for place in range(40)]
    assert zone_sets.lowest(rows, 20, {"a": 10, "b": 10}) is not None
    with pytest.raises(outcome.Unpredictable, match="40 NUMA zones have too many sets of 20"):
        zone_sets.lowest(rows, 20, {"a": 11, "b": 10})
