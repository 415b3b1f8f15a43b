"""A source tells what changed, once, and remembers it."""

from __future__ import annotations

import gzip
import io
import json
import time
from importlib import resources
from itertools import pairwise

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from rte.scheduler.front.turns import Turns
from rte.sim.apiserver import schema
from rte.view import manifest, page
from rte.view.routes import routes
from rte.view.serve import serve
from rte.view.source import ViewSource
from tests.unit.view.clusters import World, add_node, filled, idle, place, wait


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def world() -> World:
    world = World()
    add_node(world, "n", idle())
    return world


def test_a_look_tells_what_changed_and_the_next_one_nothing(world: World) -> None:
    source = ViewSource(world, clock=Clock())
    first = source.look()
    assert first is not None
    assert list(first["nodes"]) == ["n"]
    assert list(first["machines"]) == [first["nodes"]["n"]["machine"]]
    assert source.look() is None


def test_a_pod_that_got_a_node_and_one_that_waits_are_decisions(world: World) -> None:
    source = ViewSource(world, clock=Clock())
    source.look()
    assert place(world, "n", "a", 2)
    wait(world, "large", 99, "too large")
    change = source.look()
    assert change is not None
    assert change["decisions"] == [
        {"at": 1000.0, "pod": "default/a", "node": "n", "zones": [0]},
        {"at": 1000.0, "pod": "default/large", "reason": "too large"},
    ]
    assert change["waits"] == 1


def test_a_node_that_goes_is_told(world: World) -> None:
    source = ViewSource(world, clock=Clock())
    source.look()
    world.cluster.remove_node("n")
    world.cluster.set_report("n", None, 0.0)
    change = source.look()
    assert change is not None
    assert change["nodes"] == {"n": None}
    assert source.snapshot()["nodes"] == []


def test_many_changes_are_described_a_portion_at_a_time() -> None:
    world = filled(230, pods=0)
    source = ViewSource(world, clock=Clock())
    source.look()
    for name in list(world.cluster.nodes):
        assert place(world, name, f"new-{name}", 2)
    sizes = [len((source.look() or {"nodes": {}})["nodes"]) for _ in range(3)]
    assert sizes == [100, 100, 30]


async def test_a_slow_listener_is_told_to_begin_anew(world: World) -> None:
    source = ViewSource(world, clock=Clock())
    async with source.listen() as changes:
        for number in range(100):
            wait(world, f"p{number}", 99, "w")
            source.look()
        told = [changes.get_nowait() for _ in range(changes.qsize())]
    assert {"reload": True} in told
    assert len(told) <= 64


@pytest.fixture
def source(world: World) -> ViewSource:
    return ViewSource(world)


@pytest.fixture
async def client(source: ViewSource):
    app = web.Application()
    app.router.add_routes(routes(source, Turns()))
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_the_page_is_one_document_that_loads_nothing(client) -> None:
    answer = await client.get("/view")
    text = await answer.text()
    assert answer.status == 200
    assert "default-src 'none'" in text
    assert "@SCRIPT@" not in text
    assert "src=" not in text.replace("-src", "")
    assert "<link" not in text


def test_the_page_is_small() -> None:
    assert len(gzip.compress(page.assemble())) <= 24 << 10


async def test_data_and_times_that_were(client, world: World) -> None:
    data = await (await client.get("/view/data")).json()
    assert [node["name"] for node in data["nodes"]] == ["n"]
    assert place(world, "n", "a", 2)
    after = await (await client.get("/view/data")).json()
    assert len(after["nodes"][0]["pods"]) == 1
    then = await (await client.get("/view/at", params={"t": data["at"]})).json()
    assert then["nodes"][0]["pods"] == []
    for wrong in ("", "x", "nan", "inf"):
        assert (await client.get("/view/at", params={"t": wrong})).status == 400


async def test_hardware_is_drawn_with_its_holders(client, world: World) -> None:
    assert place(world, "n", "a", 2, gpus=1)
    drawn = await (await client.get("/view/hardware", params={"node": "n"})).json()
    assert drawn["svg"].startswith("<svg")
    held = {each["id"]: each["holder"] for each in drawn["devices"]}
    assert held == {"gpu0": "default/a main", "gpu1": ""}
    assert (await client.get("/view/hardware", params={"node": "x"})).status == 404


async def test_explain_by_uid_and_by_name(client, world: World) -> None:
    wait(world, "large", 99, "w")
    for wanted in ("uid-large", "default/large"):
        answer = await (await client.get("/view/explain", params={"pod": wanted})).json()
        assert answer["pod"] == "default/large"
        assert answer["nodes"][0]["fits"] is False
    assert (await client.get("/view/explain", params={"pod": "x"})).status == 404


POD = {
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}]},
}
GANG = {"kind": "Job", "metadata": {"name": "g"}, "spec": {"parallelism": 6, "template": POD}}


async def test_what_if_counts_and_places(client) -> None:
    answer = await (await client.post("/view/try", data=json.dumps(POD))).json()
    assert answer["fit"]["total"] == 7
    assert answer["explain"]["chosen"] == "n"
    assert answer["takes"] == {"n": "1-2,17-18"}
    gang = await (await client.post("/view/try", data=json.dumps(GANG))).json()
    assert gang["pods"] == 6
    assert gang["together"]["verdict"] == "fits"
    assert set(gang["together"]["places"].values()) == {"n"}
    assert gang["takes"] == {"n": "1-6,8-13,17-22,24-29"}


