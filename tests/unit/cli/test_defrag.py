"""``rte defrag``: plans on files, and evictions in a cluster of this process."""

import asyncio
import contextlib
import json

import pytest

from rte.cli import main
from rte.scheduler.framework import objects as views
from tests.unit.cli.objects import node_objects, pod_yaml
from tests.unit.scheduler.town import Town, until


@pytest.fixture
def cluster(write):
    """Zones with 7 and 8 usable CPUs; on each node one pod in either zone."""
    return write("cluster.yaml", [*node_objects("a", (5, 3)), *node_objects("b", (4, 4))])


def test_the_smallest_plan_is_printed_with_the_nodes_before_and_after(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    assert main(["defrag", "-f", pod, "--from", cluster, "--bare-pods"]) == 0
    out = capsys.readouterr().out
    assert "1 move opens a place" in out
    assert "1. default/a-1: a -> b" in out
    assert "then default/new -> a" in out
    assert "before: a (" in out
    assert "after: b (" in out


def test_json_names_the_moves(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    words = ["defrag", "-f", pod, "--from", cluster, "--bare-pods", "-o", "json"]
    assert main(words) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["moves"] == [{"pod": "default/a-1", "source": "a", "target": "b"}]
    assert plan["places"] == {"default/new": "a"}
    assert plan["minimal"]


def test_pods_without_a_controller_stay(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    assert main(["defrag", "-f", pod, "--from", cluster]) == 1
    assert "no pod may be moved" in capsys.readouterr().out


def test_a_pod_that_fits_needs_no_move(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 4)])
    assert main(["defrag", "-f", pod, "--from", cluster, "--bare-pods"]) == 0
    assert "fits as it is: default/new -> " in capsys.readouterr().out


def test_budgets_labels_and_annotations_keep_pods_where_they_are(write, capsys):
    objects = [*node_objects("a", (5, 3)), *node_objects("b", (4, 4))]
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    for item in objects:
        if item["kind"] == "Pod":
            item["metadata"]["labels"] = {"app": item["metadata"]["name"]}
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a-1"}}},
        "status": {"disruptionsAllowed": 0},
    }
    words = ["defrag", "-f", pod, "--bare-pods", "-o", "json", "--from"]
    assert main([*words, write("with.yaml", [*objects, budget])]) == 0
    moves = json.loads(capsys.readouterr().out)["moves"]
    assert "default/a-1" not in {move["pod"] for move in moves}
    budget["spec"]["selector"] = {}
    words = ["defrag", "-f", pod, "--bare-pods", "--from"]
    assert main([*words, write("none.yaml", [*objects, budget])]) == 1
    text = "no place can be opened with 4 pods that may be moved (4 held by disruption budgets)"
    assert text in capsys.readouterr().out
    words = ["defrag", "-f", pod, "--bare-pods", "-o", "json", "--from"]
    assert main([*words, write("all.yaml", objects), "-l", "app=a-0"]) == 1
    capsys.readouterr()
    for item in objects:
        item["metadata"]["annotations"] = {
            **item["metadata"].get("annotations", {}),
            views.STAYS: "false",
        }
    assert main([*words, write("stay.yaml", objects)]) == 1


def test_without_a_name_it_is_for_the_pod_that_waits_in_vain(write, capsys):
    files = write(
        "all.yaml",
        [
            *node_objects("a", (5, 3)),
            *node_objects("b", (4, 4)),
            pod_yaml("small", 1, priority=9),
            pod_yaml("large", 8),
        ],
    )
    assert main(["defrag", "--from", files, "--bare-pods"]) == 0
    assert "then default/large -> a" in capsys.readouterr().out
    assert main(["defrag", "large", "--from", files, "--bare-pods"]) == 0
    assert "then default/large -> a" in capsys.readouterr().out


