"""The embedded API server over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from rte.sim.apiserver import API, APIServer
from rte.sim.demo.cluster import crd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server(api: API) -> AsyncIterator[APIServer]:
    api.create("customresourcedefinitions", crd())
    async with APIServer(api, bookmark_seconds=0.05) as running:
        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session
