"""The page on an address of its own, for ``rte view`` and the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from rte.telemetry.health import is_loopback, listen, parse_address
from rte.view.routes import routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.view.source import Source


async def serve(
    address: str, source: Source, *, started: Callable[[int], None] = lambda _: None
) -> None:
    """Serve until cancelled; ``started`` learns the port (for port 0).

    Raises:
        errors.UsageError: the address cannot be listened on.
    """
    host, _ = parse_address(address)

    async def home(_: web.Request) -> web.Response:
        raise web.HTTPFound("/view")

    app = web.Application(middlewares=[_only_by_its_name] if is_loopback(host) else [])
    app.router.add_get("/", home)
    app.router.add_routes(routes(source))
    await listen(app, address, started=started, shutdown_s=0.2)


@web.middleware
async def _only_by_its_name(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A foreign page whose name was made to lead here (DNS rebinding) learns nothing."""
    if not is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        raise web.HTTPForbidden(text="this page is served to localhost\n")
    return await handler(request)
