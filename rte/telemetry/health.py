"""``/metrics``, ``/healthz`` and ``/readyz`` over HTTP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from rte.telemetry import doors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rte.reader.json import JsonValue
    from rte.telemetry.connections import Limits
    from rte.telemetry.effects import Readiness
    from rte.telemetry.tls import TLSFiles


class Page:
    """Metrics as text, made anew once ten times as long has gone by as that takes.

    However many ask, that costs a tenth of the processor.
    """

    def __init__(
        self, exposition: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._exposition, self._clock = exposition, clock
        self._text, self._holds_until = b"", 0.0

    def text(self) -> bytes:
        """What was made last, or something newer."""
        began = self._clock()
        if began >= self._holds_until:
            self._text = self._exposition()
            now = self._clock()
            self._holds_until = now + 10 * (now - began)
        return self._text


async def serve(  # noqa: PLR0913 - each is a thing of its own
    address: str,
    exposition: Callable[[], bytes],
    readiness: Readiness,
    *,
    started: Callable[[int], None] = lambda _: None,
    routes: Iterable[web.RouteDef] = (),
    tls: TLSFiles | None = None,
    limits: Limits | None = None,
    only_known: bool = False,
    turned_away: Callable[[], None] = lambda: None,
) -> None:
    """Serve until cancelled; ``started`` learns the port (for port 0), ``routes`` are added.

    With ``tls`` everything is served over it; with ``only_known`` metrics are for those who show a
    certificate of its authority.

    ``/healthz`` answers as long as the event loop runs: what a restart would not heal is no
    reason for one.

    Raises:
        errors.UsageError: the address cannot be listened on, or TLS files cannot be used.
    """
    page = Page(exposition)

    async def metrics(request: web.Request) -> web.Response:
        transport = request.transport
        if only_known and not (transport and transport.get_extra_info("peercert")):
            return web.Response(text="show a client certificate\n", status=401)
        return web.Response(
            body=page.text(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = readiness.reasons
        return web.Response(
            text="\n".join(reasons or ("ok",)) + "\n", status=503 if reasons else 200
        )

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_routes(routes)
    await doors.listen(
        app, address, started=started, tls=tls, limits=limits, turned_away=turned_away
    )


def json_response(body: JsonValue, status: int = 200) -> web.Response:
    """An answer to a question."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
