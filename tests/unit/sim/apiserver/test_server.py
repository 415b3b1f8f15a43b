"""The API over HTTP: what only the wire shows."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from rte import errors
from rte.sim.apiserver import API, APIServer

if TYPE_CHECKING:
    from pathlib import Path

PODS = "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def read(http: aiohttp.ClientSession, path: str, **query: str) -> tuple[int, Any]:
    async with http.get(path, params=query) as answer:
        return answer.status, await answer.json()


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def next_event(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    async with asyncio.timeout(30):
        return json.loads(await answer.content.readline())


async def test_a_page_of_another_site_reads_and_writes_nothing(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    for name, value in (("Origin", "http://evil.example"), ("Host", "evil.example")):
        posting = http.post("/api/v1/nodes", data=json.dumps(node("n1")), headers={name: value})
        async with posting as answer:
            assert answer.status == 403
    assert (await read(http, "/api/v1/nodes"))[1]["items"] == []


async def test_a_watch_tells_what_happens_after_a_list(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    _, listed = await read(http, "/api/v1/nodes")
    server.api.create("nodes", node("n1"))
    query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with http.get("/api/v1/nodes", params=query) as answer:
        first = await next_event(answer)
        server.api.delete("nodes", "n1")
        second = await next_event(answer)
    assert [first["type"], second["type"]] == ["ADDED", "DELETED"]


async def test_bookmarks_carry_the_version_reached(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    query = {
        "watch": "1", "allowWatchBookmarks": "true", "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }  # fmt: skip
    server.api.create("nodes", node("n1"))
    async with http.get("/api/v1/nodes", params=query) as answer:
        assert (await next_event(answer))["type"] == "ADDED"
        first = await next_event(answer)
        assert first["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        server.api.create("configmaps", node("c"), "default")
        later = await next_event(answer)
    assert later["type"] == "BOOKMARK"
    assert later["object"]["metadata"]["resourceVersion"] == str(server.api.store.revision)


async def test_a_version_that_was_compacted_is_gone(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.api.create("nodes", node("n1"))
    server.faults.compact()
    query = {"watch": "1", "resourceVersion": "2"}
    async with http.get("/api/v1/nodes", params=query) as answer:
        assert answer.status == 200
        event = await next_event(answer)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_a_watch_ends_when_its_time_is_over(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/nodes", params={"watch": "1", "timeoutSeconds": "1"}) as answer:
        assert await answer.read() == b""


async def test_tables_have_the_columns_of_the_definition(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    body = {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"}, "zones": [],
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
    }  # fmt: skip
    server.api.create("noderesourcetopologies", body)
    path = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
    async with http.get(path, headers={"Accept": TABLE}) as answer:
        table = await answer.json()
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[:2] == ["Name", "Policy"]
    assert table["rows"][0]["cells"][:2] == ["n1", "restricted"]


async def test_warnings_travel_in_a_header(http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/nodes", json={**node("n1"), "x": 1}) as answer:
        assert answer.headers["Warning"] == '299 - "unknown field \\"x\\""'


async def test_discovery_in_both_forms(http: aiohttp.ClientSession) -> None:
    _, plain = await read(http, "/apis/topology.node.k8s.io/v1alpha2")
    assert plain["resources"][0]["shortNames"] == ["node-res-topo", "nrt"]
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    async with http.get("/apis", headers={"Accept": accept}) as answer:
        document = await answer.json(content_type=None)
    assert "topology.node.k8s.io" in [item["metadata"]["name"] for item in document["items"]]


async def test_tokens(api: API, tmp_path: Path) -> None:
    async with APIServer(api, tokens=["secret"]) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        assert config["users"][0]["user"] == {"token": "secret"}
        async with aiohttp.ClientSession(server.url) as http:
            status, body = await read(http, "/api/v1/nodes")
            assert (status, body["reason"]) == (401, "Unauthorized")
            http.headers["Authorization"] = "Bearer secret"
            assert (await read(http, "/api/v1/nodes"))[0] == 200


async def test_a_taken_port_is_told_in_one_line(server: APIServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(errors.KubeError, match=f"cannot listen on 127.0.0.1:{port}"):
        await APIServer(API(), port=port).start()


class TestFaults:
    async def test_calls_fail_as_often_as_asked(
        self, server: APIServer, http: aiohttp.ClientSession
    ) -> None:
        server.faults.fail_next(2, 503, method="GET", path="/nodes")
        seen = [(await read(http, "/api/v1/nodes"))[0] for _ in range(3)]
        assert seen == [503, 503, 200]

    async def test_an_answer_can_be_lost_after_the_call_took_effect(
        self, server: APIServer, http: aiohttp.ClientSession
    ) -> None:
        server.faults.drop_next(method="POST", after=True)
        with pytest.raises(aiohttp.ClientError):
            await http.post("/api/v1/nodes", json=node("n1"))
        assert server.api.get("nodes", "n1")

    async def test_watches_can_be_cut(self, server: APIServer, http: aiohttp.ClientSession) -> None:
        async with http.get("/api/v1/nodes", params={"watch": "1"}) as answer:
            assert server.faults.drop_watches("nodes") == 1
            assert await answer.read() == b""

    async def test_a_paused_server_answers_later(
        self, server: APIServer, http: aiohttp.ClientSession
    ) -> None:
        server.faults.pause()
        call = asyncio.create_task(read(http, "/api/v1/nodes"))
        done, _ = await asyncio.wait([call], timeout=0.05)
        assert not done
        server.faults.resume()
        assert (await call)[0] == 200
