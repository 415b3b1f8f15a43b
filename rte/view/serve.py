"""The page on an address of its own, for ``rte view`` and the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from rte.scheduler.front.turns import Turns
from rte.telemetry import doors
from rte.view.routes import routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.view.source import ViewSource


async def serve(
    address: str, source: ViewSource, *, started: Callable[[int], None] = lambda _: None
) -> None:
    """Serve until cancelled; ``started`` learns the port (for port 0).

    Raises:
        errors.UsageError: the address cannot be listened on.
    """

    async def home(_: web.Request) -> web.Response:
        raise web.HTTPFound("/view")

    app = web.Application()
    app.router.add_get("/", home)
    app.router.add_routes(routes(source, Turns()))
    await doors.listen(app, address, started=started, shutdown_s=0.2)
