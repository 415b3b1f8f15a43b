"""Whether the devices of an allocated claim are there and ready for a bind.

Binding conditions: ``isClaimReadyForBinding`` of kube-scheduler. That devices are gone or tainted
after the allocation it does not look at; there the driver refuses, or the pod is evicted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from rte.placement.dra.structured import requests
from rte.placement.dra.structured.pools import DeviceID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.placement.dra.objects import (
        AllocationResult,
        DeviceResult,
        DeviceStatus,
        ResourceClaim,
    )
    from rte.placement.dra.structured.pools import Pool


class ClaimReadiness(StrEnum):
    """What binding conditions come to."""

    READY = "ready"
    WAITING = "waiting"  #: the driver has not made a device ready yet
    FAILED = "failed"  #: a device cannot be made ready: allocate others


def readiness(claim: ResourceClaim) -> tuple[ClaimReadiness, str]:
    """The state of all devices of the claim that have binding conditions, and what is behind it."""
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimReadiness.WAITING, f"claim {claim.name} is not allocated"
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        name = f"{result.driver}/{result.pool}/{result.device}"
        status = _status_of(claim, result)
        if status is None:
            return ClaimReadiness.WAITING, f"no status of {name} yet"
        held = {condition.type: condition for condition in status.conditions}
        for wanted in result.binding_failure_conditions:
            found = held.get(wanted)
            if found is not None and found.status == "True":
                return (
                    ClaimReadiness.FAILED,
                    f"{name}: {wanted}: {found.reason} {found.message}".rstrip(),
                )
        for wanted in result.binding_conditions:
            found = held.get(wanted)
            if found is None or found.status != "True":
                return ClaimReadiness.WAITING, f"{name}: {wanted} is not true yet"
    return ClaimReadiness.READY, ""


def lost(allocation: AllocationResult, pools: Iterable[Pool], *, taints: bool = True) -> str:
    """The first device that is gone, or has a taint that its request does not tolerate; or "".

    Args:
        allocation: of a claim.
        pools: that a node sees; of a pool that is incomplete nothing is said.
        taints: whether devices can be tainted (``DRADeviceTaints``).
    """
    seen = list(pools)
    open_pools = {pool.id for pool in seen if pool.problem}
    known = {device.id: device for pool in seen for device in pool.devices}
    for result in allocation.devices.results:
        name = DeviceID(result.driver, result.pool, result.device)
        if name[:2] in open_pools:
            continue
        device = known.get(name)
        if device is None:
            return f"device {'/'.join(name)} is gone"
        if taints and not requests.tolerates(device, result.tolerations):
            return f"device {'/'.join(name)} is tainted"
    return ""


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
