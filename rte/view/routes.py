"""The page over HTTP: itself, its data, changes as server-sent events, and questions. Read-only."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from rte import errors
from rte.scheduler.front import answers
from rte.scheduler.front.turns import beside, in_slices
from rte.scheduler.loop.gangs.desk import FitDesk
from rte.telemetry import doors, health
from rte.view import hardware, page, tries

if TYPE_CHECKING:
    from rte.reader.json import JsonObject
    from rte.scheduler.front.turns import Turns
    from rte.view.source import ViewSource

#: Browsers and proxies give up on a silent stream; a comment keeps it open.
_HEARTBEAT_S = 15.0


def routes(source: ViewSource, turns: Turns) -> list[web.RouteDef]:
    """``/view`` is the page; below it ``data``, ``events``, ``at``, ``explain``,
    ``hardware`` and ``try``.

    Args:
        source: what is shown.
        turns: of those who ask what costs.
    """
    answering = _RouteAnswers(source)
    costly = [
        web.get("/view/explain", answering.explain),
        web.get("/view/hardware", answering.hardware),
        web.post("/view/try", answering.attempt),
    ]
    return [
        web.get("/view", answering.document),
        web.get("/view/data", answering.data),
        web.get("/view/at", answering.at),
        web.get("/view/events", answering.events),
        *turns.protect(costly),
    ]


class _RouteAnswers:
    def __init__(self, source: ViewSource) -> None:
        self._source = source
        self._desk = FitDesk(source.known.cluster, source.known.cycle)

    async def document(self, _: web.Request) -> web.Response:
        response = web.Response(body=page.assemble(), content_type="text/html", charset="utf-8")
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.enable_compression()
        return response

    async def data(self, _: web.Request) -> web.Response:
        self._source.look()
        return _json(self._source.snapshot())

    async def at(self, request: web.Request) -> web.Response:
        try:
            moment = float(request.query.get("t", ""))
        except ValueError:
            moment = math.nan
        if not math.isfinite(moment):
            return _json({"error": "t: expected seconds since 1970"}, status=400)
        return _json({"at": moment, **self._source.history.at(moment)})

    async def explain(self, request: web.Request) -> web.Response:
        wanted = request.query.get("pod", "")
        cluster, cycle = self._source.known.cluster, self._source.known.cycle
        pod = cluster.pods.get(wanted) or next(
            (each for each in cluster.pods.values() if each.key == wanted), None
        )
        if pod is None:
            return _json({"error": f"there is no pod {wanted} any more"}, status=404)
        answer = await in_slices(answers.explain_steps(cluster, cycle, pod))
        return _json(await beside(answer.as_json))

    async def hardware(self, request: web.Request) -> web.Response:
        name = request.query.get("node", "")
        entry = self._source.known.cluster.nodes.get(name)
        cycle = self._source.known.cycle
        reading = hardware.reading_of(entry, cycle) if entry is not None else None
        if reading is None:
            return _json({"error": f"nothing is known of the hardware of {name}"}, status=404)
        return _json(await beside(lambda: hardware.describe(reading)))

    async def attempt(self, request: web.Request) -> web.Response:
        try:
            body = await doors.read_body(request)
        except web.HTTPRequestEntityTooLarge as error:
            return _json({"error": f"the manifest is too long: {error.text}"}, status=413)
        try:
            return _json(await tries.attempt(self._source.known, self._desk, body))
        except errors.RteError as error:
            return _json({"error": str(error)}, status=400)

    async def events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        doors.keep_open(request)
        async with self._source.listen() as changes:
            await response.prepare(request)
            await _send(response, {"hello": True})
            while True:
                try:
                    async with asyncio.timeout(_HEARTBEAT_S):
                        change = await changes.get()
                except TimeoutError:
                    await response.write(b": still here\n\n")
                    continue
                await _send(response, change)


async def _send(response: web.StreamResponse, change: JsonObject) -> None:
    async with asyncio.timeout(_HEARTBEAT_S):  # who reads nothing for so long has left
        await response.write(b"data: " + orjson.dumps(change) + b"\n\n")


def _json(body: object, status: int = 200) -> web.Response:
    response = health.json_response(body, status)
    response.headers["Cache-Control"] = "no-store"
    response.enable_compression()
    return response
