"""The demo: a tour that ends, a screen that fits, nothing left behind."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rte.cli import demo as command
from rte.cli import main
from rte.sim import demo, machines
from rte.sim.apiserver import API
from rte.sim.demo import chaos, keys, run, view, workload
from rte.sim.demo import cluster as cluster_module
from rte.sim.demo.cluster import NAMESPACE, crd
from rte.sim.demo.snapshot import (
    Beside,
    DemoEvent,
    DemoSnapshot,
    NodeView,
    PodLine,
    SnapshotCollector,
)
from rte.sim.fleet import SimulatedFleet
from rte.sim.kubelet import Timing
from tests.depth import DEPTH

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
    assert " 0 refused by a kubelet" in capsys.readouterr().out


def test_the_tour_places_pods_and_leaves_nothing(
    temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "2", "--shape", "2x8"]) == 0
    text = capsys.readouterr().out
    assert " 0 refused by a kubelet" in text
    assert "pinned-1" in text
    assert "TopologyAffinityError" in text  # what the pod that fits nowhere is told
    assert list(temp_dir.iterdir()) == []


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_the_tour_ends_well_under_every_policy(
    policy: str, temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "1", "--shape", "2x8", "--policy", policy]) == 0
    assert " 0 refused by a kubelet" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["1x1", "1x2", "2x4,memory=1Gi", "1x3,threads=1"])
def test_the_tour_ends_well_on_every_shape(
    shape: str, temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--once", "--nodes", "2", "--shape", shape]) == 0
    assert " 0 refused by a kubelet" in capsys.readouterr().out


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
        assert " created: " in rest


def test_a_terminal_that_cannot_draw_gets_lines() -> None:
    """``TERM=dumb``, as in an editor's shell."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rte", "demo", "--nodes", "1", "--shape", "1x4"]
    told = b""
    with subprocess.Popen(
        command, env={**os.environ, "TERM": "dumb"}, stdin=theirs, stdout=theirs
    ) as process:
        os.close(theirs)
        while b"/view" not in told:
            told += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
    os.close(ours)
    assert process.returncode == 0
    assert told.startswith(b"export KUBECONFIG=")
    assert b"\x1b" not in told


def test_nothing_is_lost_by_chaos(temp_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = str(max(4, 30 * DEPTH))
    words = ["--nodes", "2", "--shape", "2x8", "--rate", "4", "--chaos", seconds]
    assert main(["demo", *words]) == 0
    told = capsys.readouterr().out
    for fault in ("kubelet restarts", "agent dies", "api server is away"):
        assert fault in told
    assert told.endswith(" 0 refused by a kubelet.\nNothing was lost.\n")
    assert list(temp_dir.iterdir()) == []


async def test_what_chaos_has_lost_is_told(temp_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "_SETTLING_S", 0)
    faults = demo.Chaos(1, command.waiting_that_fit)
    async with demo.DemoCluster(demo.Settings(nodes=1, shapes=("2x8",))) as cluster:
        amounts = {"cpu": "2", "memory": "1Gi"}
        limits = {"requests": amounts, "limits": amounts}
        workload.make(cluster.api, workload.pod("runs", limits, 3600))
        async with asyncio.timeout(30):
            while (await faults.lost(cluster)) or not cluster.nodes["node-a"].kubelet.pods():
                await asyncio.sleep(0.02)
        for name, cpus in (("forgotten", "2"), ("too-large", "9")):
            amounts = {"cpu": cpus, "memory": "1Gi"}
            left = workload.pod(name, {"requests": amounts, "limits": amounts}, 3600)
            left["spec"]["schedulerName"] = "nobody"
            workload.make(cluster.api, left)
        kubelet = cluster.nodes["node-a"].kubelet
        kubelet.refusals.append(("refused", "TopologyAffinityError"))
        kubelet._managers.state = replace(kubelet.state, holdings={})
        assert await faults.lost(cluster) == [
            "lost: node-a refused refused: TopologyAffinityError",
            "lost: runs does not run on node-a as is said of it",
            "lost: demo/forgotten waits though there is room for it",
        ]


async def test_pods_of_the_default_scheduler_are_served(temp_dir: Path) -> None:
    async with demo.DemoCluster(demo.Settings(nodes=1, shapes=("2x8",))) as cluster:
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
    async with demo.DemoCluster(demo.Settings(nodes=2, shapes=("2x8", "1x4"))) as cluster:
        observer = SnapshotCollector(cluster)
        async with asyncio.timeout(10):
            while not all(node.state for node in observer.look().nodes):
                await asyncio.sleep(0.02)
        console = Console(width=width, height=height, record=True, file=(temp_dir / "o").open("w"))
        screen = view.Screen(width=width, height=height)
        console.print(view.draw(observer.look(), screen, ["export KUBECONFIG=x"])[0])
        console.file.close()
        observer.close()
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line.startswith("node-a") for line in lines)


