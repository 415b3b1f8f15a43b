"""What users read: one event and one PodScheduled condition per verdict, not one per node."""

from __future__ import annotations

import logging
import socket
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube.lease import micro_time
from rte.kube.resources import EVENTS, PODS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping

    from rte.kube.client import Client
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shape

logger = logging.getLogger(__name__)

#: A verdict that stays the same is said again after so long (events of the API expire after 1 h).
REPEAT_S = 300.0

_MOST_REMEMBERED = 20_000


def summary(counts: Counter[str], zones: str = "") -> str:
    """A verdict in kube-scheduler's form: ``0/5 nodes are available: 3 Insufficient cpu, 2 …``."""
    total = sum(counts.values())
    if not total:
        return "no nodes available to schedule pods"
    parts = [f"{number} {reason}" for reason, number in sorted(counts.items()) if reason]
    text = f"0/{total} nodes are available: {', '.join(parts)}."
    return f"{text} {zones}" if zones else text


def zone_summary(shape: Shape, entries: Iterable[NodeEntry]) -> str:
    """Why zones do not do, counted over all zones of these nodes; empty where that is unknown."""
    cpus = max(shape.exclusive_cpus, default=0)
    memory = max((box.requests.get("memory", 0) for box in shape.pod.containers), default=0)
    zones = short = low = both = 0
    largest = 0
    for entry in entries:
        for _, free, left in entry.free_by_zone() or ():
            zones += 1
            largest = max(largest, free)
            few, little = free < cpus, left < memory
            both += few and little
            short += few and not little
            low += little and not few
    if not zones or not cpus:
        return ""
    return (
        f"Of {zones} NUMA zones {short} lack CPUs, {low} lack memory, {both} lack both for the "
        f"largest container ({cpus} CPUs); the largest free zone has {largest} CPUs."
    )


class Reporter:
    """Writes events and conditions; failures are logged, never raised: they must not hold up work.

    Args:
        client: the API server.
        controller: ``reportingController`` of the events.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, client: Client, controller: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._controller = controller
        self._instance = socket.gethostname()
        self._clock = clock
        self._said: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._number = 0

    async def unschedulable(self, pod: PodView, message: str) -> None:
        """The pod fits nowhere at present."""
        if not self._is_news(pod.uid, message):
            return
        await self._condition(pod, message)
        await self.event(pod, "Warning", "FailedScheduling", message)

    async def scheduled(self, pod: PodView, node: str) -> None:
        """The pod was bound."""
        self._said.pop(pod.uid, None)
        message = f"Successfully assigned {pod.key} to {node}"
        await self.event(pod, "Normal", "Scheduled", message, action="Binding")

    async def event(
        self, pod: PodView, kind: str, reason: str, message: str, action: str = "Scheduling"
    ) -> None:
        """Post one event about a pod."""
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
                "kind": "Pod",
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
        try:
            await self._client.create(EVENTS.path(namespace=pod.namespace), body)
        except errors.KubeError as error:
            logger.debug("event %s of %s was not written: %s", reason, pod.key, error)

    async def nominate(self, pod: PodView, node: str) -> None:
        """Say where the pod waits for room (``status.nominatedNodeName``)."""
        await self._patch(pod, {"nominatedNodeName": node or None})

    def forget(self, uid: str) -> None:
        """The pod is gone or placed."""
        self._said.pop(uid, None)

    def _is_news(self, uid: str, message: str) -> bool:
        now = self._clock()
        said, since = self._said.get(uid, ("", 0.0))
        if said == message and now - since < REPEAT_S:
            return False
        self._said[uid] = (message, now)
        self._said.move_to_end(uid)
        if len(self._said) > _MOST_REMEMBERED:
            self._said.popitem(last=False)
        return True

    async def _condition(self, pod: PodView, message: str) -> None:
        others = [item for item in pod.conditions if item.get("type") != "PodScheduled"]
        old: Mapping[str, Any] = next(
            (item for item in pod.conditions if item.get("type") == "PodScheduled"), {}
        )
        if old.get("message") == message and old.get("status") == "False":
            return
        since = old.get("lastTransitionTime") if old.get("status") == "False" else None
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        await self._patch(pod, {"conditions": [*others, condition]})

    async def _patch(self, pod: PodView, status: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        try:
            await self._client.patch(PODS.path(pod.name, pod.namespace, "status"), body)
        except errors.KubeError as error:
            logger.debug("status of %s was not written: %s", pod.key, error)
