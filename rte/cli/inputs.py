"""Objects for offline commands: from files as ``kubectl get -o yaml`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rte import errors
from rte.cli.texts import read_text
from rte.reader import budget, yamltext
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.gangs import COLLECTIONS as GANGS
from rte.scheduler.cache.intake import Intake
from rte.scheduler.framework import objects
from rte.scheduler.shell.feeds import COLLECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

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


def load_objects(files: Sequence[Path]) -> list[dict[str, Any]]:
    """All objects of the files, lists unfolded; ``-`` is standard input.

    Raises:
        errors.UsageError: a file cannot be read, or is not YAML of Kubernetes objects.
    """
    out: list[dict[str, Any]] = []
    for file in files:
        text = read_text(file)
        try:
            documents = yamltext.load_all(text, "manifest", budget.OWN)
        except errors.MalformedError as error:
            why = error.why.removeprefix("not YAML: ")
            raise errors.UsageError(f"{file} is not YAML: {why}") from error
        for document in documents:
            out.extend(_unfold(document, file))
    return out


def _unfold(document: object, file: Path) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise errors.UsageError(f"{file} holds something that is no Kubernetes object (no kind)")
    items = document.get("items")
    if isinstance(items, list):
        kind = document["kind"].removesuffix("List")
        for item in items:
            if not isinstance(item, dict):
                raise errors.UsageError(f"{file}: an item of the list is not an object")
            yield from _unfold({"kind": kind, **item}, file)
        return
    _check(document, file)
    yield document


def _check(document: dict[str, Any], file: Path) -> None:
    """What every object is made of, before anybody looks into it."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    title = f"{file}: {document['kind']} {name if isinstance(name, str) else '?'}"
    for key in ("metadata", "spec", "status"):
        if not isinstance(document.get(key), dict | None):
            raise errors.UsageError(f"{title}: {key} is no object")
    for key in ("name", "namespace", "uid"):
        if not isinstance(metadata.get(key), str | None):
            raise errors.UsageError(f"{title}: metadata.{key} is no text")


def build_cluster(
    items: Iterable[dict[str, Any]], now: float = 0.0, *, images: bool = False
) -> tuple[Cluster, list[str]]:
    """A cluster of the given objects, and one line for each that is malformed.

    Pods without a UID (from a manifest) get ``namespace/name`` as theirs. ``images``: those of
    nodes and pods are read.
    """
    cluster = Cluster(images=images)
    intake = Intake(cluster)
    problems: list[str] = []
    known = [(name, item) for item in items if (name := _collection_of(item))]
    order = {name: place for place, name in enumerate(KINDS)}
    for name, item in sorted(known, key=lambda each: order[each[0]]):
        try:
            wrong = intake.seen(name, _named(item, name), now).malformed[1]
        except (AttributeError, KeyError, TypeError) as error:
            wrong = str(error)
        if wrong:
            title = (item.get("metadata") or {}).get("name", "?")
            problems.append(f"{item['kind']} {title} is left out: {wrong}")
    return cluster, problems


def _collection_of(item: dict[str, Any]) -> str:
    kind, version = str(item.get("kind")), str(item.get("apiVersion"))
    return _BY_KIND.get(kind) or _BY_VERSION.get((version, kind), "")


def _named(item: dict[str, Any], collection: str) -> dict[str, Any]:
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


def read_pod(cluster: Cluster, item: dict[str, Any]) -> objects.PodView:
    """The view of a pod, from the API or from a manifest."""
    return objects.read_pod(_named(item, "pods"), cluster.shapes)
