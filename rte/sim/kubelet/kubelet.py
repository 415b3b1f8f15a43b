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
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import yaml

from rte import accounting, placement
from rte.k8s import podspec, wire
from rte.kubelet import config as kubelet_config
from rte.model.kubelet import KubeletView
from rte.placement.kubelet import releases
from rte.sim.apiserver import Query, StatusError
from rte.sim.apiserver.storage.selectors import FieldRequirement
from rte.sim.apiserver.verbs import changing
from rte.sim.kubelet import plans, predicates, status, views
from rte.sim.kubelet.files import StateDir
from rte.sim.kubelet.managers import KubeletManagers
from rte.sim.kubelet.workers import DEFAULT_TIMING, PodWorker, Timing
from rte.sim.kubelet.writes import PodWriter, moment

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
        timing: Timing = DEFAULT_TIMING,
        execute: Execute = placement.execute,
    ) -> None:
        self.name = name
        self.machine = machine
        self.document = dict(document)
        self.version = version
        self.root = root
        self.epoch = ""
        self._api = api
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
        self._records: dict[str, PodWorker] = {}
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
        from rte.sim.kubelet import sockets  # only where there are any: the model needs none

        self._port = await sockets.serve(self, root / _SOCKET, stack)

    # What it tells.

    @property
    def state(self) -> NodeState:
        """What the managers hold now, stale entries included."""
        return self._managers.state

    @property
    def socket(self) -> Path | None:
        """The podresources socket."""
        return None if self.root is None else self.root / _SOCKET

    def pods(self) -> list[Obj]:
        """The pods that it knows, as the API has them."""
        return [record.obj for record in self._records.values()]

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
        }
        node = {
            "metadata": {"name": self.name, "labels": labels},
            "status": status.node_status(capacity, allocatable, self.version, self._port, moment()),
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
            left = {wire.kubelet_uid(obj["metadata"]) for _, obj in found}
            for uid in [uid for uid in self._records if uid not in left]:
                self._gone(self._records[uid].obj)
            self._admit_new(obj for _, obj in found)

    def _admit_new(self, objects: Iterable[Obj]) -> None:
        for obj in sorted(objects, key=_created):
            metadata = obj["metadata"]
            record = self._records.get(wire.kubelet_uid(metadata))
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
                if wire.kubelet_uid(obj["metadata"]) in self.state.admitted
                and obj["status"].get("phase") not in ("Succeeded", "Failed")
            ),
            self.version,
        )

    def _admit(self, obj: Obj) -> PodWorker:
        record = PodWorker(obj, PodWriter(self._api, self.name), self._timing)
        uid = record.pod.uid
        self._records[uid] = record
        if obj["metadata"].get("deletionTimestamp"):
            self._spawn(record.end(), f"end of {record.pod.name}")
            return record
        refusal = self._ask_handlers(record)
        if refusal is not None:
            self._managers.refuse(uid)
            self._refuse(record, refusal)
            return record
        self._allocated[uid] = obj["spec"]
        if self._files is not None:
            self._files.write_allocated_pods(self._allocated)
        self._spawn(record.live(self._api, self._managers), record.pod.name)
        return record

    def _ask_handlers(self, record: PodWorker) -> predicates.KubeletRefusal | None:
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

    def _refuse(self, record: PodWorker, refusal: predicates.KubeletRefusal) -> None:
        self.refusals.append((record.pod.name, refusal.reason))
        if not record.reject(refusal.reason, refusal.message):
            self._spawn(record.end(), f"end of {record.pod.name}")

    def _gone(self, obj: Obj) -> None:
        """The API no longer has the pod: nothing is left to tell."""
        record = self._records.pop(wire.kubelet_uid(obj["metadata"]), None)
        if record is not None:
            record.active, record.gone = False, True
            record.stop.set()

    def _active(self) -> frozenset[str]:
        return frozenset(uid for uid, record in self._records.items() if record.active)

    def _active_pods(self) -> list[Pod]:
        return [record.pod for record in self._records.values() if record.active]

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


def _created(obj: Obj) -> str:
    return str(obj["metadata"]["creationTimestamp"])
