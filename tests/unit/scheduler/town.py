"""A cluster in this process for end-to-end tests: API server, kubelets, reports, schedulers."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from rte import accounting, nrt
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.settings import SchedulerSettings
from rte.scheduler.shell.service import Scheduler
from rte.sim import machines
from rte.sim.apiserver import APIServer, DeleteOptions, StatusError
from rte.sim.kubelet import Kubelet, Timing, kubelet_document
from tests.unit.scheduler.build import pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

CRD = Path(__file__).parents[3] / "manifests/crd/noderesourcetopologies.yaml"


class Town:
    """``async with Town(tmp_path) as town``; nodes and schedulers end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = APIServer()
        self.api = self.server.api
        self.kubelets: dict[str, Kubelet] = {}
        self.paused: set[str] = set()
        self.bound: dict[str, list[str]] = {}
        self._stack = contextlib.AsyncExitStack()
        self._reports: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.server)
        self.server.write_kubeconfig(self._folder / "kubeconfig")
        for name in ("rte-agents", "kube-system"):
            with contextlib.suppress(StatusError):
                self.api.create("namespaces", {"metadata": {"name": name}})
        self.api.create("customresourcedefinitions", yaml.safe_load(CRD.read_text()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reports.values():
            task.cancel()
        await asyncio.gather(*self._reports.values(), return_exceptions=True)
        await self._stack.aclose()

    async def node(
        self,
        name: str,
        shape: str = "2x8",
        *,
        start: float = 0.0,
        stop: float = 0.0,
        **config: Any,
    ) -> None:
        """A kubelet, and an agent that publishes what it has within some milliseconds."""
        machine = await asyncio.to_thread(machines.make, shape, self._folder / shape)
        kubelet = Kubelet(
            self.api,
            name,
            machine,
            kubelet_document(machine, **config),
            timing=Timing(start=start, stop=stop, housekeeping=0.05),
        )
        await self._stack.enter_async_context(kubelet)
        self.kubelets[name] = kubelet
        self.publish(name)
        self._reports[name] = asyncio.create_task(self._report(name), name=f"agent {name}")

    async def leave(self, name: str) -> None:
        """The machine is switched off and its Node deleted."""
        self._reports.pop(name).cancel()
        await self.kubelets[name].stop()
        self.api.delete("nodes", name)

    def publish(self, name: str) -> None:
        kubelet = self.kubelets[name]
        reading = accounting.build_reading(name, kubelet.machine, kubelet.view())
        body = nrt.encode(reading)
        try:
            known = self.api.get("noderesourcetopologies", name)
        except StatusError:
            self.api.create("noderesourcetopologies", body)
            return
        version = known["metadata"]["resourceVersion"]
        body["metadata"] = {**body["metadata"], "resourceVersion": version}
        if {**known, "metadata": 0} != {**body, "metadata": 0} or known["metadata"].get(
            "annotations"
        ) != body["metadata"].get("annotations"):
            self.api.update("noderesourcetopologies", body)

    async def _report(self, name: str) -> None:
        while True:
            await asyncio.sleep(0.01)
            if name not in self.paused:
                self.publish(name)

    @contextlib.asynccontextmanager
    async def scheduler(self, **settings: Any) -> Any:
        """A running scheduler that has listed everything."""
        access = credentials.load(self._folder / "kubeconfig", {})
        async with Client(access) as client:
            options = {"listen": "", "leader_elect": False, **settings}
            scheduler = Scheduler(client, SchedulerSettings(**options))
            task = asyncio.create_task(scheduler.run(), name="scheduler")
            try:
                await until(lambda: not scheduler.readiness.reasons)
                yield scheduler
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled(), task.exception()

    def pod(self, name: str, cpu: Any = "2", *, owner: str = "", **options: Any) -> None:
        """``owner``: UID of a controller that creates it again (see :meth:`recreate`)."""
        if owner:
            reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set"}
            options["owners"] = [{**reference, "uid": owner, "controller": True}]
        obj = pod_object(name, cpu, **options)
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            obj["metadata"].pop(key)
        del obj["status"]
        for box in obj["spec"]["containers"]:
            box["image"] = "pause"
        obj["spec"].setdefault("terminationGracePeriodSeconds", 0)
        self.api.create("pods", obj, "default")

    async def recreate(self, sizes: dict[str, str], **options: Any) -> None:
        """The controller: a pod that is gone comes again under another name, unbound."""
        generation = dict.fromkeys(sizes, 0)
        while True:
            for name, cpus in sizes.items():
                try:
                    self.get(f"{name}-{generation[name]}" if generation[name] else name)
                except StatusError:
                    generation[name] += 1
                    self.pod(f"{name}-{generation[name]}", cpus, **options)
            await asyncio.sleep(0.02)

    def end(self, name: str) -> None:
        self.api.delete("pods", name, "default", DeleteOptions(grace=0))

    def get(self, name: str) -> dict[str, Any]:
        return self.api.get("pods", name, "default")

    def where(self, name: str) -> str:
        return str(self.get(name)["spec"].get("nodeName") or "")

    def phase(self, name: str) -> str:
        return str(self.get(name)["status"].get("phase") or "")

    def condition(self, name: str) -> str:
        found = [
            c for c in self.get(name)["status"].get("conditions", ()) if c["type"] == "PodScheduled"
        ]
        return str(found[0].get("message") or "") if found else ""

    def pods(self) -> list[dict[str, Any]]:
        return list(self.api.list("pods").items)

    @property
    def refusals(self) -> list[tuple[str, str]]:
        return [item for kubelet in self.kubelets.values() for item in kubelet.refusals]


async def until(claim: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until it holds; fails after so many seconds."""
    end = asyncio.get_running_loop().time() + seconds
    while not claim():
        assert asyncio.get_running_loop().time() < end, "it did not come true"
        await asyncio.sleep(0.005)
