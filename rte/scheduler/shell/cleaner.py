"""Pods that a kubelet has refused are deleted after a while (kubernetes/kubernetes#84757).

A ReplicaSet makes a new pod for each that failed and deletes none of them before the cluster has
many thousands (``--terminated-pod-gc-threshold``). Of the others, as those of Jobs, which count
what failed, only pods that ask for it are deleted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s.podspec import rejection
from rte.kube.lists import pages
from rte.kube.resources import PODS
from rte.scheduler.shell.feeds import age_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rte.kube.client import Client
    from rte.reader.json import JsonObject

logger = logging.getLogger(__name__)

#: Label of pods: "true" lets a refused one be deleted whoever has placed or made it.
LABEL = "topology.rte.dev/clean-refused"
#: Controllers that make another pod at once and leave the refused one where it is.
_REPLACING = frozenset({"ReplicaSet", "ReplicationController"})
#: Seconds between two looks.
LOOK_S = 30.0


class Cleaner:
    """Deletes what kubelets have refused.

    Args:
        client: the API server.
        after_s: seconds that a refused pod is left, for those who want to look at it.
        profiles: ``spec.schedulerName`` of the pods that need no label.
        may_write: asked right before each deletion.
        deleted: called for each pod that was deleted.
    """

    def __init__(
        self,
        client: Client,
        after_s: float,
        profiles: Collection[str],
        may_write: Callable[[], bool],
        deleted: Callable[[], None],
    ) -> None:
        self._client, self._after_s, self._profiles = client, after_s, profiles
        self._may_write, self._deleted = may_write, deleted

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._may_write():
                continue
            try:
                await self.clean()
            except errors.KubeError as error:
                logger.warning("refused pods cannot be deleted: %s", error)

    async def clean(self) -> None:
        """Delete those that are due.

        Raises:
            errors.KubeError: the API server refuses or does not answer.
        """
        failed = {"fieldSelector": "status.phase=Failed"}
        async for page in pages(self._client, PODS.path(), failed):
            for pod in page.items:
                if self._is_due(pod) and self._may_write():
                    await self._delete(pod["metadata"])

    def _is_due(self, pod: JsonObject) -> bool:
        metadata, status = pod["metadata"], pod.get("status") or {}
        if rejection(status) is None or metadata.get("deletionTimestamp"):
            return False
        refused_at = status.get("startTime") or metadata.get("creationTimestamp")
        if age_of(str(refused_at or "")) < self._after_s:
            return False
        if (metadata.get("labels") or {}).get(LABEL) == "true":
            return True
        ours = (pod.get("spec") or {}).get("schedulerName") in self._profiles
        owners = metadata.get("ownerReferences") or ()
        return ours and any(
            each.get("controller") and each.get("kind") in _REPLACING for each in owners
        )

    async def _delete(self, metadata: JsonObject) -> None:
        path = PODS.path(metadata["name"], metadata["namespace"])
        try:
            await self._client.delete(path, {"preconditions": {"uid": metadata["uid"]}})
        except errors.KubeError as error:
            if error.status not in (404, 409):
                raise
        else:
            self._deleted()
            logger.info("deleted the refused pod %s/%s", metadata["namespace"], metadata["name"])
