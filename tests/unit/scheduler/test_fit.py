"""``POST /fit`` and the metrics of named shapes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application

from rte import errors
from rte.model import quantity
from rte.placement.joint.gang import place_together
from rte.scheduler.front import answers, fit
from rte.scheduler.loop.gangs import desk as desks
from rte.scheduler.loop.gangs.desk import FitDesk
from rte.scheduler.report import shapes
from rte.scheduler.report.metrics import SchedulerMetrics
from rte.telemetry import health
from tests.unit.scheduler.build import World, pod_object

if TYPE_CHECKING:
    from pathlib import Path


class _Running:
    """As much of a scheduler as the route reads."""

    def __init__(self, world: World) -> None:
        self.cluster, self.cycle = world.cluster, world.cycle


def world(nodes: int = 2) -> World:
    made = World()
    for number in range(nodes):
        made.node(f"n{number}")
    return made


async def ask(made: World, body: object) -> tuple[int, dict[str, Any]]:
    app = Application()
    app.add_routes(fit.routes(_Running(made)))  # type: ignore[arg-type]
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/fit", json=body)
        return answer.status, await answer.json()


async def test_a_pod_is_answered_by_how_many_copies_fit() -> None:
    status, told = await ask(world(), pod_object(cpu="4"))
    assert status == 200
    # 7 and 8 CPUs on each node: one copy in the first zone, two in the second.
    assert told["pods"] == 6
    assert told["nodes"] == {"n0": 3, "n1": 3}
    assert told["missing"]["short"]


@pytest.mark.parametrize(("count", "verdict"), [(6, "fits"), (7, "does not fit")])
async def test_a_count_asks_whether_so_many_fit_together(count: int, verdict: str) -> None:
    status, told = await ask(world(), {"pods": [pod_object(cpu="4")], "count": count})
    assert status == 200
    assert told["verdict"] == verdict
    assert len(told["places"]) == 6


async def test_a_gang_is_answered_as_a_whole() -> None:
    gang = [pod_object("a", "7"), pod_object("b", "8"), pod_object("c", "8")]
    assert (await ask(world(1), {"pods": gang}))[1]["blame"] == "node totals"
    assert (await ask(world(1), {"pods": gang, "minCount": 2}))[1]["verdict"] == "fits"


@pytest.mark.parametrize("cpu", ["4", "8E"])
async def test_nodes_that_others_have_filled_beyond_64_bits_are_answered_about(cpu: str) -> None:
    made = world(1)
    for _ in range(3):
        made.pod(cpu=["8E"] * 3, node_name="n0")
    asked = pod_object(cpu=cpu)
    status, told = await ask(made, asked)
    assert status == 200
    assert told["missing"]["short"]["cpu"] == quantity.MOST
    assert (await ask(made, {"pods": [asked], "count": 3}))[1]["blame"] == "node totals"
    explained = answers.explain_pod(made.cluster, made.cycle, made.pod(cpu=cpu)).as_json()
    response = health.json_response(explained)
    assert response.status == 200
    assert explained["nodes"][0]["totals"]["cpu"][1] == -quantity.MOST


async def test_nodes_without_an_exact_report_are_told() -> None:
    made = world(1)
    made.node("bare", bare=True)
    assert (await ask(made, pod_object(cpu="4")))[1]["left_out"] == 1


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ([], "expected a Pod"),
        ({"pods": []}, "pods"),
        ({"pods": [1]}, "pods"),
        ({"pods": [pod_object()], "count": 0}, "count"),
        ({"pods": [pod_object()], "count": True}, "count"),
        ({"pods": [pod_object()], "topologyKey": 1}, "topologyKey"),
        ({"pods": [pod_object(), pod_object()], "count": 2}, "one pod"),
        ({"pods": [pod_object()], "minCount": 2}, "minCount 2: of 1 pod"),
        ({"pods": [pod_object()], "count": 2, "minCount": 3}, "minCount 3: of 2 pods"),
        ({"metadata": {}, "spec": {"containers": 1}}, "bad pod"),
        ({"spec": None}, "pod"),
        ({"pods": [{"metadata": {"name": {}}, "spec": {}}]}, ""),
    ],
)
async def test_what_is_no_question_is_refused_in_one_line(body: object, word: str) -> None:
    status, told = await ask(world(1), body)
    assert status == 400
    assert word in told["error"]
    assert "\n" not in told["error"]


def test_answers_follow_the_cluster() -> None:
    made = world()
    desk = FitDesk(made.cluster, made.cycle)
    pod = made.pod(cpu="8")
    assert desk.counting(desk.member(pod))().total == 2
    assert made.place(pod) == "n0"
    other = made.pod(cpu="8")
    assert desk.counting(desk.member(other))().total == 1
    made.cluster.remove_node("n1")
    assert desk.counting(desk.member(other))().total == 0
    made.report("n0", synced=False)
    assert desk.left_out() == 1


def test_named_shapes_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "shapes.yaml"
    file.write_text(yaml.safe_dump_all([pod_object("large", "8"), pod_object("small", "3")]))
    made, metrics = world(1), SchedulerMetrics()
    desk = FitDesk(made.cluster, made.cycle)
    pods = shapes.views(shapes.read_shapes(file), made.cluster.shapes)
    shapes.measure(
        metrics,
        made.cluster.nodes.values(),
        pods,
        {name: desk.counting(desk.member(pod))() for name, pod in pods.items()},
    )
    value = metrics.registry.get_sample_value
    assert value("rte_fit_pods", {"shape": "large"}) == 1
    assert value("rte_fit_pods", {"shape": "small"}) == 4
    assert value("rte_fit_largest_free_zone_cpus") == 8
    # Of 15 free CPUs, small ones could use 12.
    assert value("rte_fit_fragmentation_ratio") == pytest.approx(0.2)


@pytest.mark.parametrize("text", ["- 1", "a: {", "metadata: {name: a}\n---\nmetadata: {name: a}"])
def test_a_file_of_shapes_that_holds_none_is_a_usage_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shapes.yaml"
    file.write_text(text)
    with pytest.raises(errors.UsageError, match="--fit-shapes"):
        shapes.read_shapes(file)


async def test_two_pods_of_one_name_are_no_question() -> None:
    """Each place is told by the name of its pod."""
    status, told = await ask(world(1), {"pods": [pod_object("a", "7"), pod_object("a", "8")]})
    assert (status, told["error"]) == (400, "two pods are named default/a")


async def test_long_questions_leave_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(1)
    running = asyncio.Event()
    loop = asyncio.get_running_loop()

    def long(*_: object, **__: object) -> Any:
        # Only the loop can set this: were the question answered there, that would never be.
        asyncio.run_coroutine_threadsafe(_set(running), loop).result(30)
        return place_together([], [])

    monkeypatch.setattr(desks.gang, "place_together", long)
    status, _ = await ask(made, {"pods": [pod_object("a", "7")], "count": 1})
    assert status == 200
    assert running.is_set()


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_questions_at_the_same_time_are_all_answered() -> None:
    app = Application()
    app.add_routes(fit.routes(_Running(world())))  # type: ignore[arg-type]

    async def told(client: Any, count: int) -> str:
        body = {"pods": [pod_object(cpu="4")], "count": count}
        return str((await (await client.post("/fit", json=body)).json())["verdict"])

    async with TestClient(TestServer(app)) as client:
        found = await asyncio.gather(*(told(client, count) for count in range(1, 13)))
    assert found == ["fits"] * 6 + ["does not fit"] * 6
