"""``rte topology``: text, JSON and SVG of machines with and without a kubelet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rte import cli
from rte.sysfs import pci_names
from tests.checkpoints import sealed
from tests.machines import Shape, generate
from tests.unit.cli.objects import node_objects

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sysfs"
NAMES = sorted(path.name for path in FIXTURES.iterdir())
SVG = "{http://www.w3.org/2000/svg}"
GIB = 1 << 30


def roots(name: str) -> list[str]:
    root = FIXTURES / name
    return ["--sysfs-root", str(root / "sys"), "--procfs-root", str(root / "proc")]


@pytest.fixture(autouse=True)
def no_list_of_pci_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be that of the host which runs the test."""
    monkeypatch.setattr(pci_names, "PATHS", ())


def topology(capsys: pytest.CaptureFixture[str], name: str, *flags: str) -> str:
    assert cli.main(["topology", *roots(name), *flags]) == 0
    return capsys.readouterr().out


def topology_of(capsys: pytest.CaptureFixture[str], machine: str) -> str:
    assert cli.main(["topology", machine]) == 0
    return capsys.readouterr().out


def write_state(directory: Path) -> None:
    directory.mkdir()
    entries = {"uid-a": {"main": "2-5,34-37"}}
    (directory / "cpu_manager_state").write_text(
        json.dumps(
            sealed(
                {
                    "policyName": "static",
                    "defaultCpuSet": "0-1,6-33,38-63",
                    "entries": entries,
                }
            )
        )
    )
    data = json.dumps({"entries": {"uid-a": {"ContainerResources": {"main": {}}}}})
    (directory / "allocated_pods_state").write_text(json.dumps(sealed({"data": data})))
    (directory / "config.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'cpuManagerPolicy: static\nreservedSystemCPUs: "0,32"\n'
    )


@pytest.mark.parametrize("name", NAMES)
def test_json_is_the_whole_machine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(topology(capsys, name, "-o", "json"))
    wanted = json.loads((FIXTURES / name / "expected.json").read_text())
    for key in ("cpus", "zones", "pci", "memory_bytes"):
        assert found[key] == wanted[key]


