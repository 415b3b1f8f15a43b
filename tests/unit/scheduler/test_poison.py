"""What anybody may write into a pod: each concerns that pod alone, and what is bound counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte.k8s.podspec import parse_pod
from rte.model import quantity, totals
from rte.nrt import device_zones, group_inventory, node_state
from rte.placement.groups import allocation, request
from rte.placement.groups.delivery.networks import ANNOTATION as NETWORKS
from rte.placement.koordinator.devices import request as devices
from rte.scheduler.framework.objects import ObjectReference
from rte.scheduler.front import answers
from rte.scheduler.loop import messages
from rte.scheduler.plugins.registry import RuleOptions
from rte.telemetry.effects import Measured
from tests.depth import scaled
from tests.unit.scheduler.build import pod_object, state
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Mapping

GANG = "gang.scheduling.koordinator.sh/"
KOORDINATOR = "scheduling.koordinator.sh/"
DEEP = "[" * 2000 + "]" * 2000
BIG = "9" * 5000

ANNOTATIONS: dict[str, Mapping[str, str]] = {
    "gang-deep": {f"{GANG}name": "g", f"{GANG}min-available": "1", f"{GANG}groups": DEEP},
    "gang-many": {f"{GANG}name": "g", f"{GANG}min-available": BIG},
    "groups-exponent": {
        request.ANNOTATION: '{"version":1,"groups":[{"name":"m","workers":1e' + "9" * 22 + "}]}"
    },
    "groups-deep": {request.ANNOTATION: DEEP},
    "allocation-deep": {allocation.ANNOTATION: DEEP},
    "networks-deep": {NETWORKS: DEEP},
    "hint-number": {devices.ALLOCATE_HINT: '{"gpu":' + BIG + "}"},
    "joint-number": {devices.JOINT_ALLOCATE: '{"deviceTypes":5}'},
    "joint-objects": {devices.JOINT_ALLOCATE: '{"deviceTypes":[{}]}'},
    "partition-list": {devices.GPU_PARTITION_SPEC: '{"ringBusBandwidth":[]}'},
    "partition-object": {devices.GPU_PARTITION_SPEC: '{"ringBusBandwidth":{}}'},
    "partition-number": {devices.GPU_PARTITION_SPEC: '{"ringBusBandwidth":' + BIG + "}"},
    "allocated": {devices.ALLOCATED: '{"gpu":[{"minor":[],"resources":{"a":{}}}]}'},
    "status": {f"{KOORDINATOR}resource-status": '{"cpuset":5,"numaNodeResources":[5]}'},
    "spec": {f"{KOORDINATOR}resource-spec": DEEP, f"{KOORDINATOR}numa-topology-spec": BIG},
}


def desk() -> Desk:
    desk = Desk(options=RuleOptions(resource_status=True, device_share=True))
    desk.node("a", state())
    desk.node("b", state(cpu_policy="none", policy="none"))
    desk.put("koordinator-devices", "a", {
        "metadata": {"name": "a"},
        "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True,
                              "resources": {"koordinator.sh/gpu-core": "100"}}]},
    })  # fmt: skip
    return desk


def is_served(desk: Desk) -> bool:
    """Whether an ordinary pod is placed now."""
    uid = desk.pod("", "1")
    return bool(desk.where(uid))


@pytest.mark.parametrize("name", ANNOTATIONS)
@pytest.mark.parametrize("scheduler", ["rte-scheduler", "somebody-else"])
def test_a_poisoned_annotation_concerns_its_pod_alone(name: str, scheduler: str) -> None:
    one = desk()
    gpu = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    for number, extra in enumerate((None, gpu)):
        one.pod(
            f"evil-{number}",
            extra=extra,
            annotations=dict(ANNOTATIONS[name]),
            labels={"koordinator.sh/qosClass": "LSR"},
            schedulerName=scheduler,
        )
    assert is_served(one)


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_what_is_bound_counts_whatever_its_annotations_say(name: str) -> None:
    one = desk()
    uid = one.pod("evil", "3", node_name="a", annotations=dict(ANNOTATIONS[name]))
    assert one.machine.cluster.nodes["a"].used["cpu"] == 3000
    assert one.machine.cluster.pods[uid].node == "a"
    assert is_served(one)


@pytest.mark.parametrize("node", ["", "a", "b"])
@pytest.mark.parametrize("guaranteed", [True, False])
def test_amounts_beyond_64_bits_are_cut_off_there(node: str, guaranteed: bool) -> None:
    one = desk()
    for extra in (None, {"hugepages-1Gi": "8Ei"}, {"example.com/gpu": "8Ei"}):
        for cpu in (["1"] * 3, ["8E"] * 3, ["7E"] * 40):
            one.pod("", cpu, mem="8Ei", node_name=node, guaranteed=guaranteed, extra=extra)
    huge = {"cpu": "8E", "memory": "8Ei"}
    one.pod("", "1", node_name=node, guaranteed=guaranteed, overhead=huge)
    # Nodes a and b hold more than they have now; what is not bound takes nothing.
    assert is_served(one) or node
    one.node("c", state())
    assert is_served(one)


def test_a_sum_is_cut_off_as_one_amount_is() -> None:
    pod = parse_pod(pod_object("p", ["1"] * 3, mem="8Ei"))
    assert totals.totals_of(pod)["memory"] == quantity.MOST
    assert quantity.total([{"a": quantity.MOST}, {"a": 1, "b": 2}]) == {"a": quantity.MOST, "b": 2}


def test_a_stanza_of_the_pod_is_cut_off_where_its_containers_together_are() -> None:
    obj = pod_object("p", ["1"] * 3, mem="8Ei", extra={"hugepages-1Gi": "8Ei"})
    pod = parse_pod({**obj, "spec": {**obj["spec"], "resources": {"requests": {"cpu": "4"}}}})
    assert pod.pod_requests is not None
    assert pod.pod_limits is not None
    assert pod.pod_requests["memory"] == quantity.MOST
    assert pod.pod_limits["hugepages-1Gi"] == quantity.MOST
    one = desk()
    resources = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    one.pod("p", ["1"] * 3, mem="8Ei", extra={"hugepages-1Gi": "8Ei"}, resources=resources)
    assert is_served(one)


@settings(max_examples=scaled(300), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["1", "3500m", "8E", "9223372036854775807"]),
                  st.sampled_from(["1Gi", "8Ei", "1", "9223372036854775807"])),
        min_size=1, max_size=5,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_amounts_are_placed_or_not(amounts: list[tuple[str, str]], bound: bool) -> None:
    one = desk()
    containers: list[dict[str, Any]] = [
        {"name": f"c{n}", "resources": {"requests": {"cpu": cpu, "memory": memory},
                                        "limits": {"cpu": cpu, "memory": memory}}}
        for n, (cpu, memory) in enumerate(amounts)
    ]  # fmt: skip
    one.pod("p", containers=containers, node_name="a" if bound else "")
    one.pod("init", initContainers=containers)
    one.node("c", state())
    assert is_served(one)


def test_a_bound_pod_of_a_report_that_is_malformed_holds_what_it_asks_for() -> None:
    one = desk()
    report = dict(one.objects["reports", "a"])
    metadata = {**report["metadata"], "annotations": {node_state.ANNOTATION: DEEP}}
    one.put("reports", "a", {**report, "metadata": metadata})
    one.pod("p", "3", node_name="a")
    entry = one.machine.cluster.nodes["a"]
    assert entry.used["cpu"] == 3000
    assert entry.distrust()


def told(one: Desk, collection: str) -> tuple[float | None, list[messages.Post]]:
    """How many of them cannot be read, as last measured; events about it."""
    numbers = [
        each.value
        for each in one.effects
        if isinstance(each, Measured) and (each.metric, each.labels) == ("malformed", (collection,))
    ]
    posts = [
        each
        for each in one.effects
        if isinstance(each, messages.Post) and each.reason == "MalformedObject"
    ]
    return (numbers[-1] if numbers else None), posts


def test_a_malformed_report_is_told_once_on_its_node_until_it_is_sound() -> None:
    one = desk()
    sound = one.objects["reports", "a"]
    assert told(one, "reports") == (None, [])
    text = '{"version":1,"x":' + DEEP + "}"
    metadata = {**sound["metadata"], "annotations": {node_state.ANNOTATION: text}}
    for _ in range(3):
        one.put("reports", "a", {**sound, "metadata": metadata})
    number, posts = told(one, "reports")
    assert number == 1
    assert [(post.pod.name, post.pod.uid, post.kind) for post in posts] == [
        ("a", "uid-a", "Warning")
    ]
    assert isinstance(posts[0].pod, ObjectReference)
    assert posts[0].pod.kind == "Node"
    assert "more than 64 levels" in posts[0].note
    one.put("reports", "a", sound)
    assert told(one, "reports")[0] == 0


def test_a_malformed_pod_of_another_scheduler_is_told_and_forgotten_with_it() -> None:
    one = desk()
    good = pod_object("evil", node_name="a")
    bad = {**good, "spec": {**good["spec"], "tolerations": 5}}
    one.put("pods", "uid-evil", bad)
    number, posts = told(one, "pods")
    assert number == 1
    assert [(post.pod.namespace, post.pod.name, post.pod.uid) for post in posts] == [
        ("default", "evil", "uid-evil")
    ]
    one.delete("pods", "uid-evil")
    assert told(one, "pods")[0] == 0
    one.put("pods", "uid-evil", bad)
    one.handle(messages.Listed("pods", frozenset(), one.version))
    assert told(one, "pods")[0] == 0


def test_a_malformed_part_of_a_report_is_told_and_its_state_stands() -> None:
    one = desk()
    sound = one.objects["reports", "a"]
    for key in (device_zones.ANNOTATION, group_inventory.ANNOTATION):
        annotations = {**sound["metadata"]["annotations"], key: DEEP}
        one.put(
            "reports", "a", {**sound, "metadata": {**sound["metadata"], "annotations": annotations}}
        )
        assert told(one, "reports")[0] == 1
        assert not one.machine.cluster.nodes["a"].distrust()
    one.put("reports", "a", sound)
    assert told(one, "reports")[0] == 0


def term(number: int) -> dict[str, Any]:
    return {"topologyKey": f"t{number}", "labelSelector": {"matchLabels": {"app": f"a{number}"}}}


def spread(number: int) -> dict[str, Any]:
    return {**term(number), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def nodes(count: int) -> dict[str, Any]:
    wanted = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    required = {"nodeSelectorTerms": [wanted] * count}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


MANY_RULES: dict[str, Mapping[str, Any]] = {
    "spread": {"topologySpreadConstraints": [spread(n) for n in range(3000)]},
    "company": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term(n) for n in range(3000)]
            }
        }
    },
    "nodes": {"affinity": nodes(3000)},
    "labels": {"nodeSelector": {f"k{n}": "v" for n in range(20_000)}},
}


@pytest.mark.parametrize("name", MANY_RULES)
def test_rules_beyond_all_measure_are_not_followed_and_cost_nobody_anything(name: str) -> None:
    one = desk()
    began = time.process_time()
    uid = one.pod("evil", "1", **MANY_RULES[name])
    one.pass_time(30)
    assert time.process_time() - began < 0.5
    assert not one.where(uid)
    assert "of length <= 100" in one.machine.cluster.pods[uid].shape.malformed
    bound = one.pod("bound", "3", node_name="a", **MANY_RULES[name])
    assert one.machine.cluster.nodes["a"].used["cpu"] == 3000
    assert one.machine.cluster.pods[bound].node == "a"
    assert is_served(one)


def boxes(count: int, names: int) -> dict[str, Any]:
    asked = {f"example.com/r{n}": "1" for n in range(names)}
    return {
        "containers": [
            {"name": f"c{n}", "resources": {"requests": asked, "limits": asked}}
            for n in range(count)
        ]
    }


def selectors(count: int) -> dict[str, Any]:
    one = {"key": "k", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [one] * count}] * count}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


MUCH: dict[str, Mapping[str, Any]] = {
    "containers": {"containers": boxes(1001, 1)["containers"]},
    "init containers": {"initContainers": boxes(1000, 1)["containers"]},
    "resources": boxes(1, 15_000),
    "containers of many resources": boxes(100, 100),
    "selectors": {"affinity": selectors(100)},
}


@pytest.mark.parametrize("name", MUCH)
def test_a_pod_of_which_rules_read_too_much_is_malformed_and_counts_where_it_is_bound(
    name: str,
) -> None:
    one = desk()
    uid = one.pod("evil", "1", **MUCH[name])
    machine = one.machine
    limit = "more than 1000 containers" if name.endswith("containers") else "more than 16384 values"
    assert limit in machine.cluster.pods[uid].shape.malformed
    answer = answers.explain_pod(machine.cluster, machine.cycle, machine.cluster.pods[uid])
    assert limit in answer.problem
    assert not any(node.fits or node.zones for node in answer.nodes)
    used = dict(machine.cluster.nodes["a"].used)
    one.pod("bound", "3", node_name="a", **MUCH[name])
    after = machine.cluster.nodes["a"].used
    assert {key: n - used.get(key, 0) for key, n in after.items()} != {"pods": 1}
    assert is_served(one)


def test_a_pod_of_a_thousand_containers_is_no_poison() -> None:
    one = desk()
    uid = one.pod("many", ["1m"] * 1000, mem="1Mi")
    assert not one.machine.cluster.pods[uid].shape.malformed


def test_nobody_predicts_where_a_bound_pod_of_more_than_a_thousand_containers_will_be() -> None:
    one = desk()
    one.pod("bound", ["1m"] * 1001, mem="1Mi", node_name="a")
    entry = one.machine.cluster.nodes["a"]
    outlook = entry.outlook()
    assert outlook is not None
    assert (len(outlook.in_flight), outlook.doubtful) == (1, True)
    assert entry.used["cpu"] == 1001
    assert is_served(one)
