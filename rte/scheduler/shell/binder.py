"""Carries a decision to the API server, and finds out what became of it.

A decision is in force from the moment the cluster assumes it until the API shows the pod bound, or
until the API has *said* that it is not. A request without an answer, or one that was refused, is
resolved by reading the pod back; while the pod is still unbound the **same** decision is sent
again, a few times. Then it is given up, once no request of it can be under way any more: each has a
deadline that the API server keeps (``timeout``), and a pod is bound once at most.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import tenacity

from rte import errors
from rte.kube import retry
from rte.kube.client import STRATEGIC_PATCH
from rte.kube.resources import PODS
from rte.placement.groups import allocation
from rte.scheduler.loop.messages import Bound, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.kube.client import Client
    from rte.scheduler.framework.objects import PodView

logger = logging.getLogger(__name__)

_FIRST_WAIT_S, _MOST_WAIT_S = 0.05, 1.0

#: So often a decision is sent: a webhook that is down, or a full etcd, may refuse it for hours.
_TRIES = 6

#: Requests of decisions under way at a time. Decisions come faster than an API server binds: what
#: waits for its turn, first come first served, is not sent yet, so it does not time out either.
WIDTH = 32


class Binder:
    """Sends binds.

    Args:
        client: the API server.
        left_s: asked right before each request: seconds for which we surely are the active
            replica, 0 when too few are left to begin. No request is waited for any longer.
        timeout_s: of one request.
        slots: how many requests are under way at a time (:data:`WIDTH`).
    """

    def __init__(
        self,
        client: Client,
        *,
        left_s: Callable[[], float],
        timeout_s: float,
        slots: asyncio.Semaphore,
    ) -> None:
        self._client = client
        self._left_s = left_s
        self._timeout_s = timeout_s
        self._slots = slots

    async def bind(
        self, pod: PodView, node: str, annotations: Mapping[str, str] | None = None
    ) -> Bound:
        """Bind the pod; returns when the outcome is known. ``annotations`` are put on the pod.

        An allocation among them is recorded in the pod's status before, where its author cannot
        write; a bind without one takes back what an earlier decision has recorded.
        """
        path = PODS.path(pod.name, pod.namespace, "binding")
        metadata: dict[str, Any] = {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        text = (annotations or {}).get(allocation.ANNOTATION, "")
        # What the watch has shown may be older than what an earlier decision has recorded.
        recorded, lost_until, sent = None if text else pod.recorded, 0.0, False
        clock = asyncio.get_running_loop().time

        async def send() -> Bound:
            nonlocal recorded, lost_until, sent
            ends = 0.0
            try:
                async with self._slots:
                    left = self._left_s()
                    if recorded != text and left > 0:
                        await self._record(pod, text, min(self._timeout_s, left))
                        recorded, left = text, self._left_s()
                    if left > 0:
                        timeout, sent = min(self._timeout_s, left), True
                        # The server gives up on the request then, too: it cannot bind later.
                        ends, limit = clock() + timeout, {"timeout": f"{timeout:.3f}s"}
                        await self._client.request(
                            "POST", path, body=body, params=limit, timeout_s=timeout
                        )
                        return Bound(pod.uid, Outcome.BOUND)
            except errors.KubeError as error:
                logger.warning("bind of %s to %s: %s; reading back", pod.key, node, error)
                if not error.status:
                    lost_until = max(lost_until, ends)
                known = await self.read_back(pod, node)
                if known is not None:
                    return known
                if not retry.is_transient(error) and error.status != 409:
                    return Bound(pod.uid, Outcome.REFUSED, message=str(error))
                raise
            known = await self.read_back(pod, node) if sent else None
            return known or Bound(pod.uid, Outcome.ABANDONED)

        try:
            return await tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(_TRIES),
                wait=retry.wait(_FIRST_WAIT_S, _MOST_WAIT_S),
                retry=tenacity.retry_if_exception_type(errors.KubeError),
                reraise=True,
            )(send)
        except errors.KubeError as error:
            message = f"{error} ({_TRIES} tries)"
        known = None
        if lost_until:
            await asyncio.sleep(max(0.0, lost_until - clock()))
            known = await self.read_back(pod, node)
        return known or Bound(pod.uid, Outcome.FAILED, message=message)

    async def _record(self, pod: PodView, text: str, timeout_s: float) -> None:
        """Write the allocation into the pod's status; the UID guards against a namesake."""
        condition = {
            "type": allocation.CONDITION,
            "status": "True" if text else "False",
            "reason": "Decided" if text else "Undecided",
            "message": text,
        }
        await self._client.request(
            "PATCH",
            PODS.path(pod.name, pod.namespace, "status"),
            body={"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
            content_type=STRATEGIC_PATCH,
            timeout_s=timeout_s,
        )

    async def read_back(self, pod: PodView, node: str) -> Bound | None:
        """What the API says of the pod, however long it takes to answer; None: it is unbound."""
        path = PODS.path(pod.name, pod.namespace)
        try:
            found = await retry.until_answered(
                lambda: self._client.get(path), _FIRST_WAIT_S, _MOST_WAIT_S
            )
        except errors.KubeError as error:
            gone = error.status == 404
            return Bound(pod.uid, Outcome.GONE if gone else Outcome.REFUSED, message=str(error))
        return _judge(found, pod, node)


def _judge(found: Mapping[str, Any], pod: PodView, node: str) -> Bound | None:
    metadata = found.get("metadata") or {}
    if metadata.get("uid") != pod.uid:
        return Bound(pod.uid, Outcome.GONE)
    where = (found.get("spec") or {}).get("nodeName")
    if where:
        outcome = Outcome.BOUND if where == node else Outcome.ELSEWHERE
        return Bound(pod.uid, outcome, found)
    if metadata.get("deletionTimestamp"):
        return Bound(pod.uid, Outcome.GONE, found)
    return None
