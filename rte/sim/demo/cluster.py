"""A whole cluster in one process: API server, simulated kubelets, agents and the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from rte import errors
from rte.agent import daemon
from rte.agent.settings import AgentSettings
from rte.kube import credentials
from rte.kube.client import Client
from rte.kubelet.podresources import MAX_PATH_CHARS
from rte.model.node import DevicePool
from rte.scheduler.settings import SchedulerSettings
from rte.scheduler.shell.service import Scheduler
from rte.sim import controllers, machines, slices
from rte.sim.apiserver import API, APIServer
from rte.sim.demo.plain import PlainScheduler
from rte.sim.fleet import Reports
from rte.sim.kubelet import Kubelet, Timing, kubelet_document
from rte.view.serve import serve
from rte.view.source import ViewSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.model.machine import Machine

logger = logging.getLogger(__name__)

#: Shapes of the nodes, in turn: different sizes, zones per socket, caches, one without SMT.
SHAPES = (
    "2x16", "4x8,sockets=2,memory=16Gi", "1x12,threads=1,memory=32Gi", "2x24,l3=4,gpus=2", "2x16",
)  # fmt: skip
GPU = "example.com/gpu"
#: Template of claims for one GPU of DRA, where a machine has such.
CLAIM_TEMPLATE = "one-gpu"
#: From so many nodes on, the last one's kubelet assigns no CPUs: they are for processing groups.
NODES_WITH_GROUPS = 5
GROUPS_TAINT = "example.com/processing-groups"
#: Where the demo's own pods are; those of its user are elsewhere.
NAMESPACE = "demo"
#: So many nodes have an agent of their own, with files and sockets. Of further ones is published
#: what their agents would publish, by the same steps: the kernel allows one user few inotify
#: instances, and as many agents would poll.
AGENTS = 40
_NAMES = "abcdefghijklmnopqrstuvwxyz"
_AGENT_NAMESPACE = "rte-agents"
_START_SECONDS = 0.3
_ANY_PORT = "127.0.0.1:0"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the cluster is made of.

    Attributes:
        nodes: how many; from :data:`NODES_WITH_GROUPS` on, one serves processing groups: the
            last of those with an agent of their own (:data:`AGENTS`).
        shapes: their machines, in turn (:func:`rte.sim.machines.parse`).
        policy: topology manager policy of all kubelets.
        scope: topology manager scope.
        port: of the API server, 0: any free one.
        plain: without agents, rte's scheduler and page: pods are placed by totals.
    """

    nodes: int = 5
    shapes: Sequence[str] = SHAPES
    policy: str = "single-numa-node"
    scope: str = "container"
    port: int = 0
    plain: bool = False


@dataclass
class DemoNode:
    """One node of the demo."""

    name: str
    shape: str
    kubelet: Kubelet
    groups: bool
    hardware: Path


_LONGEST_SOCKET = "/rte-demo-12345678/node-999/pod-resources/kubelet.sock"


