"""The client: verbs, refusals on one line, credentials that change under it."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rte import errors
from rte.kube.client import Client
from rte.kube.credentials import Credentials, TokenFile
from rte.kube.resources import LEASES, NODES, NRTS, PODS
from rte.sim.apiserver import APIServer
from tests.cluster.certs import Authority

if TYPE_CHECKING:
    from pathlib import Path

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}


def test_paths_follow_the_api_conventions():
    assert NODES.path("n0") == "/api/v1/nodes/n0"
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("p", "ns", "binding") == "/api/v1/namespaces/ns/pods/p/binding"
    assert LEASES.path("x", "rte-system").endswith("/namespaces/rte-system/leases/x")
    assert NRTS.path("n0") == "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/n0"
    assert NRTS.path("../x") == NRTS.path() + "/..%2Fx"
    assert (NRTS.api_version, PODS.api_version) == ("topology.node.k8s.io/v1alpha2", "v1")


async def test_verbs_make_read_change_and_delete(client: Client):
    created = await client.create(NODES.path(), NODE)
    assert (await client.get(NODES.path("n0")))["metadata"]["uid"] == created["metadata"]["uid"]
    patched = await client.patch(NODES.path("n0"), {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"] == {"a": "b"}
    patched["metadata"]["labels"] = {"a": "c"}
    assert (await client.update(NODES.path("n0"), patched))["metadata"]["labels"] == {"a": "c"}
    await client.delete(NODES.path("n0"))
    with pytest.raises(errors.KubeError) as refused:
        await client.get(NODES.path("n0"))
    assert (refused.value.status, refused.value.reason) == (404, "NotFound")
    assert "\n" not in str(refused.value)


async def test_nothing_occupies_the_connections_of_a_client_apart():
    go_on, stuck_there = asyncio.Event(), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal stuck_there
        if request.path == "/stuck":
            stuck_there += 1
            await go_on.wait()
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/{path}", answer)
    async with (
        TestServer(app) as server,
        Client(Credentials(server=f"http://127.0.0.1:{server.port}")) as client,
    ):
        apart = client.apart(1)
        stuck = [asyncio.create_task(client.get("/stuck")) for _ in range(100)]
        async with asyncio.timeout(10):
            while stuck_there < 64:
                await asyncio.sleep(0.01)
            await apart.get("/free")
        go_on.set()
        await asyncio.gather(*stuck)
    with pytest.raises(RuntimeError, match="closed"):
        await apart.get("/free")


async def test_a_patch_that_names_an_old_version_is_a_conflict(client: Client):
    old = (await client.create(NODES.path(), NODE))["metadata"]["resourceVersion"]
    await client.patch(NODES.path("n0"), {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(errors.KubeError) as refused:
        await client.patch(NODES.path("n0"), {"metadata": {"resourceVersion": old, "labels": {}}})
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")


async def test_retry_after_is_handed_on(client: Client, server: APIServer):
    server.faults.fail_next(code=429)
    with pytest.raises(errors.KubeError) as refused:
        await client.get(NODES.path())
    assert (refused.value.status, refused.value.retry_after) == (429, 1.0)


@pytest.mark.parametrize("trouble", ["closed port", "dropped connection", "time-out"])
async def test_no_answer_has_status_zero_and_one_line(server: APIServer, trouble: str):
    url = "http://127.0.0.1:1" if trouble == "closed port" else server.url
    if trouble == "dropped connection":
        server.faults.drop_next(3)
    if trouble == "time-out":
        server.faults.pause()
    async with Client(Credentials(server=url), timeout_s=0.1) as client:
        with pytest.raises(errors.KubeError, match="no answer from http") as refused:
            await client.patch(NODES.path("n0"), {})
    server.faults.resume()
    assert refused.value.status == 0
    assert "\n" not in str(refused.value)


async def _serve(handler) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, "<html>\nbad gateway</html>", "text/html"),
        (500, "[1, 2", "application/json"),
        (403, '["not a Status"]', "application/json"),
        (418, "\xff\x00", "application/octet-stream"),
        (302, "", "text/plain"),
    ],
)
async def test_answers_that_are_no_status_are_refusals_all_the_same(status, body, kind):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body.encode("latin-1"), content_type=kind)

    runner, url = await _serve(handler)
    async with Client(Credentials(server=url)) as client:
        with pytest.raises(errors.KubeError) as refused:
            await client.get("/x")
    await runner.cleanup()
    assert refused.value.status == status
    assert "\n" not in str(refused.value)


async def test_a_good_answer_that_is_cut_off_is_an_error(client: Client):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b'{"kind": "Li', content_type="application/json")

    runner, url = await _serve(handler)
    async with Client(Credentials(server=url)) as broken:
        with pytest.raises(errors.KubeError, match="not JSON"):
            await broken.get("/x")
    await runner.cleanup()


async def test_a_rotated_token_is_read_again(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("old")
    async with APIServer(tokens=["new"]) as server:
        access = Credentials(server=server.url, token=TokenFile(file))
        async with Client(access) as client:
            with pytest.raises(errors.KubeError) as refused:
                await client.get(NODES.path())
            assert refused.value.status == 401
            rotated = tmp_path / "token.new"
            rotated.write_text("new\n")
            rotated.replace(file)
            assert (await client.get(NODES.path()))["kind"] == "NodeList"


async def test_a_token_that_is_rotated_during_the_request_is_tried_at_once(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("old")
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        if len(seen) == 1:
            file.write_text("renewed")
            return web.json_response({}, status=401)
        return web.json_response({"ok": True})

    runner, url = await _serve(handler)
    async with Client(Credentials(server=url, token=TokenFile(file))) as client:
        assert await client.get("/x") == {"ok": True}
    await runner.cleanup()
    assert seen == ["Bearer old", "Bearer renewed"]


async def told_by(server: str, tls: ssl.SSLContext | None = None) -> str:
    async with Client(Credentials(server=server, tls=tls), timeout_s=20) as client:
        with pytest.raises(errors.KubeError) as refused:
            await client.get(NODES.path())
    return str(refused.value).removeprefix(f"no answer from {server}: ")


async def test_why_a_server_cannot_be_reached_is_told_in_words(server: APIServer, tmp_path: Path):
    context = ssl.create_default_context()
    assert await told_by("https://127.0.0.1:1", context) == "Connection refused"
    assert "ssl" not in await told_by("https://nowhere.invalid:6443", context)
    plain = server.url.replace("http:", "https:")
    assert (await told_by(plain, context)).startswith("no TLS with it: ")


async def test_why_a_certificate_does_not_count_is_told_in_words(tmp_path: Path):
    authority, foreign = Authority(tmp_path / "ca"), Authority(tmp_path / "foreign")
    authority.create()
    foreign.create()
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(*authority.issue("server", "server", sans="DNS:example.com"))
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await (site := web.TCPSite(runner, "127.0.0.1", 0, ssl_context=own)).start()
    url = f"https://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    not_valid = "its certificate is not valid: "
    trusting = {
        each: ssl.create_default_context(cafile=str(each.certificate))
        for each in (authority, foreign)
    }
    told = await told_by(url, trusting[foreign])
    assert told.startswith(f"{not_valid}self-signed certificate") or "unable to get" in told
    told = await told_by(url, trusting[authority])
    assert told.startswith(f"{not_valid}IP address mismatch")
    await runner.cleanup()


async def test_an_object_that_its_author_has_poisoned_hides_no_other() -> None:
    """``opaque.parameters`` of a claim are stored as their author has written them."""
    deep = "[" * 3000 + "]" * 3000
    items = [
        f'{{"metadata":{{"name":"{name}"}},"opaque":{opaque}}}'
        for name, opaque in (("a", deep), ("b", '"\\ud800"'), ("c", "7"))
    ]

    async def answer(request: web.Request) -> web.Response:
        if "watch" in request.query:
            text = "".join(f'{{"type":"ADDED","object":{item}}}\n' for item in items)
        else:
            text = f'{{"items":[{",".join(items)}]}}'
        return web.Response(text=text, content_type="application/json")

    runner, url = await _serve(answer)
    try:
        async with Client(Credentials(server=url)) as client:
            listed = (await client.get("/claims"))["items"]
            watched = client.stream("/claims", {"watch": "1"}, silence_s=5)
            seen = [event["object"] async for event in watched]
    finally:
        await runner.cleanup()
    assert [item["metadata"]["name"] for item in listed] == ["a", "b", "c"]
    assert listed[1:] == seen[1:]
    assert [event["metadata"] for event in seen] == [item["metadata"] for item in listed]
    assert (listed[1]["opaque"], listed[2]["opaque"]) == ("\ufffd", 7)
