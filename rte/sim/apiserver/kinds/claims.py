"""Rules of ``resource.k8s.io``: what the API server fills in and refuses.

Sources: ``pkg/registry/resource/resourceclaim/strategy.go``, ``pkg/apis/resource/validation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds.resource import KindRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj

_MOST_CONSUMERS = 256


def _default_claim(claim: Obj) -> None:
    _default_requests(claim["spec"])


def _default_template(template: Obj) -> None:
    _default_requests(template["spec"]["spec"])


def _default_requests(spec: Obj) -> None:
    """The count of each request."""
    for request in spec["devices"].get("requests") or ():
        exactly = request.get("exactly")
        for one in (*(request.get("firstAvailable") or ()), *([exactly] if exactly else ())):
            if one["allocationMode"] == "ExactCount" and not one.get("count"):
                one["count"] = 1


def _prepare_create(claim: Obj) -> None:
    """A new claim holds nothing."""
    claim["status"] = {}


def _prepare_update(new: Obj, old: Obj) -> None:
    """The status has its own subresource."""
    new["status"] = old.get("status") or {}


def _validate_update(new: Obj, old: Obj) -> list[Cause]:
    """The specification stays."""
    if new["spec"] != old["spec"]:
        return [status.invalid("spec", "", "field is immutable")]
    return []


def _prepare_status(new: Obj, old: Obj) -> None:
    """Only the status changes; what drivers say ends with the allocation."""
    new["spec"] = old["spec"]
    metadata = dict(old["metadata"])
    metadata["resourceVersion"] = new["metadata"].get("resourceVersion", "")
    metadata["managedFields"] = new["metadata"].get("managedFields")
    new["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    if not (new.get("status") or {}).get("allocation"):
        new.get("status", {}).pop("devices", None)


def _validate_status(new: Obj, old: Obj) -> list[Cause]:
    """An allocation is immutable; what is not allocated, or is going, cannot be reserved."""
    return [*_problems(new, new.get("status") or {}, old.get("status") or {})]


def _problems(new: Obj, now: Obj, before: Obj) -> Iterator[Cause]:
    reserved = now.get("reservedFor") or []
    path = "status.reservedFor"
    if len(reserved) > _MOST_CONSUMERS:
        yield status.Cause(
            path, "TooMany", f"Too many: {len(reserved)}: must have at most 256 items"
        )
    uids = [one.get("uid") for one in reserved]
    for index, uid in enumerate(uids):
        if uid in uids[:index]:
            yield status.duplicate(f"{path}[{index}]", uid)
    if reserved and not now.get("allocation"):
        yield status.forbidden(path, "may not be specified when `allocated` is not set")
    known = {one.get("uid") for one in before.get("reservedFor") or ()}
    if new["metadata"].get("deletionTimestamp") and not known.issuperset(uids):
        text = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        yield status.forbidden(path, text)
    held = before.get("allocation")
    if held and now.get("allocation") and held != now["allocation"]:
        yield status.invalid("status.allocation", "", "field is immutable")


RULES = {
    "resource/v1.ResourceClaim": KindRules(
        default=_default_claim,
        create=_prepare_create,
        update=_prepare_update,
        validate_update=_validate_update,
        status=_prepare_status,
        validate_status=_validate_status,
    ),
    "resource/v1.ResourceClaimTemplate": KindRules(default=_default_template),
}
