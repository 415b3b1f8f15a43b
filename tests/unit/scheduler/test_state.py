"""The state of a node follows from its report, the API's pods and our binds; nothing else."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rte import placement
from rte.model.node import DevicePool
from rte.scheduler.framework import outlook
from rte.scheduler.framework.node import Report
from tests.depth import scaled
from tests.unit.scheduler.build import World, machine, pod_object, state

if TYPE_CHECKING:
    from random import Random

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.scheduler.framework.objects import PodView


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


def test_each_pod_in_flight_is_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted: list[str] = []

    def admit(known: NodeState, pod: Pod) -> placement.Admission:
        predicted.append(pod.uid)
        return placement.admit(known, pod)

    world = World()
    world.node("n", state(machine(cpus=64)))
    monkeypatch.setattr(
        outlook, "placement", SimpleNamespace(**{**vars(placement), "admit": admit})
    )
    entry = world.cluster.nodes["n"]
    pods = [world.pod(cpu="1") for _ in range(30)]
    for pod in pods:
        world.cluster.assume(pod.uid, "n", {})
        assert entry.outlook() is not None
    assert sorted(predicted) == sorted(pod.uid for pod in pods)
    # Of what is promised beside them nothing but that is new, and the node forgets it again.
    more = world.pod(cpu="1")
    beside = entry.beside([more]).outlook()
    assert beside is not None
    assert len(beside.in_flight) == 31
    assert predicted[30:] == [more.uid]


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


def test_a_pod_that_is_being_deleted_may_free_a_zone_that_would_mislead_the_kubelet() -> None:
    """The larger container fits zone 1 alone until zone 0 is free; then the GPU is out of reach."""
    gpu = DevicePool(ids=("g",), zones=(0b01,), healthy=0b1)
    world = World()
    world.node("n", state(devices={"example.com/gpu": gpu}))
    old = world.pod(cpu="3")
    world.place(old)
    world.admit(old, "n")
    world.report("n")
    obj = pod_object(cpu=["5", "4"])
    amounts = obj["spec"]["containers"][1]["resources"]["requests"]
    amounts["example.com/gpu"] = "1"
    new = world.pod(obj)
    assert world.cycle.decide(new).node == "n"
    leaving = replace(world.cluster.pods[old.uid], node="n", deleting=True)
    world.cluster.set_pod(leaving, 0.0)
    decision = world.cycle.decide(new)
    assert (decision.node, decision.waits) == (None, True)
    assert world.why(new) == {"node(s) where a pod that is being deleted stands in the way": 1}
    # What nothing can mislead goes there all the same.
    assert world.place(world.pod(cpu="2")) == "n"


def test_a_late_list_that_still_names_a_deleted_pod_changes_nothing() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    old, new = world.pod(cpu="6"), world.pod(cpu="6")
    world.place(old)
    listed = replace(world.cluster.pods[old.uid], node="n", version=old.version + 1)
    world.cluster.set_pod(listed, 0.0)
    world.cluster.remove_pod(old.uid, 0.0)
    world.cluster.set_pod(listed, 0.0)
    assert old.uid not in world.cluster.pods
    assert world.place(new) == "n"


def test_an_older_state_counts_in_a_list_that_is_newer_than_what_is_known() -> None:
    """An etcd was restored, and its versions go on from where they were."""
    world = World()
    world.node("n", state(machine(zones=1)))
    bound, ended = world.pod(cpu="6"), world.pod(cpu="6")
    unbound = world.cluster.pods[bound.uid]
    running = replace(world.cluster.pods[ended.uid], node="n")
    newest = max(unbound.version, running.version)
    world.cluster.set_pod(replace(unbound, node="n", version=newest + 5), 0.0)
    world.cluster.set_pod(replace(running, version=newest + 6), 0.0)
    world.cluster.remove_pod(ended.uid, 0.0, as_of=newest + 7)

    for late in (0, newest + 4):  # read before, answered afterwards
        world.cluster.set_pod(unbound, 0.0, as_of=late)
        world.cluster.set_pod(running, 0.0, as_of=late)
    assert set(world.cluster.nodes["n"].pods) == {bound.uid}

    world.cluster.set_pod(unbound, 0.0, as_of=newest + 1000)
    world.cluster.set_pod(running, 0.0, as_of=newest + 1000)
    assert set(world.cluster.nodes["n"].pods) == {running.uid}
    assert not world.cluster.nodes["n"].gone


def test_what_a_restored_api_shows_counts_however_old_its_versions_are() -> None:
    world = World()
    world.node("n", state(machine(zones=1)))
    bound, ended = world.pod(cpu="6"), world.pod(cpu="6")
    unbound = replace(world.cluster.pods[bound.uid], version=2)
    world.cluster.set_pod(replace(unbound, node="n", version=50), 0.0)
    running = replace(world.cluster.pods[ended.uid], node="n", version=3)
    world.cluster.set_pod(replace(running, version=51), 0.0)
    world.cluster.remove_pod(ended.uid, 0.0)

    world.cluster.forget_versions()
    world.cluster.set_pod(unbound, 0.0)
    world.cluster.set_pod(running, 0.0)

    assert set(world.cluster.nodes["n"].pods) == {running.uid}
    assert world.cluster.pods[bound.uid].node == ""


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


def test_a_pod_in_flight_that_is_sure_of_its_zone_stands_in_nobodys_way() -> None:
    world = World()
    world.node("n")
    held, first, second = world.pod(cpu="1"), world.pod(cpu="6"), world.pod(cpu="8")
    world.place(held)
    world.admit(held, "n")
    world.report("n")
    assert world.place(first) == "n"
    assert world.place(second) == "n"
    world.end(held, "n")
    assert world.admit(second, "n").admitted
    assert world.admit(first, "n").admitted


def test_what_waits_for_a_confirmation_goes_on_when_it_comes() -> None:
    world = World()
    world.node("n")
    held, first, second = world.pod(cpu="1"), world.pod(cpu="6"), world.pod(cpu="8")
    world.place(held)
    world.admit(held, "n")
    world.report("n")
    assert world.place(first) == "n"
    # The kubelet may have admitted the first one before this: to which zone, nobody knows.
    world.end(held, "n")
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


def test_a_node_whose_agent_lives_and_has_published_nothing_is_not_guessed_at() -> None:
    """Its report was deleted, or is not there yet: it will come."""
    world = World()
    world.node("n", bare=True)
    world.cluster.set_alive("n", alive=True)
    pod = world.pod(cpu="2")
    assert world.place(pod) is None
    assert world.why(pod) == {"node(s) whose rte agent has published nothing": 1}
    assert world.place(world.pod(cpu="2", guaranteed=False)) == "n"


def test_a_report_of_an_earlier_node_of_that_name_is_not_believed() -> None:
    world = World()
    world.node("n")
    world.cluster.set_report("n", Report(state=world.kubelets["n"], owner="uid-old"), 0.0)
    assert world.place(world.pod(cpu="2")) is None


class Node(RuleBasedStateMachine):
    """A kubelet that lags behind the API, and an API that lags behind the kubelet.

    The kubelet meets binds and forced deletions in the order of the API's history, as late as it
    likes; pods that end by themselves are let go of by the kubelet before the API shows it; reports
    come whenever they come; binds of one moment may be met in any order (a new list).
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.history: list[tuple[str, PodView]] = []
        self.running: list[PodView] = []
        self.ended: list[PodView] = []

    @initialize(
        policy=st.sampled_from(["single-numa-node", "restricted", "best-effort", "none"]),
        scope=st.sampled_from(["container", "pod"]),
        full=st.booleans(),
    )
    def start(self, policy: str, scope: str, full: bool) -> None:
        options = {"full-pcpus-only": "true"} if full else {}
        self.world.node("n", state(policy=policy, scope=scope, cpu_options=options))

    @invariant()
    def what_stands_is_what_would_be_found_anew(self) -> None:
        for entry in self.world.cluster.nodes.values():
            anew = entry.without(frozenset())
            anew._outlook_before = None
            assert entry.outlook() == anew.outlook()

    @rule(
        sizes=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=2),
        mem=st.sampled_from([1, 3, 6]),
    )
    def arrive(self, sizes: list[int], mem: int) -> None:
        pod = self.world.pod(cpu=[str(size) for size in sizes], mem=f"{mem}Gi")
        if self.world.place(pod):
            self.history.append(("bind", pod))

    @precondition(lambda self: self.history)
    @rule(count=st.integers(1, 4), order=st.randoms(use_true_random=False))
    def kubelet_catches_up(self, count: int, order: Random) -> None:
        batch = [self.history.pop(0) for _ in range(min(count, len(self.history)))]
        if all(kind == "bind" for kind, _ in batch):
            order.shuffle(batch)
        for kind, pod in batch:
            if kind == "bind":
                admission = self.world.admit(pod, "n")
                assert admission.verdict == "admitted", (admission.reason, admission.message)
                self.running.append(pod)
            else:
                self._let_go(pod)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_pod_is_deleted_by_force(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.running))
        self.running.remove(pod)
        self.world.cluster.remove_pod(pod.uid, 0.0)
        self.history.append(("delete", pod))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_pod_ends_by_itself(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.running))
        self.running.remove(pod)
        self._let_go(pod)
        self.ended.append(pod)

    @precondition(lambda self: self.ended)
    @rule()
    def the_api_shows_an_end(self) -> None:
        self.world.cluster.remove_pod(self.ended.pop(0).uid, 0.0)

    @rule()
    def a_report_comes(self) -> None:
        self.world.report("n")

    def _let_go(self, pod: PodView) -> None:
        kubelet = self.world.kubelets["n"]
        active = kubelet.admitted - {pod.kubelet_uid}
        self.world.kubelets["n"] = replace(placement.settle(kubelet, active), admitted=active)


TestNoPodInFlightIsEverRefused = Node.TestCase
TestNoPodInFlightIsEverRefused.settings = settings(
    max_examples=scaled(80), stateful_step_count=30, deadline=None
)
