"""Watches survive what API servers do to them, and lose nothing."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.kube.resources import NODES
from rte.kube.watch import watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rte.kube.client import Client
    from rte.kube.watch import WatchEvent
    from rte.sim.apiserver import APIServer


class Follower:
    """Runs a watch beside the test and hands out its events."""

    def __init__(self, client: Client, **options: Any) -> None:
        self._queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.task = asyncio.create_task(self._run(client, options))

    async def _run(self, client: Client, options: dict[str, Any]) -> None:
        events = watch(client, NODES.path(), waits_s=(0.01, 0.02), **options)
        async with aclosing(events):
            async for event in events:
                self._queue.put_nowait(event)

    async def next(self) -> tuple[str, str]:
        event = await asyncio.wait_for(self._queue.get(), 5)
        if event.kind == "LISTED":
            return "LISTED", ",".join(item["metadata"]["name"] for item in event.object["items"])
        return event.kind, event.object["metadata"]["name"]


@pytest.fixture
async def follower(client: Client) -> AsyncIterator[Follower]:
    running = Follower(client)
    yield running
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def test_lists_first_and_then_follows(client: Client, follower: Follower):
    assert await follower.next() == ("LISTED", "")
    await client.create(NODES.path(), node("a"))
    await client.patch(NODES.path("a"), {"metadata": {"labels": {"x": "y"}}})
    await client.delete(NODES.path("a"))
    assert [await follower.next() for _ in range(3)] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]


async def test_a_cut_watch_resumes_without_listing_again(
    client: Client, server: APIServer, follower: Follower
):
    assert await follower.next() == ("LISTED", "")
    await client.create(NODES.path(), node("a"))
    assert await follower.next() == ("ADDED", "a")
    server.faults.fail_next(3, code=500, path="watch=1")
    server.faults.drop_watches()
    await client.create(NODES.path(), node("b"))
    assert await follower.next() == ("ADDED", "b")


async def test_lost_history_is_a_new_list(client: Client, server: APIServer, follower: Follower):
    assert await follower.next() == ("LISTED", "")
    server.faults.pause()
    server.faults.drop_watches()
    server.api.create("nodes", node("a"))
    server.api.create("nodes", node("b"))
    server.api.delete("nodes", "a")
    server.faults.compact()
    server.faults.resume()
    assert await follower.next() == ("LISTED", "b")
    await client.create(NODES.path(), node("c"))
    assert await follower.next() == ("ADDED", "c")


async def test_overload_and_outage_are_waited_out(client: Client, server: APIServer):
    server.faults.drop_next(5)
    follower = Follower(client)
    assert await follower.next() == ("LISTED", "")
    follower.task.cancel()


async def test_a_refusal_for_good_is_raised(client: Client, server: APIServer):
    server.faults.fail_next(code=403)
    with pytest.raises(errors.KubeError) as refused:
        await Follower(client).task
    assert refused.value.status == 403


async def test_field_selectors_limit_what_is_seen(client: Client):
    follower = Follower(client, field_selector="metadata.name=b")
    assert await follower.next() == ("LISTED", "")
    await client.create(NODES.path(), node("a"))
    await client.create(NODES.path(), node("b"))
    assert await follower.next() == ("ADDED", "b")
    follower.task.cancel()


async def test_a_server_restored_from_a_backup_is_listed_again_whatever_its_versions(
    client: Client, server: APIServer, follower: Follower
):
    assert await follower.next() == ("LISTED", "")
    for name in ("a", "b"):
        await client.create(NODES.path(), node(name))
        assert await follower.next() == ("ADDED", name)
    (watched,) = server.api.store.watches()
    old = {**node("a"), "metadata": {"name": "a", "resourceVersion": "1"}}
    watched._push("MODIFIED", old)
    assert await follower.next() == ("LISTED", "a,b")


async def test_a_list_of_a_restored_server_says_so(client: Client, server: APIServer):
    for name in ("a", "b"):
        await client.create(NODES.path(), node(name))
    events = watch(client, NODES.path(), paged=True, waits_s=(0.01, 0.02))
    async with aclosing(events):
        told = [await anext(events) for _ in range(2)]
        page = asyncio.ensure_future(anext(events))
        while not (watches := server.api.store.watches()):
            await asyncio.sleep(0)
        server.api.store.revision -= 1
        server.api.store.compact()
        old = {**node("a"), "metadata": {"name": "a", "resourceVersion": "1"}}
        watches[0]._push("MODIFIED", old)  # a watch tells of an older version: lists anew
        told += [await page, await anext(events)]
    assert [(event.kind, event.restored) for event in told] == [
        ("PAGE", False), ("LISTED", False), ("PAGE", True), ("LISTED", False),
    ]  # fmt: skip


async def test_a_watch_that_a_proxy_keeps_open_without_its_server_is_given_up(
    client: Client, server: APIServer
):
    follower = Follower(client, silence_s=0.3)
    assert await follower.next() == ("LISTED", "")
    for watched in server.api.store.watches():
        watched.offer = lambda change: None  # type: ignore[method-assign]
    await client.create(NODES.path(), node("a"))
    assert await follower.next() == ("ADDED", "a")
    follower.task.cancel()


async def test_a_watch_that_ends_at_once_is_waited_out_and_told(
    client: Client, server: APIServer, follower: Follower, caplog: pytest.LogCaptureFixture
):
    assert await follower.next() == ("LISTED", "")
    async with asyncio.timeout(30):
        while "the watch ended at once" not in caplog.text:
            server.faults.drop_watches()
            await asyncio.sleep(0)
    await client.create(NODES.path(), node("a"))
    assert await follower.next() == ("ADDED", "a")


@pytest.mark.parametrize(("session_s", "least", "most"), [(100.0, 70, 100), (1.0, 1, 1)])
async def test_how_long_a_watch_lasts_differs_by_a_third(
    client: Client, monkeypatch: pytest.MonkeyPatch, session_s: float, least: int, most: int
):
    asked: list[int] = []
    stream = client.stream

    def noted(path: str, params: dict[str, str], **options: Any) -> Any:
        asked.append(int(params["timeoutSeconds"]))
        return stream(path, params, **options)

    monkeypatch.setattr(client, "stream", noted)
    for _ in range(20):
        follower = Follower(client, session_s=session_s)
        assert await follower.next() == ("LISTED", "")
        await client.create(NODES.path(), node("a"))
        assert await follower.next() == ("ADDED", "a")
        follower.task.cancel()
        await asyncio.gather(follower.task, return_exceptions=True)
        await client.delete(NODES.path("a"))
    assert all(least <= seconds <= most for seconds in asked)
