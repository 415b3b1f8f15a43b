"""From watches to events: each collection is watched once and told to the machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import aclosing
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube.lists import pages
from rte.kube.resources import (
    BUDGETS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    LEASES,
    NODES,
    NRTS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from rte.kube.watch import read_event, watch
from rte.scheduler.cache.intake import COLLECTIONS as KINDS
from rte.scheduler.cache.intake import key_of
from rte.scheduler.framework import objects
from rte.scheduler.loop.messages import Gone, Listed, Restored, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.kube.client import Client
    from rte.kube.watch import WatchEvent
    from rte.telemetry.quarantine import Bulkhead

logger = logging.getLogger(__name__)

#: What is watched, by the name that logs and metrics use.
COLLECTIONS = {
    "namespaces": Resource("", "v1", "namespaces"),
    "nodes": NODES,
    "pods": PODS,
    "leases": LEASES,
    "reports": NRTS,
    "budgets": BUDGETS,
    "claims": Resource("", "v1", "persistentvolumeclaims", namespaced=True),
    "volumes": Resource("", "v1", "persistentvolumes"),
    "classes": Resource("storage.k8s.io", "v1", "storageclasses"),
    "drivers": Resource("storage.k8s.io", "v1", "csidrivers"),
    "limits": Resource("storage.k8s.io", "v1", "csinodes"),
    "capacities": Resource("storage.k8s.io", "v1", "csistoragecapacities", namespaced=True),
    "slices": RESOURCE_SLICES,
    "device-claims": RESOURCE_CLAIMS,
    "device-classes": DEVICE_CLASSES,
    "device-taint-rules": DEVICE_TAINT_RULES,
    "podgroups": Resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True),
    "podgroups-1.36": Resource("scheduling.k8s.io", "v1alpha2", "podgroups", namespaced=True),
    "workloads-1.35": Resource("scheduling.k8s.io", "v1alpha1", "workloads", namespaced=True),
    "podgroups-coscheduling": Resource(
        "scheduling.x-k8s.io", "v1alpha1", "podgroups", namespaced=True
    ),
}

#: Koordinator's devices of a node, watched with ``--device-share``.
KOORDINATOR_DEVICES = Resource("scheduling.koordinator.sh", "v1alpha1", "devices")

#: What decisions write. Claims come first: what a bound pod holds is then known with it.
_DECIDED = ("device-claims", "pods")

#: Items of a list that are taken in before others get a turn.
_PORTION = 50

#: In a cluster that moves, the watch of pods shows something new within this.
_MOVES_WITHIN_S = 0.2

#: A watch that is asked for it tells within this how far the server is.
_ANSWERS_WITHIN_S = 2.8

#: Selects nothing: asks for the newest version, and has the server's memory catch up with it.
_NO_POD = "spec.nodeName=-"

#: A collection that the server does not have (the CRD is missing) is asked for again after this.
_ABSENT_RETRY_S = 10.0


class Feeds:
    """Watches nodes, pods, reports, agents' Leases, storage and namespaces.

    Args:
        client: the API server.
        deliver: is given each event.
        agents: namespace and label selector of the agents' Leases.
        others: what is watched beside :data:`COLLECTIONS`.
        bulkhead: for each attempt to watch a collection.
    """

    def __init__(
        self,
        client: Client,
        deliver: Callable[[Seen | Gone | Listed | Restored], None],
        agents: tuple[str, str],
        others: Mapping[str, Resource] = MappingProxyType({}),
        *,
        bulkhead: Callable[[str, str], Bulkhead],
    ) -> None:
        self._client = client
        self._deliver = deliver
        self._agents, self._bulkhead = agents, bulkhead
        self._resources = {**COLLECTIONS, **others}
        self._synced = {name: asyncio.Event() for name in self._resources}
        self._pods_at = 0
        #: Versions of reports as the watch has shown them.
        self._reports: dict[str, int] = {}
        self._moved = asyncio.Event()

    async def wait_synced(self) -> None:
        """Until each collection was listed once."""
        for event in self._synced.values():
            await event.wait()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start one task for each collection."""
        for name in self._resources:
            group.create_task(self._follow(name), name=f"watch {name}")

    async def _follow(self, name: str) -> None:
        """Feed one collection for ever."""
        while True:
            with self._bulkhead("watches", name):
                await self._follow_once(name)
                continue
            await asyncio.sleep(_ABSENT_RETRY_S)

    async def _follow_once(self, name: str) -> None:
        namespace, labels = self._agents if name == "leases" else ("", "")
        path = self._resources[name].path(namespace=namespace)
        try:
            events = watch(
                self._client, path, label_selector=labels, waits_s=(0.1, 1.0), paged=True
            )
            found: set[str] = set()
            async with aclosing(events):
                async for event in events:
                    if event.kind == "PAGE":
                        if event.restored:
                            self._restored(name)
                        found = set() if event.first else found
                        found |= await self._take_page(name, event.object["items"], event.object)
                        continue
                    if event.kind == "LISTED":
                        self._deliver(_listed(name, found, event.object))
                        self._synced[name].set()
                    else:
                        self._note_version(name, event.object)
                        self._deliver(_changed(name, event))
                    if name == "pods":
                        self._pods_moved(event.object)
        except errors.KubeError as error:
            # 404: no such collection (the CRD is not installed). Others: a missing right.
            expected = error.status == 404 and KINDS[name].rare
            tell = logger.debug if expected else logger.warning
            tell("cannot watch %s, trying again: %s", name, error)
            absent = error.status == 404 or KINDS[name].optional
            if absent:
                self._synced[name].set()
            await asyncio.sleep(_ABSENT_RETRY_S if absent else 1.0)

    def _restored(self, name: str) -> None:
        """The server's versions begin anew, below those that were told: an etcd was restored."""
        if name == "pods":
            self._pods_at = 0
        elif name == "reports":
            self._reports.clear()
        self._deliver(Restored(name))

    async def _take_page(self, name: str, items: list[Any], listed: Mapping[str, Any]) -> set[str]:
        """Take the items of a list in, a portion at a time; the keys."""
        as_of = objects.version_of(listed.get("metadata") or {})
        found = set()
        for number, item in enumerate(items):
            self._note_version(name, item)
            self._deliver(_seen(name, item, as_of))
            found.add(key_of(name, item.get("metadata") or {}))
            items[number] = None
            if number % _PORTION == _PORTION - 1:
                await asyncio.sleep(0)
        return found

    async def relist(self) -> None:
        """Take in what decisions have changed up to now.

        Raises:
            errors.KubeError: it cannot be read.
        """
        for name in _DECIDED:
            if name == "pods" and await self._is_up_to_date():
                continue
            try:
                found: set[str] = set()
                rest: dict[str, Any] = {}
                async for page in pages(self._client, COLLECTIONS[name].path()):
                    found = set() if page.first else found
                    found |= await self._take_page(name, page.items, page.rest)
                    rest = page.rest
            except errors.KubeError as error:
                if error.status not in (403, 404) or not KINDS[name].optional:
                    raise
            else:
                self._deliver(_listed(name, found, rest))

    async def _is_up_to_date(self) -> bool:
        """Whether what is known of pods is soon known to be as new as now.

        Then nothing of before is missing, and a list of all pods, which takes seconds in a large
        cluster, is not needed.
        """
        newest = await self._client.get(COLLECTIONS["pods"].path(), fieldSelector=_NO_POD)
        version = objects.version_of(newest.get("metadata") or {})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOVES_WITHIN_S):
                while self._pods_at < version:
                    self._moved.clear()
                    await self._moved.wait()
        if 0 < self._pods_at < version:
            with contextlib.suppress(errors.KubeError, TimeoutError):
                async with asyncio.timeout(_ANSWERS_WITHIN_S):
                    await self._hear(version)
        return 0 < version <= self._pods_at

    async def _hear(self, version: int) -> None:
        """Take in what has become of pods up to that version: nothing, where none has changed.

        A watch of its own: 2 s before its end the API server tells by a bookmark how far it is
        (``cacheWatcher.nextBookmarkTime``).
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._pods_at),
            "timeoutSeconds": "3",
        }
        path = COLLECTIONS["pods"].path()
        async with aclosing(self._client.stream(path, params, silence_s=5.0)) as lines:
            async for line in lines:
                event = read_event(line)
                if event is not None:
                    self._deliver(_changed("pods", event))
                self._pods_moved(line["object"])
                if self._pods_at >= version:
                    return

    def _pods_moved(self, obj: Mapping[str, Any]) -> None:
        self._pods_at = max(self._pods_at, objects.version_of(obj.get("metadata") or {}))
        self._moved.set()

    def _note_version(self, collection: str, obj: Mapping[str, Any]) -> None:
        if collection == "reports":
            metadata = obj.get("metadata") or {}
            self._reports[key_of(collection, metadata)] = objects.version_of(metadata)

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
            # The watch may have overtaken the answer.
            if objects.version_of(report.get("metadata") or {}) >= self._reports.get(name, 0):
                self._deliver(Seen("reports", report))
        selector = {"fieldSelector": f"spec.nodeName={name}"}
        async for page in pages(self._client, PODS.path(), selector):
            await self._take_page("pods", page.items, page.rest)


def _listed(name: str, found: set[str], rest: Mapping[str, Any]) -> Listed:
    return Listed(name, frozenset(found), objects.version_of(rest.get("metadata") or {}))


def _changed(name: str, event: WatchEvent) -> Seen | Gone:
    metadata = event.object.get("metadata") or {}
    if event.kind == "DELETED":
        return Gone(name, key_of(name, metadata), objects.version_of(metadata))
    return _seen(name, event.object)


def _seen(name: str, obj: Mapping[str, Any], as_of: int = 0) -> Seen:
    if name != "leases":
        return Seen(name, obj, as_of=as_of)
    return Seen(name, obj, age_of(str((obj.get("spec") or {}).get("renewTime") or "")), as_of)


def age_of(renewed: str) -> float:
    """Seconds since a time of the API by the wall clock; 0 where it cannot be told."""
    try:
        moment = datetime.fromisoformat(renewed)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        return 0.0
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