def test_what_runs_on_named_machines_moves_to_other_machines(write, capsys):
    """The pods that a report, or a capture, says hold something: nobody knows who made them."""
    reports = [
        write(f"{name}.yaml", [item for item in objects if item["kind"] == "NodeResourceTopology"])
        for name, objects in (("a", node_objects("a", (5, 3))), ("b", node_objects("b", (4, 4))))
    ]
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    words = ["defrag", "-f", pod, "--machine", reports[0], "--machine", reports[1]]
    assert main([*words, "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(move["source"], move["target"]) for move in plan["moves"]] == [("a", "b")]
    assert plan["places"] == {"default/new": "a"}
    assert main(words) == 0
    assert "1 move opens a place" in capsys.readouterr().out
    assert main([*words, "-l", "app=x"]) == 1


def test_each_of_several_like_machines_has_pods_of_its_own(write, capsys):
    (report,) = [
        item for item in node_objects("a", (5, 3)) if item["kind"] == "NodeResourceTopology"
    ]
    two = f"{write('a.yaml', [report])}*2"
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    assert main(["defrag", "-f", pod, "--machine", two, "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (move,) = plan["moves"]
    assert {move["source"], move["target"]} == {"a-0", "a-1"}
    assert main(["fit", "-f", pod, "--machine", two, "--empty", "-o", "json"]) == 0


def test_on_empty_machines_nothing_has_to_move(write, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    assert main(["defrag", "-f", pod, "--machine", "2x16*2"]) == 0
    assert "fits as it is" in capsys.readouterr().out
    large = write("large.yaml", [pod_yaml("new", 20)])
    assert main(["defrag", "-f", large, "--machine", "2x16*2"]) == 1
    assert "no pod may be moved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["large", "-f", "{pod}", "--from", "{cluster}"], "one of the two"),
        (["nobody", "--from", "{cluster}"], "pod default/nobody not found"),
        (["-f", "{pod}", "--from", "{cluster}", "--apply"], "--apply is for a cluster"),
        (["-f", "{pod}", "--machine", "64-2s", "--apply"], "--apply is for a cluster"),
    ],
)
def test_wrong_usage_is_one_line(write, cluster, capsys, more, words):
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    filled = [word.replace("{pod}", pod).replace("{cluster}", cluster) for word in more]
    assert main(["defrag", *filled]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


# In a cluster


async def test_a_pod_that_waits_starts_after_apply(tmp_path, capsys):
    async with Town(tmp_path) as town:
        await town.node("a")
        await town.node("b")
        async with town.scheduler():
            sizes = {"p0": "4", "p1": "4", "p2": "5", "p3": "3"}
            for name, cpus in sizes.items():
                town.pod(name, cpus, owner="owner", node_name="a" if name in ("p0", "p1") else "b")
                await until(lambda name=name: town.phase(name) == "Running")
            town.pod("large", "8")
            await until(lambda: town.condition("large"))
            controller = asyncio.create_task(town.recreate(sizes, owner="owner"))
            try:
                words = ["defrag", "large", "--apply", "--kubeconfig", str(tmp_path / "kubeconfig")]
                code = await asyncio.to_thread(main, [*words, "--timeout", "20"])
                out = capsys.readouterr().out
                assert code == 0, out
                assert out.count("evicting ") == 1
                await until(lambda: town.phase("large") == "Running", 10)
                await until(lambda: all(p["status"]["phase"] == "Running" for p in town.pods()), 10)
                assert not town.refusals
            finally:
                controller.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await controller


async def test_a_pod_that_nobody_creates_again_is_told(tmp_path, capsys):
    async with Town(tmp_path) as town:
        await town.node("a")
        await town.node("b")
        async with town.scheduler():
            for name, cpus, node in (("p0", "4", "a"), ("p1", "4", "a"), ("p2", "8", "b")):
                town.pod(name, cpus, owner="owner", node_name=node)
                await until(lambda name=name: town.phase(name) == "Running")
            town.pod("large", "8")
            await until(lambda: town.condition("large"))
            words = ["defrag", "large", "--apply", "--kubeconfig", str(tmp_path / "kubeconfig")]
            assert await asyncio.to_thread(main, [*words, "--timeout", "1"]) == 1
            out = capsys.readouterr()
            assert "was evicted, and no pod in its place was ready" in out.err


async def test_what_was_kept_is_free_again_when_no_further_plan_is_known(tmp_path, capsys):
    """The room that was made is taken by somebody who does not ask for it."""
    async with Town(tmp_path) as town:
        await town.node("a")
        await town.node("b")
        async with town.scheduler():
            for name, cpus, node in (("p0", "5", "a"), ("p1", "3", "a"), ("p2", "8", "b")):
                town.pod(name, cpus, owner="owner" if name == "p1" else "", node_name=node)
                await until(lambda name=name: town.phase(name) == "Running")
            town.pod("large", "8", schedulerName="other")

            async def take_it() -> None:
                await until(lambda: "p1" not in {p["metadata"]["name"] for p in town.pods()}, 30)
                town.pod("p1-2", "8", owner="owner", node_name="a")
                await until(lambda: town.phase("p1-2") == "Running", 30)

            taking = asyncio.create_task(take_it())
            words = ["defrag", "large", "--apply", "--kubeconfig", str(tmp_path / "kubeconfig")]
            assert await asyncio.to_thread(main, [*words, "--timeout", "30"]) == 1
            await taking
            assert "no plan is left now" in capsys.readouterr().out
            large = next(p for p in town.pods() if p["metadata"]["name"] == "large")
            assert "nominatedNodeName" not in large["status"]


def test_a_pod_that_has_its_place_needs_no_plan(write, capsys):
    files = write("all.yaml", node_objects("a", (5, 3)))
    assert main(["defrag", "a-0", "--from", files]) == 0
    assert capsys.readouterr().out == "default/a-0 has its place already\n"