def lines_of(snapshot: DemoSnapshot, width: int, height: int, scroll: int = 0) -> list[str]:
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    screen = view.Screen(width=width, height=height)
    console.print(view.draw(snapshot, screen, ["export KUBECONFIG=x"], scroll=scroll)[0])
    return console.export_text().splitlines()


def shown(pods: int, *, events: int = 0, beside: Beside | None = None) -> DemoSnapshot:
    """Twelve nodes without reports, and pods that hold CPUs."""
    nodes = tuple(
        NodeView(name=f"node-{number}", shape="2x8", topology=None) for number in range(12)
    )
    lines = tuple(
        PodLine(
            name=f"pod-{number:02}", uid=f"u{number}", phase="Running", node="node-1", zones="0",
            cpus=f"{2 * number}-{2 * number + 1}", devices="", reason="",
        )
        for number in range(pods)
    )  # fmt: skip
    told = tuple(
        DemoEvent("12:00:00", "Normal", "Scheduled", f"pod-{n}", "x") for n in range(events)
    )
    return DemoSnapshot(
        nodes=nodes, pods=lines, events=told, created=pods, bound=pods, refused=0, beside=beside
    )


@pytest.mark.parametrize("width", [80, 120, 160])
def test_every_node_and_pod_can_be_reached_by_scrolling(width: int) -> None:
    snapshot, seen = shown(30), set[str]()
    _, most = view.draw(snapshot, view.Screen(width=width, height=24), ["export KUBECONFIG=x"])
    assert most > 0
    for top in range(most + 1):
        lines = lines_of(snapshot, width, 24, top)
        assert len(lines) <= 24
        assert max(map(len, lines)) <= width
        seen |= {word for line in lines for word in line.split()}
    assert {f"node-{number}" for number in range(12)} <= seen
    assert {f"pod-{number:02}" for number in range(30)} <= seen


def test_a_pod_is_in_the_colour_of_its_cells() -> None:
    (line,) = view.pod_lines(shown(1))[1:]
    assert line.plain.startswith("■ pod-00")
    assert {str(span.style) for span in line.spans} | {str(line.style)} >= {view.colour("u0")}


async def test_what_is_printed_at_80_columns_is_not_cut(temp_dir: Path) -> None:
    async with demo.DemoCluster(demo.Settings(nodes=2, shapes=("2x8", "2x96"))) as cluster:
        observer = SnapshotCollector(cluster)
        async with asyncio.timeout(10):
            while not all(node.state for node in observer.look().nodes):
                await asyncio.sleep(0.02)
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(view.zone_table(observer.look()))
        observer.close()
    text = console.export_text()
    assert "…" not in text
    assert all(word in text for word in ("GPU free", "CPUS", "0-47,96-143", "48-95,144-191"))


def test_the_screen_tells_how_much_is_out_of_sight() -> None:
    assert any("0 lines above" in line for line in lines_of(shown(40), 80, 24))
    assert not any("lines above" in line for line in lines_of(shown(2), 80, 40))


@pytest.mark.parametrize("height", [24, 40])
async def test_without_colours_signs_tell_pods_apart(temp_dir: Path, height: int) -> None:
    """``NO_COLOR``: each pod is a letter, in its cells and beside its name."""
    async with demo.DemoCluster(demo.Settings(nodes=1, shapes=("1x8,threads=1",))) as cluster:
        observer = SnapshotCollector(cluster)
        amounts = {"cpu": "2", "memory": "1Gi"}
        limits = {"requests": amounts, "limits": amounts}
        workload.make(cluster.api, workload.pod("one", limits, 3600))
        async with asyncio.timeout(30):
            while not any(p.cpus and p.phase == "Running" for p in observer.look().pods):
                await asyncio.sleep(0.02)
        last = observer.look()
        observer.close()
    console = Console(width=80, no_color=True, record=True, file=io.StringIO())
    console.print(view.draw(last, view.Screen(width=80, height=height, plain=True), [])[0])
    lines = console.export_text().splitlines()
    sign = view.letter(last.pods[0].uid)
    assert any(f"zone 0 #{sign}{sign}....." in line for line in lines)
    assert any(line.startswith(f"{sign} one ") for line in lines)
    assert not any("▀" in line for line in lines)


