"""Preemption and reservations look at zones, not at totals."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.k8s.selectors import parse_selector
from rte.scheduler.framework.node import Promise, PromiseKind
from rte.scheduler.framework.objects import DisruptionBudget
from rte.scheduler.loop import promises
from rte.scheduler.loop.messages import Post
from rte.scheduler.loop.room.plans import plans
from rte.scheduler.plugins import default_preemption as preemption
from tests.unit.scheduler.build import World, machine, promise, state
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView


def running(
    world: World, node: str, *cpus: int, priority: int = 0, **more: object
) -> list[PodView]:
    """Pods that the kubelet has admitted, in this order."""
    out = []
    for amount in cpus:
        pod = world.pod(cpu=str(amount), node_name=node, priority=priority, **more)
        assert world.admit(pod, node).verdict == "admitted"
        out.append(pod)
    world.report(node)
    return out


def best(world: World, pod: PodView, *budgets: DisruptionBudget) -> preemption.EvictionPlan | None:
    world.cluster.budgets = {str(number): budget for number, budget in enumerate(budgets)}
    found = [
        plan
        for plan in plans(world.cycle, world.cluster, pod)
        if isinstance(plan, preemption.EvictionPlan)
    ]
    return min(found, key=lambda plan: plan.cost, default=None)


def test_victims_are_those_whose_zone_is_needed() -> None:
    world = World()
    world.node("n")
    zone0, _, _ = running(world, "n", 7, 4, 3)
    pod = world.pod(cpu="6", priority=10)
    plan = best(world, pod)
    assert plan is not None
    # 7 CPUs are in zone 0; of zone 1 two pods would have to go.
    assert plan.victims == (zone0,)


def test_totals_that_suffice_do_not_make_a_zone() -> None:
    world = World()
    world.node("n")
    first, second, third = running(world, "n", 4, 4, 3)
    pod = world.pod(cpu="5", priority=10)
    # Free: 3 in zone 0 and 1 in zone 1; enough in sum only if one goes whose zone then has 5.
    plan = best(world, pod)
    assert plan is not None
    assert len(plan.victims) == 1
    node = world.cluster.nodes["n"].without(frozenset({plan.victims[0].uid}))
    assert not world.cycle.profile.check(pod.shape, node).reason
    assert plan.victims[0] in (first, second, third)


def test_the_lowest_priority_goes_even_if_they_are_more() -> None:
    world = World()
    world.node("n")
    running(world, "n", 7, priority=5)
    low = running(world, "n", 4, 4, priority=1)
    plan = best(world, world.pod(cpu="7", priority=10))
    assert plan is not None
    assert {victim.uid for victim in plan.victims} == {pod.uid for pod in low}


def test_equal_and_higher_priorities_stay() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    running(world, "n", 6, priority=10)
    assert best(world, world.pod(cpu="6", priority=10)) is None


def test_a_disruption_budget_is_kept_where_another_node_will_do() -> None:
    world = World()
    for name in ("guarded", "free"):
        world.node(name, state(machine(zones=1)))
    running(world, "guarded", 6, labels={"app": "db"})
    (victim,) = running(world, "free", 6, priority=3)
    selector = parse_selector({"matchLabels": {"app": "db"}}, "selector")
    budget = DisruptionBudget(namespace="default", selector=selector, allowed=0)
    pod = world.pod(cpu="6", priority=10)
    plan = best(world, pod, budget)
    assert plan is not None
    assert (plan.node, plan.victims, plan.violations) == ("free", (victim,), 0)
    world.cluster.remove_node("free")
    plan = best(world, pod, budget)
    assert plan is not None
    assert (plan.node, plan.violations) == ("guarded", 1)


def test_budgets_count_those_who_have_to_go_with_a_victim_from_other_nodes() -> None:
    world = World()
    for name in "ab":
        world.node(name, bare=True, allocatable={"cpu": "4"})
    small = {"guaranteed": False, "cpu": "3"}
    here = world.pod(node_name="a", **small)
    there = world.pod(node_name="b", labels={"app": "x"}, **small)
    pod = world.pod(priority=1, **small)
    budgets = [_budget("x", 0)]
    plan = preemption.plan_for(
        pod, world.cluster.nodes["a"], budgets, world.cycle.profile, lambda _: (here, there)
    )
    assert plan is not None
    assert (plan.victims, plan.violations) == ((here, there), 1)


@given(st.randoms(use_true_random=False))
def test_of_few_pods_the_set_that_disturbs_least_goes(chooser: random.Random) -> None:
    """Budgets first; against all sets there are."""
    world = World()
    world.node("n", bare=True, allocatable={"cpu": "16", "memory": "32Gi"})
    for _ in range(chooser.randrange(2, 6)):
        sizes = {"cpu": f"{chooser.randrange(5)}", "mem": f"{chooser.randrange(9)}Gi"}
        world.pod(
            guaranteed=False, node_name="n", priority=chooser.choice((0, 0, 1, 5)),
            labels={"app": chooser.choice("xyz")}, **sizes,
        )  # fmt: skip
    sizes = {"cpu": f"{chooser.randrange(8, 14)}", "mem": f"{chooser.randrange(16, 28)}Gi"}
    pod = world.pod(guaranteed=False, priority=5, **sizes)
    budgets = [_budget(app, chooser.choice((0, 0, 1, 2))) for app in "xy"]
    node = world.cluster.nodes["n"]
    lower = preemption.victims_of(pod, node)
    sets = [each for n in range(len(lower)) for each in combinations(lower, n + 1)]
    enough = [
        (_over(budgets, each), max(p.priority for p in each), len(each))
        for each in sets
        if not world.cycle.profile.check(pod.shape, node.without({p.uid for p in each})).reason
    ]
    plan = best(world, pod, *budgets)
    needs_some = bool(world.cycle.profile.check(pod.shape, node).reason)
    assert (plan is not None) == (needs_some and bool(enough))
    if plan is not None:
        assert plan.violations == _over(budgets, plan.victims)
        assert plan.cost[0][:3] == min(enough)


def _budget(app: str, allowed: int) -> DisruptionBudget:
    selector = parse_selector({"matchLabels": {"app": app}}, "budget")
    return DisruptionBudget(namespace="default", selector=selector, allowed=allowed)


def _over(budgets: Sequence[DisruptionBudget], pods: Iterable[PodView]) -> int:
    """Of these pods those beyond what their budgets allow."""
    pods = list(pods)
    return sum(max(0, sum(map(each.covers, pods)) - each.allowed) for each in budgets)


def test_of_many_pods_those_without_a_budget_go_first() -> None:
    """More than all sets of which could be compared."""
    world = World()
    world.node("n", bare=True, allocatable={"cpu": "16"})
    ones = [
        world.pod(guaranteed=False, cpu="1", node_name="n", labels={"app": "x" if n < 14 else "y"})
        for n in range(16)
    ]
    plan = best(world, world.pod(guaranteed=False, cpu="3", priority=1), _budget("x", 0))
    assert plan is not None
    assert (plan.violations, len(plan.victims)) == (1, 3)
    assert {ones[14].uid, ones[15].uid} < {each.uid for each in plan.victims}


def test_room_won_back_from_ordinary_pods() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    world.pod(guaranteed=False, cpu="3", node_name="n")
    pod = world.pod(cpu="6", priority=10)
    assert world.place(pod) is None
    plan = best(world, pod)
    assert plan is not None
    assert len(plan.victims) == 1


def test_who_waits_for_victims_on_their_way_out_evicts_no_more() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    (victim,) = running(world, "n", 6)
    pod = world.pod(cpu="6", priority=10)
    assert preemption.may_preempt(pod, world.cluster, "")
    world.cluster.nominate(promise(pod.uid, "n"))
    leaving = replace(victim, deleting=True, version=10**6)
    world.cluster.set_pod(leaving, 0.0)
    assert preemption.may_preempt(pod, world.cluster, "n"), "it ends for other reasons"
    world.cluster.set_pod(replace(leaving, preempted=True), 0.0)
    assert not preemption.may_preempt(pod, world.cluster, "n")
    assert not preemption.may_preempt(
        world.pod(priority=10, preemptionPolicy="Never"), world.cluster, ""
    )


def test_a_promise_to_several_keeps_no_room_for_those_that_have_a_node_by_now() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    placed, waits = world.pod(cpu="2"), world.pod(cpu="2")
    assert world.place(placed) == "n"
    places = {placed.uid: "n", waits.uid: "n"}
    world.cluster.nominate(Promise(places=places))
    assert world.cluster.nominations == {waits.uid: "n"}
    world.cluster.unnominate(waits.uid)
    assert not world.cluster.nodes["n"].nominated


def test_the_place_made_for_a_pod_is_not_taken_by_others() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    (victim,) = running(world, "n", 6)
    pod = world.pod(cpu="6", priority=10)
    world.cluster.nominate(promise(pod.uid, "n"))
    world.end(victim, "n")
    thief = world.pod(cpu="2")
    assert world.place(thief) is None
    assert world.cycle.decide(thief).waits
    assert world.place(pod) == "n"


def kept_for(world: World, pod: PodView) -> NodeEntry | None:
    """The node that would be kept for the pod."""
    assert promises.is_wanted(world.cycle, pod)
    steps = promises.quickest(pod, world.cluster, world.cycle)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            entry: NodeEntry | None = end.value[0]
            return entry


def test_small_pods_cannot_starve_a_large_one_for_ever() -> None:
    """A stream of small pods keeps the zone busy; the reservation lets it drain."""
    world = World()
    world.node("n", state(machine(zones=1)))
    small = running(world, "n", 3, 3)
    large = world.pod(cpu="7")
    assert world.place(large) is None
    entry = kept_for(world, large)
    assert entry is not None
    world.cluster.nominate(promise(large.uid, entry.name, kind=PromiseKind.RESERVATION))
    for ended in small:
        world.end(ended, "n")
        world.report("n")
        if ended is not small[-1]:
            assert world.place(world.pod(cpu="3")) is None
    assert world.place(large) == "n"
    assert world.cluster.nominations == {}


def test_no_node_is_kept_for_what_can_never_fit_there() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    huge = world.pod(cpu="8")
    assert kept_for(world, huge) is None


def test_a_node_is_kept_however_many_others_of_no_use_lack_less() -> None:
    desk = Desk(preempts=False, reserve_after=60.0)
    desk.node("a", labels={"pool": "a"})
    for number in range(150):
        desk.node(f"b{number}", labels={"pool": "b"})
    for cpus in ("6", "5"):
        job = desk.pod(f"job-{cpus}", cpus, node_name="a", restartPolicy="Never")
        assert desk.admit(job) == ""
    desk.pod("large", "7", nodeSelector={"pool": "a"}, restartPolicy="Never")
    desk.pass_time(65.0)
    kept = [each for each in desk.told(Post) if each.reason == "NodeReserved"]
    assert [each.note for each in kept] == ["node a drains towards the pod"]


def test_a_group_is_asked_again_only_of_nodes_that_changed() -> None:
    world = World()
    world.node("a", state(machine(zones=1)))
    world.node("b", state(machine(zones=1)))
    running(world, "a", 6)
    (ending,) = running(world, "b", 6)
    pod = world.pod(cpu="6")
    assert world.cycle.decide(pod).node is None
    seen = world.cluster.sequence
    assert world.cluster.changed_since(seen) == []
    world.end(ending, "b")
    assert [entry.name for entry in world.cluster.changed_since(seen)] == ["b"]
    assert world.cycle.decide(pod, seen).node == "b"


def test_no_victim_is_chosen_while_a_pod_in_flight_may_be_in_any_zone() -> None:
    """A pod that is not confirmed counts in each zone: one more would have to go than has to."""
    world = World()
    world.node("n")
    (zone0,) = running(world, "n", 7)
    late = [world.pod(cpu=cpus, node_name="n") for cpus in ("4", "3")]
    for pod in late:
        assert world.admit(pod, "n").verdict == "admitted"
    high = world.pod(cpu="6", priority=10)
    assert best(world, high) is None
    world.report("n")
    plan = best(world, high)
    assert plan is not None
    assert plan.victims == (zone0,)


@pytest.mark.parametrize("priority", [0, 2000])
def test_room_that_is_on_its_way_is_waited_for(priority: int) -> None:
    """However important it is who leaves it."""
    world = World()
    for name in ("a", "b"):
        world.node(name, state(machine(zones=1)))
    (leaving,) = running(world, "a", 6, priority=priority)
    running(world, "b", 6)
    world.cluster.set_pod(replace(leaving, deleting=True, version=10**6), 0.0)
    plan = best(world, world.pod(cpu="6", priority=10))
    assert plan is not None
    assert (plan.node, plan.victims, plan.leaving) == ("a", (), frozenset({leaving.uid}))


def test_room_that_another_waits_for_is_not_counted_twice() -> None:
    world = World()
    for name in ("a", "b"):
        world.node(name, state(machine(zones=1)))
    (leaving,) = running(world, "a", 6)
    (other,) = running(world, "b", 6)
    world.cluster.set_pod(replace(leaving, deleting=True, version=10**6), 0.0)
    world.cluster.nominate(promise(world.pod(cpu="6", priority=10).uid, "a"))
    plan = best(world, world.pod(cpu="5", priority=10))
    assert plan is not None
    assert (plan.node, plan.victims) == ("b", (other,))


def test_victims_for_two_who_wait_for_one_node_make_room_for_both() -> None:
    world = World()
    world.node("n")
    first, second = running(world, "n", 7, 8)
    world.cluster.nominate(promise(world.pod(cpu="6", priority=10).uid, "n"))
    plan = best(world, world.pod(cpu="5", priority=10))
    assert plan is not None
    assert {victim.uid for victim in plan.victims} == {first.uid, second.uid}


def test_nobody_is_evicted_while_a_place_is_there_or_about_to_be() -> None:
    world = World()
    for name in ("full", "half"):
        world.node(name)
    running(world, "full", 7, 8)
    _, ended = running(world, "half", 4, 1)
    high = world.pod(cpu="6", priority=10)
    assert best(world, high) is None
    # It is in zone 0 by prediction, and in zone 1 if the kubelet admitted it before that ending.
    world.pod(cpu="3", node_name="half")
    world.end(ended, "half")
    assert world.cycle.decide(high).waits
    assert best(world, high) is None


def test_nobody_is_evicted_for_a_pod_that_something_else_keeps_away() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    running(world, "n", 6, labels={"app": "db"})
    claims = world.pod(
        cpu="6", priority=10, resourceClaims=[{"name": "gpu", "resourceClaimName": "g"}]
    )
    assert best(world, claims) is None
    term = {
        "labelSelector": {"matchLabels": {"app": "nowhere"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert best(world, world.pod(cpu="6", priority=10, affinity=affinity)) is None
    assert best(world, world.pod(cpu="6", priority=10)) is not None


def test_all_nodes_are_looked_at_until_enough_can_help() -> None:
    """Those that look cheapest, by pods that do not matter, may not help at all."""
    world = World()
    for number in range(40):
        world.node(f"n{number}", bare=True)
        world.pod(name=f"small{number}", node_name=f"n{number}", guaranteed=False, cpu="100m")
        world.pod(
            name=f"large{number}",
            node_name=f"n{number}",
            guaranteed=False,
            cpu="15",
            priority=10_000,
        )
    world.node("good", bare=True)
    world.pod(name="batch", node_name="good", guaranteed=False, cpu="15", priority=100)
    pod = world.pod(guaranteed=False, cpu="8", priority=1000)
    found = [
        p for p in plans(world.cycle, world.cluster, pod) if isinstance(p, preemption.EvictionPlan)
    ]
    assert [plan.node for plan in found] == ["good"]


def test_no_more_nodes_are_looked_at_when_none_could_do_with_less() -> None:
    world = World()
    for number in range(40):
        name, started = f"n{number}", f"2026-01-01T00:00:{(number * 7) % 40:02}Z"
        world.node(name, bare=True)
        low = world.pod(name=f"low{number}", node_name=name, guaranteed=False, cpu="15")
        world.cluster.nodes[name].add(replace(low, started=started))
    pod = world.pod(guaranteed=False, cpu="8", priority=1000)
    found = [
        p for p in plans(world.cycle, world.cluster, pod) if isinstance(p, preemption.EvictionPlan)
    ]
    assert [plan.victims[0].started for plan in found] == ["2026-01-01T00:00:39Z"]


@given(st.randoms(use_true_random=False))
def test_where_the_search_ends_no_other_node_could_do_with_less(chooser: random.Random) -> None:
    """The plan of each node, and what it costs at least by totals alone."""
    world = World()
    for number in range(5):
        name = f"n{number}"
        world.node(name, bare=True, allocatable={"cpu": "8", "memory": "32Gi"})
        for _ in range(chooser.randrange(1, 5)):
            low = world.pod(
                guaranteed=False, node_name=name, priority=chooser.choice((0, 0, 1, 5)),
                cpu=f"{chooser.randrange(5)}",
            )  # fmt: skip
            started = f"2026-01-01T00:00:{chooser.randrange(60):02}Z"
            deleting = chooser.random() < 0.1
            world.cluster.nodes[name].add(replace(low, started=started, deleting=deleting))
        world.cluster.touch(world.cluster.nodes[name])
    pod = world.pod(guaranteed=False, priority=5, cpu=f"{chooser.randrange(5, 9)}")
    plan = best(world, pod)
    nodes = [entry for entry in world.cluster.nodes.values() if preemption.victims_of(pod, entry)]
    least = {entry.name: bound for bound, entry in preemption.cheapest_first(pod, nodes)}
    every = [preemption.plan_for(pod, entry, (), world.cycle.profile) for entry in nodes]
    known = [each for each in every if each is not None]
    assert all(least[each.node] <= each.cost for each in known)
    if plan is not None:
        assert plan.cost == min(each.cost for each in known)


def test_of_many_pods_few_large_ones_go_instead_of_many_small_ones() -> None:
    world = World()
    world.node("n", bare=True, allocatable={"cpu": "16"})
    for number in range(12):
        cpu = "2" if number % 4 == 0 else "1"
        world.pod(guaranteed=False, node_name="n", cpu=cpu, mem="1Mi")
    plan = best(world, world.pod(guaranteed=False, cpu="6", priority=10))
    assert plan is not None
    assert len(plan.victims) == 3


def test_the_best_of_many_nodes_is_good_enough() -> None:
    """Their totals say that one victim would do, and their zones that it would not."""
    world = World()
    for number in range(preemption.MOST + 10):
        name = f"n{number}"
        world.node(name, state(machine(zones=1, cpus=8)))
        running(world, name, 3, 3)
        world.pod(guaranteed=False, cpu="1", node_name=name, priority=-1)
    pod = world.pod(cpu="6", priority=10)
    found = [
        p for p in plans(world.cycle, world.cluster, pod) if isinstance(p, preemption.EvictionPlan)
    ]
    assert len(found) == preemption.MOST
