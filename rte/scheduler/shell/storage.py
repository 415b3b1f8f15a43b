"""Binds claims to volumes before their pod is bound."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rte import errors
from rte.kube.resources import Resource
from rte.scheduler.cache.volumes import BOUND_BY_CONTROLLER, SELECTED_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.kube.client import Client
    from rte.scheduler.cache.volumes import Binding, Claim, Volumes

logger = logging.getLogger(__name__)

CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", namespaced=True)
VOLUMES: Final = Resource("", "v1", "persistentvolumes")

#: kube-scheduler's bindTimeoutSeconds: a pod whose volumes take longer is decided anew.
TIMEOUT_S = 600.0

_LOOK_S = 0.1


class StorageBinder:
    """Writes volume bindings and waits until the volume controller has carried them out.

    Args:
        client: the API server.
        known: what the watches show of claims and volumes.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, client: Client, known: Volumes, clock: Callable[[], float]) -> None:
        self._client = client
        self._known = known
        self._clock = clock

    async def bind(self, bindings: Sequence[Binding], node: str) -> bool:
        """Bind all of them for a pod on that node; False when that fails or takes too long."""
        try:
            for item in bindings:
                if item.volume is None:
                    await self._select_node(item.claim, node)
                elif not item.volume.claim:
                    await self._claim_volume(item)
        except errors.KubeError as error:
            logger.warning("volumes cannot be bound: %s", error)
            return False
        until = self._clock() + TIMEOUT_S
        while not all(self._is_bound(item.claim) for item in bindings):
            if self._clock() > until or any(self._is_undone(item, node) for item in bindings):
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _select_node(self, claim: Claim, node: str) -> None:
        if claim.selected_node == node:
            return
        metadata = {"resourceVersion": claim.version, "annotations": {SELECTED_NODE: node}}
        await self._client.patch(CLAIMS.path(claim.name, claim.namespace), {"metadata": metadata})

    async def _claim_volume(self, item: Binding) -> None:
        claim, volume = item.claim, item.volume
        if volume is None:
            return
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        metadata = {
            "resourceVersion": volume.version,
            "annotations": {BOUND_BY_CONTROLLER: "yes"},
        }
        body = {"metadata": metadata, "spec": {"claimRef": reference}}
        await self._client.patch(VOLUMES.path(volume.name), body)

    def _is_bound(self, claim: Claim) -> bool:
        now = self._known.claims.get(claim.key)
        return now is not None and now.uid == claim.uid and now.bound

    def _is_undone(self, item: Binding, node: str) -> bool:
        """The claim is gone, or the provisioner has given the node up (it removes its mark)."""
        now = self._known.claims.get(item.claim.key)
        if now is None or now.uid != item.claim.uid or now.deleting:
            return True
        marked = now.version != item.claim.version
        return item.volume is None and marked and not now.bound and now.selected_node != node
