"""Plans of containers, predicates, machines from parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rte import accounting, errors
from rte.k8s import requests
from rte.model import bits
from rte.sim import machines
from rte.sim.kubelet import plans, predicates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        (["sleep", "2"], plans.Plan(2.0)), (["true"], plans.Plan(0.0)),
        (["false"], plans.Plan(0.0, 1)), (["sleep", "1", "exit", "3"], plans.Plan(1.0, 3)),
        (["sh", "-c", "sleep 1; exit 2"], plans.Plan(1.0, 2)), ([], plans.Plan()),
        (["sleep", "infinity"], plans.Plan()), (["server", "--port"], plans.Plan()),
    ],
)  # fmt: skip
def test_commands(words: list[str], plan: plans.Plan) -> None:
    assert plans.parse_command(words) == plan


def test_annotations_win_over_the_command() -> None:
    container = {"name": "c", "command": ["sleep", "1"]}
    annotations = {f"{plans.PREFIX}exit-after.c": "1m30s", f"{plans.PREFIX}exit-code": "4"}
    assert plans.of_container(container, annotations) == plans.Plan(90.0, 4)


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
    from rte.model import podspec

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


@pytest.mark.parametrize("text", ["x", "2x", "0x4", "2x7,threads=2", "3x4,sockets=2", "2x4,a=1"])
def test_other_text_is_no_machine(text: str) -> None:
    with pytest.raises(errors.UsageError, match=text.split(",", maxsplit=1)[0]):
        machines.parse(text)
