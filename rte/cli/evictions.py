"""Evictions through the API, and waiting for what comes of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s.podspec import is_ready
from rte.kube.resources import PODS

if TYPE_CHECKING:
    from rte.kube.client import Client
    from rte.reader.json import Json
    from rte.scheduler.framework.objects import PodView

#: Seconds between two looks at the cluster, and before an eviction is sent again.
_PAUSE_S = 0.5


async def nominate(client: Client, pod: PodView, node: str | None) -> None:
    """Let schedulers keep the node for the pod (``status.nominatedNodeName``), None: no node."""
    body = {"status": {"nominatedNodeName": node}}
    await client.patch(PODS.path(pod.name, pod.namespace, "status"), body)


async def evict(client: Client, pod: PodView, owner: str, *, timeout_s: float) -> None:
    """Evict a pod, and wait until its controller's next one is ready.

    Raises:
        errors.KubeError: refused, or the next pod was not ready in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            known = {item["metadata"]["uid"] for item in await _pods_of(client, pod, owner)}
            await _send(client, pod)
            await _wait_for_another(client, pod, owner, known)
    except TimeoutError:
        raise errors.KubeError(
            f"{pod.key} was evicted, and no pod in its place was ready within {timeout_s:g} s: "
            "look at its controller and its events"
        ) from None


async def _wait_for_another(client: Client, pod: PodView, owner: str, known: set[str]) -> None:
    while True:
        for item in await _pods_of(client, pod, owner):
            if item["metadata"]["uid"] not in known and is_ready(item):
                return
        await asyncio.sleep(_PAUSE_S)


async def _send(client: Client, pod: PodView) -> None:
    """Post the eviction; a disruption budget that is used up is waited for."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    while True:
        try:
            await client.create(PODS.path(pod.name, pod.namespace, "eviction"), body)
        except errors.KubeError as error:
            if error.status in (404, 409):
                return  # It has gone already.
            if error.status != 429:
                raise
            await asyncio.sleep(max(error.retry_after, _PAUSE_S))
        else:
            return


async def _pods_of(client: Client, pod: PodView, owner: str) -> list[Json]:
    """Pods of the same controller; the pod itself is one of them as long as it is there."""
    document = await client.get(PODS.path(namespace=pod.namespace))
    return [
        item
        for item in document.get("items") or ()
        if any(each.get("uid") == owner for each in item["metadata"].get("ownerReferences") or ())
    ]
