"""One grammar of machines: shapes, fixtures, folders, archives, reports and nodes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from rte import cli, errors
from rte.cli import machines
from rte.library.machines import only
from rte.model import bits
from tests.unit.cli.objects import GIB, node_objects, pod_yaml

ROOT = Path(__file__).parents[3]
FIXTURE = ROOT / "fixtures/sysfs/16-2s-hugepages"


def args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.set_defaults(command="simulate", kubeconfig="/nowhere/kubeconfig")
    machines.add_arguments(parser)
    return parser.parse_args(words)


def kubelet_dir(folder: Path) -> Path:
    """A kubelet's directory where the container ``c`` of the pod ``u1`` holds CPUs 1 and 9."""
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
        "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\ntopologyManagerPolicy: restricted\n"
    )
    (folder / "cpu_manager_state").write_text(
        json.dumps(
            {
                "policyName": "static",
                "defaultCpuSet": "0,2-8,10-15",
                "entries": {"u1": {"c": "1,9"}},
                "checksum": 0,
            }
        )
    )
    return folder


def checked(folder: Path) -> None:
    """Give the state file the checksum that the kubelet would."""
    from tests import checkpoints

    path = folder / "cpu_manager_state"
    path.write_text(json.dumps(checkpoints.sealed(json.loads(path.read_text()))))


def test_a_shape_names_a_machine() -> None:
    (found,) = machines.find("2x8,memory=4Gi", args())
    assert [zone.memory_bytes for zone in found.reading.machine.zones] == [4 * GIB, 4 * GIB]


@pytest.mark.parametrize("where", ["16-2s-hugepages", str(FIXTURE)])
def test_a_fixture_and_its_folder_are_the_same_machine(where: str, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = machines.find(where, args())
    assert found.name == "16-2s-hugepages"
    assert len(found.reading.machine.cpus) == 16


def test_a_file_of_reports_names_each_of_its_nodes(write) -> None:
    file = write("nrts.yaml", [*node_objects("a", (3,)), *node_objects("b")])
    found = machines.find(file, args())
    assert [each.name for each in found] == ["a", "b"]
    state = found[0].reading.state
    assert state is not None
    assert {pod.name for pod in found[0].reading.pods} == {"a-0"}
    assert bits.format_list(state.held_cpus("default/a-0"))
    with pytest.raises(errors.UsageError, match="holds 2 machines"):
        only(found, file)


def test_a_report_that_tells_no_cpus_is_refused(write) -> None:
    report = node_objects("a")[1]
    report["metadata"]["annotations"] = {}
    with pytest.raises(errors.ParseError, match="another exporter's"):
        machines.find(write("nrt.yaml", [report]), args())


@pytest.mark.parametrize("text", ["", "..//", "2x", "No_Such", "/nowhere", "a b"])
def test_what_names_nothing_is_told_with_the_grammar(text: str) -> None:
    with pytest.raises(errors.RteError, match=r"a shape|no fixture, folder or file"):
        machines.find(text, args())


def test_machines_named_twice_become_nodes_of_their_own() -> None:
    found = machines.read(args("--machine", "2x8", "--machine", "2x8*2", "--machine", "1x4"))
    assert [each.names for each in found] == [("2x8-0",), ("2x8-1", "2x8-2"), ("1x4",)]


def test_huge_pages_are_summed_over_zones_and_devices_are_known(write, capsys) -> None:
    """Two zones with 4 pages of 1 GiB each hold six pods of 1 GiB, not four."""
    pod = pod_yaml("p", 1)
    pod["spec"]["containers"][0]["resources"]["limits"] |= {
        "hugepages-1Gi": "1Gi",
        "example.com/gpu": "1",
    }
    pods = [{**pod, "metadata": {"name": f"p{number}"}} for number in range(6)]
    machine = ["--machine", "2x16,hugepages-1Gi=4", "--device", "example.com/gpu=0/0/0/1/1/1"]
    assert cli.main(["simulate", "-f", write("pods.yaml", pods), *machine]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 pods placed" in out
    assert out.count(" in zone 0") == out.count(" in zone 1") == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "gpu=0"], "expected RESOURCE=ZONES"),
        (["--device", "a/b=x"], "no set of zones"),
        (["--device", "a/b=7"], "has no zone 7"),
        (["--machine", "2x8*0"], "no number of nodes"),
    ],
)
def test_wrong_machines_are_one_line(words, told, write, capsys) -> None:
    file = write("pods.yaml", [pod_yaml("p", 1)])
    assert cli.main(["simulate", "-f", file, "--machine", "2x8", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz", "tar.bz2", "tgz"])
def test_a_snapshot_is_replayed_with_its_kubelet_and_holders(
    suffix: str, tmp_path: Path, capsys, write
) -> None:
    state = kubelet_dir(tmp_path / "state")
    checked(state)
    archive = tmp_path / f"node.{suffix}"
    roots = ["--sysfs-root", str(FIXTURE / "sys"), "--procfs-root", str(FIXTURE / "proc")]
    words = ["snapshot", str(archive), *roots, "--kubelet-state-dir", str(state)]
    assert cli.main(words) == 0
    (found,) = machines.find(str(archive), args())
    assert found.name in ("node", "node-tgz")
    assert found.reading.state is not None
    assert found.reading.state.config.topology_policy == "restricted"
    assert found.reading.state.holdings["u1"]["c"].cpus == bits.of([1, 9])
    pods = write("pods.yaml", [pod_yaml("p", 14)])
    assert cli.main(["simulate", "-f", pods, "--machine", str(archive)]) == 1
    assert "restricted" in capsys.readouterr().out
    assert cli.main(["simulate", "-f", pods, "--machine", str(archive), "--policy", "none"]) == 2
    assert "has a kubelet of its own" in capsys.readouterr().err


def test_an_archive_that_leads_outside_is_refused(tmp_path: Path) -> None:
    import io
    import tarfile

    path = tmp_path / "bad.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("sys/../../evil")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(errors.UsageError, match="no archive of rte snapshot"):
        machines.find(str(path), args())
    assert not (tmp_path.parent / "evil").exists()
