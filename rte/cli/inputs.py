"""Objects for offline commands: from files as ``kubectl get -o yaml`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from rte import errors
from rte.cli.texts import read_text
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import node as node_entry
from rte.scheduler.framework import objects
from rte.scheduler.framework.budgets import read_budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

#: Kinds that the offline commands understand; others in the files are ignored.
KINDS = ("Node", "NodeResourceTopology", "Pod", "Namespace", "PodDisruptionBudget")


def load_objects(files: Sequence[Path]) -> list[dict[str, Any]]:
    """All objects of the files, lists unfolded; ``-`` is standard input.

    Raises:
        errors.UsageError: a file cannot be read, or is not YAML of Kubernetes objects.
    """
    out: list[dict[str, Any]] = []
    for file in files:
        text = read_text(file)
        try:
            documents = list(yaml.load_all(text, Loader=_loader()))
        except yaml.YAMLError as error:
            raise errors.UsageError(f"{file} is not YAML: {_fault(error, text)}") from error
        for document in documents:
            out.extend(_unfold(document, file))
    return out


def _fault(error: yaml.YAMLError, text: str) -> str:
    """What the parser stumbled over, and where."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())
    if text[mark.index : mark.index + 1] == "\t":
        problem = "a tab, and YAML is indented with spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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


def build_cluster(items: Iterable[dict[str, Any]], now: float = 0.0) -> tuple[Cluster, list[str]]:
    """A cluster of the given objects, and one line for each that is malformed.

    Pods without a UID (from a manifest) get ``namespace/name`` as theirs.
    """
    cluster = Cluster()
    problems: list[str] = []
    order = {kind: place for place, kind in enumerate(KINDS)}
    known = [item for item in items if item.get("kind") in order]
    for item in sorted(known, key=lambda item: order[item["kind"]]):
        try:
            _add(cluster, item, now)
        except (errors.RteError, AttributeError, KeyError, TypeError) as error:
            name = (item.get("metadata") or {}).get("name", "?")
            problems.append(f"{item['kind']} {name} is left out: {error}")
    return cluster, problems


def _add(cluster: Cluster, item: dict[str, Any], now: float) -> None:
    kind = item["kind"]
    if kind == "Node":
        cluster.set_node(objects.read_node(item))
    elif kind == "NodeResourceTopology":
        cluster.set_report(item["metadata"]["name"], node_entry.read_report(item), now)
    elif kind == "Namespace":
        cluster.set_namespace(item["metadata"]["name"], item["metadata"].get("labels") or {})
    elif kind == "PodDisruptionBudget":
        metadata = item["metadata"]
        cluster.set_budget(f"{metadata.get('namespace')}/{metadata['name']}", read_budget(item))
    else:
        cluster.set_pod(read_pod(cluster, item), now)


def read_pod(cluster: Cluster, item: dict[str, Any]) -> objects.PodView:
    """The view of a pod, from the API or from a manifest."""
    metadata = item.setdefault("metadata", {})
    if "generateName" in metadata:
        metadata.setdefault("name", metadata["generateName"] + "0")
    name = metadata.setdefault("name", "pod")
    metadata.setdefault("uid", f"{metadata.get('namespace', 'default')}/{name}")
    return objects.read_pod(item, cluster.shapes)
