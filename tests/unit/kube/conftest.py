"""An API server in this process, with a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rte.kube.client import Client
from rte.kube.credentials import Credentials
from rte.sim.apiserver import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as running:
        yield running


@pytest.fixture
async def client(server: APIServer) -> AsyncIterator[Client]:
    async with Client(Credentials(server=server.url), timeout_s=2) as connected:
        yield connected
