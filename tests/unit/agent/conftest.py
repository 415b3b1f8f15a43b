"""An API server in this process, with the CRD, and a client of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte.kube.client import Client
from rte.kube.credentials import Credentials
from rte.sim.apiserver import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CRD_FILE = Path(__file__).parents[3] / "manifests/crd/noderesourcetopologies.yaml"


@pytest.fixture(scope="session")
def crd() -> dict[str, Any]:
    return yaml.safe_load(CRD_FILE.read_text())


@pytest.fixture
async def bare_server() -> AsyncIterator[APIServer]:
    """Without the CRD."""
    async with APIServer() as running:
        yield running


@pytest.fixture
def server(bare_server: APIServer, crd: dict[str, Any]) -> APIServer:
    bare_server.api.create("customresourcedefinitions", crd)
    return bare_server


@pytest.fixture
async def client(bare_server: APIServer) -> AsyncIterator[Client]:
    access = Credentials(server=bare_server.url)
    async with Client(access, timeout_s=2, component="rte-agent") as connected:
        yield connected
