"""Many nodes in one process, without files and sockets: for scale tests.

Each node is a simulated kubelet; what its agent would publish is computed by the agent's own pure
steps (accounting, encoding) when a pod of the node has changed, and written into the API.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from rte import accounting, errors, nrt
from rte.model.kubelet import NodePod
from rte.sim.kubelet import Kubelet, Timing, kubelet_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine
    from rte.sim.apiserver import API

_NRTS = "noderesourcetopologies.topology.node.k8s.io"
_PAUSE_SECONDS = 0.02


class Reports:
    """What the agents of some nodes would publish; an asynchronous context manager.

    Args:
        api: where nodes, pods and NRTs are; the NRT CRD is installed.
        kubelets: by node name; they run while this is entered.

    Attributes:
        silent: nodes whose agent does not run: nothing is published for them.
    """

    def __init__(self, api: API, kubelets: Mapping[str, Kubelet]) -> None:
        self.api = api
        self.kubelets = kubelets
        self._pods: dict[str, dict[str, NodePod]] = {name: {} for name in kubelets}
        self._dirty = dict.fromkeys(kubelets)
        self.silent: set[str] = set()
        self._process: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._publish_all()
        self._process = asyncio.create_task(self._follow(), name="reports")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._process is not None:
            self._process.cancel()
            await asyncio.wait([self._process])

    @property
    def is_settled(self) -> bool:
        """Whether every NRT shows what its kubelet holds."""
        return not self._dirty

    async def _follow(self) -> None:
        watch = self.api.watch("pods")
        try:
            while True:
                for kind, obj in await watch.batch():
                    self._notice(kind, obj)
                await asyncio.sleep(_PAUSE_SECONDS)  # a burst is published once
                for kind, obj in watch.pending():
                    self._notice(kind, obj)
                self._publish_all()
        finally:
            watch.stop()

    def _notice(self, kind: str, obj: Mapping[str, Any]) -> None:
        node = obj["spec"].get("nodeName")
        if node not in self._pods:
            return
        metadata, shown = obj["metadata"], obj["status"]
        uid = metadata["uid"]
        self._dirty[node] = None
        if kind == "DELETED":
            self._pods[node].pop(uid, None)
            return
        phase = shown.get("phase")
        self._pods[node][uid] = NodePod(
            uid=uid,
            namespace=metadata["namespace"],
            name=metadata["name"],
            terminal=phase in ("Succeeded", "Failed"),
            admitted="startTime" in shown and phase != "Failed",
        )

    def _publish_all(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for name in dirty:
            if name in self.silent:
                self._dirty[name] = None
                continue
            try:
                self.publish(name)
            except errors.InconsistentStateError:  # between two changes: at the next one
                self._dirty[name] = None

    def publish(self, name: str) -> None:
        """Write a node's NRT as its agent would, if it says anything new.

        Raises:
            errors.InconsistentStateError: the kubelet's sources do not agree at this moment.
        """
        kubelet = self.kubelets[name]
        reading = accounting.build_reading(
            name, kubelet.machine, kubelet.view(), tuple(self._pods[name].values())
        )
        stored = self.api.store.get(_NRTS, ("", name))
        owner = self.api.get("nodes", name)["metadata"]["uid"]
        wanted = nrt.encode(reading, nrt.WriterOptions(owner_uid=owner))
        if stored is None:
            self.api.create(_NRTS, wanted)
            return
        version = stored["metadata"]["resourceVersion"]
        wanted["metadata"]["resourceVersion"] = version
        self.api.update(_NRTS, wanted)


class SimulatedFleet(Reports):
    """Nodes of one API, their kubelets included.

    Args:
        api: where nodes, pods and NRTs are; the NRT CRD is installed.
        machines: hardware by node name (nodes may share one value).
        settings: arguments of :func:`rte.sim.kubelet.kubelet_document` for all kubelets.
        timing: of all kubelets.
    """

    def __init__(
        self,
        api: API,
        machines: Mapping[str, Machine],
        settings: Mapping[str, Any] | None = None,
        timing: Timing | None = None,
    ) -> None:
        timing, settings = timing or Timing(), settings or {}
        kubelets = {
            name: Kubelet(api, name, machine, kubelet_document(machine, **settings), timing=timing)
            for name, machine in machines.items()
        }
        super().__init__(api, kubelets)

    async def __aenter__(self) -> Self:
        for kubelet in self.kubelets.values():
            await kubelet.start()
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        for kubelet in self.kubelets.values():
            await kubelet.stop()