class DemoCluster:
    """Started on entry, gone without a trace on exit.

    Attributes:
        api: the objects.
        nodes: by name.
        agents: by the name of their node.
        kubeconfig: for kubectl.
        page: address of the page that shows the zones; empty until it is served.
        by_totals: the scheduler of a plain cluster.
        remark: what the page says beside its counts.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.api = API()
        self.server = APIServer(self.api, port=settings.port)
        self.nodes: dict[str, DemoNode] = {}
        self.agents: dict[str, asyncio.Task[None]] = {}
        self.kubeconfig = Path()
        self.page = ""
        self.by_totals = PlainScheduler(self.api)
        self.remark: Callable[[], str] = str
        self._machines: dict[str, Machine] = {}
        self._stack = contextlib.AsyncExitStack()
        self._stop = asyncio.Event()
        self._page_ready = asyncio.Event()
        self._process: asyncio.Task[None] | None = None
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()

    @property
    def has_groups(self) -> bool:
        """Whether a node serves processing groups."""
        return any(node.groups for node in self.nodes.values())

    async def served(self) -> None:
        """Until the page is served, or the cluster has failed."""
        ready = asyncio.create_task(self._page_ready.wait())
        await asyncio.wait(
            [ready, *([self._process] if self._process else [])],
            return_when=asyncio.FIRST_COMPLETED,
        )
        ready.cancel()

    async def failed(self) -> None:
        """Return only by raising: an agent or the scheduler has failed.

        Raises:
            errors.RteError: what it failed with.
        """
        if self._process is None:
            return
        try:
            await asyncio.shield(self._process)
        except* errors.RteError as group:
            raise _first(group) from None

    async def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="rte-demo-", dir=_parent_of_sockets()))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        await self._stack.enter_async_context(self.server)
        self.kubeconfig = folder / "kubeconfig"
        self.server.write_kubeconfig(self.kubeconfig)
        for name in (_AGENT_NAMESPACE, NAMESPACE):
            self.api.create("namespaces", {"metadata": {"name": name}})
        self.api.create("customresourcedefinitions", crd())
        for driver in slices.DRIVERS:
            self.api.create("deviceclasses", slices.class_of(driver))
        self.api.create("resourceclaimtemplates", claim_template(), NAMESPACE)
        for number in range(self.settings.nodes):
            await self._add_node(number, folder)
        self._process = asyncio.create_task(self._run(), name="demo cluster")
        self._stack.push_async_callback(self._end)

    async def _add_node(self, number: int, folder: Path) -> None:
        shapes = self.settings.shapes
        shape = shapes[number % len(shapes)]
        name = f"node-{_NAMES[number]}" if number < len(_NAMES) else f"node-{number}"
        hardware = folder / "machines" / str(shapes.index(shape))
        machine = await self._machine(shape, hardware)
        root = None
        if number < AGENTS and not self.settings.plain:
            root = folder / name
            root.mkdir()
        groups = self._has_groups(number)
        if groups:
            document = kubelet_document(
                machine, policy="none", cpu_policy="none", memory_policy="None"
            )
        else:
            document = kubelet_document(
                machine, policy=self.settings.policy, scope=self.settings.scope
            )
        gpus = (
            tuple(zone.id for zone in machine.zones for _ in range(2))
            if number % 2 == 0 and not groups
            else ()
        )
        devices = {GPU: gpu_pool(gpus)} if gpus else {}
        kubelet = Kubelet(
            self.api, name, machine, document,
            devices=devices, root=root, timing=Timing(start=_START_SECONDS),
        )  # fmt: skip
        await self._stack.enter_async_context(kubelet)
        self.nodes[name] = DemoNode(name, shape, kubelet, groups=groups, hardware=hardware)
        if groups:
            taint = {"key": GROUPS_TAINT, "effect": "NoSchedule"}
            self.api.patch("nodes", name, {"spec": {"taints": [taint]}})
        if machine.pci:
            for driver in slices.DRIVERS:
                for one in slices.slices_of(machine, self.api.get("nodes", name), driver):
                    self.api.create("resourceslices", one)

    async def _machine(self, shape: str, hardware: Path) -> Machine:
        if shape not in self._machines:
            making = asyncio.create_task(asyncio.to_thread(machines.make, shape, hardware))
            try:
                self._machines[shape] = await asyncio.shield(making)
            except asyncio.CancelledError:
                await asyncio.wait([making])  # else it would write on into a folder that is gone
                raise
        return self._machines[shape]

    def _has_groups(self, number: int) -> bool:
        nodes = self.settings.nodes
        return nodes >= NODES_WITH_GROUPS and number + 1 == min(nodes, AGENTS)

    def start_agent(self, node: DemoNode) -> None:
        """Start the agent of a node, at first or after it has died."""
        serving = daemon.serve(self._agent(node), {}, self._stop)
        self.agents[node.name] = self._group.create_task(serving, name=f"agent {node.name}")

    async def _run(self) -> None:
        if self.settings.plain:
            async with self._group as group:
                tasks = [
                    group.create_task(self.by_totals.run(), name="plain scheduler"),
                    group.create_task(controllers.run(self.api), name="controllers"),
                ]
                await self._stop.wait()
                for task in tasks:
                    task.cancel()
            return
        access = credentials.load(self.kubeconfig, {})
        scheduling = SchedulerSettings(
            kubeconfig=self.kubeconfig,
            listen="",
            leader_elect=False,
            also_for=("default-scheduler",),  # what kubectl makes is served as well
        )
        async with (
            Client(access, component="rte-scheduler") as client,
            Reports(self.api, self._without_agent()),
            self._group as group,
        ):
            for node in self.nodes.values():
                if node.kubelet.root is not None:
                    self.start_agent(node)
            scheduler = Scheduler(client, scheduling)
            source = ViewSource(scheduler, remark=self._remarked)
            tasks = [
                group.create_task(scheduler.run(), name="scheduler"),
                group.create_task(controllers.run(self.api), name="controllers"),
                group.create_task(source.run(), name="view"),
                group.create_task(serve(_ANY_PORT, source, started=self._viewed), name="page"),
            ]
            await self._stop.wait()
            for task in tasks:
                task.cancel()

    def _remarked(self) -> str:
        return self.remark()  # given after the page is served

    def _viewed(self, port: int) -> None:
        self._page_ready.set()
        self.page = f"http://127.0.0.1:{port}/view"

    def _without_agent(self) -> dict[str, Kubelet]:
        return {n.name: n.kubelet for n in self.nodes.values() if n.kubelet.root is None}

    def _agent(self, node: DemoNode) -> AgentSettings:
        return AgentSettings(
            sysfs_root=node.hardware / "sys",
            procfs_root=node.hardware / "proc",
            podresources_socket=f"unix://{node.kubelet.socket}",
            kubelet_state_dir=node.kubelet.root,
            node_name=node.name,
            kubeconfig=self.kubeconfig,
            metrics_listen="",
            group_inventory=node.groups,
        )

    async def _end(self) -> None:
        self._stop.set()
        if self._process is None:
            return
        _, late = await asyncio.wait([self._process], timeout=3)
        for task in late:
            task.cancel()
            await asyncio.wait([task])
        if not self._process.cancelled() and self._process.exception() is not None:
            logger.debug("ended with %s", self._process.exception())


def _first(group: BaseExceptionGroup[errors.RteError]) -> errors.RteError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def gpu_pool(zones: Sequence[int]) -> DevicePool:
    """Healthy devices, one in each of the given zones."""
    return DevicePool(
        ids=tuple(f"gpu{number}" for number in range(len(zones))),
        zones=tuple(1 << zone for zone in zones),
        healthy=(1 << len(zones)) - 1,
    )


def claim_template() -> dict[str, Any]:
    """Claims for one GPU."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": CLAIM_TEMPLATE},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def crd() -> dict[str, Any]:
    """The CRD of NodeResourceTopology."""
    text = resources.files("rte.sim").joinpath("noderesourcetopologies.yaml").read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def _parent_of_sockets() -> str:
    """The folder for temporary files, unless paths of sockets would be too long there."""
    usual = tempfile.gettempdir()
    return usual if len(usual) + len(_LONGEST_SOCKET) <= MAX_PATH_CHARS else "/tmp"  # noqa: S108
