"""A cluster: its API, nodes, agents, schedulers and controllers, in one clock."""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import random
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

import rte.kubelet.podresources
from rte.agent import daemon
from rte.agent.settings import AgentSettings
from rte.agent.timings import Timings
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.settings import SchedulerSettings
from rte.scheduler.shell.service import Scheduler
from rte.sim import machines, slices
from rte.sim.apiserver import API, DeleteOptions, StatusError
from rte.sim.demo.cluster import claim_template, crd, gpu_pool
from rte.sim.kubelet import Timing, kubelet, kubelet_document
from rte.telemetry.metrics import AgentMetrics
from tests.world.clock import PROCESS, Clock
from tests.world.kubernetes import CONTROLLERS, NodeLifecycle, paced
from tests.world.nodes import Follower, KubeletOfWorld, Node, PodResourcesStandIn, WorldFiles
from tests.world.processes import Link, Process
from tests.world.turns import Turns
from tests.world.wire import Session, Wire

if TYPE_CHECKING:
    from datetime import datetime

    from rte.model.machine import Machine
    from tests.world.judge import Judge

GPU = "example.com/gpu"
AGENTS = "rte-agents"


@dataclass(frozen=True, kw_only=True)
class Make:
    """What a cluster is made of."""

    seed: int = 1
    nodes: int = 8
    shapes: tuple[str, ...] = ("2x8", "2x16", "2x8,gpus=2", "1x12,threads=1,memory=32Gi")
    policies: tuple[str, ...] = (
        "single-numa-node", "single-numa-node", "restricted", "single-numa-node", "best-effort",
        "single-numa-node", "none", "single-numa-node",
    )  # fmt: skip
    scopes: tuple[str, ...] = ("container", "pod")
    versions: tuple[str, ...] = ("v1.37.1", "v1.35.4", "v1.34.2")
    schedulers: int = 2
    lease_s: float = 9.0
    reserve_after: float = 0.0


