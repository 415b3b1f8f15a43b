"""``rte explain --all``: aligned, across zones or unknown, for pods of any scheduler."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from rte import cli, nrt
from rte.model.machine import Machine, PCIZones
from rte.model.node import NodeReading
from rte.placement import admit
from rte.placement.dra import decode
from tests.unit.placement import build as nodes
from tests.unit.placement.dra.build import allocation, gpu, slice_of

if TYPE_CHECKING:
    from pathlib import Path

ROOT_1 = {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:90"}}


def objects(*devices: str) -> list[dict]:
    state = nodes.node(nodes.topology(2, 1, 4, 2))
    state = admit(state, nodes.simple("uid-p")).state
    reading = NodeReading(
        node_name="n0",
        machine=Machine(cpus=(), zones=(), pci_zones=PCIZones(roots={"pci0000:90": 1})),
        state=state,
    )
    pool = slice_of([gpu("near", zone=0), gpu("far", attributes=ROOT_1), gpu("lost")])
    status = {
        **allocation(*devices),
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    }
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml", "uid": "uid-p"},
        "spec": {"nodeName": "n0"},
        "status": {"phase": "Running"},
    }
    return [
        {"kind": "Node", "metadata": {"name": "n0"}},
        nrt.encode(reading),
        pod,
        {"kind": "ResourceSlice", **decode.encode(pool)},
        {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "ml"}, "status": status},
    ]


def explain(tmp_path: Path, items: list[dict], capsys, *flags: str) -> tuple[int, str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(json.loads(json.dumps(items))))
    code = cli.main(["explain", "--all", "--from", str(file), *flags])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("devices", "code", "words"),
    [
        (["near"], 0, ["1 aligned, 0 across, 0 unknown", "ml/p", "near: zone 0"]),
        (
            ["near", "far"],
            1,
            ["0 aligned, 1 across", "far is in zone 1, CPUs and memory in zone 0"],
        ),
        (["near", "lost"], 0, ["1 unknown", "lost: zone not known", "publishes no"]),
        (["gone"], 0, ["1 unknown", "no slice of the node has it"]),
    ],
)
def test_each_pod_is_told(tmp_path: Path, capsys, devices, code, words) -> None:
    exit_code, out = explain(tmp_path, objects(*devices), capsys)

    assert exit_code == code
    assert [word for word in words if word not in out] == []


def test_what_is_missing_is_named(tmp_path: Path, capsys) -> None:
    node, report, pod, *rest = objects("near")
    _, out = explain(tmp_path, [node, pod, *rest], capsys)
    assert "node n0 has no report of rte" in out

    pod["metadata"]["uid"] = rest[1]["status"]["reservedFor"][0]["uid"] = "young"
    _, out = explain(tmp_path, [node, report, pod, *rest], capsys)
    assert "has not admitted it yet" in out

    pod["status"]["phase"] = "Succeeded"
    _, out = explain(tmp_path, [node, report, pod, *rest], capsys)
    assert "0 running pods" in out


def test_as_json_and_with_damage(tmp_path: Path, capsys) -> None:
    broken = {"kind": "ResourceSlice", "metadata": {"name": "bad"}, "spec": {}}

    code, out = explain(tmp_path, [*objects("near"), broken], capsys, "-o", "json")

    answer = json.loads(out)
    assert code == 0
    assert answer["pods"][0]["devices"] == {"gpu.example.com/n0/near": 0}
    assert "bad" in answer["problems"][0]
