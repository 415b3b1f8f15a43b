"""Pods of manifests that no server has seen: checked and completed as the API server does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import workload
from rte.reader import files
from rte.reader.json import as_object
from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta, pods
from rte.sim.apiserver.schema import defaults, quantities, typed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rte.reader.json import JsonObject

#: More copies of one template than this are a slip of the finger.
MOST_REPLICAS = 100_000

#: Containers that name no image are as good as any here: nothing is started.
_IMAGE = "none"


def read(file: Path) -> list[JsonObject]:
    """The pods of a file, those of workloads included, as the API server would store them.

    Raises:
        errors.UsageError: the file cannot be read, holds no pod, or one that the API server would
            refuse; the message names file, pod and field.
    """
    items = files.load_objects([file])
    found = pods_of(items, file)
    if not found:
        raise errors.UsageError(f"{file} holds no pod{_instead(items)}")
    return [checked(item, file) for item in found]


def _instead(items: Iterable[JsonObject]) -> str:
    """What a file without pods holds."""
    kinds = list(dict.fromkeys(str(item["kind"]) for item in items))
    if not kinds:
        return ""
    shown = ", ".join(f"{kind}{errors.meant(kind, ['Pod'])}" for kind in kinds[:3])
    return f" but {shown}" + (", ..." if len(kinds) > 3 else "")


def pods_of(items: Iterable[JsonObject], file: Path) -> list[JsonObject]:
    """Pods among the items; the template of a workload counts as often as it has replicas.

    Raises:
        errors.UsageError: a number of replicas is none.
    """
    out: list[JsonObject] = []
    for item in items:
        if item["kind"] == "Pod":
            out.append(item)
        elif workload.is_workload(item):
            try:
                out += workload.pods_of(item, MOST_REPLICAS)
            except errors.UsageError as error:
                raise errors.UsageError(f"{file}: {error}") from None
    return out


def checked(item: JsonObject, file: object) -> JsonObject:
    """One pod as the API server would store it; ``file`` is where it is from.

    Raises:
        errors.UsageError: it would refuse the pod.
    """
    item = copy.deepcopy(item)
    metadata = as_object(item.get("metadata"))
    name = metadata.get("name") or metadata.get("generateName") or "?"
    where = f"{file}: pod {name}"
    for container in _containers(item.get("spec")):
        container.setdefault("image", _IMAGE)
    try:
        pod, unknown = typed.decode("core/v1.Pod", item)
        if unknown:
            raise errors.UsageError(f"{where}: {unknown[0]}: the API knows no such field")
        if "name" not in pod["metadata"] and "generateName" in pod["metadata"]:
            pod["metadata"]["name"] = pod["metadata"]["generateName"] + "0"
        pod.setdefault("spec", {})
        defaults.fill("core/v1.Pod", pod)
        pods.RULES.default(pod)
        pod["metadata"].setdefault("namespace", "default")
        causes = meta.validate(pod["metadata"], namespaced=True, check_name=meta.subdomain)
        causes += pods.RULES.validate(pod)
    except status.DecodeError as error:
        raise errors.UsageError(f"{where}: {_malformed_amount(item)}{error}") from None
    if causes:
        raise errors.UsageError(f"{where}: {causes[0].field}: {causes[0].text}")
    return {"kind": "Pod", **pod}


def _malformed_amount(item: JsonObject) -> str:
    """The field of the first amount that is none, which the API server's message leaves out."""
    spec = as_object(item.get("spec"))
    for field in ("containers", "initContainers"):
        items = spec.get(field)
        for index, container in enumerate(items if isinstance(items, list) else ()):
            resources = as_object(as_object(container).get("resources"))
            for kind in ("limits", "requests"):
                for name, amount in as_object(resources.get(kind)).items():
                    try:
                        quantities.canonical(str(amount))
                    except (errors.ParseError, status.DecodeError):
                        return f"spec.{field}[{index}].resources.{kind}[{name}]: "
    return ""


def _containers(spec: object) -> list[JsonObject]:
    lists = [as_object(spec).get(field) for field in ("containers", "initContainers")]
    return [
        each
        for items in lists
        if isinstance(items, list)
        for each in items
        if isinstance(each, dict)
    ]
