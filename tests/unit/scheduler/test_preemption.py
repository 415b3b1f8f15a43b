"""Preemption and reservations look at zones, not at totals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler import preemption, reservation
from rte.scheduler.budgets import Budget
from rte.scheduler.queue import Group
from tests.unit.scheduler.build import World, machine, state

if TYPE_CHECKING:
    from rte.scheduler.objects import PodView


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


def best(world: World, pod: PodView, *budgets: Budget) -> preemption.Plan | None:
    plans = preemption.search(pod, world.cluster, world.cycle, budgets)
    return min(plans, key=lambda plan: plan.cost, default=None)


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
    assert not node.check(pod.shape).reason
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
    budget = Budget(namespace="default", selector={"matchLabels": {"app": "db"}}, allowed=0)
    pod = world.pod(cpu="6", priority=10)
    plan = best(world, pod, budget)
    assert plan is not None
    assert (plan.node, plan.victims, plan.violations) == ("free", (victim,), 0)
    world.cluster.remove_node("free")
    plan = best(world, pod, budget)
    assert plan is not None
    assert (plan.node, plan.violations) == ("guarded", 1)


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
    assert preemption.may_preempt(pod, world.cluster)
    world.cluster.nominate(pod.uid, "n")
    world.cluster.set_pod(replace(victim, deleting=True, version=10**6), 0.0)
    assert not preemption.may_preempt(pod, world.cluster)
    assert not preemption.may_preempt(
        world.pod(priority=10, preemptionPolicy="Never"), world.cluster
    )


def test_the_place_made_for_a_pod_is_not_taken_by_others() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    (victim,) = running(world, "n", 6)
    pod = world.pod(cpu="6", priority=10)
    world.cluster.nominate(pod.uid, "n")
    world.end(victim, "n")
    thief = world.pod(cpu="2")
    assert world.place(thief) is None
    assert world.cycle.decide(thief).waits
    assert world.place(pod) == "n"


def test_small_pods_cannot_starve_a_large_one_for_ever() -> None:
    """A stream of small pods keeps the zone busy; the reservation lets it drain."""
    world = World()
    world.node("n", state(machine(zones=1)))
    small = running(world, "n", 3, 3)
    large = world.pod(cpu="7")
    assert world.place(large) is None
    kept: dict[str, str] = {}
    assert reservation.choose([(large, 50.0)], world.cluster, kept, oldest=40.0) == []
    ((pod, entry),) = reservation.choose([(large, 30.0)], world.cluster, kept, oldest=40.0)
    world.cluster.nominate(pod.uid, entry.name)
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
    assert reservation.choose([(huge, 0.0)], world.cluster, {}, oldest=1.0) == []


def test_a_group_is_asked_again_only_of_nodes_that_changed() -> None:
    world = World()
    world.node("a", state(machine(zones=1)))
    world.node("b", state(machine(zones=1)))
    running(world, "a", 6)
    (ending,) = running(world, "b", 6)
    pod = world.pod(cpu="6")
    group = Group(pod.shape.key)
    assert world.cycle.decide(pod, group).node is None
    group.seen, group.pod_seen = world.cluster.sequence, world.cluster.pod_sequence
    assert world.cluster.changed_since(group.seen) == []
    world.end(ending, "b")
    assert [entry.name for entry in world.cluster.changed_since(group.seen)] == ["b"]
    assert world.cycle.decide(pod, group).node == "b"
