"""Objects for offline commands: from files as ``kubectl get -o yaml`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rte import errors
from rte.reader.json import as_object
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.gangs import COLLECTIONS as GANGS
from rte.scheduler.cache.intake import Intake
from rte.scheduler.framework import objects
from rte.scheduler.shell.feeds import COLLECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rte.reader.json import JsonObject

#: Collection that decisions follow from -> kind of its objects, in the order in which they are
#: taken in. Agents' Leases are none of them: what is read once tells nothing of who is silent.
KINDS: Final = {
    "namespaces": "Namespace",
    "nodes": "Node",
    "reports": "NodeResourceTopology",
    "budgets": "PodDisruptionBudget",
    "classes": "StorageClass",
    "drivers": "CSIDriver",
    "limits": "CSINode",
    "capacities": "CSIStorageCapacity",
    "volumes": "PersistentVolume",
    "claims": "PersistentVolumeClaim",
    "device-classes": "DeviceClass",
    "device-taint-rules": "DeviceTaintRule",
    "slices": "ResourceSlice",
    "device-claims": "ResourceClaim",
    "podgroups": "PodGroup",
    "podgroups-1.36": "PodGroup",
    "workloads-1.35": "Workload",
    "podgroups-coscheduling": "PodGroup",
    "pods": "Pod",
}

#: Groups are told apart by the version of their API, everything else by its kind.
_BY_KIND: Final = {kind: name for name, kind in KINDS.items() if name not in GANGS}
_BY_VERSION: Final = {(COLLECTIONS[name].api_version, KINDS[name]): name for name in GANGS}


def build_cluster(
    items: Iterable[JsonObject], now: float = 0.0, *, images: bool = False
) -> tuple[Cluster, list[str]]:
    """A cluster of the given objects, and one line for each that is malformed.

    Pods without a UID (from a manifest) get ``namespace/name`` as theirs. ``images``: those of
    nodes and pods are read.
    """
    cluster = Cluster(images=images)
    intake = Intake(cluster)
    problems: list[str] = []
    known = [(name, item) for item in items if (name := collection_of(item))]
    order = {name: place for place, name in enumerate(KINDS)}
    for name, item in sorted(known, key=lambda each: order[each[0]]):
        try:
            wrong = intake.seen(name, named(item, name), now).malformed[1]
        except (AttributeError, KeyError, TypeError) as error:
            wrong = str(error)
        if wrong:
            title = (item.get("metadata") or {}).get("name", "?")
            problems.append(f"{item['kind']} {title} is left out: {wrong}")
    return cluster, problems


def require_node(cluster: Cluster, sources: Iterable[Path]) -> None:
    """See to it that these files, which the cluster is from, hold a Node.

    Raises:
        errors.UsageError: they hold none.
    """
    if not any(entry.info for entry in cluster.nodes.values()):
        more = "; a report alone is a --machine" if cluster.nodes else ""
        raise errors.UsageError(
            f"{', '.join(map(str, sources))}: no Node in it (kubectl get "
            f"nodes,noderesourcetopologies,pods -A -o yaml prints what is needed{more})"
        )


def collection_of(item: JsonObject) -> str:
    """The collection of an object, empty where no decision follows from its kind."""
    kind, version = str(item.get("kind")), str(item.get("apiVersion"))
    return _BY_KIND.get(kind) or _BY_VERSION.get((version, kind), "")


def named(item: JsonObject, collection: str) -> JsonObject:
    """With what an API server gives each object to tell it by."""
    metadata = item.setdefault("metadata", {})
    if COLLECTIONS[collection].namespaced:
        metadata.setdefault("namespace", "default")
    if collection == "pods":
        if "generateName" in metadata:
            metadata.setdefault("name", metadata["generateName"] + "0")
        name = metadata.setdefault("name", "pod")
        metadata.setdefault("uid", f"{metadata['namespace']}/{name}")
    return item


def read_pod(cluster: Cluster, item: JsonObject) -> objects.PodView:
    """The view of a pod, from the API or from a manifest."""
    return objects.read_pod(named(item, "pods"), cluster.shapes)


def is_bound(pod: JsonObject) -> bool:
    """Whether the pod has a node."""
    return bool(as_object(pod.get("spec")).get("nodeName"))
