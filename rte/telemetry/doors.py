"""What every HTTP listener of ours allows a stranger; :mod:`rte.telemetry.connections` holds it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from rte import errors
from rte.telemetry.connections import LINGER_S, READ_BYTES, Connection, Door, Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.telemetry.tls import TLSFiles

#: aiohttp's lines, without a traceback for each text that is no HTTP: anybody can send those.
_served = logging.getLogger(f"{__name__}.served")
_served.addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
)

#: Connections that are taken in before anything else gets its turn (asyncio takes for that what it
#: is told of the queue), and those that may wait in the kernel meanwhile.
_ACCEPTED, _QUEUED = 8, 1024

#: What a page of another site can send without being asked first (Fetch, "CORS-safelisted").
_FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``:PORT``; an IPv6 host stands in brackets.

    Raises:
        errors.UsageError: not of that form.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not colon
        or (":" in host and not bracketed)
        or not (port.isascii() and port.isdigit() and int(port) < 65536)
    ):
        raise errors.UsageError(f"bad listen address {text!r}: expected HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach a listener on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def listen(
    app: web.Application,
    address: str,
    *,
    started: Callable[[int], None],
    tls: TLSFiles | None = None,
    limits: Limits | None = None,
    shutdown_s: float = 1.0,
    turned_away: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application until cancelled; requests under way then get ``shutdown_s``.

    ``turned_away`` is called for each connection that finds too many others.

    On a loopback address nobody is asked who he is, so there a page of another site is refused
    (:func:`own_site`).

    Raises:
        errors.UsageError: the address cannot be listened on, or TLS files cannot be used.
    """
    limits = limits or Limits()
    host, port = parse_address(address)
    context = tls.context() if tls else None
    if is_loopback(host):
        app.middlewares.append(own_site)
    app.middlewares.insert(0, _within_limits)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_served,
        handle_signals=False,
        shutdown_timeout=shutdown_s,
        # The door looks after idle connections, and comes first.
        keepalive_timeout=2 * limits.idle_s,
        lingering_time=LINGER_S,
        read_bufsize=READ_BYTES,
        auto_decompress=False,
    )
    await runner.setup()
    door = Door(
        cast("Callable[[], asyncio.Protocol]", runner.server), limits, address, context, turned_away
    )
    server: asyncio.Server | None = None
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(door), host or None, port, backlog=_ACCEPTED
        )
        for each in server.sockets:
            with socket.fromfd(each.fileno(), each.family, each.type) as same:
                same.listen(_QUEUED)
        started(server.sockets[0].getsockname()[1])
        if tls and context:
            await tls.follow(context)
        await asyncio.Event().wait()
    except OSError as error:
        raise errors.UsageError(f"cannot listen on {address}: {error.strerror}") from None
    finally:
        if server is not None:
            server.close()
        await runner.cleanup()
        await door.close()


async def read_body(request: web.Request) -> bytes:
    """The body of a request.

    Raises:
        web.HTTPException: it is too long, comes without its length, or too many others have one.
    """
    connection = _connection_of(request)
    if connection is not None:
        connection.admit_body(request)
    return await request.read()


def keep_open(request: web.Request) -> None:
    """The answer is a stream: it may take as long as its client listens.

    Raises:
        web.HTTPServiceUnavailable: half of the connections are streams already, or the caller has
            its share of them.
    """
    connection = _connection_of(request)
    if connection is not None:
        connection.keep_open()


@web.middleware
async def own_site(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer only what names this machine as host, and comes from no page of another site.

    A browser of this machine may show such a page; its name may even have been made to lead here
    (DNS rebinding).
    """
    host, origin = request.headers.get("Host"), request.headers.get("Origin")
    if host is not None and not is_loopback(_host(f"//{host}")):
        raise web.HTTPForbidden(text=f"served to localhost, not to {host[:200]!r}\n")
    if origin is not None and origin.partition("//")[2] != host:
        raise web.HTTPForbidden(text=f"not for pages of other sites: Origin {origin[:200]!r}\n")
    return await handler(request)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


@web.middleware
async def _within_limits(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    connection = _connection_of(request)
    if connection is None:
        raise web.HTTPBadRequest(text="the connection is gone\n")
    try:
        if request.method == "POST" and _is_form(request):
            raise web.HTTPUnsupportedMediaType(text="expected Content-Type: application/json\n")
        async with asyncio.timeout(connection.request_s) as limit:
            connection.limit = limit
            response = await handler(request)
        if connection.has_unread(request):
            response.force_close()
    except web.HTTPException as refusal:
        if connection.has_unread(request):
            refusal.force_close()
        raise
    except TimeoutError:
        raise web.HTTPServiceUnavailable(
            text=f"no answer within {connection.request_s:g} s\n"
        ) from None
    finally:
        connection.answered(request)
    return response


def _is_form(request: web.Request) -> bool:
    return "Content-Type" not in request.headers or request.content_type in _FORMS


def _connection_of(request: web.Request) -> Connection | None:
    transport = request.transport
    found = transport.get_protocol() if transport is not None else None
    return found if isinstance(found, Connection) else None