def test_why_a_pod_waits_is_told_in_full_at_80_columns() -> None:
    reason = "0/5 nodes are available: " + ", ".join(f"{n} of some long reason" for n in range(6))
    (pod,) = shown(1).pods
    waits = replace(pod, phase="Pending", node="", cpus="", reason=reason)
    lines = lines_of(replace(shown(2), pods=(*shown(2).pods, waits)), 80, 24)
    assert all(len(line) <= 80 for line in lines)
    assert reason in " ".join(" ".join(lines).split())
    assert any("pod-01" in line for line in lines)


def test_what_plain_rules_did_with_the_same_pods_is_told() -> None:
    why = "TopologyAffinityError"
    refusals = {f"pod-{number:02}": (f"node-{number}", why) for number in range(12)}
    beside = Beside(created=19, bound=18, running=4, waiting=1, undecided=0, refusals=refusals)
    snapshot = shown(20, beside=beside)
    screen = lines_of(snapshot, 80, 100)
    assert "plain Kubernetes  19 pods: 4 running, 1 waiting, 12 refused by a kubelet" in screen
    # Below the pod, whatever rte did with it.
    assert screen[next(n for n, line in enumerate(screen) if "pod-07" in line) + 1].endswith(
        "plain Kubernetes: node-7 refused it, TopologyAffinityError"
    )
    counts = "4 running, 1 waiting, 12 refused by a kubelet (12 TopologyAffinityError)"
    assert view.remark(beside) == f"Plain Kubernetes, with 19 of these pods: {counts}"
    summary = view.summary_lines(snapshot)
    assert summary[0] == "rte: 20 pods created: 20 placed, 0 still waiting, 0 refused by a kubelet."
    assert f"18 of 19 placed; {counts}." in summary[1]
    assert summary[2:] == [
        *(f"  pod-{n:02}: refused by node-{n} (TopologyAffinityError)" for n in range(10)),
        "  and 2 more",
        "Pods with claims or processing groups were left out there: 1.",
    ]


@pytest.mark.parametrize(
    ("typed", "top"),
    [("\x1b[B", 6), ("\x1b[A", 4), ("j", 6), ("k", 4), ("\x1b[6~", 15), (" ", 15), ("\x1b[5~", -5),
     ("\x1b[H", 0), ("g", 0), ("G", 40), ("\x1b[F", 40), ("x", 5), ("\x1b[1;5C", 5)],
)  # fmt: skip
def test_keys_scroll(typed: str, top: int) -> None:
    assert keys.scrolled(typed, 5, page=10, most=40) == top


@given(st.lists(st.sampled_from(["\x1b[A", "\x1b[6~", "\x1bOB", "q", " ", "é"])))
def test_what_is_typed_is_taken_key_by_key(typed: list[str]) -> None:
    assert keys.split("".join(typed)) == typed


async def test_plain_rules_see_totals_and_no_zones(temp_dir: Path) -> None:
    settings = demo.Settings(nodes=1, shapes=("2x8",), plain=True)
    async with demo.DemoCluster(settings) as cluster:
        beside = SnapshotCollector(cluster, cluster)
        for name, cpus in (("crosses", "9"), ("fits", "2"), ("large", "40")):
            amounts = {"cpu": cpus, "memory": "1Gi"}
            resources = {"requests": amounts, "limits": amounts}
            cluster.api.create("pods", workload.pod(name, resources, 3600), "default")
        async with asyncio.timeout(30):
            while (told := beside.look().beside) is None or told.bound < 2 or told.undecided:
                await asyncio.sleep(0.02)
        # Each refusal is news once.
        assert [each.text for each in beside.look().events if each.reason == "Refused"] == [
            "under plain rules, by node-a: TopologyAffinityError"
        ]
        beside.close()
    assert told.refusals == {"crosses": ("node-a", "TopologyAffinityError")}
    assert (told.waiting, told.running) == (1, 1)


