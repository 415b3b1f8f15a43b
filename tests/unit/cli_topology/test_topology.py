"""``rte topology``: text, JSON and SVG of machines with and without a kubelet."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rte import cli
from rte.cli import drawing
from rte.model import bits
from rte.model.node import (
    Holding,
    KubeletConfig,
    MemoryAmounts,
    MemoryBlock,
    NodeReading,
    NodeState,
    PodRef,
    Topology,
    ZoneMemory,
)
from rte.sysfs import read_machine
from tests.checkpoints import sealed
from tests.unit.cli.objects import node_objects

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sysfs"
NAMES = sorted(path.name for path in FIXTURES.iterdir())
SVG = "{http://www.w3.org/2000/svg}"
GIB = 1 << 30


def roots(name: str) -> list[str]:
    root = FIXTURES / name
    return ["--sysfs-root", str(root / "sys"), "--procfs-root", str(root / "proc")]


def topology(capsys: pytest.CaptureFixture[str], name: str, *flags: str) -> str:
    assert cli.main(["topology", *roots(name), *flags]) == 0
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


def held_reading() -> NodeReading:
    machine = read_machine(FIXTURES / "64-2s/sys", FIXTURES / "64-2s/proc")
    amounts = MemoryAmounts(
        total=64 * GIB, system_reserved=GIB, allocatable=63 * GIB, reserved=16 * GIB, free=47 * GIB
    )
    state = NodeState(
        topology=Topology(cpus=(), zones=(), sockets=2),
        config=KubeletConfig(cpu_policy="static", memory_policy="Static"),
        reserved=bits.of([0, 32]),
        shared=machine.online & ~bits.of([2, 34]),
        memory={0: ZoneMemory(assignments=1, group=1, amounts={"memory": amounts})},
        holdings={
            "u": {
                "main": Holding(cpus=bits.of([2, 34]), memory=(MemoryBlock("memory", 1, 16 * GIB),))
            }
        },
    )
    pods = (PodRef(uid="u", namespace="lab", name="a<b>&c", exclusive=True),)
    return NodeReading(node_name="n1", machine=machine, state=state, pods=pods)


@pytest.mark.parametrize("name", NAMES)
def test_json_is_the_whole_machine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(topology(capsys, name, "-o", "json"))
    wanted = json.loads((FIXTURES / name / "expected.json").read_text())
    for key in ("cpus", "zones", "pci", "memory_bytes"):
        assert found[key] == wanted[key]


@pytest.mark.parametrize("name", NAMES)
def test_svg_draws_every_cpu_and_zone_once_inside_the_page(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ET.fromstring(topology(capsys, name, "-o", "svg"))
    wanted = json.loads((FIXTURES / name / "expected.json").read_text())
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    drawn: dict[str, int] = {}
    corners: list[tuple[float, float]] = []
    zones: list[str] = []

    def walk(element: ET.Element, x: float, y: float) -> None:
        if match := re.match(r"translate\(([\d.]+) ([\d.]+)\)", element.get("transform", "")):
            x, y = x + float(match[1]), y + float(match[2])
        if element.tag == f"{SVG}rect":
            corners.append(
                (
                    x + float(element.get("x", 0)) + float(element.get("width", 0)),
                    y + float(element.get("y", 0)) + float(element.get("height", 0)),
                )
            )
            title = element.find(f"{SVG}title")
            if title is not None and (cpu := re.match(r"CPU (\d+)", title.text or "")):
                drawn[cpu[1]] = drawn.get(cpu[1], 0) + 1
        if element.get("class") == "t" and (element.text or "").startswith("Zone "):
            zones.append((element.text or "").removeprefix("Zone "))
        for child in element:
            walk(child, x, y)

    walk(root, 0, 0)
    assert drawn == {str(cpu["id"]): 1 for cpu in wanted["cpus"]}
    assert sorted(map(int, zones)) == [zone["id"] for zone in wanted["zones"]]
    assert max(x for x, _ in corners) <= width
    assert max(y for _, y in corners) <= height


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
    assert "L3 1: 8 cores of 2 threads 8+24 9+25" in text
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


def test_svg_shows_holders_and_held_memory_in_their_colours() -> None:
    root = ET.fromstring(drawing.draw(held_reading().machine, held_reading()))
    fills = {}
    for rect in root.iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            fills[(title.text or "").split()[1]] = (rect.get("fill"), title.text)
    assert fills["2"][0] == fills["34"][0] == drawing.HOLDERS[0]
    assert "lab/a<b>&c main" in (fills["2"][1] or "")
    assert fills["0"][0] == drawing.RESERVED
    assert fills["5"][0] == drawing.SHARED
    held = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "held"]
    assert len(held) == 1
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert any("47 GiB free" in (text or "") for text in texts)


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
