"""What the control plane does beside its API server, as far as nobody else plays it here."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import DeleteOptions, StatusError
from rte.sim.controllers.claims import ClaimController
from rte.sim.controllers.deployments import Deployments
from rte.sim.controllers.garbage import Garbage
from rte.sim.controllers.jobs import Jobs
from rte.sim.controllers.namespaces import Namespaces
from rte.sim.controllers.replicasets import ReplicaSets

if TYPE_CHECKING:
    from rte.sim.apiserver import API
    from rte.sim.controllers.controller import Controller
    from tests.world.clock import Clock

CONTROLLERS = (ClaimController, Deployments, ReplicaSets, Jobs, Garbage, Namespaces)

_PACE_S = 0.1
_EVERY_S = 5.0
#: nodeMonitorGracePeriod of the node lifecycle controller.
_GRACE_S = 50.0
#: defaultNotReadyTolerationSeconds of the admission plugin.
_TOLERATED_S = 300.0
_NOT_READY = "node.kubernetes.io/unreachable"


async def paced(controller: Controller) -> None:
    """A controller that looks at most ten times a second: it looks at everything."""
    changed = asyncio.Event()

    async def follow(name: str) -> None:
        while True:
            watch = controller.api.watch(name)
            changed.set()
            while await watch.batch():
                changed.set()

    async with asyncio.TaskGroup() as group:
        for name in controller.watched:
            group.create_task(follow(name))
        seconds: float | None = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed.wait()
            await asyncio.sleep(_PACE_S)
            changed.clear()
            seconds = controller.sync()


class NodeLifecycle:
    """Nodes whose kubelet is silent are not ready, are tainted, and lose their pods."""

    def __init__(self, api: API, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for node in self._api.list("nodes").items:
                with suppress(StatusError):
                    self._look(node)
            self._collect()

    def _look(self, node: Any) -> None:
        name = node["metadata"]["name"]
        lease = self._api.store.get("leases.coordination.k8s.io", ("kube-node-lease", name))
        text = (lease or {}).get("spec", {}).get("renewTime")
        renewed = datetime.fromisoformat(text).timestamp() if text else 0.0
        now = self._clock.true_unix()
        key = f"{name} {text}"
        first = self._since.setdefault(key, now)
        self._since = {k: v for k, v in self._since.items() if k.partition(" ")[0] != name}
        self._since[key] = first
        silent = now - first > _GRACE_S and abs(now - renewed) > 0
        taints = node["spec"].get("taints") or []
        has = any(taint["key"] == _NOT_READY for taint in taints)
        if silent != has:
            taints = [taint for taint in taints if taint["key"] != _NOT_READY]
            if silent:
                taints += [
                    {"key": _NOT_READY, "effect": "NoSchedule"},
                    {"key": _NOT_READY, "effect": "NoExecute"},
                ]
            self._api.patch("nodes", name, {"spec": {"taints": taints}})
        if silent and now - first > _GRACE_S + _TOLERATED_S:
            for (namespace, pod_name), pod in self._api.store.items("pods"):
                if pod["spec"].get("nodeName") == name:
                    with suppress(StatusError):
                        self._api.delete("pods", pod_name, namespace)

    def _collect(self) -> None:
        """Pods of nodes that are gone go (pkg/controller/podgc)."""
        nodes = {name for (_, name), _ in self._api.store.items("nodes")}
        for (namespace, name), pod in list(self._api.store.items("pods")):
            where = pod["spec"].get("nodeName")
            if where and where not in nodes:
                with suppress(StatusError):
                    self._api.delete("pods", name, namespace, DeleteOptions(grace=0))
