"""The state of a node follows from its report, the API's pods and our binds; nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from tests.unit.scheduler.build import World, machine, pod_object, state


def test_a_decision_counts_at_once_in_the_zone_where_the_kubelet_will_put_it() -> None:
    world = World()
    world.node("n")
    assert world.place(world.pod(cpu="6")) == "n"
    assert world.place(world.pod(cpu="8")) == "n"
    free = world.cluster.nodes["n"].free_by_zone()
    assert free is not None
    assert [(zone, cpus) for zone, cpus, _ in free] == [(0, 1), (1, 0)]


def test_a_confirmed_pod_is_counted_once() -> None:
    world = World()
    world.node("n")
    pod = world.pod(cpu="6")
    world.place(pod)
    world.admit(pod, "n")
    world.report("n")
    outlook = world.cluster.nodes["n"].outlook()
    assert outlook is not None
    assert outlook.in_flight == ()
    assert outlook.predicted.shared.bit_count() == 16 - 6


def test_an_ended_pod_makes_room_before_the_report_says_so() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    old, new = world.pod(cpu="6"), world.pod(cpu="6")
    world.place(old)
    world.admit(old, "n")
    world.report("n")
    assert world.place(new) is None
    world.end(old)
    assert world.place(new) == "n"


def test_a_late_report_that_still_names_an_ended_pod_changes_nothing() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    old, new = world.pod(cpu="6"), world.pod(cpu="6")
    world.place(old)
    world.admit(old, "n")
    world.end(old)
    world.report("n")
    assert world.place(new) == "n"


def test_the_residues_of_a_refused_pod_do_not_count() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    foreign = world.pod(pod_object(cpu=["4", "6"], schedulerName="other", node_name="n"))
    admission = world.admit(foreign, "n")
    assert admission.verdict == "refused"
    world.report("n")
    failed = pod_object(cpu=["4", "6"], schedulerName="other", node_name="n")
    failed["metadata"].update(name=foreign.name, uid=foreign.uid)
    failed["status"] = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
    }
    world.pod(failed)
    assert world.place(world.pod(cpu="7")) == "n"


def test_pods_bound_by_others_count_until_the_report_names_them() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    world.pod(cpu="6", node_name="n", schedulerName="default-scheduler")
    assert world.place(world.pod(cpu="2")) is None
    assert world.place(world.pod(cpu="1")) == "n"


def test_a_mirror_pod_is_known_by_its_static_uid_and_outlives_its_mirror() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    mirror = world.pod(
        cpu="6", node_name="n", annotations={"kubernetes.io/config.hash": "static-uid"}
    )
    world.admit(mirror, "n")
    world.report("n")
    world.end(mirror)
    assert world.place(world.pod(cpu="4")) is None


def test_a_second_pod_in_flight_waits_where_the_first_might_take_its_zone() -> None:
    world = World()
    world.node("n")
    held = [world.pod(cpu=str(cpus)) for cpus in (3, 4)]
    for pod in held:
        world.place(pod)
        world.admit(pod, "n")
        world.report("n")
    # Free: 0 in zone 0, 8 in zone 1 (7 went to zone 0).
    first, second = world.pod(cpu="4"), world.pod(cpu="4")
    assert world.place(first) == "n"
    # If both older pods have ended on the node already, ``first`` is in zone 0 and all is well; if
    # not, it is in zone 1 beside ``second``: it fits either way.
    assert world.place(second) == "n"
    third = world.pod(cpu="1")
    assert world.place(third) is None


def test_what_waits_for_a_confirmation_goes_on_when_it_comes() -> None:
    world = World()
    world.node("n")
    held, first, second = world.pod(cpu="1"), world.pod(cpu="6"), world.pod(cpu="8")
    world.place(held)
    world.admit(held, "n")
    world.report("n")
    assert world.place(first) == "n"
    decision = world.cycle.decide(second)
    assert decision.node is None
    assert decision.waits
    world.admit(first, "n")
    world.report("n")
    assert world.place(second) == "n"


@pytest.mark.parametrize("change", [{"synced": False}])
def test_nothing_that_needs_a_zone_goes_to_a_kubelet_that_is_not_synced(change: dict) -> None:
    world = World()
    world.node("n")
    world.report("n", **change)
    assert world.place(world.pod(cpu="2")) is None
    assert world.place(world.pod(cpu="2", guaranteed=False)) == "n"
    assert world.place(world.pod(cpu="1500m")) is None  # its memory needs a zone


def test_nothing_that_needs_a_zone_goes_where_the_agent_is_dead() -> None:
    world = World()
    world.node("n")
    world.cluster.set_alive("n", alive=False)
    pod = world.pod(cpu="2")
    assert world.place(pod) is None
    assert world.why(pod) == {"node(s) whose rte agent is not alive": 1}
    world.cluster.set_alive("n", alive=True)
    assert world.place(pod) == "n"


def test_nodes_without_a_report_follow_plain_rules() -> None:
    world = World()
    world.node("n", bare=True)
    assert world.place(world.pod(cpu="12")) == "n"
    assert world.place(world.pod(cpu="5")) is None


def test_a_report_of_an_earlier_node_of_that_name_is_not_believed() -> None:
    world = World()
    world.node("n")
    from rte.scheduler.node import Report

    world.cluster.set_report("n", Report(state=world.kubelets["n"], owner="uid-old"), 0.0)
    assert world.place(world.pod(cpu="2")) is None


_SIZES = st.sampled_from([1, 2, 3, 4, 6, 8])


@settings(max_examples=150, deadline=None)
@given(
    held=st.lists(_SIZES, max_size=5),
    ended=st.sets(st.integers(0, 4)),
    arriving=st.lists(st.lists(_SIZES, min_size=1, max_size=2), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    scope=st.sampled_from(["container", "pod"]),
)
def test_no_pod_in_flight_is_ever_refused(held, ended, arriving, order, scope) -> None:
    """The kubelet may have let go of pods that the API still shows, and meet pods in any order."""
    world = World()
    world.node("n", state(scope=scope))
    running = []
    for cpus in held:
        pod = world.pod(cpu=str(cpus))
        if world.place(pod):
            assert world.admit(pod, "n").verdict == "admitted"
            world.report("n")
            running.append(pod)
    kubelet = world.kubelets["n"]
    gone = {pod.kubelet_uid for number, pod in enumerate(running) if number in ended}
    active = kubelet.admitted - gone
    world.kubelets["n"] = replace(placement.settle(kubelet, active), admitted=active)
    bound = []
    for sizes in arriving:
        pod = world.pod(cpu=[str(size) for size in sizes])
        if world.place(pod):
            bound.append(pod)
    order.shuffle(bound)
    for pod in bound:
        admission = world.admit(pod, "n")
        assert admission.verdict == "admitted", (admission.reason, admission.message)
