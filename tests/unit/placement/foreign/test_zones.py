"""Zone arithmetic where the recorded cases do not reach."""

import pytest

from rte import errors
from rte.placement.foreign import zone_scores, zones
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
