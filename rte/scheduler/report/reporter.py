"""What users read: one event and one PodScheduled condition per verdict, not one per node."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube import retry
from rte.kube.client import STRATEGIC_PATCH
from rte.kube.lease import micro_time
from rte.kube.resources import EVENTS, PODS, Resource
from rte.scheduler.framework.objects import ObjectReference, PodView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import TypeAlias

    from rte.k8s.gang import GangKey
    from rte.kube.client import Client
    from rte.telemetry.quarantine import Bulkhead

    #: What is said of whom: UID, or path; and which part of the status.
    _Key: TypeAlias = tuple[str, str]

    #: Path and body of a patch.
    _State: TypeAlias = tuple[str, Mapping[str, Any]]

logger = logging.getLogger(__name__)

#: Writes per second in the long run, and how many may be made at once after a quiet time.
_RATE, _BURST = 200.0, 400.0

#: Writes on their way at a time.
_AT_ONCE = 8

#: Events that wait; beyond it the oldest are dropped: binds matter more than what is told of them.
_MOST_EVENTS = 20_000

#: A state that could not be written is tried again after this.
_AGAIN_S = 1.0


#: PodGroups by the condition that says whether they were scheduled: of Kubernetes 1.37, of 1.36.
POD_GROUPS = {
    "PodGroupInitiallyScheduled": Resource("scheduling.k8s.io", "v1beta1", "podgroups", True),
    "PodGroupScheduled": Resource("scheduling.k8s.io", "v1alpha2", "podgroups", True),
}


#: Reasons of the events on pods, each with its type and what it means (the documentation's table).
REASONS = {
    "Scheduled": ("Normal", "bound to a node; the note names it"),
    "FailedScheduling": ("Warning", "it waits; the note counts the nodes by reason"),
    "FailedBinding": ("Warning", "the API server did not take the bind; it is tried again"),
    "Preempted": ("Normal", "evicted for a pod of higher priority"),
    "Descheduled": ("Normal", "it is moved: its place makes room for one that has waited for long"),
    "NodeReserved": ("Normal", "a node drains towards a pod, or a gang, that has waited for long"),
    "InvalidGroups": (
        "Warning",
        "the annotation with processing groups is wrong; the note says where",
    ),
    "AllocationConflict": ("Warning", "pods hold the same CPUs or devices of processing groups"),
    "AllocationIgnored": (
        "Warning",
        "the annotation with an allocation was written by somebody else, and counts for nothing",
    ),
    "MalformedObject": (
        "Warning",
        "what the pod, or the report of the node, says cannot be read; the note says where",
    ),
    "UnpredictedAdmission": ("Warning", "the kubelet did otherwise than predicted (drift alarm)"),
    "DevicesAcrossZones": ("Warning", "its CPUs and devices are not in one zone"),
}


class Reporter:
    """Writes states (of pods, of groups) and events, a limited number each second.

    States come first, for controllers act upon them. Of several states of one object only the
    latest is written. It is tried again until the API server answers; an event is not.

    Args:
        client: the API server.
        controller: ``reportingController`` of the events.
        clock: seconds of a monotonic clock.
        first: awaited before each write: until what matters more is through.
        bulkhead: for each write.
    """

    def __init__(
        self,
        client: Client,
        controller: str,
        clock: Callable[[], float],
        first: Callable[[], Awaitable[None]],
        bulkhead: Callable[[str, str], Bulkhead],
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = socket.gethostname()
        self._clock = clock
        self._first, self._bulkhead = first, bulkhead
        self._number = 0
        self._states: dict[_Key, _State] = {}
        self._writing: set[_Key] = set()
        self._events: deque[Mapping[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._some = asyncio.Event()

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        allowance, at = _BURST, self._clock()
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._some.wait()
                await slots.acquire()
                now = self._clock()
                allowance, at = min(_BURST, allowance + (now - at) * _RATE), now
                if allowance < 1:
                    await asyncio.sleep((1 - allowance) / _RATE)
                await self._first()
                work = self._next()
                if work is None:
                    slots.release()
                    self._some.clear()
                else:
                    allowance -= 1
                    group.create_task(self._carry_out(work)).add_done_callback(
                        lambda _: slots.release()
                    )

    async def _carry_out(self, work: Coroutine[None, None, None]) -> None:
        with self._bulkhead("tasks", getattr(work, "__qualname__", "")):
            await work

    def _next(self) -> Coroutine[None, None, None] | None:
        """The next write; None: nothing waits but for what is on its way."""
        for key in self._states:
            if key not in self._writing:
                self._writing.add(key)
                return self._write_state(key, self._states.pop(key))
        return self._write_event(self._events.popleft()) if self._events else None

    def bound(self, pod: PodView) -> None:
        """The pod is about to be bound: what was to be said of its waiting is not true any more."""
        key = (pod.uid, "conditions")
        self._states.pop(key, None)
        self._writing.discard(key)

    def unschedulable(self, pod: PodView, message: str, reason: str = "FailedScheduling") -> None:
        """The pod fits nowhere at present: a condition (where it says something new), an event."""
        said, since = pod.unschedulable
        if said != message:
            condition = _condition("PodScheduled", "False", "Unschedulable", message, since)
            self._status(pod, {"conditions": [condition]})
        self.event(pod, "Warning", reason, message)

    def event(
        self,
        pod: PodView | ObjectReference,
        kind: str,
        reason: str,
        message: str,
        action: str = "Scheduling",
    ) -> None:
        """Post one event about a pod, or another object."""
        self._number += 1
        now = micro_time(datetime.now(UTC))
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {
                "name": f"{pod.name[:200]}.{pod.uid[:8]}{self._number:08x}",
                "namespace": pod.namespace,
            },
            "regarding": {
                "apiVersion": "v1",
                "kind": pod.kind if isinstance(pod, ObjectReference) else "Pod",
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
            },
            "eventTime": now,
            "type": kind,
            "reason": reason,
            "action": action,
            "note": message[:1000],
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }
        self._events.append(body)
        self._some.set()

    def nominate(self, pod: PodView, node: str) -> None:
        """Say where the pod waits for room (``status.nominatedNodeName``)."""
        self._status(pod, {"nominatedNodeName": node or None})

    def placed(self, pod: PodView, annotation: str, text: str) -> None:
        """Tell by an annotation of the pod where its containers are."""
        body = {"metadata": {"uid": pod.uid, "annotations": {annotation: text}}}
        # By way of the status: who writes there may change annotations, and nothing of the spec.
        self._put((pod.uid, annotation), PODS.path(pod.name, pod.namespace, "status"), body)

    def group(self, gang: GangKey, kind: str, status: str, reason: str, message: str) -> None:
        """Say on a PodGroup whether it was scheduled; of several only the latest is written."""
        condition = _condition(kind, status, reason, message)
        path = POD_GROUPS[kind].path(gang.name, gang.namespace, "status")
        self._put((path, kind), path, {"status": {"conditions": [condition]}})

    async def preempted(self, pod: PodView, preemptor: PodView) -> None:
        """Say on a victim why it is evicted, before it is, in kube-scheduler's words."""
        logger.debug("%s goes for %s", pod.key, preemptor.key)
        message = f"{self._controller}: preempting to accommodate a higher priority pod"
        await self.disrupt(pod, "PreemptionByScheduler", message)

    async def disrupt(self, pod: PodView, reason: str, message: str) -> None:
        """Say on a pod that it is about to end (condition DisruptionTarget).

        Without it a Job's pod failure policy cannot tell.
        """
        condition = _condition("DisruptionTarget", "True", reason, message)
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._patch(PODS.path(pod.name, pod.namespace, "status"), body)

    def _status(self, pod: PodView, status: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        key = (pod.uid, ",".join(status))
        self._put(key, PODS.path(pod.name, pod.namespace, "status"), body)

    def _put(self, key: _Key, path: str, body: Mapping[str, Any]) -> None:
        self._states[key] = (path, body)
        self._some.set()

    async def _write_state(self, key: _Key, state: _State) -> None:
        try:
            if await self._patch(*state):
                await asyncio.sleep(_AGAIN_S)
                if key in self._writing:
                    self._states.setdefault(key, state)
        finally:
            self._writing.discard(key)
        if self._states:
            self._some.set()

    async def _patch(self, path: str, body: Mapping[str, Any]) -> bool:
        """Whether it should be tried again."""
        try:
            # By the key of each condition: those of others stay.
            await self._client.patch(path, body, kind=STRATEGIC_PATCH)
        except errors.KubeError as error:
            logger.debug("the status of %s was not written: %s", path, error)
            return retry.is_transient(error)
        return False

    async def _write_event(self, body: Mapping[str, Any]) -> None:
        try:
            await self._client.create(EVENTS.path(namespace=body["metadata"]["namespace"]), body)
        except errors.KubeError as error:
            logger.debug("an event was not written: %s", error)


def _condition(
    kind: str, status: str, reason: str, message: str, since: str = ""
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