def test_the_tour_with_a_comparison(temp_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--once", "--compare", "--nodes", "1", "--shape", "2x24"]) == 0
    text = capsys.readouterr().out
    assert "  too-large: refused by node-a (TopologyAffinityError)" in text
    # One more large pod has a zone; by its totals the node has room for all the others.
    told = re.search(r"(\d+) running, (\d+) waiting, (\d+) refused by a kubelet \(", text)
    assert told is not None
    assert int(told[3]) >= 30
    assert " still waiting, 0 refused by a kubelet." in text
    assert list(temp_dir.iterdir()) == []


def test_the_comparison_shows_what_the_demo_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo's own nodes: under plain rules a kubelet refuses many pods, here none."""
    assert main(["demo", "--once", "--compare"]) == 0
    text = capsys.readouterr().out
    refused = [int(count) for count in re.findall(r"(\d+) refused by a kubelet", text)]
    assert refused[0] == 0
    assert refused[1] >= 30


def test_pods_of_the_demo_have_a_namespace_of_their_own(temp_dir: Path) -> None:
    api = API()
    api.create("namespaces", {"metadata": {"name": NAMESPACE}})
    workload.make(api, workload.pod("one", {}, 1))
    assert [pod["metadata"]["namespace"] for pod in api.list("pods").items] == [NAMESPACE]


async def test_pods_of_the_user_are_named_with_their_namespace(temp_dir: Path) -> None:
    async with demo.DemoCluster(demo.Settings(nodes=1, shapes=("2x8",))) as cluster:
        observer = SnapshotCollector(cluster)
        for namespace in ("default", NAMESPACE):
            cluster.api.create("pods", workload.pod("one", {}, 3600), namespace)
        assert [pod.name for pod in observer.look().pods] == ["default/one", "one"]
        observer.close()


async def test_of_many_nodes_some_have_no_agent_of_their_own(
    temp_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "AGENTS", 1)
    async with demo.DemoCluster(demo.Settings(nodes=3, shapes=("2x8",))) as cluster:
        observer = SnapshotCollector(cluster)
        async with asyncio.timeout(30):
            while not all(node.state for node in observer.look().nodes):
                await asyncio.sleep(0.02)
        observer.close()
        sockets = [node.kubelet.socket is not None for node in cluster.nodes.values()]
    assert sockets == [True, False, False]


async def test_deployments_and_jobs_run_to_their_end(temp_dir: Path) -> None:
    async with demo.DemoCluster(demo.Settings(nodes=1, shapes=("2x8",))) as cluster:
        container = {"name": "c", "image": "i"}
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        cluster.api.create("deployments", {"metadata": {"name": "web"}, "spec": spec}, "default")
        ends = {"restartPolicy": "Never", "containers": [{**container, "command": ["true"]}]}
        job = {"metadata": {"name": "once"}, "spec": {"template": {"spec": ends}}}
        cluster.api.create("jobs", job, "default")
        async with asyncio.timeout(30):
            while True:
                web = cluster.api.get("deployments", "web", "default")["status"]
                once = cluster.api.get("jobs", "once", "default")["status"]
                if web.get("availableReplicas") == 2 and once.get("succeeded") == 1:
                    break
                await asyncio.sleep(0.02)
    assert web["conditions"][-1]["reason"] == "NewReplicaSetAvailable"
    assert once["conditions"][-1]["type"] == "Complete"


def test_the_last_of_five_nodes_serves_processing_groups(
    temp_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = [word for _ in range(5) for word in ("--shape", "1x16")]
    assert main(["demo", "--once", "--nodes", "5", *shapes]) == 0
    text = capsys.readouterr().out
    assert re.search(r"groups-1 +node-e +0 +\d", text)
    before, after = re.findall(r"node-e +none +0 +(\d+)/15", text)
    assert int(after) < int(before) == 15
    assert re.search(r"gang-2 +node-\w +0 +\d", text)


@pytest.mark.parametrize(
    "flags",
    [
        ["--nodes", "0"],
        ["--rate", "0"],
        ["--shape", "x"],
        ["--rate", "-1"],
        ["--chaos", "0"],
        ["--chaos", "--once"],
        ["--chaos", "--compare"],
    ],
)
def test_bad_flags_are_usage_errors(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *flags]) == 2
    assert capsys.readouterr().err.startswith("rte demo: ")


async def test_a_fleet_publishes_what_its_kubelets_hold(tmp_path: Path) -> None:
    machine = machines.make("2x8", tmp_path / "m")
    api = API()
    api.create("customresourcedefinitions", crd())
    async with SimulatedFleet(
        api, {"n1": machine, "n2": machine}, timing=Timing(start=0.01)
    ) as fleet:
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


@pytest.mark.parametrize(
    ("encoding", "can"), [("utf-8", True), ("ascii", False), ("iso-8859-1", False)]
)
def test_a_terminal_without_the_signs_of_a_drawing_gets_lines(encoding: str, can: bool) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert run.has_signs(Console(file=terminal, force_terminal=True)) is can
