"""Carries a decision to the API server, and finds out what became of it.

A decision is in force from the moment the cluster assumes it until the API shows the pod bound, or
until the API has *said* that it is not. A request without an answer, or one that was refused, is
resolved by reading the pod back; while the pod is still unbound the **same** decision is sent
again. The API server binds a pod once at most, so a late request can do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube import retry
from rte.kube.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.kube.client import Client
    from rte.scheduler.framework.objects import PodView

logger = logging.getLogger(__name__)

_FIRST_WAIT_S, _MOST_WAIT_S = 0.05, 1.0


class Outcome(StrEnum):
    """What became of a decision."""

    BOUND = "bound"  #: the pod is on the node
    ELSEWHERE = "elsewhere"  #: it is on another node
    GONE = "gone"  #: it is deleted, or being deleted
    REFUSED = "refused"  #: the API refuses the bind for good
    ABANDONED = "abandoned"  #: we are not the active replica any more


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An outcome, the pod as it was read back (if it was), and the API's words on a refusal."""

    outcome: Outcome
    pod: Mapping[str, Any] | None = None
    message: str = ""


class Binder:
    """Sends binds.

    Args:
        client: the API server.
        may_bind: asked right before each request.
        timeout_s: of one request.
    """

    def __init__(self, client: Client, *, may_bind: Callable[[], bool], timeout_s: float) -> None:
        self._client = client
        self._may_bind = may_bind
        self._timeout_s = timeout_s

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
        wait = _FIRST_WAIT_S
        while self._may_bind():
            try:
                await self._client.request("POST", path, body=body, timeout_s=self._timeout_s)
            except errors.KubeError as error:
                logger.warning("bind of %s to %s: %s; reading back", pod.key, node, error)
                known = await self.read_back(pod, node)
                if known is not None:
                    return known
                if not retry.is_transient(error) and error.status != 409:
                    return Bound(outcome=Outcome.REFUSED, message=str(error))
                await asyncio.sleep(max(wait, error.retry_after))
                wait = min(_MOST_WAIT_S, 2 * wait)
            else:
                return Bound(outcome=Outcome.BOUND)
        known = await self.read_back(pod, node)
        return known or Bound(outcome=Outcome.ABANDONED)

    async def read_back(self, pod: PodView, node: str) -> Bound | None:
        """What the API says of the pod, however long it takes to answer; None: it is unbound."""
        wait = _FIRST_WAIT_S
        while True:
            try:
                found = await self._client.get(PODS.path(pod.name, pod.namespace))
            except errors.KubeError as error:
                if error.status == 404:
                    return Bound(outcome=Outcome.GONE)
                if not retry.is_transient(error):
                    return Bound(outcome=Outcome.REFUSED, message=str(error))
                await asyncio.sleep(max(wait, error.retry_after))
                wait = min(_MOST_WAIT_S, 2 * wait)
            else:
                return _judge(found, pod, node)


def _judge(found: Mapping[str, Any], pod: PodView, node: str) -> Bound | None:
    metadata = found.get("metadata") or {}
    if metadata.get("uid") != pod.uid:
        return Bound(outcome=Outcome.GONE)
    where = (found.get("spec") or {}).get("nodeName")
    if where:
        outcome = Outcome.BOUND if where == node else Outcome.ELSEWHERE
        return Bound(outcome=outcome, pod=found)
    if metadata.get("deletionTimestamp"):
        return Bound(outcome=Outcome.GONE, pod=found)
    return None
