"""What NHD has placed, replayed: the same place, or every reason for another one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import yaml

from rte import cli
from rte.placement.groups.allocation import Record, devices_of
from rte.placement.groups.inventory import GroupNodeFacts
from rte.placement.groups.nhd import triad
from rte.placement.groups.nhd.export import write_back
from rte.placement.groups.nhd.labels import LabelledNode
from rte.placement.groups.nhd.replay import Compared, RecordedPod, replay
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.place import place
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.placement.groups.test_nhd import FILE, LABELS

if TYPE_CHECKING:
    from pathlib import Path

    from rte.placement.groups.inventory import GroupInventory

NODE = replace(
    two_sockets(),
    nics=tuple(
        replace(nic, mac=f"02:00:00:00:00:0{i}") for i, nic in enumerate(two_sockets().nics)
    ),
)


def placed(inventory: GroupInventory = NODE, file: str = FILE) -> str:
    """The file as NHD would write it for the place that is found on an empty node."""
    imported = triad.read(file)
    allocation = place(parse_request(json.dumps(imported.document)), inventory).allocation
    assert allocation is not None
    record = Record(
        pod="u",
        node="n",
        allocation=allocation,
        devices=devices_of(allocation, inventory),
        values={"vlan": "1"},
    )
    return write_back(imported, record)


def compare(
    file: str, *, groups: tuple[str, ...] = ("default",), **nodes: GroupInventory
) -> Compared:
    labelled = {
        name: LabelledNode(inventory=it, facts=GroupNodeFacts()) for name, it in nodes.items()
    }
    (got,) = replay(labelled, [RecordedPod(name="p", node="n", file=file, node_groups=groups)])
    return got


def test_the_same_place_has_nothing_to_explain() -> None:
    assert compare(placed(), n=NODE) == Compared(name="p", node="n", ours="n", kind="same")


def test_misc_cores_wherever_are_not_the_best_place() -> None:
    file = placed().replace("c0 = 6", "c0 = 10").replace("c1 = 22", "c1 = 26")
    assert file != placed()

    got = compare(file, n=NODE)

    assert (got.kind, got.why) == ("other-ids", ("fewer zones: 1, NHD's place has 2",))


def test_a_gpu_of_another_model_is_named() -> None:
    got = compare(placed(), n=replace(NODE, gpus=two_sockets(model="GTX 1080").gpus))

    assert (got.kind, got.ours) == ("no-place", None)
    assert "NHD's place breaks a rule: mod-0: GPU 0000:17:10.0 is another model" in got.why
    assert got.why[-1] == "n does not take it: gpus"


def test_other_nodes_are_explained() -> None:
    other = replace(NODE, reserved_cpus=NODE.reserved_cpus | 1 << 2 | 1 << 18)
    assert compare(placed(), n=NODE, m=other).why == ("m comes first: 11 free cores, n has 12",)
    assert compare(placed(), n=NODE, m=NODE).why == ("m and n are alike; the name decides",)
    assert compare(placed(), groups=("x",), n=NODE).why == ("n does not take it: node-group",)


def test_pods_without_gpus_go_where_none_are() -> None:
    file = FILE.replace("gpu_map=((3000,0),(3001,1));", "gpu_map=();")

    got = compare(placed(file=file), n=NODE, m=replace(NODE, gpus=()))

    assert got.why == ("a pod without GPUs goes to m, which has none",)


def test_pods_before_it_hold_what_their_files_say() -> None:
    nodes = {"n": LabelledNode(inventory=NODE, facts=GroupNodeFacts())}
    twice = [
        RecordedPod(name=name, node="n", file=placed(), started=started)
        for name, started in (("second", "2022-01-02"), ("first", "2022-01-01"))
    ]

    first, second = replay(nodes, twice)

    assert (first.name, first.kind) == ("first", "same")
    assert second.kind == "other-ids"
    assert any("GPU 0000:17:10.0 is given twice" in line for line in second.why)
    assert any("belongs to another pod" in line for line in second.why)


def test_what_cannot_be_read_is_told() -> None:
    assert compare("a =", n=NODE).kind == "unreadable"
    assert compare(placed(), m=NODE).why == ("there is no usable node n",)


def test_the_command(tmp_path: Path, capsys) -> None:
    gpu = {key.replace("gpu.0", "gpu.1"): value for key, value in LABELS.items()}
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {**LABELS, **gpu}},
        "status": {"allocatable": {"hugepages-1Gi": "8Gi"}},
    }
    file = placed().replace('"02:00:00:00:00:00"', '"02:00:00:00:00:AA"')
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "annotations": {
                "sigproc.viasat.io/nhd_config": file, "sigproc.viasat.io/nhd_groups": "a"
            },
        },
        "spec": {"nodeName": "n"},
    }  # fmt: skip
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node, {**node, "metadata": {"name": "x"}}, pod]))

    assert cli.main(["import", "nhd", "replay", "-f", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith("default/p: ")
    assert out.splitlines()[-1].startswith("1 pod: 1 ")
    assert err.startswith("node x is left out: ")
    assert cli.main(["import", "nhd", "replay", "-f", str(path), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["node"] == "n"
    path.write_text("kind: Pod\n")
    assert cli.main(["import", "nhd", "replay", "-f", str(path)]) == 2
