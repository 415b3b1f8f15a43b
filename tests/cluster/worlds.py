"""One suite, two back ends: the components of the demo, and a real cluster (mark ``cluster``).

A test sees only the API: it creates pods for the scheduler or for a node, and reads what kubelet,
agent and scheduler make of them.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte import nrt
from rte.sim.demo.cluster import DemoCluster, Settings
from tests.cluster import agents
from tests.cluster.api import Api, Object
from tests.cluster.pods import path
from tests.cluster.test_scheduler import Schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from rte.model.node import NodeState

NRTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class World:
    """A cluster of some back end with agents on its nodes and rte's scheduler."""

    api: Api
    nodes: list[str]
    kubeconfig: Path

    def create(self, pod: Object) -> Object:
        return self.api.create(PODS, pod)

    def wait(self, pod: Object, done: Callable[[Object], Any], what: str) -> Object:
        """Wait until ``done`` accepts the pod."""
        found = self.api.wait(
            PODS, pod["metadata"]["name"], lambda obj: obj and done(obj), seconds=90, what=what
        )
        assert found is not None
        return found

    def running(self, pod: Object) -> Object:
        """Wait until the pod runs (or has failed, which the caller will see)."""
        return self.wait(
            pod, lambda obj: obj["status"].get("phase") in {"Running", "Failed"}, "runs"
        )

    def end(self, *pods: Object) -> None:
        for pod in pods:
            self.api.delete(path(pod), grace=0)
            self.api.wait(PODS, pod["metadata"]["name"], lambda obj: obj is None, seconds=90)

    def state(self, node: str, done: Callable[[NodeState], Any], what: str) -> NodeState:
        """Wait until a node's published state is what ``done`` wants."""

        def look(obj: Object | None) -> bool:
            state = nrt.decode(obj).state if obj else None
            return state is not None and bool(done(state))

        found = self.api.wait(NRTS, node, look, seconds=90, what=f"{node}: {what}")
        assert found is not None
        state = nrt.decode(found).state
        assert state is not None
        return state


@contextmanager
def simulated(policy: str, shapes: tuple[str, ...]) -> Iterator[World]:
    """The demo's cluster, in a thread of its own."""
    started: threading.Event = threading.Event()
    holder: dict[str, Any] = {}

    async def live() -> None:
        settings = Settings(nodes=len(shapes), shapes=shapes, policy=policy)
        async with DemoCluster(settings) as cluster:
            holder.update(loop=asyncio.get_running_loop(), stop=asyncio.Event(), cluster=cluster)
            started.set()
            await holder["stop"].wait()

    def run() -> None:
        try:
            asyncio.run(live())
        finally:
            started.set()

    thread = threading.Thread(target=run, name="simulated cluster")
    thread.start()
    started.wait(30)
    cluster: DemoCluster = holder["cluster"]
    api = Api(cluster.server.url, cluster.kubeconfig)
    try:
        # Until its agent has reported, a node is a plain one to the scheduler.
        world = World(api, sorted(cluster.nodes), cluster.kubeconfig)
        for name in world.nodes:
            world.state(name, lambda state: state.synced, "is synced")
        yield world
    finally:
        api.close()
        holder["loop"].call_soon_threadsafe(holder["stop"].set)
        thread.join(30)


@contextmanager
def real(request: pytest.FixtureRequest, policy: str, shapes: tuple[str, ...]) -> Iterator[World]:
    """Real kubelets, agents in their namespaces, the scheduler with its service account."""
    cluster = request.getfixturevalue("cluster")
    make = request.getfixturevalue("fresh_nodes")
    schedulers = Schedulers(cluster)
    nodes = make([{"shape": shape, "kubelet": {"policy": policy}} for shape in shapes])
    for node in nodes:
        agents.start(node)
    for node in nodes:
        agents.wait_published(node)
    schedulers.start()
    world = World(cluster.api, [node.name for node in nodes], cluster.dir / "kubeconfig")
    try:
        for name in world.nodes:
            world.state(name, lambda state: state.synced, "is synced")
        yield world
    finally:
        for role in schedulers.roles:
            cluster.stop_role(role, grace=2)
