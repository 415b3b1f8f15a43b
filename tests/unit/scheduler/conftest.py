"""An extender behind real HTTP, before a town of two nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest

from rte.scheduler.front.extender import Extender
from rte.telemetry import health
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rte.scheduler.shell.service import Scheduler


class Caller:
    def __init__(
        self, town: Town, scheduler: Scheduler, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.town, self.scheduler, self._url, self._session = town, scheduler, url, session

    async def __call__(self, verb: str, **args: Any) -> Any:
        async with self._session.post(f"{self._url}/{verb}", json=args) as response:
            return await response.json()

    async def raw(self, verb: str, body: Any) -> Any:
        """Whatever the body is; an answer that is no JSON fails."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self._session.post(f"{self._url}/{verb}", data=data) as response:
            return orjson.loads(await response.read())

    def pod(self, name: str, cpu: str, **options: Any) -> dict[str, Any]:
        """A pod of kube-scheduler, as the API shows it."""
        self.town.pod(name, cpu, schedulerName="default-scheduler", **options)
        return self.town.get(name)

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        meta = pod["metadata"]
        answer = await self(
            "bind",
            PodName=meta["name"],
            PodNamespace=meta["namespace"],
            PodUID=meta["uid"],
            Node=node,
        )
        return str(answer["Error"])


@pytest.fixture
async def call(tmp_path: Path) -> AsyncIterator[Caller]:
    async with contextlib.AsyncExitStack() as stack:
        town = await stack.enter_async_context(Town(tmp_path))
        await town.node("a", "2x8")
        await town.node("b", "1x8")
        scheduler = await stack.enter_async_context(town.scheduler())
        extender = Extender(scheduler, scheduler._client)
        scheduler.followers.append(extender.wake_waiting)
        await until(scheduler.is_active)
        ports: list[int] = []
        serving = health.serve(
            "127.0.0.1:0",
            scheduler.metrics.exposition,
            scheduler.answering,
            started=ports.append,
            routes=extender.routes(),
        )
        group = await stack.enter_async_context(_background(serving))
        assert group is None
        await until(lambda: ports)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Caller(town, scheduler, f"http://127.0.0.1:{ports[0]}", session)


@contextlib.asynccontextmanager
async def _background(work: Any) -> Any:
    task = asyncio.create_task(work, name="extender")
    try:
        yield None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
