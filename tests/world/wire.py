"""What stands for the network between processes and the API server.

The client of the programs (:class:`rte.kube.client.Client`) is the real one; what it takes for
an HTTP session hands requests to the embedded API server's storage, with everything that can
happen on the way: delay, loss, doubled requests, errors, a dead peer.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from rte.sim.apiserver import DeleteOptions, Query, StatusError, WriteOptions
from rte.sim.apiserver.storage import selectors
from rte.sim.apiserver.verbs import applying
from tests.world.clock import PROCESS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from rte.sim.apiserver.kinds.resource import Resource
    from tests.world.cluster import World
    from tests.world.processes import Process

#: A connection that nobody answers is given up by the kernel after this, where no timeout is set.
_DEAD_S = 60.0
_BOOKMARK_S = 60.0


class Answer:
    """What :class:`rte.kube.client.Client` reads of a response."""

    connection = None
    content_type = "application/json"

    def __init__(self, status: int, body: bytes, after: str = "") -> None:
        self.status, self._body = status, body
        self.reason = ""
        self.headers = {"Retry-After": after} if after else {}

    async def read(self) -> bytes:
        return self._body

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


class Stream(Answer):
    """The answer to a watch."""

    def __init__(self, chunks: AsyncIterator[bytes], silence_s: float) -> None:
        super().__init__(200, b"")
        self._chunks, self._silence_s = chunks, silence_s
        self.content = self

    async def iter_any(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._silence_s):
                    chunk = await anext(self._chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise aiohttp.SocketTimeoutError("nothing was heard for too long") from None
            yield chunk

    def close(self) -> None:
        pass


class Session:
    """Stands for ``aiohttp.ClientSession``."""

    def __init__(self, **_options: Any) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    async def request(self, method: str, url: str, **options: Any) -> Answer:
        """One request of the process that runs."""
        process = PROCESS.get()
        wire = Wire.present
        limit = options["timeout"]
        path = urlsplit(url).path
        params = options.get("params") or {}
        if params.get("watch"):
            async with asyncio.timeout(limit.sock_connect):
                try:
                    await wire.reach(process, path)
                except _FailingError as failing:
                    return _refusal(StatusError(failing.code, "injected"))
                return Stream(wire.watch(process, path, params), limit.sock_read or _DEAD_S)
        kind = (options.get("headers") or {}).get("Content-Type", "application/json")
        sending = wire.send(process, method, path, params, options.get("data"), kind)
        async with asyncio.timeout(limit.total or _DEAD_S):
            if method == "GET" or process.link.until <= wire.now():
                return await sending
            # What is on its way when the link is cut may arrive when nobody waits any more.
            task = asyncio.get_running_loop().create_task(sending)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.shield(task)


class Wire:
    """The network and the front of the API server, for one world."""

    present: Wire

    def __init__(self, world: World) -> None:
        self._world = world
        self._api = world.api
        self._kinds: dict[tuple[str, str, str], Resource] = {}
        Wire.present = self

    def now(self) -> float:
        """Monotonic seconds."""
        return self._world.now()

    # --- the way there and back ---

    async def reach(self, process: Process, path: str) -> None:
        """Until a request has arrived.

        Raises:
            aiohttp.ClientConnectionError: it does not.
        """
        link = process.link
        if process.dead:
            raise aiohttp.ClientConnectionError("this process is dead")
        slow = link.slow_s if self._world.now() < link.slow_until else 0.0
        await asyncio.sleep(process.chance.uniform(0.0003, 0.002) + slow)
        while True:
            until = max(link.until, self._world.api_away_until)
            if self._world.now() >= until:
                break
            if link.refuses or self._world.api_refuses:
                raise aiohttp.ClientConnectionError("connection refused")
            await asyncio.sleep(until - self._world.now() + 0.001)
        if process.dead:
            raise aiohttp.ClientConnectionError("this process is dead")
        fails = link.fails
        if (
            fails is not None
            and self._world.now() < fails[1]
            and fails[2] in path
            and process.chance.random() < fails[3]
        ):
            raise _FailingError(fails[0])

    async def send(
        self,
        process: Process,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        kind: str,
    ) -> Answer:
        """One request and its answer."""
        world, link = self._world, process.link
        process.requests += 1
        writes = method != "GET"
        limit = float(params.get("timeout", "").removesuffix("s") or _DEAD_S)
        ends = world.now() + limit
        try:
            await self.reach(process, path)
        except _FailingError as failing:
            after = "1" if failing.code in (429, 503) else ""
            return _refusal(StatusError(failing.code, "injected"), after)
        if world.now() > ends:
            return _refusal(StatusError(504, "the request was not carried out in time"))
        crash = link.crash
        if writes and crash is not None:
            left, is_after = crash
            link.crash = (left - 1, is_after)
            if left <= 0 and not is_after:
                world.crash(process, f"before {method} {path}")
                raise aiohttp.ClientConnectionError("this process is dead")
        answer = self._carry_out(process, method, path, params, data, kind)
        if writes and link.doubles > 0:
            link.doubles -= 1
            answer = self._carry_out(process, method, path, params, data, kind)
        if writes and crash is not None and crash[0] <= 0:
            world.crash(process, f"after {method} {path}")
            raise aiohttp.ClientConnectionError("this process is dead")
        if writes and link.loses > 0:
            link.loses -= 1
            process.unsure_until = world.now() + 120.0
            raise aiohttp.ServerDisconnectedError("the connection was lost")
        before = world.now()
        await asyncio.sleep(process.chance.uniform(0.0003, 0.002))
        while world.now() < max(link.until, world.api_away_until):
            process.unsure_until = world.now() + 120.0
            await asyncio.sleep(max(link.until, world.api_away_until) - world.now() + 0.001)
        if world.now() - before > 1.0:
            process.unsure_until = world.now() + 120.0
        return answer

    def _carry_out(
        self,
        process: Process,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        kind: str,
    ) -> Answer:
        before = self._world.api.store.revision
        try:
            body = orjson.loads(data) if data else None
            code, answer = self._call(process, method, path, params, body, kind)
        except StatusError as error:
            return _refusal(error)
        if method != "GET":
            process.writes += 1
            self._world.judge.wrote(
                process, method, path, changed=self._world.api.store.revision != before
            )
        return Answer(code, orjson.dumps(answer))

    # --- the front of the API server ---

    def target(self, path: str) -> tuple[Resource, str, str, str]:
        """(resource, namespace, name, subresource)."""
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        else:
            group, version, rest = parts[1], parts[2], parts[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        key = (group, version, plural)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._api.resource(plural, group, version)
        return kind, namespace, name, subresource

    def _call(
        self,
        process: Process,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Any,
        content: str,
    ) -> tuple[int, Any]:
        if "/proxy/configz" in path:
            return 200, self._world.configz(path.split("/")[4])
        kind, namespace, name, subresource = self.target(path)
        api = self._api
        options = WriteOptions(
            agent=process.name.partition(" ")[0], manager=params.get("fieldManager", "")
        )
        match method, subresource:
            case "GET", _:
                return 200, self._get(kind, namespace, name, params)
            case "POST", "binding":
                api.bind(name, namespace, body)
                return 201, {"kind": "Status", "status": "Success"}
            case "POST", "eviction":
                api.evict(name, namespace, _delete_options(body.get("deleteOptions")))
                return 201, {"kind": "Status", "status": "Success"}
            case "POST", _:
                return 201, api.create(kind, body, namespace, options)
            case "PUT", _:
                return 200, api.update(
                    kind, body, namespace, name=name, subresource=subresource, options=options
                )
            case "PATCH", _ if content == applying.APPLY:
                return 200, api.apply(
                    kind, name, body, namespace, options=options, force=True,
                    subresource=subresource,
                )  # fmt: skip
            case "PATCH", _:
                return 200, api.patch(
                    kind, name, body, namespace,
                    content_type=content, subresource=subresource, options=options,
                )  # fmt: skip
            case "DELETE", _:
                obj, _ = api.delete(kind, name, namespace, _delete_options(body))
                return 200, obj
        raise StatusError(405, f"{method} {path}")

    def _get(self, kind: Resource, namespace: str, name: str, params: Mapping[str, str]) -> Any:
        if name:
            return self._api.get(kind, name, namespace)
        query = self._query(kind, namespace, params)
        if query.match == "NotOlderThan" and self._world.now() < self._world.old_lists_until:
            query = _as_old_as_allowed(query)
        page = self._api.list(kind, query)
        metadata: dict[str, Any] = {"resourceVersion": page.version}
        if page.token:
            metadata["continue"] = page.token
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.group_version,
            "metadata": metadata,
            "items": page.items,
        }

    def _query(self, kind: Resource, namespace: str, params: Mapping[str, str]) -> Query:
        return Query(
            namespace=namespace,
            labels=selectors.parse_labels(params.get("labelSelector", "")),
            fields=selectors.parse_fields(params.get("fieldSelector", ""), lambda _: True),
            limit=int(params.get("limit") or 0),
            token=params.get("continue", ""),
            version=params.get("resourceVersion", ""),
            match=params.get("resourceVersionMatch", ""),
        )

    # --- watches ---

    async def watch(
        self, process: Process, path: str, params: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """Lines of a watch, as they arrive."""
        world = self._world
        kind, namespace, _, _ = self.target(path)
        process.requests += 1
        try:
            watch = self._api.watch(kind, self._query(kind, namespace, params))
        except StatusError as error:
            yield orjson.dumps({"type": "ERROR", "object": error.body}) + b"\n"
            return
        end = world.now() + float(params.get("timeoutSeconds") or 300)
        bookmark = min(world.now() + _BOOKMARK_S, end - 2.0)
        try:
            while not watch.stopped and (now := world.now()) < end:
                if now >= bookmark:
                    # Nothing that is told later may be older than the bookmark.
                    events, revision = watch.pending(), self._api.store.revision
                    for line in await self._late(process, events):
                        yield line
                    obj = {"kind": kind.kind, "metadata": {"resourceVersion": str(revision)}}
                    yield orjson.dumps({"type": "BOOKMARK", "object": obj}) + b"\n"
                    bookmark = now + _BOOKMARK_S if bookmark < end - 2.0 else end
                for line in await self._late(
                    process, await watch.batch(max(0.0, min(end, bookmark) - now))
                ):
                    yield line
        finally:
            watch.stop()

    async def _late(self, process: Process, events: list[tuple[str, Any]]) -> list[bytes]:
        """Lines of events, once they have arrived."""
        if not events:
            return []
        world, link = self._world, process.link
        slow = link.slow_s if world.now() < link.slow_until else 0.0
        await asyncio.sleep(process.chance.uniform(0.0003, 0.004) + slow)
        while world.now() < max(link.until, world.api_away_until):
            if process.dead:
                break
            if link.refuses or world.api_refuses:
                raise aiohttp.ServerDisconnectedError("the connection was lost")
            await asyncio.sleep(max(link.until, world.api_away_until) - world.now() + 0.001)
        lines = []
        for kind, obj in events:
            made = world.lines.get(id(obj))
            if made is None or made[0] is not obj:
                made = world.lines[id(obj)] = (obj, orjson.dumps(obj))
                if len(world.lines) > 256:
                    world.lines.clear()
            lines.append(b'{"type":"%s","object":%s}\n' % (kind.encode(), made[1]))
        return [b"".join(lines)]


class _FailingError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _as_old_as_allowed(query: Query) -> Query:
    from dataclasses import replace

    return replace(query, match="Exact", limit=0)


def _delete_options(body: Any) -> DeleteOptions:
    body = body or {}
    wanted = body.get("preconditions") or {}
    return DeleteOptions(
        grace=body.get("gracePeriodSeconds"),
        uid=wanted.get("uid"),
        version=wanted.get("resourceVersion"),
        propagation=body.get("propagationPolicy"),
    )


def _refusal(error: StatusError, after: str = "") -> Answer:
    details = error.body.get("details") or {}
    after = after or str(details.get("retryAfterSeconds") or "")
    return Answer(error.status, json.dumps(error.body).encode(), after)
