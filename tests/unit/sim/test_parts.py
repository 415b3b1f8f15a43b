"""Plans of containers, predicates, machines from parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from rte import accounting, errors, placement
from rte.k8s import requests
from rte.kubelet import config as kubelet_config
from rte.model import bits
from rte.sim import machines
from rte.sim.kubelet import plans, predicates
from rte.sim.kubelet.plans import ContainerPlan as Plan
from rte.sim.kubelet_document import kubelet_document

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.node import NodeState


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        (["sleep", "2"], Plan(2.0)), (["true"], Plan(0.0)),
        (["false"], Plan(0.0, 1)), (["sleep", "1", "exit", "3"], Plan(1.0, 3)),
        (["sh", "-c", "sleep 1; exit 2"], Plan(1.0, 2)), ([], Plan()),
        (["sleep", "infinity"], Plan(math.inf)), (["date"], Plan(0.0)),
        (["sh", "-c", "echo x; sleep 2"], Plan(2.0)), (["sh", "-c", "false; echo x"], Plan(0.0)),
        (["sh", "-c", "date && serve"], Plan()), (["server", "--port"], Plan()),
    ],
)  # fmt: skip
def test_commands(words: list[str], plan: plans.ContainerPlan) -> None:
    assert plans.parse_command(words) == plan


def test_annotations_win_over_the_command() -> None:
    container = {"name": "c", "command": ["sleep", "1"]}
    annotations = {f"{plans.PREFIX}exit-after.c": "1m30s", f"{plans.PREFIX}exit-code": "4"}
    pod = {"metadata": {"annotations": annotations}}
    assert plans.of_container(pod, container) == plans.ContainerPlan(90.0, 4)


def test_a_container_of_a_job_ends_unless_it_sleeps() -> None:
    owned = {"metadata": {"ownerReferences": [{"kind": "Job"}]}}
    for words, seconds in (([], 0.0), (["work", "-x"], 0.0), (["sleep", "infinity"], None)):
        container = {"name": "c", "command": words}
        assert plans.of_container(owned, container) == plans.ContainerPlan(seconds)
    assert plans.of_container({"metadata": {}}, {"name": "c"}) == plans.ContainerPlan()


NODE = {
    "metadata": {"name": "n1", "labels": {"disk": "ssd", "size": "5"}},
    "spec": {"taints": [{"key": "k", "effect": "NoExecute"}, {"key": "s", "effect": "NoSchedule"}]},
}
ROOM = {"cpu": 4000, "memory": 1 << 30, "pods": 10}
TOLERANT = [{"operator": "Exists"}]


def pod(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    container |= spec.pop("container", {})
    return {"metadata": {}, "spec": {"tolerations": TOLERANT, "containers": [container], **spec}}


def term(*expressions: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


PORT = {"ports": [{"containerPort": 80, "hostPort": 80}]}


@pytest.mark.parametrize(
    ("new", "others", "reason"),
    [
        (pod(), [], ""), (pod("5"), [], "OutOfcpu"), (pod("2"), [pod("3")], "OutOfcpu"),
        (pod("1"), [pod("0")] * 10, "OutOfpods"),
        (pod(container={"resources": {"requests": {"memory": "2Gi"}}}), [], "OutOfmemory"),
        (pod(container={"resources": {"requests": {"x.y/none": "1"}}}), [], ""),
        (pod(overhead={"cpu": "4"}), [], "OutOfcpu"),
        (pod(nodeSelector={"disk": "hdd"}), [], "NodeAffinity"),
        (pod(affinity=term({"key": "size", "operator": "Gt", "values": ["4"]})), [], ""),
        (pod(affinity=term({"key": "size", "operator": "Lt", "values": ["4"]})), [],
         "NodeAffinity"),
        (pod(affinity=term({"key": "disk", "operator": "NotIn", "values": ["ssd"]})), [],
         "NodeAffinity"),
        (pod(container=PORT), [pod(container=PORT)], "NodePorts"),
        (pod(tolerations=[]), [], "TaintToleration"),
        (pod(tolerations=[{"key": "k", "operator": "Exists"}]), [], ""),
    ],
)  # fmt: skip
def test_predicates(new: dict[str, Any], others: list[dict[str, Any]], reason: str) -> None:
    refusal = predicates.check(new, others, NODE, ROOM)
    assert (refusal.reason if refusal else "") == reason


def test_sidecars_count_with_what_runs_beside_them() -> None:
    from rte.k8s import podspec

    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    init = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
        {"name": "i", "resources": {"requests": {"cpu": "3"}}},
    ]
    spec = {"containers": containers, "initContainers": init}
    parsed = podspec.parse_pod({"metadata": {}, "spec": spec})
    assert requests.totals(parsed) == {"cpu": 5000, "pods": 1}


def test_a_machine_is_what_its_text_says(tmp_path: Path) -> None:
    made = machines.make("4x12,sockets=2,memory=32Gi,l3=3,hugepages-2Mi=8", tmp_path / "m")
    topology = accounting.kubelet_topology(made)
    assert made.warnings == ()
    assert bits.format_list(topology.zone_cpus[0]) == "0-5,24-29"
    assert topology.sockets == 2
    assert len({info.uncore for info in topology.cpus}) == 8
    assert topology.zones[0].distances == (10, 12, 21, 21)
    assert topology.zones[0].memory_bytes == 32 << 30
    assert topology.zones[0].hugepages[2 << 20] == 8


def test_zones_without_cpus_come_behind_those_with(tmp_path: Path) -> None:
    made = machines.make("2x4,memory=8Gi,memory-zones=3x2Gi,hugepages-2Mi=4", tmp_path / "m")
    assert made.warnings == ()
    assert [zone.cpus.bit_count() for zone in made.zones] == [4, 4, 0, 0, 0]
    assert [zone.memory_bytes >> 30 for zone in made.zones] == [8, 8, 2, 2, 2]
    assert {zone.hugepages[2 << 20] for zone in made.zones} == {4}
    assert made.zones[0].distances == {0: 10, 1: 21, 2: 17, 3: 17, 4: 17}
    tray = machines.make("2x72,threads=1,memory-zones=32x0", tmp_path / "tray")
    assert [zone.id for zone in tray.zones if zone.memory_bytes] == [0, 1]
    assert len(tray.zones) == 34
    assert machines.parse("2x4,memory=8Gi,memory-zones=2").memory_zones == (8 << 30,) * 2


def test_a_kubelet_on_many_zones_is_one_that_starts_and_answers(tmp_path: Path) -> None:
    def state_on(shape: str, policy: str) -> NodeState:
        machine = machines.make(shape, tmp_path / shape)
        document = kubelet_document(machine, policy=policy)
        config = kubelet_config.effective(document, memory_bytes=machine.memory_bytes, where="")
        topology = accounting.kubelet_topology(machine)
        return placement.initial_state(topology, config, {}, "v1.37.1")

    few, many = state_on("8x2", "restricted"), state_on("2x4,memory-zones=15", "restricted")
    assert (few.config.memory_policy, few.config.topology_options) == ("Static", {})
    assert many.config.topology_options == {"max-allowable-numa-nodes": "17"}
    assert many.config.memory_policy == "None"
    assert state_on("16x2", "none").config.memory_policy == "Static"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "2x",
        "0x4",
        "2x7,threads=2",
        "3x4,sockets=2",
        "2x4,a=1",
        "2x4,memory-zones=",
        "2x4,memory-zones=x2Gi",
        "2x4,memory-zones=2x2Q",
        "2x4,memory-zones=2x16",
        "2x4,memory=0",
        "2x4,memory-zones=-1",
        "2x4,memory-zones=1023",
        "999x9999",
    ],
)
def test_other_text_is_no_machine(text: str) -> None:
    with pytest.raises(errors.UsageError, match=f"shape '{text}': "):
        machines.parse(text)
