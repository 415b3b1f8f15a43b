"""Pods that were refused to kube-scheduler, and how they are woken when a place appears."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors
from rte.kube.resources import PODS
from rte.scheduler.plugins import preemption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rte.kube.client import Client
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.shell.service import Scheduler

logger = logging.getLogger(__name__)

#: Touched to wake a pod that waits in kube-scheduler.
WAKE_ANNOTATION = "topology.rte.dev/place-appeared"


@dataclass
class _Refusal:
    """A pod that was refused.

    Attributes:
        pod: as kube-scheduler sent it first.
        seen: the cluster's sequence number at that time.
        offered: nodes that kube-scheduler has offered for it since it was let through last.
        unsettled: one of them whose pods in flight have to be confirmed before it can preempt.
    """

    pod: PodView
    seen: int = 0
    offered: set[str] = field(default_factory=set)
    unsettled: str = ""


class Wakeups:
    """One record for each pod that was refused.

    Args:
        scheduler: whose cluster is looked at.
        client: the API server.
        fits: whether the node of that name takes the pod now.
    """

    def __init__(
        self, scheduler: Scheduler, client: Client, fits: Callable[[str, PodView], bool]
    ) -> None:
        self._scheduler = scheduler
        self._client = client
        self._fits = fits
        self._refused: dict[str, _Refusal] = {}
        self._number = 0

    def refused(self, pod: PodView, offered: Iterable[str], unsettled: str = "") -> None:
        """The pod was refused on these nodes, all that were offered."""
        refusal = self._refused.setdefault(pod.uid, _Refusal(pod))
        refusal.seen = self._scheduler.cluster.sequence
        refusal.offered.update(offered)
        refusal.unsettled = unsettled or refusal.unsettled

    def passed(self, uid: str) -> None:
        """The pod was let through."""
        self._refused.pop(uid, None)

    def look(self) -> None:
        """Wake pods that fit now on a node that was offered; for after each change."""
        cluster = self._scheduler.cluster
        for uid, refusal in list(self._refused.items()):
            if not self.is_waiting(refusal.pod) or uid in cluster.assumed:
                self._refused.pop(uid)
                continue
            pod = cluster.pods.get(uid, refusal.pod)
            changed = cluster.changed_since(refusal.seen)
            refusal.seen = cluster.sequence
            if any(self._helps(pod, refusal, entry) for entry in changed):
                self._refused.pop(uid)
                self.wake(pod)

    def wake(self, pod: PodView) -> None:
        """Have kube-scheduler try the pod again."""
        self._scheduler.spawn(self._touch(pod))

    def is_waiting(self, pod: PodView) -> bool:
        """Whether the pod still waits for a node, or is newer than what the watch has told."""
        known = self._scheduler.cluster.pods.get(pod.uid)
        if known is None:
            return self._scheduler.feeds.pods_seen < pod.version
        return not (known.node or known.deleting)

    def _helps(self, pod: PodView, refusal: _Refusal, entry: NodeEntry) -> bool:
        return (
            entry.info is not None
            and entry.name in refusal.offered
            and (
                self._fits(entry.name, pod)
                or (entry.name == refusal.unsettled and preemption.is_settled(entry))
            )
        )

    async def _touch(self, pod: PodView) -> None:
        self._number += 1
        body = {"metadata": {"uid": pod.uid, "annotations": {WAKE_ANNOTATION: str(self._number)}}}
        try:
            await self._client.patch(PODS.path(pod.name, pod.namespace), body)
        except errors.KubeError as error:
            logger.debug("%s was not woken: %s", pod.key, error)
