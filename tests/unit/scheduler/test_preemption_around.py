"""Preemption for rules between pods: who stands against the pod leaves, and nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rte.scheduler.loop.room.plans import plans
from rte.scheduler.plugins.default_preemption import EvictionPlan
from tests.unit.scheduler.build import World, pod_object, promise

HOST = "kubernetes.io/hostname"
SMALL: dict[str, Any] = {"guaranteed": False, "cpu": "100m"}


def apart(app: str, key: str = HOST) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def beside(app: str, key: str = HOST) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(app: str) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": app}}
    return [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": selector}
    ]  # fmt: skip


def world_of(**nodes: dict[str, Any]) -> World:
    world = World()
    for name, options in nodes.items():
        labels = {HOST: name, **options.pop("labels", {})}
        world.node(name, bare=True, labels=labels, **options)
    return world


def victims(world: World, pod: Any) -> dict[str, set[str]]:
    """Node -> names of those who would be evicted there."""
    found = plans(world.cycle, world.cluster, pod)
    return {
        plan.node: {victim.name for victim in plan.victims}
        for plan in found
        if isinstance(plan, EvictionPlan)
    }


def test_who_the_pod_wants_to_be_apart_from_is_evicted() -> None:
    world = world_of(a={})
    world.pod(name="l", labels={"app": "l"}, node_name="a", **SMALL)
    world.pod(name="other", node_name="a", **SMALL)
    high = world.pod(priority=10, affinity=apart("l"), **SMALL)
    assert world.why(high) == {"node(s) didn't match pod anti-affinity rules": 1}
    assert victims(world, high) == {"a": {"l"}}


def test_who_wants_to_be_apart_from_the_pod_is_evicted() -> None:
    world = world_of(a={})
    world.pod(name="l", affinity=apart("h"), node_name="a", **SMALL)
    world.pod(name="other", affinity=apart("x"), node_name="a", **SMALL)
    high = world.pod(priority=10, labels={"app": "h"}, **SMALL)
    assert world.why(high) == {"node(s) didn't satisfy existing pods anti-affinity rules": 1}
    assert victims(world, high) == {"a": {"l"}}


def test_those_of_other_nodes_of_the_domain_are_not_evicted() -> None:
    zone = {"labels": {"zone": "1"}}
    world = world_of(a=dict(zone), b=dict(zone))
    world.pod(name="l", labels={"app": "l"}, node_name="a", **SMALL)
    high = world.pod(priority=10, affinity=apart("l", "zone"), **SMALL)
    assert victims(world, high) == {"a": {"l"}}
    world.pod(name="m", labels={"app": "l"}, node_name="b", **SMALL)
    assert victims(world, high) == {}


@pytest.mark.parametrize("priority", [10, 11])
def test_who_is_as_important_stays(priority: int) -> None:
    world = world_of(a={})
    world.pod(name="l", labels={"app": "l"}, node_name="a", priority=priority, **SMALL)
    world.pod(name="low", node_name="a", **SMALL)
    high = world.pod(priority=10, affinity=apart("l"), **SMALL)
    assert victims(world, high) == {}


def test_nobody_is_evicted_where_something_else_is_in_the_way_as_well() -> None:
    world = world_of(a={})
    world.pod(name="l", labels={"app": "l"}, node_name="a", **SMALL)
    high = world.pod(priority=10, affinity={**apart("l"), **beside("nobody")}, **SMALL)
    assert victims(world, high) == {}


def test_company_does_not_come_by_evictions() -> None:
    world = world_of(a={})
    world.pod(name="l", labels={"app": "l"}, node_name="a", **SMALL)
    high = world.pod(priority=10, affinity=beside("x"), **SMALL)
    assert victims(world, high) == {}


def test_room_and_distance_are_made_together() -> None:
    world = world_of(a={"allocatable": {"cpu": "4"}})
    world.pod(name="l", labels={"app": "l"}, node_name="a", **SMALL)
    world.pod(name="large", node_name="a", guaranteed=False, cpu="3")
    world.pod(name="other", node_name="a", **SMALL)
    high = world.pod(priority=10, affinity=apart("l"), guaranteed=False, cpu="3")
    assert victims(world, high) == {"a": {"l", "large"}}


def test_those_who_make_a_domain_too_full_are_evicted_as_many_as_needed() -> None:
    world = world_of(
        a={"labels": {"zone": "1"}},
        b={"labels": {"zone": "2"}, "allocatable": {"cpu": "50m"}},
    )
    for number in range(2):
        world.pod(name=f"s{number}", labels={"app": "s"}, node_name="a", **SMALL)
    high = world.pod(
        priority=10, labels={"app": "s"}, topologySpreadConstraints=spread("s"), **SMALL
    )
    assert victims(world, high).keys() == {"a"}
    assert len(victims(world, high)["a"]) == 2


def test_who_is_ending_already_is_waited_for() -> None:
    world = world_of(a={})
    ending = pod_object("l", labels={"app": "l"}, node_name="a", **SMALL)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.pod(ending)
    world.pod(name="low", labels={"app": "x"}, node_name="a", **SMALL)
    high = world.pod(priority=10, affinity=apart("l"), **SMALL)
    assert victims(world, high) == {"a": set()}


def test_whom_the_pod_wants_to_be_with_stays() -> None:
    world = world_of(a={"allocatable": {"cpu": "1"}})
    world.pod(name="mate", labels={"app": "m"}, node_name="a", guaranteed=False, cpu="1")
    high = world.pod(priority=10, affinity=beside("m"), guaranteed=False, cpu="1")
    assert victims(world, high) == {}


@pytest.mark.parametrize("others", [1, 12])
def test_of_those_whom_the_pod_wants_to_be_with_all_but_one_may_go(others: int) -> None:
    world = world_of(a={"allocatable": {"cpu": "3"}})
    for number in range(2):
        world.pod(name=f"m{number}", labels={"app": "m"}, node_name="a", guaranteed=False, cpu="1")
    for number in range(others):
        world.pod(name=f"o{number}", node_name="a", guaranteed=False, cpu="1m")
    high = world.pod(priority=10, affinity=beside("m"), guaranteed=False, cpu="1900m")
    (gone,) = victims(world, high).values()
    assert len({"m0", "m1"} & gone) == 1


def test_company_that_is_leaving_is_not_waited_for() -> None:
    """When it has gone there is room, and nobody to be with any more."""
    world = world_of(a={"allocatable": {"cpu": "1"}})
    mate = world.pod(name="m", labels={"app": "m"}, node_name="a", guaranteed=False, cpu="1")
    world.cluster.set_pod(replace(mate, deleting=True, version=10**6), 0.0)
    high = world.pod(priority=10, affinity=beside("m"), guaranteed=False, cpu="1")
    assert victims(world, high) == {}


def test_nobody_is_evicted_for_a_pod_whose_company_elsewhere_is_leaving() -> None:
    """On another node of the domain: when it has gone there is nobody to be with any more."""
    zone = {"labels": {"zone": "1"}}
    world = world_of(a={"allocatable": {"cpu": "1"}, **zone}, b=zone, c={"labels": {"zone": "2"}})
    world.pod(name="low", node_name="a", guaranteed=False, cpu="1")
    world.pod(name="mate", labels={"app": "m"}, node_name="c", **SMALL)
    mate = world.pod(name="m", labels={"app": "m"}, node_name="b", **SMALL)
    selector = {"zone": "1", HOST: "a"}
    options = {"affinity": beside("m", "zone"), "nodeSelector": selector}
    high = world.pod(priority=10, guaranteed=False, cpu="1", **options)
    assert victims(world, high) == {"a": {"low"}}
    world.cluster.set_pod(replace(mate, deleting=True, version=10**6), 0.0)
    assert victims(world, high) == {}


def test_a_term_that_is_written_twice_counts_as_one() -> None:
    world = world_of(a={})
    term = apart("h")["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    twice = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 2 * term}}
    world.pod(name="l", affinity=twice, node_name="a", **SMALL)
    high = world.pod(priority=10, labels={"app": "h"}, **SMALL)
    assert victims(world, high) == {"a": {"l"}}


def nominated(world: World, node: str, **options: Any) -> None:
    world.cluster.nominate(promise(world.pod(priority=20, **options, **SMALL).uid, node))


def test_who_is_nominated_counts_for_the_rules_between_pods() -> None:
    world = world_of(a={}, b={})
    nominated(world, "a", labels={"app": "n"}, affinity=apart("x"))
    assert world.place(world.pod(priority=10, affinity=apart("n"), **SMALL)) == "b"
    terms = {"labels": {"app": "x"}, "affinity": apart("nobody")}
    assert world.place(world.pod(priority=10, **terms, **SMALL)) == "b"


def test_the_terms_of_who_is_nominated_are_not_asked_of_a_pod_that_no_term_speaks_of() -> None:
    """kube-scheduler skips the rule for it (interpodaffinity/filtering.go, PreFilter)."""
    world = world_of(a={})
    nominated(world, "a", affinity=apart("x"))
    assert world.place(world.pod(priority=10, labels={"app": "x"}, **SMALL)) == "a"


def test_who_is_nominated_counts_for_spread() -> None:
    world = world_of(a={"labels": {"zone": "1"}}, b={"labels": {"zone": "2"}})
    nominated(world, "a", labels={"app": "s"})
    rule = {"labels": {"app": "s"}, "topologySpreadConstraints": spread("s")}
    assert world.place(world.pod(priority=10, **rule, **SMALL)) == "b"


def test_who_is_nominated_is_no_company_yet() -> None:
    world = world_of(a={})
    nominated(world, "a", labels={"app": "m"})
    assert world.place(world.pod(priority=10, affinity=beside("m"), **SMALL)) is None


def test_of_another_who_is_to_come_both_must_find_room() -> None:
    world = world_of(a={"allocatable": {"cpu": "2"}})
    for name in ("l0", "l1"):
        world.pod(name=name, node_name="a", guaranteed=False, cpu="500m")
    first = world.pod(priority=20, guaranteed=False, cpu="1")
    world.cluster.nominate(promise(first.uid, "a"))
    high = world.pod(priority=10, guaranteed=False, cpu="1")
    assert victims(world, high) == {"a": {"l0", "l1"}}


def test_a_namespace_without_an_object_is_not_one_that_a_selector_chooses() -> None:
    world = world_of(a={})
    obj = pod_object("l", labels={"app": "l"}, node_name="a", **SMALL)
    obj["metadata"]["namespace"] = "gone"
    world.pod(obj)
    unlabelled = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    term = apart("l")
    wanted = term["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted[0]["namespaceSelector"] = unlabelled
    assert world.place(world.pod(affinity=term, **SMALL)) == "a"
    wanted[0]["namespaceSelector"] = {}
    assert world.place(world.pod(affinity=term, **SMALL)) is None
