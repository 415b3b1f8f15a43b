"""The doors of a simulated kubelet: podresources, and HTTP as far as it is asked here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from rte.sim.kubelet import status
from rte.sim.kubelet.podresources import PodresourcesServer, PodresourcesSource

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from rte.sim.kubelet.status import Obj


class DoorsSource(PodresourcesSource, Protocol):
    """What is told at the doors."""

    document: Obj

    def pods(self) -> list[Obj]:
        """The pods that the kubelet knows."""


async def serve(kubelet: DoorsSource, socket: Path, stack: AsyncExitStack) -> int:
    """Open the doors until the stack is closed; returns the port of HTTP."""
    server = PodresourcesServer(socket, kubelet)
    await server.start()
    stack.push_async_callback(server.stop)

    async def configz(_request: web.Request) -> web.Response:
        return web.json_response({"kubeletconfig": kubelet.document})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def pods(_request: web.Request) -> web.Response:
        items = kubelet.pods()
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "items": items})

    app = web.Application()
    for handler in (configz, healthz, pods):
        app.router.add_get(f"/{handler.__name__}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, status.HOST, 0).start()
    port: int = runner.addresses[0][1]
    return port
