"""From watches to the cluster: each collection is watched once and told to the cluster."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube.resources import BUDGETS, LEASES, NODES, NRTS, PODS, Resource
from rte.kube.watch import watch
from rte.scheduler.cache import budgets, volumes
from rte.scheduler.cache import cluster as clusters
from rte.scheduler.framework import node, objects
from rte.scheduler.shell.storage import CLAIMS, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.kube.client import Client
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.report.metrics import SchedulerMetrics

logger = logging.getLogger(__name__)

#: What is watched, by the name that logs and metrics use.
COLLECTIONS = {
    "namespaces": Resource("", "v1", "namespaces"),
    "nodes": NODES,
    "pods": PODS,
    "leases": LEASES,
    "reports": NRTS,
    "budgets": BUDGETS,
    "claims": CLAIMS,
    "volumes": VOLUMES,
    "classes": Resource("storage.k8s.io", "v1", "storageclasses"),
}

#: An agent that has not renewed its Lease for so long is taken for dead.
AGENT_DEAD_S = 40.0

#: Items of a list that are taken in before others get a turn.
_PORTION = 50

#: A collection that the server does not have (the CRD is missing) is asked for again after this.
_ABSENT_RETRY_S = 10.0


def _by_name(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("name") or "")


def _by_uid(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("uid") or "")


def _by_path(metadata: Mapping[str, Any]) -> str:
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


#: How items are told apart, where not by name.
KEYS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "pods": _by_uid,
    "budgets": _by_path,
    "claims": _by_path,
}


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Whom the feeds tell beside the cluster.

    ``pod``: (view before, view now or None when it is gone); ``report``: node name; ``woken``:
    anything may have changed.
    """

    pod: Callable[[PodView | None, PodView | None], None]
    report: Callable[[str], None]
    woken: Callable[[], None]


