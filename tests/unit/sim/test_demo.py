"""The demo: a tour that ends, a screen that fits, nothing left behind."""

from __future__ import annotations

import asyncio
import tempfile
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
    from pathlib import Path


@pytest.fixture
def temp_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_tour_places_pods_and_leaves_nothing(
    temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "2", "--shape", "2x8"]) == 0
    text = capsys.readouterr().out
    assert "refused by a kubelet: 0" in text
    assert "pinned-1" in text
    assert "TopologyAffinityError" in text  # what the pod that fits nowhere is told
    assert list(temp_dir.iterdir()) == []


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (40, 12)])
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
        async with asyncio.timeout(5):
            async for _, obj in watch:
                if made["metadata"]["uid"] in str(obj["metadata"]["annotations"]):
                    break
        assert obj["zones"][0]["resources"][0]["available"] == "5"
        assert len(fleet.kubelets) == 2
