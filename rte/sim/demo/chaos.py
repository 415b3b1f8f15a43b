"""Faults in the living demo, and what was lost by them."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte.sim.demo.cluster import NAMESPACE
from rte.sim.demo.snapshot import SnapshotCollector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rte.sim.demo.cluster import DemoCluster, DemoNode

#: How long something is away, and how long nothing is.
_AWAY_S = (0.2, 2.0)
#: By then all is as if nothing had been: pods wait at most 10 s after an error, reports a second.
_SETTLING_S = 60.0


async def _kubelet_restarts(_: DemoCluster, node: DemoNode, seconds: float) -> None:
    await node.kubelet.stop()
    try:
        await asyncio.sleep(seconds)
    finally:
        await node.kubelet.start()


async def _agent_dies(cluster: DemoCluster, node: DemoNode, seconds: float) -> None:
    if agent := cluster.agents.get(node.name):
        agent.cancel()
        try:
            await asyncio.sleep(seconds)
        finally:
            cluster.start_agent(node)


async def _api_server_is_away(cluster: DemoCluster, _: DemoNode, seconds: float) -> None:
    """And what watches have missed is forgotten."""
    await cluster.server.stop()
    try:
        await asyncio.sleep(seconds)
    finally:
        cluster.server.faults.compact()
        await cluster.server.start()


def _tell(cluster: DemoCluster, what: str, node: str) -> None:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "metadata": {"generateName": "chaos-"},
        "involvedObject": {"kind": "Node", "name": node},
        "type": "Warning",
        "reason": "Chaos",
        "message": what,
        "lastTimestamp": moment,
    }
    cluster.api.create("events", event, NAMESPACE)


_FAULTS = (_kubelet_restarts, _agent_dies, _api_server_is_away)


@dataclass(frozen=True)
class Chaos:
    """What goes wrong, and whether it did harm.

    Attributes:
        seconds: how long faults are played.
        fitting: keys of the pods that wait though there is room for them, by what the API server of
            a kubeconfig has.
    """

    seconds: float
    fitting: Callable[[Path], Awaitable[list[str]]]

    async def play(self, cluster: DemoCluster, seed: int) -> None:
        """Every kind of fault in turn, on nodes by seed; each is mended before the next."""
        chooser = random.Random(seed)
        loop = asyncio.get_running_loop()
        end = loop.time() + self.seconds
        for fault in itertools.cycle(_FAULTS):
            await asyncio.sleep(chooser.uniform(*_AWAY_S))
            if loop.time() > end:
                return
            node = chooser.choice([*cluster.nodes.values()])
            _tell(cluster, fault.__name__.strip("_").replace("_", " "), node.name)
            await fault(cluster, node, chooser.uniform(*_AWAY_S))

    async def lost(self, cluster: DemoCluster) -> list[str]:
        """One line for each pod that is worse off than without faults, once there was time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _SETTLING_S
        told = await self._lost(cluster)
        while told and loop.time() < end:
            await asyncio.sleep(0.5)
            told = await self._lost(cluster)
        return told

    async def _lost(self, cluster: DemoCluster) -> list[str]:
        told = [
            f"lost: {node.name} refused {pod}: {reason}"
            for node in cluster.nodes.values()
            for pod, reason in node.kubelet.refusals
        ]
        observer = SnapshotCollector(cluster)
        seen = observer.look()
        observer.close()
        for node in seen.nodes:
            held = cluster.nodes[node.name].kubelet.state.holdings
            if node.state is None or not node.state.synced:
                told.append(f"lost: the report of {node.name} is not complete")
                continue
            told += [
                f"lost: {pod.name} does not run on {node.name} as is said of it"
                for pod in seen.pods
                if pod.node == node.name
                and pod.phase in ("Pending", "Running")
                and (
                    pod.phase == "Pending" or held.get(pod.uid) != node.state.holdings.get(pod.uid)
                )
            ]
        waiting = await self.fitting(cluster.kubeconfig)
        return told + [f"lost: {pod} waits though there is room for it" for pod in waiting]
