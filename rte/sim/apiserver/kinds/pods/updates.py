"""What may change in a stored pod.

Sources: kubernetes ``pkg/apis/core/validation/validation.go``,
``pkg/registry/core/pod/strategy.go``.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds.pods.validation import validate

if TYPE_CHECKING:
    from rte.reader.json import Json
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def prepare_update(new: Obj, old: Obj) -> None:
    """Status is out of reach of the main resource; generation counts spec changes. Clients that do
    not know the pod-level stanza do not remove it.
    """
    new["status"] = old["status"]
    if old["spec"].get("resources") is not None and new["spec"].get("resources") is None:
        new["spec"]["resources"] = copy.deepcopy(old["spec"]["resources"])
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def validate_update(new: Obj, old: Obj) -> list[Cause]:
    """Which parts of a pod's spec may change."""
    out = validate(new)
    for field in ("containers", "initContainers"):
        before, after = old["spec"].get(field) or (), new["spec"].get(field) or ()
        if [item["name"] for item in before] != [item["name"] for item in after]:
            out.append(
                status.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            )
            return out
    _validate_deadline(new["spec"], old["spec"], out)
    gone = [
        item
        for item in old["spec"].get("tolerations") or ()
        if not any(_same_toleration(item, kept) for kept in new["spec"].get("tolerations") or ())
    ]
    if gone:
        out.append(
            status.forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        )
    gates = {item["name"] for item in old["spec"].get("schedulingGates") or ()}
    added = [
        item["name"]
        for item in new["spec"].get("schedulingGates") or ()
        if item["name"] not in gates
    ]
    if added:
        out.append(
            status.forbidden(
                "spec.schedulingGates",
                f"only deletion is allowed, but found new scheduling gate '{added[0]}'",
            )
        )
    if _frozen(new, old) != old["spec"]:
        out.append(status.forbidden("spec", _IMMUTABLE))
    return out


def _validate_deadline(new: Obj, old: Obj, out: list[Cause]) -> None:
    """The deadline may be set once and only come closer."""
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is None or after == before:
        return
    text = "must be less than or equal to previous value"
    if after is None:
        text = "must not update from a positive integer to nil value"
    if after is None or after > before:
        out.append(status.invalid("spec.activeDeadlineSeconds", after, text))


def _same_toleration(left: Json, right: Json) -> bool:
    return all(left.get(f) == right.get(f) for f in ("key", "operator", "value", "effect"))


def _frozen(new: Obj, old: Obj) -> Obj:
    spec: Obj = copy.deepcopy(new["spec"])
    for field in ("containers", "initContainers"):
        for after, before in zip(spec.get(field) or (), old["spec"].get(field) or (), strict=False):
            after["image"] = before.get("image", "")
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        spec.pop(field, None)
        if field in old["spec"]:
            spec[field] = old["spec"][field]
    if old["spec"].get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = old["spec"]["terminationGracePeriodSeconds"]
    if old["spec"].get("schedulingGates"):
        selector = old["spec"].get("nodeSelector") or {}
        after = spec.get("nodeSelector") or {}
        if all(after.get(key) == value for key, value in selector.items()):
            spec.pop("nodeSelector", None)
            if "nodeSelector" in old["spec"]:
                spec["nodeSelector"] = old["spec"]["nodeSelector"]
    return spec


def prepare_status(new: Obj, old: Obj) -> None:
    """The status subresource: spec and owners stay."""
    new["spec"] = old["spec"]
    for field in ("deletionTimestamp", "ownerReferences"):
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]
    if not new["status"].get("qosClass"):
        new["status"]["qosClass"] = old["status"].get("qosClass", "")
    if not new["status"].get("observedGeneration") and old["status"].get("observedGeneration"):
        new["status"]["observedGeneration"] = old["status"]["observedGeneration"]


def validate_status(new: Obj, old: Obj) -> list[Cause]:
    """Rules for the status subresource."""
    out: list[Cause] = []
    for index, item in enumerate(new["status"].get("conditions") or ()):
        if not item["type"]:
            out.append(status.required(f"status.conditions[{index}].type"))
    if old["spec"].get("restartPolicy") == "Always":
        return out
    terminated = {
        item["name"]
        for item in old["status"].get("containerStatuses") or ()
        if (item.get("state") or {}).get("terminated")
    }
    for index, item in enumerate(new["status"].get("containerStatuses") or ()):
        failed = old["spec"].get("restartPolicy") == "OnFailure"
        state = item.get("state") or {}
        if item["name"] in terminated and not state.get("terminated") and not failed:
            out.append(
                status.forbidden(
                    f"status.containerStatuses[{index}].state",
                    "may not be transitioned to non-terminated state",
                )
            )
    return out
