"""What the sub-resources ``binding`` and ``eviction`` make of a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status

if TYPE_CHECKING:
    from rte.reader.json import Json
    from rte.sim.apiserver.storage.store import Obj


def bind(pod: Obj, node: str, binding: Json, now: str) -> Obj:
    """The pod after ``pods/binding``.

    Raises:
        status.StatusError: 409, the pod is bound, being deleted or gated.
    """
    name, spec, metadata = pod["metadata"]["name"], pod["spec"], dict(pod["metadata"])
    why = ""
    if metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise status.conflict("pods/binding", name, why)
    for field in ("annotations", "labels"):
        extra = (binding.get("metadata") or {}).get(field) or {}
        if extra:
            metadata[field] = {**(metadata.get(field) or {}), **extra}
    after = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    conditions = [c for c in after.get("conditions") or () if c["type"] != "PodScheduled"]
    conditions.append(
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
    )
    after["conditions"] = conditions
    return {**pod, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": after}


def disrupted(pod: Obj, now: str) -> Obj:
    """The pod once the eviction subresource has marked it."""
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    conditions = list(pod["status"].get("conditions") or ())
    if not any(c["type"] == mark["type"] and c["status"] == "True" for c in conditions):
        conditions = [c for c in conditions if c["type"] != mark["type"]] + [mark]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}
