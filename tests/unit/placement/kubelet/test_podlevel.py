"""Pods with pod-level resources under the gate PodLevelResourceManagers."""

import dataclasses

import pytest

from rte import placement
from rte.model import bits
from rte.model.node import MemoryBlock
from rte.model.pod import QOS
from rte.placement.kubelet import demand, outcome, podlevel
from rte.placement.kubelet.rules import rules_of
from tests.unit.placement import build
from tests.unit.placement.build import GIB, GPU, container, pod, pool

NEW, OLD = "v1.37.1", "v1.36.4"


def node(policy="restricted", scope="pod", version=NEW, **changes):
    settings = {"feature_gates": build.POD_LEVEL, "topology_scope": scope, **changes}
    return build.node(policy=policy, version=version, **settings)


def whole(uid, *containers, cpus=6, memory=6, qos=QOS.GUARANTEED):
    stanza = {"cpu": cpus * 1000, "memory": memory * GIB}
    return pod(uid, *containers, qos=qos, pod_requests=stanza, pod_limits=stanza)


def parts(answer):
    return {name: bits.format_list(held.cpus) for name, held in answer.holdings.items()}


def memory(held):
    return [(block.resource, block.zones, block.size / GIB) for block in held.memory]


OWN, SHARING = container("own", cpus=2, memory=2), container("sharing")


# Pod scope


def test_the_pod_gets_its_cpus_and_memory_at_once_and_containers_parts_of_them():
    answer = placement.admit(node(), whole("a", OWN, SHARING))
    assert answer.admitted
    assert bits.format_list(answer.pod_holding.cpus) == "1-3,9-11"
    assert parts(answer) == {"own": "1,9", "sharing": "2-3,10-11"}
    assert memory(answer.pod_holding) == [("memory", 1, 6)]
    assert memory(answer.holdings["own"]) == [("memory", 1, 2)]
    assert memory(answer.holdings["sharing"]) == [("memory", 1, 4)]
    assert set(answer.hints) == {"own", "sharing"}


def test_the_pods_share_comes_free_as_a_whole():
    state = node()
    answer = placement.admit(state, whole("a", OWN, SHARING))
    assert answer.state.pod_holdings == {"a": answer.pod_holding}
    assert placement.remove(answer.state, "a") == state
    assert placement.settle(answer.state, frozenset({"a"})) is answer.state


def test_ordinary_init_containers_work_with_what_sidecars_leave():
    life = whole(
        "a",
        container("all", "init"),
        container("some", "init", cpus=4, memory=1),
        container("side", "sidecar", cpus=2, memory=1),
        container("rest", "init"),
        container("loose", "sidecar"),
        OWN,
    )
    answer = placement.admit(node(), life)
    assert parts(answer) == {
        "all": "1-3,9-11",
        "some": "1-2,9-10",
        "side": "1,9",
        "rest": "2-3,10-11",
        "loose": "3,11",
        "own": "2,10",
    }
    assert memory(answer.holdings["all"]) == [("memory", 1, 6)]
    assert memory(answer.holdings["rest"]) == [("memory", 1, 5)]
    assert memory(answer.holdings["loose"]) == [("memory", 1, 3)]


def test_init_containers_lose_their_part_and_free_nothing():
    answer = placement.admit(node(), whole("a", container("init", "init", 1, memory=1), SHARING))
    started = placement.start(answer.state, whole("a", container("init", "init"), SHARING))
    assert started.memory == answer.state.memory
    assert started.holdings["a"]["init"].memory == ()
    assert placement.remove(started, "a") == node()


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        (
            [container("own", cpus=6, memory=1), SHARING],
            (
                "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving "
                "no cpus for shared containers"
            ),
        ),
        (
            [container("side", "sidecar", cpus=6, memory=1), container("init", "init")],
            "pod rejected, pod has shared init containers but no cpus available for them",
        ),
        (
            [container("own", cpus=1, memory=6), SHARING],
            (
                "pod rejected, sum of exclusive container memory requests equals pod budget, "
                "leaving no memory for shared containers"
            ),
        ),
        (
            [container("side", "sidecar", cpus=1, memory=6), container("init", "init")],
            "pod rejected, pod has shared init containers but no memory available for them",
        ),
    ],
)
def test_a_shared_pool_must_not_be_empty(containers, text):
    refused = placement.admit(node(), whole("a", *containers))
    assert (refused.reason, refused.failed_container) == (outcome.TOPOLOGY_AFFINITY_ERROR, "*")
    assert refused.message == (
        "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
    )
    passed = placement.admit(node("best-effort"), whole("a", *containers))
    assert (passed.reason, passed.message) == (outcome.EMPTY_POD_SHARED_POOL_ERROR, text)
    assert placement.settle(passed.state, frozenset()) == node("best-effort")


def test_full_cores_are_asked_of_the_pod_and_not_of_its_parts():
    options = {"full-pcpus-only": "true"}
    state = node(cpu_options=options)
    odd = container("own", cpus=1, memory=1)
    assert placement.admit(state, whole("a", odd, SHARING, cpus=4)).admitted
    refused = placement.admit(state, whole("a", odd, SHARING, cpus=3))
    assert (refused.reason, refused.failed_by) == (outcome.SMT_ALIGNMENT_ERROR, "cpu")


