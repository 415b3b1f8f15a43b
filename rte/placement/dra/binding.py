"""Whether the devices of an allocated claim are ready for a bind (``isClaimReadyForBinding``)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.placement.dra.objects import DeviceResult, DeviceStatus, ResourceClaim


class Readiness(StrEnum):
    """What binding conditions come to."""

    READY = "ready"
    WAITING = "waiting"  #: the driver has not made a device ready yet
    FAILED = "failed"  #: a device cannot be made ready: allocate others


def readiness(claim: ResourceClaim) -> tuple[Readiness, str]:
    """The state of all devices of the claim that have binding conditions, and what is behind it."""
    allocation = claim.status.allocation
    if allocation is None:
        return Readiness.WAITING, f"claim {claim.metadata.name} is not allocated"
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        name = f"{result.driver}/{result.pool}/{result.device}"
        status = _status_of(claim, result)
        if status is None:
            return Readiness.WAITING, f"no status of {name} yet"
        held = {condition.type: condition for condition in status.conditions}
        for wanted in result.binding_failure_conditions:
            found = held.get(wanted)
            if found is not None and found.status == "True":
                return (
                    Readiness.FAILED,
                    f"{name}: {wanted}: {found.reason} {found.message}".rstrip(),
                )
        for wanted in result.binding_conditions:
            found = held.get(wanted)
            if found is None or found.status != "True":
                return Readiness.WAITING, f"{name}: {wanted} is not true yet"
    return Readiness.READY, ""


def _status_of(claim: ResourceClaim, result: DeviceResult) -> DeviceStatus | None:
    wanted = result.driver, result.pool, result.device, result.share_id
    return next(
        (
            status
            for status in claim.status.devices
            if (status.driver, status.pool, status.device, status.share_id) == wanted
        ),
        None,
    )