@pytest.mark.parametrize("name", NAMES)
def test_text_names_every_zone_and_device(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = topology(capsys, name)
    wanted = json.loads((FIXTURES / name / "expected.json").read_text())
    for zone in wanted["zones"]:
        assert f"Zone {zone['id']}:" in text
    for device in wanted["pci"]:
        assert device["address"] in text
    assert ("Read with reservations" in text) == bool(wanted["warnings"])


def test_text_shows_what_shares_a_switch_a_cache_and_a_core(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = topology(capsys, "32-2s-gpus")
    assert "L3 1 · 60 MiB: 8 cores of 2 threads 8+24 9+25" in text
    assert "\ncaches of each core: L1d 48 KiB, L1i 48 KiB, L2 2 MiB\n" in text
    assert (
        "    PCIe root pci0000:90, switch 0000:91:00.0\n      0000:93:00.0 GPU 10de:2330\n"
        "      0000:94:00.0 NIC ens2np0 15b3:101d 400 Gb/s up\n      0000:95:00.0 NVMe nvme2"
    ) in text
    assert "VF of 0000:02:00.0" in text


def test_text_shows_what_processing_groups_go_by(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", *roots("16-2s-groups")]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert "icelake · isolated 2-3,6-7,10-11,14-15" in lines
    assert "    huge pages 1Gi: 8 = 8 GiB (5 free)" in lines
    assert "      0000:14:00.1 NIC ens1f1np1 15b3:101d 100 Gb/s up bond bond0 2 VFs" in lines
    assert "      0000:13:00.0 GPU 10de:20b2 NVIDIA A100-SXM4-80GB" in lines
    assert not any("1a03" in line for line in lines)


def test_text_tells_kinds_of_cores_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = topology(capsys, "8-desktop-hybrid")
    assert "2 performance cores of 2 threads 0+6 1+7; 4 efficiency cores 2-5" in text


def test_low_power_cores_are_a_kind_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    told = topology(capsys, "16-laptop-three-kinds")
    assert "6 performance cores 0-5; 8 efficiency cores 6-13; 2 low-power cores 14-15" in told


def test_a_core_whose_threads_have_two_caches_is_told_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """POWER10: eight threads, of which every other one has the same L3 cache."""
    shape = Shape(cores=2, threads=8, adjacent=True)
    generate(shape, tmp_path / "m")
    for cpu in range(16):
        cache = tmp_path / f"m/sys/devices/system/cpu/cpu{cpu}/cache/index3"
        first = cpu // 8 * 8 + cpu % 2
        (cache / "shared_cpu_list").write_text(",".join(str(first + 2 * n) for n in range(4)))
        (cache / "id").write_text(str(first))
    told = topology_of(capsys, str(tmp_path / "m"))
    assert "L3 0 and L3 1: 1 core of 8 threads 0+1+2+3+4+5+6+7\n" in told
    assert "L3 8 and L3 9: 1 core of 8 threads 8+9+10+11+12+13+14+15\n" in told
    assert told.count("threads") == 2


def test_a_named_kubelet_shows_who_holds_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_state(tmp_path / "kubelet")
    flags = ("--kubelet-state-dir", str(tmp_path / "kubelet"))
    text = topology(capsys, "64-2s", *flags)
    assert "  uid-a main: 2-5,34-37\n" in text
    assert "  reserved 0,32\n" in text
    found = json.loads(topology(capsys, "64-2s", *flags, "-o", "json"))
    assert [(h["uid"], h["cpus"]) for h in found["holdings"]] == [("uid-a", "2-5,34-37")]
    assert "uid-a main: 2-5,34-37" in topology(capsys, "64-2s", *flags, "-o", "svg")


def test_the_same_machine_is_drawn_in_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (topology(capsys, "64-2s-snc", "-o", "svg") for _ in range(2))
    assert first == second


def test_a_root_that_is_not_there_gives_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "--sysfs-root", "/nowhere"]) == 1
    assert capsys.readouterr().err == (
        "rte topology: /nowhere: no such directory; see --sysfs-root\n"
    )


def test_a_kubelet_directory_that_is_not_there_gives_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "none")
    assert cli.main(["topology", *roots("64-2s"), "--kubelet-state-dir", missing]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_bare_machine_loads_no_grpc() -> None:
    code = (
        "import sys; from rte import cli; cli.main(sys.argv[1:]); assert 'grpc' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code, "topology", *roots("64-2s")], check=True, capture_output=True
    )


def test_a_machine_is_named_as_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", *roots("64-2s")]) == 0
    by_folder = capsys.readouterr().out
    for name in ("64-2s", str(FIXTURES / "64-2s")):
        assert cli.main(["topology", name]) == 0
        assert capsys.readouterr().out == by_folder
    assert cli.main(["topology", "2x8,memory=1Gi"]) == 0
    assert "Zone 1: 8 CPUs" in capsys.readouterr().out


def test_another_machine_never_gets_our_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.node", lambda: "viewer")
    for words in (["64-2s"], roots("64-2s")):
        assert cli.main(["topology", *words, "-o", "svg"]) == 0
        assert "viewer" not in capsys.readouterr().out


def test_two_machines_are_not_mixed_silently(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "64-2s", *roots("16-2s-groups")]) == 2
    assert "a machine of its own" in capsys.readouterr().err
    assert cli.main(["topology", *roots("64-2s")[:2]]) == 0
    assert "--procfs-root" in capsys.readouterr().err


def test_a_report_alone_shows_who_holds_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``kubectl get noderesourcetopology n -o yaml`` prints it, without the pods."""
    path = tmp_path / "nrt.json"
    path.write_text(json.dumps(node_objects("n", (3,))[1]))
    assert cli.main(["topology", str(path)]) == 0
    out = capsys.readouterr().out
    assert "default/n-0 c0: " in out
    assert cli.main(["topology", str(path), "-o", "svg"]) == 0
    assert "default/n-0 c0" in capsys.readouterr().out
