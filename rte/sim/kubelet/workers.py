"""The life of a pod on its node, from admission until nothing of it is left."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte.k8s import podspec
from rte.model.pod import ContainerKind
from rte.sim.kubelet import claims, plans, status
from rte.sim.kubelet.writes import moment

if TYPE_CHECKING:
    from rte.sim.apiserver import API
    from rte.sim.kubelet.managers import KubeletManagers
    from rte.sim.kubelet.status import Obj
    from rte.sim.kubelet.writes import PodWriter

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


DEFAULT_TIMING = Timing()


class PodWorker:
    """A pod that a kubelet knows.

    Attributes:
        obj: as the API has it.
        active: it runs, or is about to.
        stop: set as soon as it is to stop.
        gone: the API no longer has it.
        run: what its containers have done; None before any of them was to be started.
        claimed: devices of its claims.
    """

    def __init__(self, obj: Obj, writer: PodWriter, timing: Timing) -> None:
        self.obj = obj
        self.pod = podspec.parse_pod(obj)
        self.active, self.gone = True, False
        self.stop = asyncio.Event()
        self.run: status.PodRun | None = None
        self.claimed: claims.Claimed = {}
        self._writer, self._timing = writer, timing

    async def live(self, api: API, managers: KubeletManagers) -> None:
        """From admission to the end."""
        self.run = status.restored(self.obj)
        if self.run is None:
            self.run = status.PodRun(
                moment(), {each.name: status.ContainerRun() for each in self.pod.containers}
            )
            self.report("Pending")
            if not await self._begin(api, self.run):
                await self.end()
                return
            managers.start(self.pod)
            self.report("Running")
            self._writer.event(self.obj, "Normal", "Started", "Containers started")
        else:
            self.claimed = claims.prepare(api, self.obj) or {}
        await self._run_containers(self.run)
        await self.end()

    async def _begin(self, api: API, pod: status.PodRun) -> bool:
        """Wait for claims, run init containers, start the others; False: it came to an end."""
        while (found := claims.prepare(api, self.obj)) is None:
            if await self._stopped(_PREPARE_SECONDS):
                return False
        self.claimed = found
        if not await self._initialise(pod) or self.stop.is_set():
            return False
        begun = moment()
        for container in self.pod.containers:
            if container.kind is not ContainerKind.INIT:
                pod.containers[container.name].started = begun
        return True

    async def _initialise(self, pod: status.PodRun) -> bool:
        """Run ordinary init containers one after another; False when one failed for good."""
        if await self._stopped(self._timing.start):
            return False
        for item in self.obj["spec"].get("initContainers") or ():
            run = pod.containers[item["name"]]
            run.started = moment()
            if item.get("restartPolicy") == "Always":
                continue
            plan = plans.of_container(self.obj, item)
            if await self._stopped(plan.seconds):
                return False
            run.finished, run.code = moment(), plan.code
            if plan.code and self.obj["spec"]["restartPolicy"] == "Never":
                return False
        return True

    async def _run_containers(self, pod: status.PodRun) -> None:
        """Until all app containers have ended for good, or the pod is to stop."""
        policy = self.obj["spec"]["restartPolicy"]
        ends = []
        for item in self.obj["spec"]["containers"]:
            plan = plans.of_container(self.obj, item)
            for_good = policy == "Never" or (policy == "OnFailure" and plan.code == 0)
            seconds = plan.seconds if plan.seconds is not None and for_good else math.inf
            ends.append((seconds, item["name"], plan.code))
        passed = max(0.0, pod.age(datetime.now(UTC)))
        for seconds, name, code in sorted(ends):
            if await self._stopped(None if seconds == math.inf else max(0.0, seconds - passed)):
                return
            passed = max(passed, seconds)
            pod.containers[name].finished, pod.containers[name].code = moment(), code

    async def end(self) -> None:
        """Stop what runs, let go, and only then tell the API."""
        deleting = self._is_deleted()
        if self.stop.is_set() and self.run is not None:
            grace = self.obj["metadata"].get("deletionGracePeriodSeconds") or 0
            await asyncio.sleep(min(self._timing.stop, grace))
        codes = []
        if self.run is not None:
            apps = {container["name"] for container in self.obj["spec"]["containers"]}
            for name, run in self.run.containers.items():
                if run.started and not run.finished:
                    run.finished, run.code = moment(), 0
                if name in apps or run.code:
                    codes.append(run.code)
        self.active = False
        if not self.gone:
            self.report("Failed" if any(codes) or not codes else "Succeeded")
        if not (deleting or self._is_deleted()):
            await self.stop.wait()
            if self.gone:
                return
        self._writer.delete(self.obj)

    def report(self, phase: str) -> None:
        """Tell the API how the pod is, if it came to that."""
        if self.run is not None:
            body = status.pod_status(self.obj, self.run, phase, moment())
            self.obj = self._writer.status(self.obj, body)

    def reject(self, reason: str, message: str) -> bool:
        """Tell the API that it is not admitted; False: it ran before, and has to end first."""
        self.active = False
        self._writer.event(self.obj, "Warning", reason, message)
        self.run = status.restored(self.obj)
        if self.run is not None:
            return False
        body = status.rejected(self.obj, reason, message, moment())
        self.obj = self._writer.status(self.obj, body)
        return True

    def _is_deleted(self) -> bool:
        return bool(self.obj["metadata"].get("deletionTimestamp"))

    async def _stopped(self, seconds: float | None) -> bool:
        """Wait so long (None: for ever); True as soon as the pod is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            return False
        return True
