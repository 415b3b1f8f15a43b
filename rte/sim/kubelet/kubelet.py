"""A kubelet without containers: takes pods from the API, admits them, writes status back.

What is a real kubelet's here: the order of admission, the managers' answers and files, the other
predicates, podresources, configz, Node, Lease, status and events of refusals, graceful deletion,
and that the API shows a pod terminal or gone only after its resources were let go. What is not:
static pods, probes, resizing, eviction, pre-emption for critical pods, back-off of crashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import yaml
from aiohttp import web

from rte import accounting, placement
from rte.k8s import podspec
from rte.kubelet import config as kubelet_config
from rte.model.kubelet import KubeletView
from rte.model.pod import ContainerKind
from rte.placement.kubelet import releases
from rte.sim.apiserver import DeleteOptions, Query, StatusError
from rte.sim.apiserver.storage.selectors import FieldRequirement
from rte.sim.apiserver.verbs import changing
from rte.sim.kubelet import claims, plans, predicates, status, views
from rte.sim.kubelet.files import StateDir
from rte.sim.kubelet.managers import KubeletManagers
from rte.sim.kubelet.podresources import PodresourcesServer as PodResourcesServer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from pathlib import Path

    from rte.model.kubelet import Allocatable, ListedPod
    from rte.model.machine import Machine
    from rte.model.node import DevicePool, NodeState
    from rte.model.pod import Pod
    from rte.placement import Admission
    from rte.sim.apiserver import API
    from rte.sim.apiserver.storage.store import Watch
    from rte.sim.kubelet.managers import Execute

Obj = dict[str, Any]
_LEASES = "leases.coordination.k8s.io"
_LEASE_NAMESPACE = "kube-node-lease"
_SOCKET = "pod-resources/kubelet.sock"

#: Between looks whether the claims of a pod are ready for it.
_PREPARE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds.

    Attributes:
        start: from admission until the containers run (a runtime's work).
        stop: from the order to stop until the containers have ended, the grace period at most.
        lease: between renewals of the node's Lease.
        housekeeping: between looks for pods that are gone from the API.
    """

    start: float = 0.0
    stop: float = 0.0
    lease: float = 10.0
    housekeeping: float = 2.0


@dataclass(eq=False)
class _Record:
    """A pod that this kubelet knows. ``active``: it runs, or is about to."""

    obj: Obj
    pod: Pod
    active: bool = True
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    run: status.PodRun | None = None
    claimed: claims.Claimed = field(default_factory=dict)


