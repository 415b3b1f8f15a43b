"""Parts of the test bed that need no cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from rte.sysfs import read_machine
from tests.cluster import __main__ as command
from tests.cluster import builder, processes, shapes
from tests.cluster.kubelet_config import complete, kubelet_config
from tests.cluster.node import device_list
from tests.cluster.pods import container, pod
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def test_a_described_shape_is_that_machine(tmp_path: Path) -> None:
    text = "4x8,sockets=2,memory=32Gi,memory-zones=1,hugepages-2Mi=16,l3=2"
    folder = shapes.materialise(text, tmp_path)
    machine = read_machine(folder / "sys", folder / "proc")
    assert [zone.cpus.bit_count() for zone in machine.zones] == [8, 8, 8, 8, 0]
    assert {zone.memory_bytes for zone in machine.zones} == {32 * GIB}
    assert {zone.hugepages[2 << 20] for zone in machine.zones} == {16}
    assert len({cpu.socket for cpu in machine.cpus}) == 2
    assert len({cpu.l3 for cpu in machine.cpus}) == 8
    assert shapes.memory_zones(folder) == [0, 1, 2, 3, 4]
    assert shapes.materialise(text, tmp_path) == folder


@pytest.mark.parametrize(
    "text", ["2", "x4", "0x4", "2x0", "3x4,sockets=2", "2x3,threads=2", "2x4,colour=red", "2x4,l3"]
)
def test_a_bad_shape_is_one_clear_line(text: str) -> None:
    with pytest.raises(ClusterError, match=f"machine shape '{text}'"):
        shapes.parse(text)


def test_reserved_memory_matches_as_the_kubelet_insists() -> None:
    """Reserved memory = system + kube reserved + hard eviction, over all zones."""
    default = complete(kubelet_config(), [2, 3])
    assert default["reservedMemory"] == [{"numaNode": 2, "limits": {"memory": "512Mi"}}]
    assert int(default["systemReserved"]["memory"]) == 412 << 20
    two = complete(
        kubelet_config(
            reserved_memory={0: {"memory": "1Gi"}, 1: {"memory": "512Mi"}},
            kubeReserved={"memory": "100Mi"},
        ),
        [0, 1],
    )
    assert int(two["systemReserved"]["memory"]) == (1536 - 100 - 100) << 20


def test_further_fields_are_merged_into_the_configuration() -> None:
    config = kubelet_config(evictionHard={"memory.available": "1Gi"}, maxPods=10)
    assert config["maxPods"] == 10
    assert config["evictionHard"]["memory.available"] == "1Gi"
    assert config["evictionHard"]["nodefs.available"] == "0%"


def test_alpha_options_open_their_gate() -> None:
    gates = kubelet_config(cpu_options={"align-by-socket": "true"})["featureGates"]
    assert gates == {"CPUManagerPolicyAlphaOptions": True}
    assert "featureGates" not in kubelet_config()


def test_versions() -> None:
    assert builder.full_version("1.35") == builder.full_version("v1.35.4") == "1.35.4"
    assert builder.full_version("1.36.1") == "1.36.1"
    with pytest.raises(ClusterError, match="give a patch version"):
        builder.full_version("1.20")


def test_a_patch_that_finds_other_sources_fails_the_build(tmp_path: Path) -> None:
    source, target = tmp_path / "kubernetes@v1.36.4", tmp_path / "work"
    for folder in ("cmd", "pkg", "plugin", "third_party"):
        (source / folder).mkdir(parents=True)
    for name, text in {"go.mod": "module k8s.io/kubernetes", "pkg/a.go": "old text"}.items():
        (source / name).write_text(text)
    builder._patched(source, builder._Patch("pkg/a.go", "old", "new"), target)
    assert (target / "pkg/a.go").read_text() == "new text"
    assert (source / "pkg/a.go").read_text() == "old text"
    with pytest.raises(ClusterError, match=r"pkg/a\.go of kubernetes@v1\.36\.4 is not as"):
        builder._patched(source, builder._Patch("pkg/a.go", "other", ""), tmp_path / "again")


def test_a_kubelet_may_be_three_minor_versions_older_and_never_newer() -> None:
    assert builder.kubelet_version("1.34", "1.37.1") == "1.34.8"
    assert builder.kubelet_version("1.37.0", "1.37.1") == "1.37.0"
    for kubelet, api_server in (("1.33.4", "1.37.1"), ("1.37", "1.36.4")):
        with pytest.raises(ClusterError, match=r"supports kubelets of its own minor version"):
            builder.kubelet_version(kubelet, api_server)


def test_devices_keep_no_topology_and_an_empty_one_apart() -> None:
    given = [[0], None, [], {"id": "x", "zones": [1], "unhealthy": True}]
    first, none, empty, full = device_list("example.com/gpu", given)
    assert (first["id"], none["zones"], empty["zones"]) == ("gpu0", None, [])
    assert full["unhealthy"]
    assert command._devices("example.com/gpu=0/0+1/-/none") == (
        "example.com/gpu",
        [[0], [0, 1], [], None],
    )


def test_one_node_of_its_own_kind_overrides_the_flags() -> None:
    args = command._parser().parse_args(
        ["up", "--scope", "pod", "--node", "name=a;shape=1x4;policy=none;version=1.35"]
    )
    plan = command._plan(args, args.node[0])
    assert (plan["name"], plan["shape"], plan["version"]) == ("a", "1x4", "1.35")
    assert plan["kubelet"]["topologyManagerPolicy"] == "none"
    assert plan["kubelet"]["topologyManagerScope"] == "pod"
    with pytest.raises(ClusterError, match="'colour' is none of"):
        command._plan(args, "colour=red")


def test_wrong_use_of_the_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["exec", "--name", "nobody-has-this", "n0", "--", "true"]) == 1
    assert (
        capsys.readouterr().err == "tests.cluster: no cluster in /tmp/rte-cluster-nobody-has-this\n"
    )


def test_pods_are_guaranteed_unless_limits_say_otherwise() -> None:
    made = pod(container(2, "1Gi"), container(1, "1Gi", limits={}), init=[container(4)], node="n0")
    first, second = made["spec"]["containers"]
    assert first["resources"]["limits"] == first["resources"]["requests"]
    assert second["resources"]["limits"] == {}
    assert made["spec"]["initContainers"][0]["name"] == "i0"
    assert made["spec"]["nodeName"] == "n0"


def test_processes_of_a_run_are_found_and_ended_with_all_that_they_started(tmp_path: Path) -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(600)' & wait"
    pid = processes.spawn(
        ["setsid", "sh", "-c", script],
        run_dir=tmp_path,
        role="a/b",
        log=tmp_path / "log",
        tied=False,
    )
    processes.wait_until(lambda: len(list(processes.find(tmp_path, "a"))) >= 2, 10, "both")
    assert not list(processes.find(tmp_path, "b"))
    processes.stop(tmp_path, "a")
    assert not list(processes.find(tmp_path))
    assert not processes.alive(pid)


def test_a_process_that_ends_early_is_reported_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command_line = ["sh", "-c", "echo 'E1 went wrong' >&2"]
    pid = processes.spawn(command_line, run_dir=tmp_path, role="x", log=log, tied=False)
    with pytest.raises(ClusterError, match=r"thing: its process ended\nE1 went wrong"):
        processes.wait_until(lambda: False, 10, "thing", pid=pid, log=log)
