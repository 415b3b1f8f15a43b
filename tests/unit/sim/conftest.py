"""Small machines and kubelets for the tests of the doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rte.sim import machines
from rte.sim.apiserver import API

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rte.model.machine import Machine


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Two zones of 8 CPUs (4 cores) and 8 GiB, some huge pages."""
    folder = tmp_path_factory.mktemp("machine") / "m"
    return machines.make("2x8,memory=8Gi,hugepages-2Mi=64", folder)


@pytest.fixture
def api() -> API:
    return API()


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets lie below it."""
    return tmp_path_factory.mktemp("k")


@pytest.fixture
def create_pod(api: API) -> Callable[..., dict[str, Any]]:
    """Create a pod of one container on node n1."""

    def create(name: str, cpu: Any = 2, memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
        limits = {"cpu": str(cpu), "memory": memory}
        container = {"name": "c", "image": "i:1", "resources": {"limits": limits}}
        container |= spec.pop("container", {})
        body = {"nodeName": "n1", "restartPolicy": "Never", "containers": [container], **spec}
        return api.create("pods", {"metadata": {"name": name}, "spec": body}, "default")

    return create
