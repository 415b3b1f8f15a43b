"""The agent's drift alarm: what it compares between two readings, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte import placement
from rte.agent.drift import DriftCheck
from rte.agent.observer.messages import PodGone, PodSeen, PodsListed
from rte.model.node import Holding
from rte.placement import drift
from rte.telemetry.cases import CaseBook
from rte.telemetry.metrics import AgentMetrics
from tests.unit.placement.build import node

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.node import NodeState
    from rte.model.pod import Pod


def pod_object(uid: str, cpus: int = 2, **status: Any) -> dict[str, Any]:
    """A pod as the API server shows it once it is bound."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "default"},
        "spec": {
            "nodeName": "n0",
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed", **status},
    }


class Watching:
    """A check on a node that starts empty."""

    def __init__(self, folder: Path) -> None:
        self.metrics = AgentMetrics()
        self.folder = folder
        self.check = DriftCheck("n0", self.metrics, CaseBook(folder))
        self.newcomers = self.check.newcomers
        self.state = node()
        self.check.observe(self.state)

    def pod(self, uid: str, cpus: int = 2) -> Pod:
        """The API shows a new pod."""
        self.newcomers.told(PodSeen(pod_object(uid, cpus)))
        return self.newcomers.pods[uid]

    def see(self, state: NodeState) -> None:
        self.state = state
        self.check.observe(state)

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"rte_{name}_total", labels) or 0.0

    @property
    def differences(self) -> float:
        return sum(self.count("prediction_differences", result=r) for r in drift.Result)


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(tmp_path / "cases")


def admitted(state: NodeState, *pods: Pod) -> NodeState:
    for each in pods:
        answer = placement.admit(state, each)
        assert answer.admitted
        state = answer.state
    return state


def shifted(state: NodeState, uid: str) -> NodeState:
    """The kubelet gave the pod one CPU more."""
    (name, held), *_ = state.holdings[uid].items()
    more = Holding(cpus=held.cpus | held.cpus << 1, memory=held.memory, devices=held.devices)
    return replace(state, holdings={**state.holdings, uid: {name: more}})


def test_an_admission_as_predicted_is_compared_and_forgotten(watching: Watching) -> None:
    watching.see(admitted(watching.state, watching.pod("a")))
    assert watching.count("predictions") == 1
    assert watching.differences == 0
    assert watching.newcomers.pods == {}
    watching.see(watching.state)
    assert watching.count("predictions") == 1


def test_another_admission_is_a_difference_with_a_case(watching: Watching) -> None:
    watching.see(shifted(admitted(watching.state, watching.pod("a")), "a"))
    assert watching.count("prediction_differences", result="other_cpus") == 1
    assert len(list(watching.folder.iterdir())) == 1
    watching.see(shifted(admitted(watching.state, watching.pod("b")), "b"))
    assert watching.differences == 2
    assert len(list(watching.folder.iterdir())) == 1


def test_a_pod_that_the_api_shows_later_is_compared_all_the_same(watching: Watching) -> None:
    before = watching.state
    late = Watching(watching.folder).pod("a")
    watching.see(shifted(admitted(before, late), "a"))
    assert watching.count("predictions") == 0
    watching.pod("a")
    watching.see(watching.state)
    assert watching.count("prediction_differences", result="other_cpus") == 1


def test_two_pods_between_two_readings_may_have_come_in_either_order(watching: Watching) -> None:
    one, two = watching.pod("one"), watching.pod("two")
    watching.see(admitted(watching.state, two, one))
    assert watching.count("predictions") == 2
    assert watching.differences == 0


def test_what_ended_between_two_readings_is_allowed_for(watching: Watching) -> None:
    watching.see(admitted(watching.state, watching.pod("a", 5)))
    watching.see(admitted(placement.remove(watching.state, "a"), watching.pod("b", 4)))
    assert watching.count("predictions") == 2
    assert watching.differences == 0


def test_a_pod_that_came_and_went_is_allowed_for(watching: Watching) -> None:
    brief, pod = watching.pod("brief"), watching.pod("pod")
    after = placement.remove(admitted(watching.state, brief, pod), "brief")
    watching.newcomers.told(PodSeen(pod_object("brief", phase="Succeeded", startTime="t")))
    watching.see(after)
    assert watching.differences == 0


def test_a_refusal_that_was_not_to_be_is_a_difference(watching: Watching) -> None:
    watching.pod("a")
    watching.see(watching.state)
    refused = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
    }
    watching.newcomers.told(PodSeen(pod_object("a", **refused)))
    watching.see(watching.state)
    assert watching.count("prediction_differences", result="refused") == 1
    assert watching.newcomers.pods == watching.newcomers.endings == {}


def test_a_refusal_as_predicted_is_none(watching: Watching) -> None:
    watching.pod("a", 9)
    watching.see(watching.state)
    watching.newcomers.told(
        PodSeen(
            pod_object(
                "a",
                9,
                phase="Failed",
                reason="TopologyAffinityError",
                message="Pod was rejected: x",
            )
        )
    )
    watching.see(watching.state)
    assert watching.count("predictions") == 1
    assert watching.differences == 0


def test_a_pod_that_ended_otherwise_is_not_compared(watching: Watching) -> None:
    watching.pod("a")
    watching.see(watching.state)
    watching.newcomers.told(PodGone(pod_object("a")))
    watching.see(watching.state)
    assert watching.count("predictions") == 0
    assert watching.newcomers.pods == watching.newcomers.endings == {}


def test_nothing_is_compared_across_a_restart(watching: Watching) -> None:
    pod = watching.pod("a")
    watching.see(replace(watching.state, synced=False, epoch="2"))
    watching.see(shifted(admitted(replace(watching.state, synced=True), pod), "a"))
    assert watching.count("predictions") == 0


def test_half_an_admission_is_not_held_against_the_pod(watching: Watching) -> None:
    """A reading between two writes has the pod's CPUs, and does not have it as admitted."""
    pod = watching.pod("a")
    after = admitted(watching.state, pod)
    watching.see(replace(after, admitted=frozenset()))
    watching.see(after)
    assert watching.count("predictions") == 1
    assert watching.differences == 0


def test_a_deletion_that_the_kubelet_sees_after_the_pod_is_no_difference(
    watching: Watching,
) -> None:
    """The API shows the pod gone while its CPUs are still held, and the next one comes then."""
    held = admitted(watching.state, watching.pod("held", 5))
    watching.see(held)
    watching.see(replace(held, admitted=held.admitted - {"held"}))
    after = placement.remove(admitted(held, watching.pod("p")), "held")
    watching.see(after)
    assert watching.count("predictions") == 2
    assert watching.differences == 0


def test_a_pod_that_a_new_list_lacks_is_over(watching: Watching) -> None:
    watching.pod("a")
    watching.newcomers.told(PodsListed(()))
    watching.see(watching.state)
    assert watching.newcomers.pods == watching.newcomers.endings == {}
