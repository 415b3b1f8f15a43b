"""The page on an address of its own, for ``rte view`` and the demo."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from rte import errors
from rte.telemetry.health import parse_address
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
    host, port = parse_address(address)

    async def home(_: web.Request) -> web.Response:
        raise web.HTTPFound("/view")

    app = web.Application(middlewares=[_only_by_its_name] if _is_loopback(host) else [])
    app.router.add_get("/", home)
    app.router.add_routes(routes(source))
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        started(runner.addresses[0][1])
        await asyncio.Event().wait()
    except OSError as error:
        raise errors.UsageError(f"cannot listen on {address}: {error.strerror}") from None
    finally:
        await runner.cleanup()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@web.middleware
async def _only_by_its_name(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A foreign page whose name was made to lead here (DNS rebinding) learns nothing."""
    if not _is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        raise web.HTTPForbidden(text="this page is served to localhost\n")
    return await handler(request)
