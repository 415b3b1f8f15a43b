"""``/metrics``, ``/healthz`` and ``/readyz`` over plain HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rte import errors

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from rte.telemetry.effects import Condition


class Readiness:
    """Named conditions that must all hold; an unmet one carries its reason."""

    def __init__(self, **unmet: str) -> None:
        self._unmet = dict(unmet)

    def met(self, condition: str) -> None:
        """The condition holds."""
        self._unmet.pop(condition, None)

    def fails(self, condition: str, reason: str) -> None:
        """The condition does not hold, because of ``reason``."""
        self._unmet[condition] = reason

    def set(self, condition: Condition) -> None:
        """As the condition says."""
        if condition.reason:
            self.fails(condition.name, condition.reason)
        else:
            self.met(condition.name)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not ready, one line each; empty when ready."""
        return tuple(f"{name}: {why}" for name, why in sorted(self._unmet.items()))


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``:PORT``; an IPv6 host stands in brackets.

    Raises:
        errors.UsageError: not of that form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
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


async def serve(
    address: str,
    exposition: Callable[[], bytes],
    readiness: Readiness,
    *,
    started: Callable[[int], None] = lambda _: None,
    routes: Iterable[web.RouteDef] = (),
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until cancelled; ``started`` learns the port (for port 0), ``routes`` are added.

    With ``tls`` everything is served over it.

    ``/healthz`` answers as long as the event loop runs: what a restart would not heal is no
    reason for one.

    Raises:
        errors.UsageError: the address cannot be listened on.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=exposition(),
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
    await listen(app, address, started=started, tls=tls)


def json_response(body: Any, status: int = 200) -> web.Response:
    """An answer to a question."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


async def listen(
    app: web.Application,
    address: str,
    *,
    started: Callable[[int], None],
    tls: ssl.SSLContext | None = None,
    shutdown_s: float = 1.0,
) -> None:
    """Serve an application until cancelled; requests under way then get ``shutdown_s``.

    Raises:
        errors.UsageError: the address cannot be listened on.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=shutdown_s)
    await runner.setup()
    host, port = parse_address(address)
    try:
        await web.TCPSite(runner, host or None, port, ssl_context=tls).start()
        started(runner.addresses[0][1])
        await asyncio.Event().wait()
    except OSError as error:
        raise errors.UsageError(f"cannot listen on {address}: {error.strerror}") from None
    finally:
        await runner.cleanup()