class Kubelet:
    """See the module; an asynchronous context manager, or :meth:`start` and :meth:`stop`.

    Args:
        api: the API that it serves.
        name: node name.
        machine: the hardware.
        document: its KubeletConfiguration (v1beta1), as configz would show it.
        devices: device plugins' devices by resource.
        version: kubelet version; decides which admission rules hold.
        root: directory for state files and sockets; None: neither files nor sockets.
        labels: further labels of the Node.
        timing: how long things take.
        execute: which of the possible answers it gives; a real kubelet picks devices at random.

    Raises:
        errors.KubeletStartError: a kubelet with this configuration would not start on this machine.
        errors.KubeletError: bad configuration, or no rules for this version.
    """

    def __init__(  # noqa: PLR0913 - what a kubelet is given, all by name
        self,
        api: API,
        name: str,
        machine: Machine,
        document: Mapping[str, Any],
        *,
        devices: Mapping[str, DevicePool] | None = None,
        version: str = releases.NEWEST,
        root: Path | None = None,
        labels: Mapping[str, str] | None = None,
        timing: Timing = Timing(),
        execute: Execute = placement.execute,
    ) -> None:
        self.name = name
        self.machine = machine
        self.document = dict(document)
        self.version = version
        self.root = root
        self.epoch = ""
        self._api = api
        self._labels = dict(labels or {})
        self._timing = timing
        memory = machine.memory_bytes or sum(zone.memory_bytes for zone in machine.zones)
        self.config = kubelet_config.effective(
            self.document, memory_bytes=memory, where=f"kubelet of {name}"
        )
        initial = placement.initial_state(
            accounting.kubelet_topology(machine), self.config, devices or {}, version
        )
        self._files = StateDir(root) if root is not None else None
        self._managers = KubeletManagers(initial, self._files, execute)
        self._records: dict[str, _Record] = {}
        self._allocated: dict[str, Obj] = {}
        self._answers: dict[str, Admission] = {}
        self._process: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._port = 0
        self.refusals: list[tuple[str, str]] = []
        """(pod name, reason) of every pod that was refused."""

    # Life of the process.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start, or start again with the state that is left: a new socket, all pods re-admitted.

        Raises:
            errors.KubeletStartError: it does not start on that state.
        """
        ready = asyncio.Event()
        process = asyncio.create_task(self._run(ready), name=f"kubelet {self.name}")
        started = asyncio.create_task(ready.wait())
        await asyncio.wait((started, process), return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            started.cancel()
            await process
        self._process = process

    async def stop(self) -> None:
        """Die at once: pods go on as far as the API can see, holdings stay in the files."""
        process, self._process = self._process, None
        if process is not None:
            process.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await process

    async def restart(self, version: str = "") -> None:
        """:meth:`stop` and :meth:`start`, as another version if one is given."""
        await self.stop()
        self.version = version or self.version
        await self.start()

    async def _run(self, ready: asyncio.Event) -> None:
        self.epoch = secrets.token_hex(4)
        self._managers.state = replace(self._managers.state, epoch=self.epoch)
        self._records.clear()
        async with AsyncExitStack() as stack:
            watch = self._api.watch("pods", self._own_pods())
            stack.callback(watch.stop)
            found = [obj for _, obj in watch.pending()]
            self._answers = dict(self._readmit(found))
            if self.root is not None:
                (self.root / "config.yaml").write_text(yaml.safe_dump(self._document()))
                await self._serve(self.root, stack)
            self._register()
            async with asyncio.TaskGroup() as self._group:
                self._admit_new(found)
                self._spawn(self._follow(watch), "pods")
                self._spawn(self._renew_lease(), "lease")
                self._spawn(self._reconcile(), "reconcile")
                self._spawn(self._keep_house(), "housekeeping")
                ready.set()

    def _document(self) -> Obj:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            **self.document,
        }

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        if self._group is None:
            work.close()
            return
        self._group.create_task(work, name=f"{self.name}: {what}")

    async def _serve(self, root: Path, stack: AsyncExitStack) -> None:
        server = PodResourcesServer(root / _SOCKET, self)
        await server.start()
        stack.push_async_callback(server.stop)
        app = web.Application()
        app.router.add_get("/configz", self._configz)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/pods", self._pods)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, status.HOST, 0).start()
        self._port = runner.addresses[0][1]

    async def _configz(self, _request: web.Request) -> web.Response:
        return web.json_response({"kubeletconfig": self.document})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _pods(self, _request: web.Request) -> web.Response:
        items = [record.obj for record in self._records.values()]
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "items": items})

    # What it tells.

    @property
    def state(self) -> NodeState:
        """What the managers hold now, stale entries included."""
        return self._managers.state

    @property
    def socket(self) -> Path | None:
        """The podresources socket."""
        return None if self.root is None else self.root / _SOCKET

    def listed(self) -> tuple[ListedPod, ...]:
        """Podresources ``List``."""
        claimed = {record.pod.uid: record.claimed for record in self._records.values()}
        return views.listed_pods(self.state, self._active_pods(), claimed)

    def allocatable(self) -> Allocatable:
        """Podresources ``GetAllocatableResources``."""
        return views.allocatable(self.state)

    def view(self) -> KubeletView:
        """All that it says, without files and sockets (for scale tests)."""
        return KubeletView(
            config=self.config,
            version=self.version,
            epoch=self.epoch,
            cpu=views.cpu_state(self.state),
            memory=views.memory_state(self.state),
            allocated=views.allocated_pods(
                record.pod for uid, record in self._records.items() if uid in self._allocated
            ),
            devices=self._managers.checkpoint if self.state.devices else None,
            pods=self.listed(),
            allocatable=self.allocatable(),
        )

    def set_devices(self, devices: Mapping[str, DevicePool]) -> None:
        """Device plugins registered, or devices changed their health."""
        self._managers.set_devices(devices)
        self._register()

    # The Node and its Lease.

    def _register(self) -> None:
        capacity, allocatable = self._totals()
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            **self._labels,
        }
        node = {
            "metadata": {"name": self.name, "labels": labels},
            "status": status.node_status(capacity, allocatable, self.version, self._port, _now()),
        }
        try:
            self._api.create("nodes", node)
        except StatusError as error:
            if error.status != 409:
                raise
            self._api.patch(
                "nodes",
                self.name,
                {"status": node["status"]},
                content_type=changing.STRATEGIC_PATCH,
                subresource="status",
            )

    def _totals(self) -> tuple[dict[str, int], dict[str, int]]:
        return status.totals(self.machine, self.config, self.state.devices)

    async def _renew_lease(self) -> None:
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now}
            try:
                self._api.patch(_LEASES, self.name, {"spec": spec}, _LEASE_NAMESPACE)
            except StatusError as error:
                if error.status != 404:
                    raise
                lease = {"metadata": {"name": self.name}, "spec": spec}
                self._api.create(_LEASES, lease, _LEASE_NAMESPACE)
            await asyncio.sleep(self._timing.lease)

    # Pods.

    def _own_pods(self) -> Query:
        return Query(fields=(FieldRequirement("spec.nodeName", equal=True, value=self.name),))

    async def _follow(self, watch: Watch) -> None:
        while True:
            async for kind, obj in watch:
                if kind == "DELETED":
                    self._gone(obj)
                else:
                    self._admit_new([obj])
            watch = self._api.watch("pods", self._own_pods())  # it was cut off: all anew
            found = watch.pending()
            left = {podspec.kubelet_uid(obj["metadata"]) for _, obj in found}
            for uid in [uid for uid in self._records if uid not in left]:
                self._gone(self._records[uid].obj)
            self._admit_new(obj for _, obj in found)

    def _admit_new(self, objects: Iterable[Obj]) -> None:
        for obj in sorted(objects, key=_created):
            metadata = obj["metadata"]
            record = self._records.get(podspec.kubelet_uid(metadata))
            if record is not None:
                record.obj = obj
            elif obj["status"].get("phase") not in ("Succeeded", "Failed"):
                record = self._admit(obj)
            if record is not None and metadata.get("deletionTimestamp"):
                record.stop.set()

    def _readmit(self, objects: Iterable[Obj]) -> Mapping[str, Admission]:
        """What the managers make of the pods that ran when the kubelet ended."""
        if not self.state.admitted:
            return {}
        return self._managers.restart(
            (
                podspec.parse_pod(obj)
                for obj in sorted(objects, key=_created)
                if podspec.kubelet_uid(obj["metadata"]) in self.state.admitted
                and obj["status"].get("phase") not in ("Succeeded", "Failed")
            ),
            self.version,
        )

    def _admit(self, obj: Obj) -> _Record:
        record = _Record(obj, podspec.parse_pod(obj))
        uid = record.pod.uid
        self._records[uid] = record
        if obj["metadata"].get("deletionTimestamp"):
            self._spawn(self._end(record), f"end of {record.pod.name}")
            return record
        refusal = self._ask_handlers(record)
        if refusal is not None:
            record.active = False
            self._managers.refuse(uid)
            self._refuse(record, refusal)
            return record
        self._allocated[uid] = obj["spec"]
        if self._files is not None:
            self._files.write_allocated_pods(self._allocated)
        self._spawn(self._live(record), record.pod.name)
        return record

    def _ask_handlers(self, record: _Record) -> predicates.KubeletRefusal | None:
        admission = self._answers.pop(record.pod.uid, None)
        if admission is None:
            admission = self._managers.admit(record.pod, self._active())
        if not admission.admitted:
            return predicates.KubeletRefusal(admission.reason, admission.message)
        others = [
            other.obj for other in self._records.values() if other.active and other is not record
        ]
        _, allocatable = self._totals()
        for name, pool in self.state.devices.items():
            # Pods that hold devices are never refused for devices (UpdatePluginResources).
            allocatable[name] = max(allocatable[name], len(pool.ids))
        return predicates.check(record.obj, others, self._api.get("nodes", self.name), allocatable)

    def _refuse(self, record: _Record, refusal: predicates.KubeletRefusal) -> None:
        self.refusals.append((record.pod.name, refusal.reason))
        self._event(record, "Warning", refusal.reason, refusal.message)
        record.run = status.restored(record.obj)
        if record.run is None:
            body = status.rejected(record.obj, refusal.reason, refusal.message, _now())
            self._write_status(record, body)
        else:  # it ran before a restart: its containers are stopped, and how they end is told
            self._spawn(self._end(record), f"end of {record.pod.name}")

    def _gone(self, obj: Obj) -> None:
        """The API no longer has the pod: nothing is left to tell."""
        record = self._records.pop(podspec.kubelet_uid(obj["metadata"]), None)
        if record is not None:
            record.active = False
            record.stop.set()

    def _active(self) -> frozenset[str]:
        return frozenset(uid for uid, record in self._records.items() if record.active)

    def _active_pods(self) -> list[Pod]:
        return [record.pod for record in self._records.values() if record.active]

    async def _live(self, record: _Record) -> None:
        """From admission to the end."""
        record.run = status.restored(record.obj)
        if record.run is not None:
            record.claimed = claims.prepare(self._api, record.obj) or {}
        else:
            names = [container.name for container in record.pod.containers]
            containers = {name: status.ContainerRun() for name in names}
            record.run = status.PodRun(_now(), containers)
            self._report(record, "Pending")
            while (found := claims.prepare(self._api, record.obj)) is None:
                if await _stopped(record, _PREPARE_SECONDS):
                    await self._end(record)
                    return
            record.claimed = found
            failed = await self._initialise(record, record.run)
            if failed or record.stop.is_set():
                await self._end(record)
                return
            begun = _now()
            for container in record.pod.containers:
                if container.kind is not ContainerKind.INIT:
                    containers[container.name].started = begun
            self._managers.start(record.pod)
            self._report(record, "Running")
            self._event(record, "Normal", "Started", "Containers started")
        await self._run_containers(record, record.run)
        await self._end(record)

    async def _initialise(self, record: _Record, pod: status.PodRun) -> bool:
        """Run ordinary init containers one after another; True when one failed for good."""
        if await _stopped(record, self._timing.start):
            return False
        for item in record.obj["spec"].get("initContainers") or ():
            run = pod.containers[item["name"]]
            run.started = _now()
            if item.get("restartPolicy") == "Always":
                continue
            plan = plans.of_container(record.obj, item)
            if await _stopped(record, plan.seconds):
                return False
            run.finished, run.code = _now(), plan.code
            if plan.code and record.obj["spec"]["restartPolicy"] == "Never":
                return True
        return False

    async def _run_containers(self, record: _Record, pod: status.PodRun) -> None:
        """Until all app containers have ended for good, or the pod is to stop."""
        policy = record.obj["spec"]["restartPolicy"]
        ends = []
        for item in record.obj["spec"]["containers"]:
            plan = plans.of_container(record.obj, item)
            if plan.seconds is not None and (
                policy == "Never" or (policy == "OnFailure" and plan.code == 0)
            ):
                ends.append((plan.seconds, item["name"], plan.code))
            else:
                ends.append((float("inf"), item["name"], 0))
        passed = max(0.0, pod.age(datetime.now(UTC)))
        for seconds, name, code in sorted(ends):
            wait = None if seconds == float("inf") else max(0.0, seconds - passed)
            if await _stopped(record, wait):
                return
            passed = max(passed, seconds)
            run = pod.containers[name]
            run.finished, run.code = _now(), code

    async def _end(self, record: _Record) -> None:
        """Stop what runs, let go, and only then tell the API."""
        metadata = record.obj["metadata"]
        deleting = bool(metadata.get("deletionTimestamp"))
        if record.stop.is_set() and record.run is not None:
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            await asyncio.sleep(min(self._timing.stop, grace))
        codes = []
        if record.run is not None:
            apps = {container["name"] for container in record.obj["spec"]["containers"]}
            for name, run in record.run.containers.items():
                if run.started and not run.finished:
                    run.finished, run.code = _now(), 0
                if name in apps or run.code:
                    codes.append(run.code)
        record.active = False
        phase = "Failed" if any(codes) or not codes else "Succeeded"
        if record.run is not None and record.pod.uid in self._records:
            self._report(record, phase)
        if deleting or record.obj["metadata"].get("deletionTimestamp"):
            self._delete(record)
        else:
            await record.stop.wait()
            if record.pod.uid in self._records:
                self._delete(record)

    def _report(self, record: _Record, phase: str) -> None:
        if record.run is not None:
            self._write_status(record, status.pod_status(record.obj, record.run, phase, _now()))

    def _write_status(self, record: _Record, body: Obj) -> None:
        metadata = record.obj["metadata"]
        try:
            record.obj = self._api.patch(
                "pods",
                metadata["name"],
                {"metadata": {"uid": metadata["uid"]}, "status": body},
                metadata["namespace"],
                content_type=changing.STRATEGIC_PATCH,
                subresource="status",
            )
        except StatusError as error:
            if error.status not in (404, 409, 422):  # gone, or another pod of the same name
                raise

    def _delete(self, record: _Record) -> None:
        metadata = record.obj["metadata"]
        options = DeleteOptions(grace=0, uid=metadata["uid"])
        try:
            self._api.delete("pods", metadata["name"], metadata["namespace"], options)
        except StatusError as error:
            if error.status not in (404, 409):  # gone already
                raise

    def _event(self, record: _Record, kind: str, reason: str, message: str) -> None:
        metadata = record.obj["metadata"]
        now = _now()
        event = {
            "metadata": {"name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}"},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self.name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "reportingComponent": "kubelet",
            "reportingInstance": self.name,
        }
        try:
            self._api.create("events", event, metadata["namespace"])
        except StatusError as error:
            if error.status not in (403, 404):  # the namespace is being deleted
                raise

    # Housekeeping.

    async def _reconcile(self) -> None:
        text = str(self.document.get("cpuManagerReconcilePeriod") or "10s")
        period = plans.parse_span(text) or 10.0
        while True:
            await asyncio.sleep(period)
            self._managers.reconcile(self._active())

    async def _keep_house(self) -> None:
        """Pods that are gone from the API leave the allocation; its file follows with the next."""
        while True:
            await asyncio.sleep(self._timing.housekeeping)
            for uid in [uid for uid in self._allocated if uid not in self._records]:
                del self._allocated[uid]


async def _stopped(record: _Record, seconds: float | None) -> bool:
    """Wait so long (None: for ever); True as soon as the pod is to stop."""
    try:
        async with asyncio.timeout(seconds):
            await record.stop.wait()
    except TimeoutError:
        return False
    return True


def _created(obj: Obj) -> str:
    return str(obj["metadata"]["creationTimestamp"])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
