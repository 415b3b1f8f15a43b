"""Carries evictions out: says on each victim why, then deletes it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import tenacity

from rte import errors
from rte.kube import retry
from rte.kube.resources import PODS
from rte.scheduler.loop.messages import Evicted, Moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.kube.client import Client
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.messages import Evict, EvictPod, ReleaseGang
    from rte.scheduler.report.reporter import Reporter

logger = logging.getLogger(__name__)

#: An eviction without an answer is sent again.
_TRIES, _PAUSE_S = 3, 0.1


class Evictor:
    """Evicts pods.

    Args:
        client: the API server.
        reporter: writes the condition.
        may_write: asked right before each pod of a gang is released.
        may_evict: (UID of the pod that waits) asked right before each victim.
    """

    def __init__(
        self,
        client: Client,
        reporter: Reporter,
        may_write: Callable[[], bool],
        may_evict: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._may_write = may_write
        self._may_evict = may_evict

    async def evict(self, wanted: Evict) -> Evicted:
        """Evict all victims; after a failure the rest would be evicted in vain."""
        going: list[PodView] = []
        for victim in wanted.victims:
            if not self._may_evict(wanted.pod.uid) or not await self._preempt(victim, wanted.pod):
                return Evicted(wanted.pod.uid, tuple(going), complete=False)
            logger.info("evicted %s from %s for %s", victim.key, wanted.node, wanted.pod.key)
            going.append(victim)
        return Evicted(wanted.pod.uid, tuple(going), complete=True)

    async def release(self, wanted: ReleaseGang) -> None:
        """Delete the pods of a gang that cannot be completed, as far as that is possible."""
        for pod in wanted.pods:
            if self._may_write():
                await self._reporter.disrupt(pod, "GangReleased", wanted.message)
                await self._delete(pod, self._may_write)

    async def move(self, wanted: EvictPod) -> Moved:
        """Evict a pod that its controller creates again; disruption budgets are not waited for."""
        pod = wanted.pod
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        if not self._may_evict(wanted.uid):
            return Moved(wanted.uid, done=False)
        try:
            await self._client.create(PODS.path(pod.name, pod.namespace, "eviction"), body)
        except errors.KubeError as error:
            logger.warning("%s cannot be moved: %s", pod.key, error)
            return Moved(wanted.uid, done=error.status in (404, 409))
        return Moved(wanted.uid, done=True)

    async def _preempt(self, victim: PodView, preemptor: PodView) -> bool:
        await self._reporter.preempted(victim, preemptor)
        return await self._delete(victim, lambda: self._may_evict(preemptor.uid))

    async def _delete(self, victim: PodView, may_go_on: Callable[[], bool]) -> bool:
        """Whether the pod is gone or going; sent again while that is not known."""
        options = {"preconditions": {"uid": victim.uid}}

        async def send() -> bool:
            if may_go_on():
                await self._client.delete(PODS.path(victim.name, victim.namespace), options)
                return True
            return False

        try:
            return await tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(_TRIES),
                wait=retry.wait(_PAUSE_S, _PAUSE_S),
                retry=tenacity.retry_if_exception(retry.is_transient),
                reraise=True,
            )(send)
        except errors.KubeError as error:
            if error.status in (404, 409):
                return True
            logger.warning("%s cannot be evicted: %s", victim.key, error)
            return False
