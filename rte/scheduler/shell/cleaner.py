"""What nobody else deletes: pods that a kubelet has refused, reports whose Node is gone.

Refused pods (kubernetes/kubernetes#84757): a ReplicaSet makes a new pod for each that failed, and
none of them is deleted before the cluster has many thousands (``--terminated-pod-gc-threshold``).
Of the others, as those of Jobs, which count what failed, only pods that ask for it are deleted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s.podspec import rejection
from rte.kube.lists import pages
from rte.kube.resources import NODES, NRTS, PODS
from rte.scheduler.shell.feeds import age_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from rte.kube.client import Client
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster

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
        await _look(self.clean, "refused pods", self._may_write)

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


class ReportCollector:
    """Deletes reports whose Node is gone, as nfd-gc does.

    Those of rte's agent belong to their Node and go with it; those of other exporters may belong
    to nobody, or to a Namespace.

    Args:
        client: the API server.
        after_s: seconds that a Node is to be gone.
        cluster: what is known of Nodes and reports; those of other pools are not.
        may_write: asked right before each deletion.
    """

    def __init__(
        self, client: Client, after_s: float, cluster: Cluster, may_write: Callable[[], bool]
    ) -> None:
        self._client, self._after_s = client, after_s
        self._cluster, self._may_write = cluster, may_write
        self._gone_since: dict[str, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        await _look(self.collect, "reports without a Node", self._may_write)

    async def collect(self) -> None:
        """Delete those that are due.

        Raises:
            errors.KubeError: the API server refuses or does not answer.
        """
        now = time.monotonic()
        self._gone_since = {
            name: self._gone_since.get(name, now)
            for name, entry in self._cluster.nodes.items()
            if entry.info is None and entry.report is not None
        }
        for name, since in list(self._gone_since.items()):
            if now - since >= self._after_s:
                await self._delete(name)

    async def _delete(self, name: str) -> None:
        # A Node that could not be read is not gone: the API server has the last word.
        of_name = {"fieldSelector": f"metadata.name={name}"}
        node = await self._client.get(NODES.path(), **of_name)
        report = await self._client.get(NRTS.path(), **of_name)
        if node["items"] or not report["items"] or not self._may_write():
            return
        metadata = report["items"][0]["metadata"]
        as_it_is = {key: metadata[key] for key in ("uid", "resourceVersion")}
        try:
            await self._client.delete(NRTS.path(name), {"preconditions": as_it_is})
        except errors.KubeError as error:
            if error.status not in (404, 409):
                raise
        else:
            logger.info("deleted the report %s, whose Node is gone", name)


async def _look(work: Callable[[], Awaitable[None]], what: str, may: Callable[[], bool]) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        if not may():
            continue
        try:
            await work()
        except errors.KubeError as error:
            logger.warning("%s cannot be deleted: %s", what, error)