@cache
def scratch() -> Path:
    """A folder in memory, where there is one, for as long as this process lives."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="w", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def machine(shape: str) -> tuple[Path, Machine]:
    """A machine of that shape, and where its sysfs and procfs are."""
    folder = scratch() / "machines" / shape
    return folder, machines.make(shape, folder)


class World:
    """One cluster. Use :meth:`up` inside of the clock's loop.

    Attributes:
        story: what is told of it, line by line.
    """

    def __init__(self, make: Make, clock: Clock, judge: Judge, *, tells: bool = False) -> None:
        self.make, self.clock, self.judge = make, clock, judge
        self.tells = tells
        self.chance = random.Random(f"{make.seed} world")
        self.api = API(clock=self._api_clock)
        self.wire = Wire(self)
        self.lines: dict[int, tuple[Any, bytes]] = {}
        self.skews: dict[str, float] = {}
        self.api_away_until = self.old_lists_until = 0.0
        self.api_refuses = False
        self.nodes: dict[str, Node] = {}
        self.schedulers: dict[str, Process] = {}
        self.running: dict[str, Scheduler] = {}
        self.stops: dict[str, asyncio.Event] = {}
        self.control = Process("controllers", self.skews, "control", make.seed)
        self.user = Process("user", self.skews, "user", make.seed)
        self.user.dead = False
        self.root = Path(tempfile.mkdtemp(prefix="n", dir=scratch()))
        self._put = clock._substituted.put
        self.former: list[Process] = []
        self._mend: set[asyncio.Task[None]] = set()
        #: When the last fault is over, as far as its act says so.
        self.unrest = 0.0
        judge.world, judge.turns = self, Turns(self)

    def _api_clock(self) -> datetime:
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.clock.true_unix(), UTC)

    def now(self) -> float:
        """Monotonic seconds."""
        return self.clock.loop.now

    def say(self, line: str) -> None:
        """One line of the story."""
        if self.tells:
            print(f"{self.now() - 1000:10.3f}  {line}")

    # --- making it ---

    def _substitute(self) -> None:
        Follower.directories = self.directories = {}
        WorldFiles.directories = self.directories
        PodResourcesStandIn.worlds = self
        put = self._put
        put(aiohttp, "ClientSession", Session)
        put(aiohttp, "TCPConnector", lambda **_: None)
        put(daemon, "FileFollower", Follower)
        put(rte.kubelet.podresources, "PodResources", PodResourcesStandIn)
        put(kubelet, "StateDir", WorldFiles)
        put(gc, "freeze", lambda: None)

    async def up(self) -> None:
        """Start everything."""
        self._substitute()
        commit = self.api.store._commit

        def committed(change: Any) -> None:
            commit(change)
            self.judge.committed(PROCESS.get(self.control), change)

        self.api.store._commit = committed  # type: ignore[method-assign]
        self.kubeconfig = self.root / "kubeconfig"
        self.kubeconfig.write_text(_KUBECONFIG)
        self.api.create("namespaces", {"metadata": {"name": AGENTS}})
        self.api.create("customresourcedefinitions", crd())
        for driver in slices.DRIVERS:
            self.api.create("deviceclasses", slices.class_of(driver))
        self.api.create("resourceclaimtemplates", claim_template(), "default")
        self.control.start(self._control())
        for number in range(self.make.nodes):
            await self._add_node(number)
        for name in list(self.nodes):
            self.start_agent(name)
        for number in range(self.make.schedulers):
            name = f"scheduler-{number}"
            self.schedulers[name] = Process(name, self.skews, name, self.make.seed)
            self.start_scheduler(name)

    async def _control(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in CONTROLLERS:
                group.create_task(paced(kind(self.api)))
            group.create_task(NodeLifecycle(self.api, self.clock).run())

    async def _add_node(self, number: int) -> None:
        make = self.make
        name = f"node-{number}"
        shape = make.shapes[number % len(make.shapes)]
        root = self.root / name
        root.mkdir()
        process = Process(f"kubelet {name}", self.skews, name, make.seed)
        node = Node(self, name, root, process)
        node.shape = shape
        node.agent = Process(f"rte-agent {name}", self.skews, name, make.seed)
        node.policy = make.policies[number % len(make.policies)]
        node.scope = make.scopes[number % len(make.scopes)]
        node.version = make.versions[number % len(make.versions)]
        self.nodes[name] = node
        for folder in (root, root / "device-plugins", root / "pod-resources"):
            folder.mkdir(exist_ok=True)
            self.directories[folder] = node.directory
        self.new_kubelet(node)
        await node.start_kubelet()
        self.publish_slices(node)

    def new_kubelet(self, node: Node) -> None:
        """A kubelet that knows nothing yet."""
        _, hardware = machine(node.shape)
        document = kubelet_document(hardware, policy=node.policy, scope=node.scope)
        gpus = tuple(zone.id for zone in hardware.zones for _ in range(2))
        has_gpus = int(node.name.rpartition("-")[2]) % 2 == 0
        node.kubelet = KubeletOfWorld(
            node.api,  # type: ignore[arg-type]
            node.name, hardware, document,
            devices={GPU: gpu_pool(gpus)} if has_gpus else {},
            version=node.version, root=node.root,
            timing=Timing(start=0.3, stop=0.2),
        )  # fmt: skip
        node.kubelet.node = node

    def publish_slices(self, node: Node) -> None:
        """The DRA driver of a node tells what there is."""
        _, hardware = machine(node.shape)
        if hardware.pci:
            made = self.api.get("nodes", node.name)
            for driver in slices.DRIVERS:
                for one in slices.slices_of(hardware, made, driver):
                    with suppress(StatusError):
                        self.api.create("resourceslices", one)

    def start_agent(self, name: str) -> None:
        """Start the agent of a node."""
        node = self.nodes[name]
        hardware, _ = machine(node.shape)
        settings = AgentSettings(
            sysfs_root=hardware / "sys",
            procfs_root=hardware / "proc",
            podresources_socket=f"unix://{node.root}/pod-resources/kubelet.sock",
            kubelet_state_dir=node.root,
            node_name=name,
            kubeconfig=self.kubeconfig,
            metrics_listen="",
        )
        stop = self.stops[name] = asyncio.Event()
        work = daemon.serve(settings, {}, stop, timings=_TIMINGS, metrics=AgentMetrics())
        node.agent.on_crash = lambda: self.later(10.0, self.start_agent, name)
        node.agent.start(work)

    def start_scheduler(self, name: str) -> None:
        """Start a replica."""
        process = self.schedulers[name]
        process.on_crash = lambda: self.later(5.0, self.start_scheduler, name)
        process.start(self._schedule(name))

    async def _schedule(self, name: str) -> None:
        lease_s = self.make.lease_s
        settings = SchedulerSettings(
            kubeconfig=self.kubeconfig,
            listen="",
            lease_seconds=lease_s,
            renew_seconds=lease_s / 3,
            reserve_after=self.make.reserve_after,
        )
        access = credentials.load(self.kubeconfig, {})
        async with Client(access, component="rte-scheduler") as client:
            scheduler = Scheduler(client, settings, clock=self.now)
            self.running[name] = scheduler
            try:
                await scheduler.run()
            finally:
                self.running.pop(name, None)

    def node_of(self, socket: Path) -> Node:
        """Whose podresources socket that is."""
        return self.nodes[socket.parent.parent.name]

    def configz(self, name: str) -> Any:
        """What the kubelet of a node answers.

        Raises:
            StatusError: it does not answer.
        """
        node = self.nodes.get(name)
        if node is None or not node.serving or node.hung:
            raise StatusError(503, "error trying to reach service")
        return {"kubeletconfig": node.kubelet.document}

    # --- what happens to processes ---

    def crash(self, process: Process, why: str) -> None:
        """It dies now, and is started again later by its own."""
        self.say(f"{process.name} crashes {why}")
        process.link.crash = None
        process.die()
        process.on_crash()

    def later(self, seconds: float, do: Any, *args: Any) -> None:
        """Do something later."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            process = self.process(args[0]) if args and isinstance(args[0], str) else None
            if process is not None:
                await process.gone()
            done = do(*args)
            if asyncio.iscoroutine(done):
                await done

        task = asyncio.get_running_loop().create_task(wait(), context=self.user.context)
        self._mend.add(task)
        task.add_done_callback(self._mend.discard)

    def process(self, name: str) -> Process | None:
        """By ``scheduler-0``, ``node-1`` (its agent) or ``kubelet node-1``."""
        if name in self.schedulers:
            return self.schedulers[name]
        if name.startswith("kubelet "):
            return self.nodes[name[8:]].process
        return self.nodes[name].agent if name in self.nodes else None

    def restart_scheduler(self, name: str) -> None:
        """Start a replica that was stopped, unless it runs."""
        task = self.schedulers[name].task
        if task is None or task.done():
            self.start_scheduler(name)

    def restart_agent(self, name: str) -> None:
        """Start an agent that was stopped, unless it runs."""
        task = self.nodes[name].agent.task
        if task is None or task.done():
            self.start_agent(name)

    def overlap_agent(self, node: Node) -> None:
        """The successor of an agent begins before it ends."""
        self.former.append(node.agent)
        stop = self.stops[node.name]
        node.agent = Process(f"rte-agent {node.name}", self.skews, node.name, self.make.seed + 1)
        self.start_agent(node.name)
        self.later(3.0, stop.set)

    async def start_kubelet(self, node: Node) -> None:
        """Start a kubelet that is down."""
        if not node.up:
            node.upset["kubelet"] = self.now()
            await node.start_kubelet()
            self.publish_slices(node)

    def heal_device(self, node: Node) -> None:
        """All devices are healthy."""
        pool = node.kubelet.state.devices.get(GPU)
        if pool is not None:
            whole = replace(pool, healthy=(1 << len(pool.ids)) - 1)
            node.kubelet._managers.set_devices({GPU: whole})
            if node.up:
                node.kubelet._register()

    def remake(self, pod: Any) -> None:
        """Delete a pod by force, and make another one of its name."""
        metadata = pod["metadata"]
        self.upset(pod["spec"].get("nodeName"), "a pod was deleted by force")
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        with suppress(StatusError):
            self.api.delete("pods", metadata["name"], "default", DeleteOptions(grace=0))
            made = {"metadata": {"name": metadata["name"], "labels": metadata.get("labels")}}
            self.api.create("pods", {**made, "spec": spec}, "default")

    def waiting_pods(self) -> int:
        """Pods that have not ended."""
        return sum(
            obj["status"].get("phase") not in ("Succeeded", "Failed")
            for _, obj in self.api.store.items("pods", namespace="default")
        )

    def upset(self, name: str | None, why: str) -> None:
        """Something happened to a node that nobody could know at once."""
        if name in self.nodes:
            self.nodes[name].upset[why] = self.now()

    def upset_of(self, process: Process, why: str) -> None:
        """Likewise, where the link of a node's process is cut."""
        for node in self.nodes.values():
            if process in (node.process, node.agent):
                node.upset[why] = process.link.until

    # --- backups ---

    def back_up(self) -> None:
        """What a restored etcd has."""
        store = self.api.store
        self._backup = (
            store.revision,
            {name: dict(table) for name, table in store._objects.items()},
            {name: list(keys) for name, keys in store._keys.items()},
        )

    def restore(self, *, bumped: bool) -> None:
        """All is as at the last backup; ``bumped``: but for the revision, which only grows."""
        store = self.api.store
        revision, objects, keys = self._backup
        store._objects = {name: dict(table) for name, table in objects.items()}
        store._keys = {name: list(names) for name, names in keys.items()}
        store.revision = store.revision + 1000 if bumped else revision
        store._history.clear()
        store.compacted = store.revision
        for watch in store.watches():
            watch.stop()
        # Who is away until versions have caught up cannot tell; operators restart such clients.
        agents = [node.agent for node in self.nodes.values()]
        for process in (*self.schedulers.values(), *agents):
            process.link = Link()
        self.api_away_until = 0.0
        for node in self.nodes.values():
            node.upset["restore"] = self.now()
        self.judge.restored()
        for seconds in (3.0, 30.0, 120.0, 200.0):
            self.later(seconds, self._tell_again)

    def _tell_again(self) -> None:
        """Kubelets tell again what has ended meanwhile (their status managers reconcile)."""
        for node in self.nodes.values():
            for record in list(node.kubelet._records.values()):
                obj = self.api.store.get("pods", ("default", record.pod.name))
                if obj is not None and not record.active:
                    with suppress(StatusError):
                        options = DeleteOptions(grace=0, uid=obj["metadata"]["uid"])
                        self.api.delete("pods", record.pod.name, "default", options)

    # --- what ends a time of trouble ---

    def heal(self) -> None:
        """Nothing is wrong any more, whatever has been done comes back by itself."""
        self.api_away_until = self.old_lists_until = 0.0
        self.skews.clear()
        everybody = [*self.schedulers.values()]
        for node in self.nodes.values():
            everybody += [node.agent, node.process]
            node.hung = False
            node.directory.late_until = node.directory.lost_until = 0.0
            self.heal_device(node)
            with suppress(StatusError):
                self.api.patch("nodes", node.name, {"spec": {"unschedulable": None}})
        for process in everybody:
            process.link = Link()
        for watch in self.api.store.watches():
            watch.stop()

    def drain(self, node: Node) -> None:
        """Take all pods from a node, and what its kubelet remembers of them."""
        for (namespace, name), pod in list(self.api.store.items("pods")):
            if pod["spec"].get("nodeName") == node.name:
                with suppress(StatusError):
                    self.api.delete("pods", name, namespace, DeleteOptions(grace=0))
        for file in node.root.rglob("*_state"):
            file.unlink()
        self.new_kubelet(node)

    def sweep_all(self) -> None:
        """Users delete all that they have made."""
        for table in ("deployments.apps", "jobs.batch", "podgroups.scheduling.k8s.io", "pods"):
            for (namespace, name), _ in list(self.api.store.items(table)):
                with suppress(StatusError):
                    self.api.delete(table, name, namespace)

    async def down(self) -> None:
        """Stop everything."""
        for task in list(self._mend):
            task.cancel()
        everybody = [
            *self.schedulers.values(), *(node.agent for node in self.nodes.values()), *self.former
        ]  # fmt: skip
        for process in (*everybody, self.control):
            process.die()
        for node in self.nodes.values():
            if node.up:
                await node.stop_kubelet()
        for process in (*everybody, self.control):
            await process.gone()
        shutil.rmtree(self.root, ignore_errors=True)


#: As a daemon has them; hardware is looked at less often, for nothing changes there.
_TIMINGS = replace(Timings(), machine=600.0)

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: world, cluster: {server: "http://world"}}]
users: [{name: world, user: {}}]
contexts: [{name: world, context: {cluster: world, user: world}}]
current-context: world
"""

logging.getLogger("asyncio").setLevel(logging.CRITICAL)
