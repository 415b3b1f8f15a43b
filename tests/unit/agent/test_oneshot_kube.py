"""``--sink kube``: the object in an API server, owned by the Node, with the API's word on pods."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from rte import errors, nrt
from rte.agent import oneshot
from rte.agent.settings import AgentSettings, SinkKind, SinkSetting
from rte.kube import credentials
from rte.kube.client import Client
from rte.kube.resources import NODES, NRTS, PODS
from rte.sim.apiserver.protocol.server import APIServer
from tests.checkpoints import sealed

from .test_oneshot import FIXTURE, UID, state_dir

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["state_dir"]

CRD = Path(__file__).parents[3] / "manifests" / "crd" / "noderesourcetopologies.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Client]:
    """An API server with the CRD and the node."""
    async with APIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client(credentials.load(tmp_path / "kubeconfig", {})) as client:
            await client.create(CRDS, yaml.safe_load(CRD.read_text()))
            node = await client.create(NODES.path(), {"metadata": {"name": "worker-1"}})
            node["status"] = {"nodeInfo": {"kubeletVersion": "v1.35.4"}}
            await client.update(NODES.path("worker-1", subresource="status"), node)
            yield client


@pytest.fixture
def settings(tmp_path: Path, state_dir: Path) -> AgentSettings:
    return AgentSettings(
        sysfs_root=FIXTURE / "sys",
        procfs_root=FIXTURE / "proc",
        kubelet_state_dir=state_dir,
        kubeconfig=tmp_path / "kubeconfig",
        node_name="worker-1",
        oneshot=True,
        oneshot_timeout=5.0,
        sink=SinkSetting(SinkKind.KUBE),
    )


async def create_pod(api: Client, phase: str) -> str:
    """A pod of the node; the API chooses its UID."""
    pod = await api.create(
        PODS.path(namespace="default"),
        {
            "metadata": {"name": "job", "namespace": "default"},
            "spec": {
                "nodeName": "worker-1",
                "containers": [{"name": "app", "image": "none:1"}],
            },
        },
    )
    pod["status"] = {"phase": phase, "startTime": "2026-01-01T00:00:00Z"}
    path = PODS.path("job", namespace="default", subresource="status")
    await api.update(path, pod)
    return str(pod["metadata"]["uid"])


def rename(state_dir: Path, uid: str) -> None:
    for path in state_dir.glob("*_state"):
        document = json.loads(path.read_text().replace(UID, uid))
        path.write_text(json.dumps(sealed(document)))


async def test_the_object_is_created_and_belongs_to_the_node(
    api: Client, settings: AgentSettings
) -> None:
    await oneshot.run(settings, {})

    stored = await api.get(NRTS.path("worker-1"))
    node = await api.get(NODES.path("worker-1"))
    assert stored["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "worker-1",
            "uid": node["metadata"]["uid"],
        }
    ]
    decoded = nrt.decode(stored)
    assert decoded.problems == ()
    assert decoded.state.kubelet_version == "v1.35.4"


async def test_a_pod_that_runs_holds_and_one_that_ended_does_not(
    api: Client,
    settings: AgentSettings,
    state_dir: Path,
) -> None:
    uid = await create_pod(api, "Running")
    rename(state_dir, uid)

    await oneshot.run(settings, {})
    running = nrt.decode(await api.get(NRTS.path("worker-1")))
    pod = await api.get(PODS.path("job", namespace="default"))
    pod["status"]["phase"] = "Succeeded"
    await api.update(PODS.path("job", namespace="default", subresource="status"), pod)
    await oneshot.run(settings, {})
    ended = nrt.decode(await api.get(NRTS.path("worker-1")))

    assert set(running.state.holdings) == {uid}
    assert running.zones[0].resources["cpu"].available == 28_000
    assert ended.state.holdings == {}
    assert ended.zones[0].resources["cpu"].available == 30_000


async def test_nothing_is_written_when_nothing_changed(
    api: Client, settings: AgentSettings
) -> None:
    await oneshot.run(settings, {})
    first = await api.get(NRTS.path("worker-1"))
    await oneshot.run(settings, {})

    again = await api.get(NRTS.path("worker-1"))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_node_that_the_api_does_not_know_is_one_line(
    api: Client, settings: AgentSettings
) -> None:
    with pytest.raises(errors.KubeError, match="no node 'elsewhere': give its name with") as caught:
        await oneshot.run(replace(settings, node_name="elsewhere"), {})

    assert "\n" not in str(caught.value)