class Feeds:
    """Watches nodes, pods, reports, agents' Leases and namespaces.

    Args:
        client: the API server.
        cluster: what is fed.
        listener: who else wants to know.
        metrics: malformed objects are counted there.
        clock: seconds of a monotonic clock.
        agents: namespace and label selector of the agents' Leases.

    Attributes:
        pods_seen: resourceVersion up to which every change of a pod is known.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        listener: Listener,
        metrics: SchedulerMetrics,
        clock: Callable[[], float],
        agents: tuple[str, str],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._listener = listener
        self._metrics = metrics
        self._clock = clock
        self._agents = agents
        self.pods_seen = 0
        self._reports: dict[str, str] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._synced = {name: asyncio.Event() for name in COLLECTIONS}

    async def wait_synced(self) -> None:
        """Until each collection was listed once."""
        for event in self._synced.values():
            await event.wait()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start one task for each collection."""
        for name, change, remove in (
            ("namespaces", self._set_namespace, self._remove_namespace),
            ("nodes", self._set_node, self._cluster.remove_node),
            ("pods", self.set_pod, self._remove_pod),
            ("leases", self._set_lease, self._remove_lease),
            ("reports", self._set_report, self._remove_report),
            ("budgets", self._set_budget, self._remove_budget),
            ("claims", self._set_claim, self._storage_remover("claims")),
            ("volumes", self._set_volume, self._storage_remover("volumes")),
            ("classes", self._set_class, self._storage_remover("classes")),
        ):
            group.create_task(self._follow(name, change, remove), name=f"watch {name}")

    async def _follow(
        self,
        name: str,
        change: Callable[[Mapping[str, Any]], None],
        remove: Callable[[str], None],
    ) -> None:
        """Feed one collection for ever."""
        known: set[str] = set()
        key_of = KEYS.get(name, _by_name)
        namespace, labels = self._agents if name == "leases" else ("", "")
        path = COLLECTIONS[name].path(namespace=namespace)

        def take(obj: Mapping[str, Any]) -> str:
            self._take(name, change, obj)
            return key_of(obj.get("metadata") or {})

        while True:
            try:
                events = watch(self._client, path, label_selector=labels, most_wait_s=1.0)
                async with aclosing(events):
                    async for event in events:
                        if event.kind == "LISTED":
                            known = await self._listed(event.object, known, take, remove)
                            self._synced[name].set()
                        elif event.kind == "DELETED":
                            metadata = event.object.get("metadata") or {}
                            key = key_of(metadata)
                            known.discard(key)
                            remove(key)
                        else:
                            known.add(take(event.object))
                        if name == "pods":
                            seen = objects.version_of(event.object.get("metadata") or {})
                            self.pods_seen = max(self.pods_seen, seen)
                        self._listener.woken()
            except errors.KubeError as error:
                # 404: no such collection (the CRD is not installed). Others: a missing right.
                logger.warning("cannot watch %s, trying again: %s", name, error)
                if error.status == 404:
                    self._synced[name].set()
                await asyncio.sleep(_ABSENT_RETRY_S if error.status == 404 else 1.0)

    def _take(
        self, name: str, change: Callable[[Mapping[str, Any]], None], obj: Mapping[str, Any]
    ) -> None:
        """Take an object in; a malformed one is counted and told."""
        try:
            change(obj)
        except errors.RteError as error:
            self._metrics.malformed.labels(name).inc()
            metadata = obj.get("metadata") or {}
            parts = (metadata.get("namespace"), metadata.get("name"))
            logger.warning("%s %s: %s", name, "/".join(str(part) for part in parts if part), error)

    async def _listed(
        self,
        listed: dict[str, Any],
        known: set[str],
        take: Callable[[Mapping[str, Any]], str],
        remove: Callable[[str], None],
    ) -> set[str]:
        items = listed.pop("items", None) or []
        found = set()
        for number, item in enumerate(items):
            found.add(take(item))
            items[number] = None
            if number % _PORTION == _PORTION - 1:
                await asyncio.sleep(0)
        for key in known - found:
            remove(key)
        return found

    # --- pods ---

    def set_pod(self, obj: Mapping[str, Any]) -> None:
        """A pod as the API shows it (from the watch, or read back).

        Raises:
            errors.ParseError: it is malformed; where it waits, it does so with that reason.
        """
        try:
            view = objects.read_pod(obj, self._cluster.shapes)
        except errors.ParseError as error:
            substitute = objects.stand_in(obj, str(error), self._cluster.shapes)
            if substitute is not None:
                self._set_view(substitute)
            raise
        self._set_view(view)

    def _set_view(self, view: PodView) -> None:
        before = self._cluster.pods.get(view.uid)
        self._cluster.set_pod(view, self._clock())
        self._listener.pod(before, view)

    def _remove_pod(self, uid: str) -> None:
        before = self._cluster.pods.get(uid)
        self._cluster.remove_pod(uid, self._clock())
        if before is not None:
            self._listener.pod(before, None)

    async def relist_pods(self) -> None:
        """Take in what the API shows right now, whatever the watch has delivered so far.

        Raises:
            errors.KubeError: it cannot be read.
        """
        listed = await self._client.get(PODS.path())
        at = objects.version_of(listed.get("metadata") or {})
        found = set()
        for item in listed.get("items") or []:
            found.add(str((item.get("metadata") or {}).get("uid")))
            self._take("pods", self.set_pod, item)
        for uid, pod in list(self._cluster.pods.items()):
            if uid not in found and pod.version <= at:
                self._remove_pod(uid)
        self._listener.woken()

    async def resync_node(self, name: str) -> None:
        """Read one node's report and pods afresh.

        Raises:
            errors.KubeError: they cannot be read.
        """
        try:
            report = await self._client.get(NRTS.path(name))
        except errors.KubeError as error:
            if error.status != 404:
                raise
        else:
            self._take("reports", self._set_report, report)
        listed = await self._client.get(PODS.path(), fieldSelector=f"spec.nodeName={name}")
        for item in listed.get("items") or []:
            self._take("pods", self.set_pod, item)
        self._listener.woken()

    # --- nodes, reports, namespaces ---

    def _set_node(self, obj: Mapping[str, Any]) -> None:
        try:
            info = objects.read_node(obj)
        except errors.ParseError:
            self._cluster.remove_node(str((obj.get("metadata") or {}).get("name") or ""))
            raise
        self._cluster.set_node(info)

    def _set_report(self, obj: Mapping[str, Any]) -> None:
        metadata = obj.get("metadata") or {}
        name, version = str(metadata.get("name") or ""), str(metadata.get("resourceVersion") or "")
        if version and self._reports.get(name) == version:
            return
        self._reports[name] = version
        report = node.read_report(obj)
        self._cluster.set_report(name, report, self._clock())
        self._listener.report(name)
        if report.broken:
            raise errors.ParseError("NodeResourceTopology", name, report.broken)

    def _remove_report(self, name: str) -> None:
        self._reports.pop(name, None)
        self._cluster.set_report(name, None, self._clock())

    def _set_namespace(self, obj: Mapping[str, Any]) -> None:
        name, labels = clusters.read_namespace(obj)
        self._cluster.set_namespace(name, labels)

    def _remove_namespace(self, name: str) -> None:
        self._cluster.set_namespace(name, None)

    def _set_budget(self, obj: Mapping[str, Any]) -> None:
        self._cluster.budgets[_by_path(obj.get("metadata") or {})] = budgets.read_budget(obj)

    def _remove_budget(self, key: str) -> None:
        self._cluster.budgets.pop(key, None)

    # --- storage ---

    def _set_claim(self, obj: Mapping[str, Any]) -> None:
        claim = volumes.read_claim(obj)
        self._cluster.storage.claims[claim.key] = claim
        self._cluster.storage_changed()

    def _set_volume(self, obj: Mapping[str, Any]) -> None:
        volume = volumes.read_volume(obj)
        self._cluster.storage.volumes[volume.name] = volume
        self._cluster.storage_changed()

    def _set_class(self, obj: Mapping[str, Any]) -> None:
        kind = volumes.read_class(obj)
        self._cluster.storage.classes[kind.name] = kind
        self._cluster.storage_changed()

    def _storage_remover(self, what: str) -> Callable[[str], None]:
        def remove(key: str) -> None:
            getattr(self._cluster.storage, what).pop(key, None)
            self._cluster.storage_changed()

        return remove

    # --- the agents' Leases ---

    def _set_lease(self, obj: Mapping[str, Any]) -> None:
        """A Lease was renewed; it is named like its node.

        What a Lease says of time is only believed when it is seen first: later, it is the change
        that counts, by our own clock.
        """
        name = str((obj.get("metadata") or {}).get("name") or "")
        spec = obj.get("spec") or {}
        renewed = str(spec.get("renewTime") or "")
        before = self._leases.get(name)
        if not spec.get("holderIdentity"):
            self._leases[name] = (renewed, -AGENT_DEAD_S)
        elif before is None:
            self._leases[name] = (renewed, self._clock() - _age(renewed))
        elif before[0] != renewed:
            self._leases[name] = (renewed, self._clock())
        self._judge(name)

    def _remove_lease(self, name: str) -> None:
        """An exporter without a Lease is trusted as it is."""
        self._leases.pop(name, None)
        self._cluster.set_alive(name, alive=None)

    def _judge(self, name: str) -> None:
        since = self._leases[name][1]
        self._cluster.set_alive(name, alive=self._clock() - since < AGENT_DEAD_S)

    def judge_leases(self) -> None:
        """Look for agents that have fallen silent; to be called each second."""
        for name in self._leases:
            self._judge(name)


def _age(renewed: str) -> float:
    """Seconds since a time of the API by the wall clock; 0 where it cannot be told."""
    try:
        moment = datetime.fromisoformat(renewed)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        return 0.0
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