def test_a_pod_without_whole_cpus_or_not_guaranteed_gets_none():
    half = dataclasses.replace(whole("a", OWN), pod_requests={"cpu": 2500, "memory": 3 * GIB})
    answer = placement.admit(node(), half)
    assert parts(answer) == {"own": ""}
    assert memory(answer.pod_holding) == [("memory", 1, 3)]
    burstable = placement.admit(node(), whole("a", OWN, qos=QOS.BURSTABLE))
    assert (burstable.admitted, burstable.holdings, burstable.pod_holding) == (True, {}, None)


def test_a_part_that_cannot_be_picked_keeps_the_pods_cpus_for_ever(monkeypatch):
    def fails(*_):
        raise outcome.AllocationRefused.unexpected("accounting error")

    monkeypatch.setattr(podlevel, "split_cpus", fails)
    answer = placement.admit(node(), whole("a", OWN, SHARING))
    assert answer.failed_by == "cpu"
    settled = placement.settle(answer.state, frozenset())
    assert settled.shared == answer.state.shared != node().shared


def test_amounts_that_the_stanza_lacks_wrap_around_as_in_the_kubelet():
    labels = podlevel.split_memory(
        1, {"memory": 4}, [(OWN, {"memory": 1, "hugepages-2Mi": 2}), (SHARING, {})]
    )
    assert labels["sharing"] == (
        MemoryBlock("hugepages-2Mi", 1, 2**64 - 2),
        MemoryBlock("memory", 1, 3),
    )


# Devices


def test_devices_take_part_in_the_merge_and_are_taken_at_the_start():
    state = node(devices={GPU: pool(0, 1, 1)})
    asking = whole("a", container("x", gpus=1), container("y", gpus=1))
    answer = placement.admit(state, asking)
    assert answer.admitted
    assert answer.hints["x"] == (0b10, True)
    assert not any(held.devices for held in answer.holdings.values())
    assert placement.possible_states(state, asking) is None

    started = placement.start_containers(answer.state, asking, answer.hints)
    assert started.devices == {"x": {GPU: 0b010}, "y": {GPU: 0b100}}
    assert started.state.holdings["a"]["y"].devices == {GPU: 0b100}
    assert placement.start(started.state, asking, answer.hints) == started.state


def test_two_pods_may_count_on_the_same_device():
    state = node(devices={GPU: pool(0)})
    first, second = (whole(uid, container(gpus=1), cpus=2, memory=1) for uid in "ab")
    one = placement.admit(state, first)
    two = placement.admit(one.state, second)
    assert two.admitted
    served = placement.start(two.state, first, one.hints)
    failed = placement.start_containers(served, second, two.hints)
    assert failed.failed == {
        "main": "requested number of devices unavailable for example.com/gpu. Requested: 1, "
        "Available: 0"
    }
    assert failed.state == served
    assert not placement.certain_under_endings(served, second, ())


def test_init_containers_hand_their_devices_on_at_the_start():
    asking = whole("a", container("init", "init", gpus=1), container(gpus=1))
    state = node(devices={GPU: pool(0)})
    answer = placement.admit(state, asking)
    started = placement.start_containers(answer.state, asking, answer.hints)
    assert started.devices == {"init": {GPU: 1}, "main": {GPU: 1}}


# Container scope, and policy none


@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_eligible_containers_are_served_one_by_one(policy):
    state = node(policy, "container")
    bounded = dataclasses.replace(OWN, name="bounded", limits={"cpu": 3000, "memory": 2 * GIB})
    answer = placement.admit(state, whole("a", OWN, bounded, SHARING))
    assert parts(answer) == {"own": "1,9"}
    assert answer.pod_holding is None


def test_a_refused_merge_tells_of_the_pod_level():
    refused = placement.admit(
        node("single-numa-node", "container"), whole("a", container(cpus=9, memory=1), cpus=9)
    )
    assert refused.message == (
        "Pod Scope pod with pod-level resources failed admission with a container-level topology "
        "manager"
    )


def test_containers_without_memory_are_allocated_nothing_until_1_36():
    state = node("none", "container", OLD)
    refused = placement.admit(state, whole("a", SHARING))
    assert refused.message.startswith("Allocate failed due to [memorymanager] failed to get")
    hinted = placement.admit(node("restricted", "container", OLD), whole("a", SHARING))
    assert hinted.admitted
    assert placement.admit(node("none", "container", NEW), whole("a", SHARING)).admitted


@pytest.mark.parametrize(
    ("changed", "eligible"),
    [({}, True), ({"cpu": 1000}, False), ({"memory": 0}, False), ({"cpu": 2500}, False)],
)
def test_eligible_means_limited_to_what_is_requested(changed, eligible):
    changed = dataclasses.replace(OWN, requests={**OWN.requests, **changed})
    assert demand.is_eligible(changed) is eligible


def test_without_the_gate_there_is_nothing_of_all_this():
    state = build.node(policy="restricted", version=NEW, topology_scope="pod")
    answer = placement.admit(state, whole("a", OWN, SHARING))
    assert (answer.admitted, answer.holdings, answer.pod_holding) == (True, {}, None)
    assert not demand.is_pod_level(whole("a", OWN), rules_of(state.config, NEW))
