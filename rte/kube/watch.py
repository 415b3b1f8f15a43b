"""List and watch one collection, for ever: reconnects, resumes, and lists again when it must."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rte import errors
from rte.kube import retry
from rte.kube.lists import pages
from rte.model.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from rte.kube.client import Client
    from rte.reader.json import JsonObject, JsonValue

logger = logging.getLogger(__name__)

#: A server tells at least of its version once a minute (bookmarkFrequency in
#: k8s.io/apiserver/pkg/storage/cacher): a silent one is cut off behind a proxy that keeps us.
_SILENCE_S = 100.0

#: ``reason`` of lost history where the server's versions are older than ours.
_RESTORED = "Restored"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One thing learnt.

    ``LISTED``: ``object`` is the whole List and replaces all that was known (sent first, and again
    after each loss of history); else ``object`` is the item after the change. ``PAGE``: ``object``
    is a List that has some of the items, while others are on their way; ``first``: it begins with
    these. ``restored``: of a first page, versions are older than ones that were told before: an
    etcd was restored.
    """

    kind: Literal["PAGE", "LISTED", "ADDED", "MODIFIED", "DELETED"]
    object: JsonObject
    first: bool = False
    restored: bool = False


async def watch(
    client: Client,
    path: str,
    *,
    field_selector: str = "",
    label_selector: str = "",
    session_s: float = 290.0,
    waits_s: tuple[float, float] = (0.1, 10.0),
    silence_s: float = _SILENCE_S,
    paged: bool = False,
) -> AsyncGenerator[WatchEvent, None]:
    """List, then follow; wrap in ``contextlib.aclosing`` when you may leave the loop.

    Overload, outages and lost history are dealt with here; ``waits_s`` are the first and the
    longest wait. ``session_s`` is how long one watch request lasts (30 % jitter), so that servers
    may be rebalanced; one that is silent for ``silence_s`` is given up. ``paged``: items of a List
    come page by page, and ``LISTED`` has none, so that it never lies in memory as a whole.

    Raises:
        errors.KubeError: the server refuses for good (400, 401, 403, 404, 405, 422): what to do
            then is the caller's to decide.
    """
    selectors = {
        name: value
        for name, value in (("fieldSelector", field_selector), ("labelSelector", label_selector))
        if value
    }
    clock = asyncio.get_running_loop().time
    waits = Backoff(*waits_s, lambda: random.uniform(0.5, 1.0))  # noqa: S311
    version = known = newest = ""
    while True:
        try:
            if not version:
                listing = _list(client, path, selectors, (known, newest), paged=paged)
                async with aclosing(listing) as events:
                    async for at, told in events:
                        version = at
                        yield told
                known = newest = version
            seconds = session_s * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load, no secret
            params = {
                **selectors,
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(max(1, int(seconds))),
            }
            began = clock()
            async with aclosing(client.stream(path, params, silence_s=silence_s)) as lines:
                async for line in lines:
                    event = read_event(line)
                    version = known = newest = _later(version, _version(line["object"]))
                    waits.worked()
                    if event:
                        yield event
            problem = None if clock() - began > 1 else errors.KubeError("the watch ended at once")
        except errors.KubeError as error:
            if not (error.status == 410 or retry.is_transient(error)):
                raise
            problem = error
        if problem is None:
            continue
        wait_s = waits.failed(problem.retry_after)
        version, known = _still_good(problem, waits.attempts, version, known)
        if problem.status == 410 and waits.attempts == 1:
            continue
        if waits.attempts == 1:
            logger.warning("watch of %s is interrupted, will reconnect: %s", path, problem)
        await asyncio.sleep(wait_s)


async def _list(
    client: Client, path: str, selectors: Mapping[str, str], since: tuple[str, str], *, paged: bool
) -> AsyncGenerator[tuple[str, WatchEvent], None]:
    """Events, each with the version up to which all is known with it (none before the end).

    ``since``: what the list must not be older than, and the newest version that was told.
    """
    listed: JsonObject = {"items": []}
    known, newest = since
    found = pages(client, path, selectors, not_older_than=known)
    async with aclosing(found):
        async for page in found:
            if paged:
                restored = page.first and _is_older(_version(page.rest), newest)
                yield (
                    "",
                    WatchEvent("PAGE", {**page.rest, "items": page.items}, page.first, restored),
                )
            elif page.first:
                listed["items"] = page.items
            else:
                listed["items"] += page.items
            listed.update(page.rest)
    yield _version(listed), WatchEvent("LISTED", listed)


def _still_good(
    problem: errors.KubeError, failures: int, version: str, known: str
) -> tuple[str, str]:
    """Where to go on, and what a list must not be older than."""
    if problem.status == 410:
        return "", "" if problem.reason == _RESTORED else known  # lost history
    if problem.status == 504 or failures % 5 == 0:
        return "", ""  # one that the server does not have (yet), or chokes on
    return version, known


def read_event(line: JsonValue) -> WatchEvent | None:
    """The event of one line; None for a bookmark.

    Raises:
        errors.KubeError: the server reports an error in the stream (410: list again).
    """
    if not isinstance(line, dict) or not isinstance(line.get("object"), dict):
        raise errors.KubeError("watch: an event without an object")
    kind, obj = line.get("type"), line["object"]
    if kind == "BOOKMARK":
        return None
    if kind == "ERROR":
        code = obj.get("code")
        raise errors.KubeError(
            f"watch: {obj.get('message') or obj.get('reason')}",
            status=code if code == 410 else 500,
        )
    if kind not in ("ADDED", "MODIFIED", "DELETED"):
        raise errors.KubeError(f"watch: unknown event type {kind!r}")
    return WatchEvent(kind, obj)


def _later(known: str, told: str) -> str:
    """The version told, if any is; those of one collection only grow (KEP-5504).

    Raises:
        errors.KubeError: it is an earlier one: the server was restored from a backup.
    """
    if _is_older(told, known):
        raise errors.KubeError(f"version {told} after {known}", status=410, reason=_RESTORED)
    return told or known


def _is_older(told: str, known: str) -> bool:
    return known.isdigit() and told.isdigit() and int(told) < int(known)


def _version(obj: JsonValue) -> str:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return str((metadata or {}).get("resourceVersion") or "")
