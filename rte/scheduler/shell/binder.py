"""Carries a decision to the API server, and finds out what became of it.

A decision is in force from the moment the cluster assumes it until the API shows the pod bound, or
until the API has *said* that it is not. A request without an answer, or one that was refused, is
resolved by reading the pod back; while the pod is still unbound the **same** decision is sent
again. The API server binds a pod once at most, so a late request can do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube import retry
from rte.kube.resources import PODS
from rte.scheduler.loop.messages import Bound, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.kube.client import Client
    from rte.scheduler.framework.objects import PodView

logger = logging.getLogger(__name__)

_FIRST_WAIT_S, _MOST_WAIT_S = 0.05, 1.0

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
        """Bind the pod; returns when the outcome is known. ``annotations`` are put on the pod."""
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
        wait, sent = _FIRST_WAIT_S, False
        while True:
            try:
                async with self._slots:
                    left = self._left_s()
                    if left <= 0:
                        break
                    timeout, sent = min(self._timeout_s, left), True
                    await self._client.request("POST", path, body=body, timeout_s=timeout)
            except errors.KubeError as error:
                logger.warning("bind of %s to %s: %s; reading back", pod.key, node, error)
                known = await self.read_back(pod, node)
                if known is not None:
                    return known
                if not retry.is_transient(error) and error.status != 409:
                    return Bound(pod.uid, Outcome.REFUSED, message=str(error))
                await asyncio.sleep(max(wait, error.retry_after))
                wait = min(_MOST_WAIT_S, 2 * wait)
            else:
                return Bound(pod.uid, Outcome.BOUND)
        known = await self.read_back(pod, node) if sent else None
        return known or Bound(pod.uid, Outcome.ABANDONED)

    async def read_back(self, pod: PodView, node: str) -> Bound | None:
        """What the API says of the pod, however long it takes to answer; None: it is unbound."""
        wait = _FIRST_WAIT_S
        while True:
            try:
                found = await self._client.get(PODS.path(pod.name, pod.namespace))
            except errors.KubeError as error:
                if error.status == 404:
                    return Bound(pod.uid, Outcome.GONE)
                if not retry.is_transient(error):
                    return Bound(pod.uid, Outcome.REFUSED, message=str(error))
                await asyncio.sleep(max(wait, error.retry_after))
                wait = min(_MOST_WAIT_S, 2 * wait)
            else:
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
