"""A cluster in a file: what decisions follow from of all its objects, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rte.cli import inputs
from rte.reader.json import as_object
from rte.scheduler.plugins.declared import KubeletOnly
from rte.sysfs.capture import Captured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.reader.json import Json, JsonObject, JsonValue

#: Kind of the object that says by which rules the cluster was scheduled.
SETTINGS = "SchedulerSettings"

_METADATA = (
    *("name", "namespace", "uid", "labels", "annotations", "ownerReferences"),
    *("creationTimestamp", "deletionTimestamp", "resourceVersion"),
)
#: Whose annotations are read; kubectl's hold the whole object as it was applied.
_ANNOTATIONS = (
    *("rte.dev", "koordinator.sh", "viasat.io", "cncf.io"),
    *("k8s.io", "kubernetes.io"),
)
_APPLIED = "kubectl.kubernetes.io"
_CONTAINER = ("name", "image", "resources", "restartPolicy", "ports")
_POD_STATUS = (
    *("phase", "reason", "message", "conditions", "startTime", "nominatedNodeName", "qosClass"),
    *("allocatedResources", "resources", "resourceClaimStatuses", "extendedResourceClaimStatus"),
)
_CONTAINER_STATUS = ("name", "resources", "allocatedResources")
_NODE = {
    "spec": ("taints", "unschedulable"),
    "status": ("allocatable", "capacity", "declaredFeatures", "images"),
}
#: Of any other kind: what drivers are told, which may be secret.
_WITHHELD = frozenset({"parameters", "volumeAttributes", "opaque", "managedFields", "data"})


def capture(items: Iterable[JsonObject], settings: JsonObject, *, redact: bool) -> list[Captured]:
    """One entry per collection; of a name in the objects a number, with ``redact``."""
    by_collection: dict[str, list[JsonObject]] = {
        "settings": [{"kind": SETTINGS, "metadata": {"name": "scheduler"}, **settings}]
    }
    for item in items:
        collection = inputs.collection_of(item)
        if collection:
            named = inputs.named(item, collection)
            by_collection.setdefault(collection, []).append(_essential(named))
    if redact:
        numbers = _numbered(by_collection)
        by_collection = {
            name: [numbers.renamed(item) for item in listed]
            for name, listed in by_collection.items()
        }
    return [
        Captured(f"{name}.json", text=json.dumps(listed, sort_keys=True, separators=(",", ":")))
        for name, listed in by_collection.items()
    ]


def saved_settings(items: Iterable[Json]) -> Json:
    """The rules that an archive among the sources was taken with; empty without one."""
    return next((item for item in items if item.get("kind") == SETTINGS), {})


def _only(value: JsonValue, keys: Sequence[str]) -> JsonObject:
    found = as_object(value)
    return {key: found[key] for key in keys if key in found}


def _essential(item: Json) -> JsonObject:
    """The object without what no decision reads."""
    kind = item["kind"]
    metadata = _only(item["metadata"], _METADATA)
    if metadata.get("annotations"):
        metadata["annotations"] = {
            key: value for key, value in metadata["annotations"].items() if _is_read(key)
        }
    named = {"kind": kind, "apiVersion": item.get("apiVersion"), "metadata": metadata}
    if kind == "Node":
        return named | {part: _only(item.get(part), keys) for part, keys in _NODE.items()}
    if kind == "Pod":
        status = as_object(item.get("status"))
        told = _only(status, _POD_STATUS)
        for key in ("containerStatuses", "initContainerStatuses"):
            told[key] = [_only(each, _CONTAINER_STATUS) for each in status.get(key) or ()]
        return named | {"spec": _essential_spec(as_object(item.get("spec"))), "status": told}
    kept: JsonObject = _without(item, _WITHHELD)
    return kept | named


def _is_read(annotation: str) -> bool:
    domain = annotation.partition("/")[0]
    return domain != _APPLIED and domain.endswith(_ANNOTATIONS)


def _essential_spec(spec: JsonObject) -> JsonObject:
    kept = {key: value for key, value in spec.items() if key not in KubeletOnly.owns}
    for key in ("containers", "initContainers"):
        if key in kept:
            kept[key] = [_essential_container(each) for each in kept[key] or ()]
    if "volumes" in kept:
        # A kind that every node can have stays as its name alone.
        kept["volumes"] = [
            {
                key: {} if f"volumes.{key}" in KubeletOnly.owns else value
                for key, value in _without(each, _WITHHELD).items()
            }
            for each in kept["volumes"] or ()
        ]
    return kept


def _essential_container(container: JsonObject) -> JsonObject:
    mounts = [
        _only(mount, ("name", "bindMountOptions"))
        for mount in container.get("volumeMounts") or ()
        if "bindMountOptions" in mount
    ]
    return _only(container, _CONTAINER) | ({"volumeMounts": mounts} if mounts else {})


def _without(value: JsonValue, keys: frozenset[str]) -> JsonValue:
    if isinstance(value, list):
        return [_without(each, keys) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without(each, keys)
        for key, each in value.items()
        if key not in keys and not key.endswith("SecretRef")
    }


class _Numbers:
    """Numbers for the names of namespaces and pods, in the order of the names.

    Where everything else is equal the first name wins, so the order is kept.
    """

    def __init__(self, namespaces: Iterable[str], pods: Iterable[str]) -> None:
        self._namespaces = _in_order("namespace", (f"{name}/" for name in namespaces))
        self._pods = _in_order("pod", pods)

    def renamed(self, item: JsonObject) -> JsonObject:
        """The object with numbers for names."""
        new: JsonObject = self._walk(item, "")
        metadata = new["metadata"]
        if item["kind"] == "Namespace":
            metadata["name"] = self._namespaces.get(f"{metadata['name']}/", metadata["name"])
            if metadata.get("labels"):
                metadata["labels"] = {
                    key: self._namespaces.get(f"{value}/", value)
                    for key, value in metadata["labels"].items()
                }
        if item["kind"] == "Pod":
            metadata["name"] = self._pods[metadata["name"]]
            for container in as_object(new.get("spec")).get("containers") or ():
                container.pop("image", None)
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("kind") != "Node":
                owner["name"] = "owner"
        # Koordinator's names pods; rte's own report says the same by their UIDs.
        (metadata.get("annotations") or {}).pop("node.koordinator.sh/pod-cpu-allocs", None)
        return new

    def _walk(self, value: JsonValue, key: str) -> JsonValue:
        if isinstance(value, dict):
            pod = self._pods.get(value.get("name", "")) if value.get("resource") == "pods" else None
            new = {name: self._walk(each, name) for name, each in value.items()}
            return new | ({"name": pod} if pod else {})
        if isinstance(value, list):
            return [self._walk(each, key) for each in value]
        if key in ("namespace", "namespaces", "values") and isinstance(value, str):
            return self._namespaces.get(f"{value}/", value)
        return value


def _numbered(by_collection: Mapping[str, Iterable[JsonObject]]) -> _Numbers:
    metadata = [item["metadata"] for listed in by_collection.values() for item in listed]
    spaces = {str(each["namespace"]) for each in metadata if each.get("namespace")}
    spaces |= {str(item["metadata"]["name"]) for item in by_collection.get("namespaces", ())}
    pods = {str(item["metadata"]["name"]) for item in by_collection.get("pods", ())}
    return _Numbers(spaces, pods)


def _in_order(kind: str, names: Iterable[str]) -> dict[str, str]:
    ordered = sorted(names)
    width = len(str(len(ordered)))
    return {name: f"{kind}-{place:0{width}}" for place, name in enumerate(ordered, start=1)}
