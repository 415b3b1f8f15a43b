"""Workloads: objects with a template of pods and a number of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from rte import errors
from rte.reader.json import as_object

if TYPE_CHECKING:
    from rte.reader.json import Json, JsonObject


def is_workload(item: Json) -> bool:
    """Whether the object has a template of pods (Deployment, Job, StatefulSet, ...)."""
    spec = item.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("template"), dict)


def pods_of(workload: Json, most: int) -> list[JsonObject]:
    """Its pods, with the labels and annotations of the template.

    Raises:
        errors.UsageError: the number of its pods is none, or above ``most``.
    """
    spec, metadata = workload["spec"], as_object(workload.get("metadata"))
    name = str(metadata.get("name") or "pod")
    count = spec.get("replicas", spec.get("parallelism", 1))
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= most:
        kind = workload.get("kind", "workload")
        raise errors.UsageError(f"{kind} {name}: {count!r} is no number of pods up to {most}")
    template = spec["template"]
    return [
        {
            "kind": "Pod",
            "metadata": {
                **as_object(template.get("metadata")),
                "name": f"{name}-{number}",
                "namespace": metadata.get("namespace", "default"),
            },
            "spec": copy.deepcopy(template.get("spec")),
        }
        for number in range(count)
    ]
