"""Reports and annotations that are damaged: never a crash, always a named reason."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors, nrt
from rte.scheduler.framework import node, objects
from rte.scheduler.loop.promises import is_possible
from rte.scheduler.loop.room.plans import plan_on
from rte.scheduler.plugins import koordinator
from tests.depth import scaled
from tests.unit.scheduler.build import World, pod_object, state
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from pathlib import Path

REPORTS = ANNOTATIONS = scaled(1000)
KEY = nrt.NODE_STATE_ANNOTATION
QOS_LABEL = "koordinator.sh/qosClass"
SPEC, NUMA_SPEC, STATUS = (
    f"scheduling.koordinator.sh/{name}"
    for name in ("resource-spec", "numa-topology-spec", "resource-status")
)

#: What stands where something else was meant.
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 70, 1.5, "", "x", "0-", "9-1", "1,,2", "1e999", [], [[]], {},
)  # fmt: skip


@pytest.fixture
async def good(tmp_path: Path) -> dict[str, Any]:
    """An NRT of ours, of a node with two pods."""
    async with Town(tmp_path) as town:
        await town.node("n", "2x8")
        for name, cpus in (("one", "2"), ("two", ["3", "1"])):
            town.pod(name, cpus, nodeName="n")
            await until(lambda name=name: town.phase(name) == "Running")
        town.publish("n")
        report = town.api.get("noderesourcetopologies", "n")
    # Nodes of this name that the tests make have another UID.
    report["metadata"].pop("ownerReferences", None)
    return report


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += spots(inner)
    return found


def damaged(rng: random.Random, good: Any) -> Any:
    """A JSON value with one to three places changed, taken out or exchanged."""
    out = json.loads(json.dumps(good))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = spots(out)
        if not places:
            break
        where, key = rng.choice(places)
        what = rng.randrange(4)
        if what == 0:
            del where[key]
        elif what == 1:
            other, name = rng.choice(places)
            where[key] = json.loads(json.dumps(other[name]))
        else:
            where[key] = json.loads(json.dumps(rng.choice(ODD)))
    return out


def cut(rng: random.Random, text: str) -> str:
    """The text with a character lost, added or changed, or its end lost."""
    at = rng.randrange(len(text))
    return rng.choice(
        (text[:at], text[:at] + text[at + 1 :], text[:at] + rng.choice('{}[]":,-x9') + text[at:])
    )


def test_malformed_reports(good: dict[str, Any]) -> None:
    rng = random.Random(1)
    assert node.read_report(good).state is not None
    inner = json.loads(good["metadata"]["annotations"][KEY])
    world = World()
    world.node("n")
    pods = [
        world.pod(cpu="2"),
        world.pod(cpu=["3", "2"], extra={"example.com/gpu": "1"}),
        world.pod(cpu="1500m"),
        world.pod(guaranteed=False),
    ]
    broken = 0
    for number in range(REPORTS):
        obj = damaged(rng, good) if number % 3 == 0 else json.loads(json.dumps(good))
        if number % 3 == 1:
            obj["metadata"]["annotations"][KEY] = json.dumps(damaged(rng, inner))
        elif number % 3 == 2:
            obj["metadata"]["annotations"][KEY] = cut(rng, good["metadata"]["annotations"][KEY])
        report = node.read_report(obj)
        assert sum(map(bool, (report.state, report.table, report.broken))) <= 1, obj
        broken += bool(report.broken)
        world.cluster.set_report("n", report, 0.0)
        for pod in pods:
            counts = world.cycle.reasons(pod)
            assert sum(counts.values()) == 1
            decision = world.cycle.decide(pod)
            assert (decision.node is None) == ("" not in counts) or decision.status.uncertain
        if report.broken:
            assert world.why(pods[0]) == {"node(s) with a malformed NodeResourceTopology": 1}
            assert world.place(pods[3]) == "n"
            world.cluster.forget(pods[3].uid)
    assert broken > REPORTS // 3
    world.cluster.set_report("n", node.read_report(good), 0.0)
    assert world.place(pods[0]) == "n"


def test_malformed_pod_annotations() -> None:
    rng = random.Random(2)
    world = World(resource_status=True)
    world.node("n", state(policy="none", cpu_policy="none", memory_policy="None"))
    world.node("s")
    spec = {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUBindPolicy": "SpreadByPCPUs"}
    numa = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}
    held = {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}
    malformed = 0
    for number in range(ANNOTATIONS):
        annotations = {}
        for key, good in ((SPEC, spec), (NUMA_SPEC, numa), (STATUS, held)):
            if rng.random() < 0.7:
                whole = json.dumps(damaged(rng, good))
                annotations[key] = cut(rng, whole) if rng.random() < 0.4 else whole
        labels = {QOS_LABEL: rng.choice(("LSR", "LSE", "LS", "BE", "?", ""))}
        obj = pod_object(f"m{number}", "2", annotations=annotations, labels=labels)
        pod = world.pod(obj)
        counts = world.cycle.reasons(pod)
        assert sum(counts.values()) == 2
        assert all(isinstance(reason, str) for reason in counts)
        malformed += counts["malformed Koordinator annotation"]
        decision = world.cycle.decide(pod)
        assert decision.node is not None or counts[""] == 0
        if decision.node is not None:
            world.place(pod)
        try:
            koordinator.read(pod.annotations.get(objects.RESOURCE_STATUS, ""))
        except errors.ParseError as error:
            assert str(error)
        world.cluster.remove_pod(pod.uid, 0.0)
    assert malformed > ANNOTATIONS // 10


def rich_pod() -> dict[str, Any]:
    """A pod with every part that some rule reads."""
    expression = {"key": "zone", "operator": "In", "values": ["z1", "z2"]}
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [expression]}
    node_term = {
        "matchExpressions": [expression],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}],
    }
    pod_term = {
        "labelSelector": selector,
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "namespaces": ["default"],
        "topologyKey": "kubernetes.io/hostname",
        "matchLabelKeys": ["app"],
        "mismatchLabelKeys": ["zone"],
    }
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    company = {hard: [pod_term], soft: [{"weight": 5, "podAffinityTerm": pod_term}]}
    obj = pod_object(
        cpu=["2", "1"],
        extra={"example.com/gpu": "1"},
        labels={"app": "web", "zone": "z1", QOS_LABEL: "LSR"},
        annotations={SPEC: '{"requiredCPUBindPolicy": "FullPCPUs"}', "other": "x"},
        affinity={
            "nodeAffinity": {
                hard: {"nodeSelectorTerms": [node_term]},
                soft: [{"weight": 3, "preference": node_term}],
            },
            "podAffinity": company,
            "podAntiAffinity": {**company, hard: [{**pod_term, "labelSelector": None}]},
        },
        nodeSelector={"zone": "z1"},
        tolerations=[{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "minDomains": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
                "matchLabelKeys": ["app"],
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Honor",
            },
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
        volumes=[
            {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "csi": {"driver": "d"}},
        ],
        overhead={"cpu": "100m"},
        resources={"requests": {"cpu": "4"}, "limits": {"cpu": "4"}},
        priority=3,
        preemptionPolicy="Never",
        hostNetwork=True,
        initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {}}],
        status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
    )
    obj["spec"]["containers"][0]["ports"] = [
        {"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}
    ]
    return obj


@settings(max_examples=scaled(1000), deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_malformed_pods(rng: random.Random) -> None:
    """Each is read or refused with one line; what is read gets an answer from every rule."""
    world = World()
    for name in ("a", "b", "c"):
        world.node(name, labels={"zone": "z1" if name == "a" else "z2"})
    good = rich_pod()
    if rng.random() < 0.5:
        # Few parts at a time, so that others do not hide what is wrong with them.
        for key in rng.sample(sorted(good["spec"]), k=len(good["spec"]) - 4):
            if key not in ("containers", "schedulerName"):
                del good["spec"][key]
    obj = damaged(rng, good)
    bound = rng.choice(("", "a"))
    if bound and isinstance(obj.get("spec"), dict):
        obj["spec"]["nodeName"] = bound
    try:
        view = objects.read_pod(obj, world.cluster.shapes)
    except errors.ParseError as error:
        assert "\n" not in str(error)
        waiting = objects.stand_in(obj, str(error), world.cluster.shapes)
        if waiting is None:
            return
        world.cluster.set_pod(waiting, 0.0)
        assert world.cycle.decide(waiting).node is None
        counts = world.cycle.reasons(waiting)
        assert all("malformed" in reason for reason in counts)
        return
    world.cluster.set_pod(view, 0.0)
    company = world.pod(pod_object(labels={"app": "web"}))
    for pod in (view, company):
        counts = world.cycle.reasons(pod)
        assert sum(counts.values()) == 3
        decision = world.cycle.decide(pod)
        assert decision.node is None or counts[""] > 0 or decision.status.uncertain
        assert is_possible(world.cycle, pod, world.cluster.nodes["a"]) in (True, False)
        plan = plan_on(world.cycle, world.cluster, pod, world.cluster.nodes["a"])
        assert plan is None or all(each.priority < pod.priority for each in plan.victims)
    world.cluster.remove_pod(view.uid, 0.0)


async def test_a_malformed_pod_is_told_why_and_holds_nobody_up(tmp_path: Path) -> None:
    """Stored as it is, as by an API server that checks nothing."""
    async with Town(tmp_path) as town:
        await town.node("n", "2x8")
        async with town.scheduler() as scheduler:
            town.pod("bad", "2", schedulingGates=[{"name": "later"}])
            obj = town.get("bad")
            obj["spec"] |= {"schedulingGates": [], "tolerations": [{"key": 3}]}
            town.api.store.put("pods", ("default", "bad"), obj)
            town.pod("good", "2")
            await until(lambda: town.phase("good") == "Running")
            why = "got `int` - at `$.tolerations[0].key`"
            await until(
                lambda: any(why in str(e.get("message")) for _, e in town.api.store.items("events"))
            )
            # Neither a replica that takes over nor a fresh look at a node stumbles over it.
            await scheduler.feeds.relist()
            await scheduler.feeds.resync_node("n")
