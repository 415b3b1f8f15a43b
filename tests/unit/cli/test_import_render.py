"""``rte import nhd`` and ``rte render`` as a user calls them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from rte import cli
from rte.placement.groups.nhd import libconfig
from rte.placement.groups.nhd.export import write_back
from rte.placement.groups.parsing import parse_request
from tests.unit.placement.groups.test_nhd import FILE, LABELS, allocated, triad_set

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_printed_as_the_annotation(tmp_path: Path, capsys) -> None:
    file = tmp_path / "radio.cfg"
    file.write_text(FILE)

    assert cli.main(["import", "nhd", "triad", str(file)]) == 0
    assert parse_request(capsys.readouterr().out).groups[0].name == "mod-0"
    assert cli.main(["import", "nhd", "triad", "--fields", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["fields"]["Ctl.c0"] == "misc[0]"


@pytest.mark.parametrize(("text", "line"), [("a =", "line 1"), ("a = 1;", "Hugepages_GB")])
def test_a_damaged_file_gives_one_line(tmp_path: Path, capsys, text: str, line: str) -> None:
    file = tmp_path / "radio.cfg"
    file.write_text(text)

    assert cli.main(["import", "nhd", "triad", str(file)]) == 1
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1


def test_labels_are_printed_as_inventories(tmp_path: Path, capsys) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": LABELS},
        "status": {"allocatable": {"hugepages-1Gi": "8Gi"}},
    }
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump(node))

    assert cli.main(["import", "nhd", "labels", "-f", str(file)]) == 0
    (got,) = json.loads(capsys.readouterr().out)
    assert got["values"] == {"vlan": "100", "gateway": "10.1.0.1"}
    assert got["inventory"]["zones"] == {"0": {"1Gi": 4}, "1": {"1Gi": 4}}


def test_sets_are_printed_as_yaml(tmp_path: Path, capsys) -> None:
    config = {
        "kind": "ConfigMap",
        "metadata": {"name": "radio-cfg", "namespace": "prod"},
        "data": {"radio.cfg": FILE},
    }
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([triad_set(), config]))

    assert cli.main(["import", "nhd", "triadset", "-f", str(file)]) == 0
    (got,) = yaml.safe_load_all(capsys.readouterr().out)
    assert got["kind"] == "StatefulSet"


@pytest.mark.parametrize("form", ["labels", "triadset"])
def test_files_without_what_is_wanted_are_told(tmp_path: Path, capsys, form: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\n")

    assert cli.main(["import", "nhd", form, "-f", str(file)]) == 2
    assert "hold no" in capsys.readouterr().err


def test_an_allocation_is_written_into_the_applications_file(tmp_path: Path) -> None:
    _, record = allocated()
    for name, text in (("radio.cfg", FILE), ("allocation", record.text())):
        (tmp_path / name).write_text(text)
    (tmp_path / "env").write_text("WORKERS=${groups[0].cpus.workers}\n")
    flags = ["--allocation", str(tmp_path / "allocation"), "--out", str(tmp_path / "out")]

    assert cli.main(["render", "triad", str(tmp_path / "radio.cfg"), *flags]) == 0
    assert libconfig.parse((tmp_path / "out").read_text())["Network_Config"]
    assert cli.main(["render", "template", str(tmp_path / "env"), *flags]) == 0
    workers = record.allocation.groups[0].cpus.workers
    assert (tmp_path / "out").read_text() == f"WORKERS={','.join(map(str, workers))}\n"


def test_an_allocation_that_is_none_gives_one_line(tmp_path: Path, capsys) -> None:
    for name in ("file", "allocation"):
        (tmp_path / name).write_text("x")
    flags = ["--allocation", str(tmp_path / "allocation")]

    assert cli.main(["render", "template", str(tmp_path / "file"), *flags]) == 1
    assert "cannot be read" in capsys.readouterr().err


def nodes_of_nhd(tmp_path: Path) -> str:
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {**LABELS, "NHD_GROUP": "default"}},
        "status": {"allocatable": {"hugepages-1Gi": "16Gi"}},
    }
    other = {"kind": "Node", "metadata": {"name": "without"}}
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all([node, other]))
    return str(file)


def test_where_a_file_would_go_is_told_without_a_cluster(tmp_path: Path, capsys) -> None:
    config = tmp_path / "radio.cfg"
    config.write_text(FILE)
    command = ["import", "nhd", "place", str(config), "-f", nodes_of_nhd(tmp_path)]

    assert cli.main(command) == 0
    out, err = capsys.readouterr()
    assert "+ n: fits" in out
    assert "mod-0 in zone 0: feeders " in out
    assert "NIC ens1 (ens1) rx 10 tx 5 Gb/s" in out
    assert "node without is left out" in err
    assert cli.main([*command, "--node-groups", "other"]) == 1
    assert "- n: node-group" in capsys.readouterr().out


def test_what_nhds_pods_hold_counts(tmp_path: Path, capsys) -> None:
    """Both GPUs are held; of a pod whose file names an unknown NIC nothing is known."""
    config = tmp_path / "radio.cfg"
    config.write_text(FILE)
    nodes = nodes_of_nhd(tmp_path)
    for mac, said in (("0200000000AA", "- n: gpus"), ("0200000000FF", "is not known")):
        dashed = ":".join(mac[i : i + 2] for i in range(0, 12, 2))
        text = write_back(*allocated()).replace("02:00:00:00:00:0A", dashed)
        pod = {
            "kind": "Pod",
            "metadata": {"name": "p", "annotations": {"sigproc.viasat.io/nhd_config": text}},
            "spec": {"nodeName": "n"},
        }
        pods = tmp_path / "pods.yaml"
        pods.write_text(yaml.safe_dump(pod))

        command = ["import", "nhd", "place", str(config), "-f", nodes, "-f", str(pods)]
        assert cli.main(command) == 1
        assert said in capsys.readouterr().out


def test_sets_whose_pods_go_on_reading_nhds_annotation(tmp_path: Path, capsys) -> None:
    config = {
        "kind": "ConfigMap",
        "metadata": {"name": "radio-cfg", "namespace": "prod"},
        "data": {"radio.cfg": FILE},
    }
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([triad_set(), config]))

    assert cli.main(["import", "nhd", "triadset", "--nhd-config", "-f", str(file)]) == 0
    (got,) = yaml.safe_load_all(capsys.readouterr().out)
    request = got["spec"]["template"]["metadata"]["annotations"]["topology.rte.dev/groups"]
    assert json.loads(request)["render"] == {"triad": FILE}
    assert parse_request(request).groups
