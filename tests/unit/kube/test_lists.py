"""Whole collections in pages."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.kube import lists
from rte.kube.lists import list_all, pages
from rte.kube.resources import LEASES
from rte.kube.watch import watch

if TYPE_CHECKING:
    from rte.kube.client import Client
    from rte.sim.apiserver import APIServer

PATH = LEASES.path(namespace="default")


@pytest.fixture
async def names(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """More Leases than there are in a page."""
    monkeypatch.setattr(lists, "PAGE_ITEMS", 2)
    names = [f"lease-{number}" for number in range(5)]
    for name in names:
        await client.create(PATH, {"metadata": {"name": name, "labels": {"odd": name[-1]}}})
    return names


def named(listed: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_all_pages_are_one_list_of_one_moment(client: Client, names: list[str]):
    listed = await list_all(client, PATH)
    assert named(listed) == names
    assert listed["metadata"]["resourceVersion"]
    assert not listed["metadata"].get("continue")


async def test_selectors_hold_for_every_page(client: Client, names: list[str]):
    listed = await list_all(client, PATH, {"labelSelector": "odd notin (2)"})
    assert named(listed) == [name for name in names if name != "lease-2"]


async def test_a_list_not_older_than_what_is_known(client: Client, names: list[str]):
    version = (await list_all(client, PATH))["metadata"]["resourceVersion"]
    assert named(await list_all(client, PATH, not_older_than=version)) == names
    with pytest.raises(errors.KubeError) as caught:
        await list_all(client, PATH, not_older_than=str(int(version) + 1000))
    assert caught.value.status == 504


async def test_a_moment_that_is_forgotten_between_pages_is_listed_in_one(
    client: Client, server: APIServer, names: list[str]
):
    server.faults.fail_next(code=410, path="continue=")
    assert named(await list_all(client, PATH)) == names


async def test_a_failing_page_is_a_failure(client: Client, server: APIServer, names: list[str]):
    server.faults.fail_next(code=500, path="continue=")
    with pytest.raises(errors.KubeError):
        await list_all(client, PATH)


async def test_pages_come_one_by_one_and_begin_anew_where_their_moment_is_forgotten(
    client: Client, server: APIServer, names: list[str]
):
    found = [([i["metadata"]["name"] for i in p.items], p.first) async for p in pages(client, PATH)]
    assert found == [(names[:2], True), (names[2:4], False), (names[4:], False)]
    server.faults.fail_next(code=410, path="continue=")
    found = [([i["metadata"]["name"] for i in p.items], p.first) async for p in pages(client, PATH)]
    assert found == [(names[:2], True), (names, True)]


async def test_a_paged_watch_never_has_the_whole_list(client: Client, names: list[str]):
    kinds, seen = [], []
    async with aclosing(watch(client, PATH, paged=True)) as events:
        async for event in events:
            kinds.append(event.kind)
            seen += named(event.object) if "items" in event.object else []
            if event.kind == "LISTED":
                break
    assert kinds == ["PAGE", "PAGE", "PAGE", "LISTED"]
    assert seen == names
    assert event.object["metadata"]["resourceVersion"]
