"""bench/placement: a second view notices pods that wait although a place is there."""

from __future__ import annotations

from bench.lib.witness import LATE_S, Watch, reasons
from tests.unit.scheduler.build import World, machine, state

ENOUGH_S = LATE_S + 0.1


def world_of_one_zone() -> World:
    world = World()
    world.node("n", state(machine(zones=1)))
    return world


def test_a_pod_that_a_node_takes_is_late_after_a_time() -> None:
    world = world_of_one_zone()
    pod = world.pod(cpu="6")
    watch = Watch(world.cluster, "rte-scheduler")
    watch.look(0.0, 0.0)
    assert watch.found == []
    watch.look(ENOUGH_S, 0.0)
    (late,) = watch.found
    assert (late.pod, late.nodes, late.seconds, late.idle) == (pod.name, ("n",), 0.3, 0.3)
    assert late.is_fault
    assert watch.to_ask() == [late]
    assert watch.to_ask() == []


def test_what_no_node_takes_is_not_late() -> None:
    world = world_of_one_zone()
    watch = Watch(world.cluster, "rte-scheduler")
    world.pod(cpu="9")
    for moment in range(3):
        watch.look(float(moment), 0.0)
    assert watch.found == []


def test_a_decision_counts_before_the_api_shows_it() -> None:
    world = world_of_one_zone()
    first, second = world.pod(cpu="6"), world.pod(cpu="6")
    watch = Watch(world.cluster, "rte-scheduler")
    watch.decided(first.uid, "n")
    for moment in range(3):
        watch.look(float(moment), 0.0)
    assert watch.found == []
    assert world.cluster.assumed == {first.uid: "n"}
    assert second.uid in world.cluster.pods


def test_time_in_which_the_scheduler_was_busy_is_no_fault_of_it() -> None:
    world = world_of_one_zone()
    pod = world.pod(cpu="6")
    watch = Watch(world.cluster, "rte-scheduler")
    watch.look(0.0, 10.0)
    watch.look(1.0, 10.1)
    (late,) = watch.found
    assert late.is_fault
    # Only now it is known that it had been waiting for a CPU all the time.
    watch.decided(pod.uid, "n")
    watch.look(1.1, 11.0)
    assert (late.seconds, late.idle, late.is_fault) == (1.0, 0.0, False)


def test_a_lateness_ends_when_the_place_has_gone() -> None:
    world = world_of_one_zone()
    world.pod(cpu="6")
    watch = Watch(world.cluster, "rte-scheduler")
    watch.look(0.0, 0.0)
    world.report("n", synced=False)
    watch.look(1.0, 0.0)
    world.report("n")
    watch.look(2.0, 0.0)
    assert watch.found == []


def test_reasons_with_a_name() -> None:
    waits = {"node": "a", "reason": "node(s) reserved for a pod that waits", "waits": True}
    fits = {"node": "b", "reason": "", "waits": False}
    assert reasons({"nodes": [waits]}, ["a"]) == ({"a": waits["reason"]}, True)
    assert reasons({"nodes": [waits, fits]}, ["a", "b"])[1] is False
    assert reasons({"nodes": []}, ["a"]) == ({"a": "it is not known"}, False)
    assert reasons({"bound": "a"}, ["a"]) == ({"a": "bound by now"}, False)