async def test_what_if_for_a_workload_asks_with_the_labels_of_its_template(client) -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g"}  # of gangs that are refused by name
    template = {"metadata": {"labels": labels}, "spec": POD["spec"]}
    deployment = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}
    answer = await (await client.post("/view/try", data=json.dumps(deployment))).json()
    assert "gang labels" in json.dumps(answer["explain"])


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("containers: [{name: c, resource: {limits: {cpu: 4}}}]", "spec.containers[0].resource"),
        ("containers: [{name: c, resources: {limit: {cpu: 4}}}]", "resources.limit"),
        ("containers: [{name: c, resources: {limits: {cpus: 4}}}]", "limits.cpus"),
        ("containers: [{name: c}]\n  nodeSelectors: {a: b}", "spec.nodeSelectors"),
        ("containers: [{name: c}]\n  resources: {limits: {cpus: 4}}", "spec.resources.limits.cpus"),
    ],
)
async def test_a_misspelt_field_is_refused_and_not_left_out(client, spec: str, named: str) -> None:
    answer = await client.post("/view/try", data=f"kind: Pod\nspec:\n  {spec}".encode())
    error = (await answer.json())["error"]
    assert answer.status == 400
    assert named in error
    assert "no such field or resource" in error


def test_the_fields_of_containers_are_those_of_the_newest_release() -> None:
    types = json.loads(resources.files(schema).joinpath("types.json").read_text())
    told = {"Container": manifest.CONTAINER, "ResourceRequirements": manifest.RESOURCES}
    for name, fields in told.items():
        assert fields == {field for field, *_ in types[f"core/v1.{name}"]}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "3", "[]", "a: b", "kind: Pod", "kind: Pod\nspec: 3",
        "kind: Pod\nmetadata: 3\nspec: {}",
        "spec: {replicas: 100000, template: {}}", "spec: {replicas: x, template: {}}",
        "spec: {template: {spec: {containers: 3}}}", "\ud7ff{{{",
        "spec: {containers: [{name: c, resources: {limits: {cpu: 1x}}}]}",
    ],
)  # fmt: skip
async def test_a_manifest_that_is_none_is_told_in_one_line(client, text: str) -> None:
    answer = await client.post("/view/try", data=text.encode())
    error = (await answer.json())["error"]
    assert answer.status == 400
    assert "\n" not in error


async def test_what_is_no_text_or_too_long_is_refused(client) -> None:
    assert (await client.post("/view/try", data=b"\xff")).status == 400
    assert (await client.post("/view/try", data=io.BytesIO(b" " * (1 << 20) + b"x"))).status == 413


ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{each}: &{each} [{','.join([f'*{before}'] * 9)}]\n"
    for before, each in pairwise("abcdefghi")
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ALIASES + "spec: {containers: [{name: c, env: *i}]}\n", id="aliases"),
        pytest.param(ALIASES + "metadata: {name: p, labels: *i}\nspec: {}\n", id="labels"),
        pytest.param("spec: {}\nx: [" + "a," * 120_000 + "]\n", id="many"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(
            json.dumps(
                {
                    "kind": "Job",
                    "metadata": {"name": "j"},
                    "spec": {
                        "parallelism": 200,
                        "template": {
                            "spec": {
                                "containers": [
                                    {"name": f"c{n}", "resources": {"limits": {"cpu": "1"}}}
                                    for n in range(200)
                                ]
                            }
                        },
                    },
                }
            ),
            id="pods of many containers",
        ),
    ],
)
async def test_a_manifest_that_stands_for_more_than_it_says_is_refused(client, text: str) -> None:
    began = time.process_time()
    answer = await client.post("/view/try", data=text.encode())
    assert answer.status == 400
    assert time.process_time() - began < 5


async def test_changes_come_as_server_sent_events(client, world: World, source: ViewSource) -> None:
    async with client.get("/view/events") as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert json.loads((await stream.content.readline())[6:]) == {"hello": True}
        await stream.content.readline()
        assert place(world, "n", "a", 2)
        source.look()
        change = json.loads((await stream.content.readline())[6:])
        assert list(change["nodes"]) == ["n"]


async def test_a_foreign_name_for_localhost_learns_nothing(world: World) -> None:
    import asyncio

    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve("127.0.0.1:0", ViewSource(world), started=ready.set_result))
    url = f"http://127.0.0.1:{await ready}/view/data"
    async with aiohttp.ClientSession() as session:
        assert (await session.get(url)).status == 200
        assert (await session.get(url, headers={"Host": "evil.example"})).status == 403
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_data_in_a_file_cannot_leave_its_element() -> None:
    nasty = "</script><script>alert(1)</script>@SCRIPT@"
    text = page.assemble({"nodes": [], "x": nasty}).decode()
    assert text.count("</script>") == 2
    assert "\\u003c/script>" in text
    assert text.count("@SCRIPT@") == 1
