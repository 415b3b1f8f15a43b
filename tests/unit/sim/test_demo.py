"""The demo: a tour that ends, a screen that fits, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from rte.cli import main
from rte.sim import demo, machines
from rte.sim.apiserver import API
from rte.sim.demo import view
from rte.sim.demo.cluster import crd
from rte.sim.demo.snapshot import Observer
from rte.sim.fleet import Fleet
from rte.sim.kubelet import Timing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def temp_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rte-t") as folder:  # sockets need short paths
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_a_long_name_of_the_temporary_folder_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("a" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert main(["demo", "--once", "--nodes", "2", "--shape", "2x8"]) == 0
    assert "refused by a kubelet: 0" in capsys.readouterr().out


def test_the_tour_places_pods_and_leaves_nothing(
    temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "2", "--shape", "2x8"]) == 0
    text = capsys.readouterr().out
    assert "refused by a kubelet: 0" in text
    assert "pinned-1" in text
    assert "TopologyAffinityError" in text  # what the pod that fits nowhere is told
    assert list(temp_dir.iterdir()) == []


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_the_tour_ends_well_under_every_policy(
    policy: str, temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "1", "--shape", "2x8", "--policy", policy]) == 0
    assert "refused by a kubelet: 0" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["1x1", "1x2", "2x4,memory=1Gi", "1x3,threads=1"])
def test_the_tour_ends_well_on_every_shape(
    shape: str, temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "2", "--shape", shape]) == 0
    assert "refused by a kubelet: 0" in capsys.readouterr().out


def test_a_shape_on_which_no_kubelet_starts_is_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--once", "--shape", "2x4,memory=256Mi"]) == 2
    assert "512 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--once"], ["--rate", "0.1"]])
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_nothing_is_left_whatever_signal_ends_it(number: str, words: list[str]) -> None:
    tmp_path = Path(tempfile.mkdtemp(prefix="rte-t"))  # sockets need short paths
    command = [sys.executable, "-m", "rte", "demo", "--nodes", "2", "--shape", "1x4", *words]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it has begun
        process.send_signal(getattr(signal, number))
        rest = process.communicate(timeout=20)[0]
    assert list(tmp_path.iterdir()) == []
    tmp_path.rmdir()
    if words != ["--once"]:
        assert "pods were created" in rest


async def test_pods_of_the_default_scheduler_are_served(temp_dir: Path) -> None:
    async with demo.Cluster(demo.Settings(nodes=1, shapes=("2x8",))) as cluster:
        container = {"name": "c", "image": "i"}
        cluster.api.create(
            "pods", {"metadata": {"name": "run"}, "spec": {"containers": [container]}}, "default"
        )
        async with asyncio.timeout(10):
            async for _, obj in cluster.api.watch("pods"):
                if obj["status"].get("phase") == "Running":
                    break


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 30), (160, 50), (40, 12)])
async def test_the_screen_fits(temp_dir: Path, width: int, height: int) -> None:
    async with demo.Cluster(demo.Settings(nodes=2, shapes=("2x8", "1x4"))) as cluster:
        observer = Observer(cluster)
        async with asyncio.timeout(10):
            while not all(node.state for node in observer.look().nodes):
                await asyncio.sleep(0.02)
        console = Console(width=width, height=height, record=True, file=(temp_dir / "o").open("w"))
        console.print(view.draw(observer.look(), width, height, ["export KUBECONFIG=x"]))
        console.file.close()
        observer.close()
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line.startswith("node-a") for line in lines)


@pytest.mark.parametrize(
    "flags", [["--nodes", "0"], ["--rate", "0"], ["--shape", "x"], ["--rate", "-1"]]
)
def test_bad_flags_are_usage_errors(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *flags]) == 2
    assert capsys.readouterr().err.startswith("rte demo: ")


async def test_a_fleet_publishes_what_its_kubelets_hold(tmp_path: Path) -> None:
    machine = machines.make("2x8", tmp_path / "m")
    api = API()
    api.create("customresourcedefinitions", crd())
    async with Fleet(api, {"n1": machine, "n2": machine}, timing=Timing(start=0.01)) as fleet:
        limits = {"cpu": "2", "memory": "1Gi"}
        container = {"name": "c", "image": "i", "resources": {"limits": limits}}
        body = {"nodeName": "n1", "containers": [container]}
        made = api.create("pods", {"metadata": {"name": "a"}, "spec": body}, "default")
        watch = api.watch("noderesourcetopologies")
        async with asyncio.timeout(30):
            async for _, obj in watch:
                if made["metadata"]["uid"] in str(obj["metadata"]["annotations"]):
                    break
        assert obj["zones"][0]["resources"][0]["available"] == "5"
        assert len(fleet.kubelets) == 2
