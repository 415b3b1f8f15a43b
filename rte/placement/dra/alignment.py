"""Devices of DRA beside the CPUs and memory of their pod.

The kubelet decides on CPUs and memory, and we know what it will decide; the scheduler decides on
devices of DRA. So they are chosen to match: in the zones that the kubelet will give.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rte.model import words
from rte.placement.dra.structured.allocator import MAX_STEPS, allocate
from rte.placement.dra.structured.pools import DeviceID
from rte.placement.dra.verdict import ClaimVerdict, Reason
from rte.placement.dra.zones import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import AllocationResult, ResourceClaim
    from rte.placement.dra.structured.allocator import DeviceSupply
    from rte.placement.dra.structured.pools import PoolDevice
    from rte.placement.dra.zones import Places
    from rte.placement.inflight.certainty import ExpectedZones

#: Pod annotation: how much its devices have to be where its CPUs and memory are.
ANNOTATION = "topology.rte.dev/device-alignment"


class AlignmentWish(StrEnum):
    """The values of the annotation."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    NONE = "none"


class Alignment(StrEnum):
    """Where the devices of a pod are."""

    ALIGNED = "aligned"  #: all in the zones of its CPUs and memory
    ACROSS = "across"  #: one of them, or more, elsewhere
    UNKNOWN = "unknown"  #: cannot be told


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """The answer for a pod on a node.

    Attributes:
        verdict: the allocation, or why there is none.
        alignment: what the allocation comes to (without one: UNKNOWN).
        reason: why it is not aligned; empty if it is.
        expected: the zones that the kubelet will give to CPUs and memory.
    """

    verdict: ClaimVerdict
    alignment: Alignment
    reason: str = ""
    expected: ExpectedZones


def align(
    node: ClaimNode,
    claims: Sequence[ResourceClaim],
    supply: DeviceSupply,
    expected: ExpectedZones,
    places: Places,
    wish: AlignmentWish = AlignmentWish.PREFERRED,
    *,
    new_share_id: Callable[[], str] | None = None,
    max_steps: int = MAX_STEPS,
) -> Aligned:
    """Devices for the claims of a pod, in the zones of its CPUs and memory.

    ``required``: only devices in zones that the kubelet is certain to give; else refused with the
    reason. ``preferred``: such devices first, then those of which no zone is known, then the
    others. Devices taken with admin access are not steered and do not count.
    """
    zones = expected.zones
    if wish is AlignmentWish.REQUIRED and not (zones and expected.certain):
        text = "the zones that the kubelet will give are not certain yet"
        if not zones:
            text = "the pod gets no CPUs or memory of its own to align devices with"
        return _refused(text, expected)
    ranks = None
    if wish is not AlignmentWish.NONE and zones:
        ranks = _ranks(places, zones, required=wish is AlignmentWish.REQUIRED)
    verdict = allocate(
        node, claims, supply, ranks=ranks, new_share_id=new_share_id, max_steps=max_steps
    )
    if verdict.reason is Reason.NO_FIT and wish is AlignmentWish.REQUIRED:
        text = f"no free devices in the zones of its CPUs and memory ({words.zones(zones)})"
        return _refused(text + _without_zone(supply, places), expected)
    if not verdict.fits:
        return Aligned(
            verdict=verdict,
            alignment=Alignment.UNKNOWN,
            reason=verdict.message,
            expected=expected,
        )
    given = [c.status.allocation for c in claims if c.status.allocation is not None]
    located = locate_all((*given, *verdict.allocations.values()), supply, places)
    alignment, reason = judge(zones, located)
    if wish is AlignmentWish.REQUIRED and alignment is not Alignment.ALIGNED:
        return _refused(reason, expected)
    return Aligned(verdict=verdict, alignment=alignment, reason=reason, expected=expected)


def judge(zones: ZoneSet, devices: Mapping[DeviceID, Location]) -> tuple[Alignment, str]:
    """Whether devices are in the zones of the CPUs and memory, and why not.

    One device elsewhere is enough for ACROSS; else one of unknown place for UNKNOWN.
    """
    if not zones:
        return Alignment.UNKNOWN, "no CPUs or memory of its own"
    unknown = ""
    for device, location in devices.items():
        name = "/".join(device)
        if location.zone is None:
            unknown = unknown or f"{name}: {location.missing}"
        elif not zones >> location.zone & 1:
            text = f"{name} is in zone {location.zone}, CPUs and memory in {words.zones(zones)}"
            return Alignment.ACROSS, text
    return (Alignment.UNKNOWN, unknown) if unknown else (Alignment.ALIGNED, "")


def locate_all(
    allocations: Iterable[AllocationResult], supply: DeviceSupply, places: Places
) -> dict[DeviceID, Location]:
    """The places of all devices of allocations, those with admin access left out."""
    known = {
        device.id: device for pool in supply.pools for device in (*pool.devices, *pool.elsewhere)
    }
    found = {}
    for allocation in allocations:
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            name = DeviceID(result.driver, result.pool, result.device)
            device = known.get(name)
            if device is None:
                found[name] = Location(None, "no slice of the node has it")
            else:
                found[name] = places.locate(name.driver, device.device)
    return found


def _ranks(places: Places, zones: ZoneSet, *, required: bool) -> Callable[[PoolDevice], int | None]:
    def rank(device: PoolDevice) -> int | None:
        zone = places.locate(device.id.driver, device.device).zone
        if zone is not None and zones >> zone & 1:
            return 0
        if required:
            return None
        return 1 if zone is None else 2

    return rank


def _without_zone(supply: DeviceSupply, places: Places) -> str:
    """That there are devices of which no zone is known, and why."""
    for pool in supply.pools:
        for device in pool.devices:
            location = places.locate(device.id.driver, device.device)
            if location.zone is None:
                return f"; the zone of {'/'.join(device.id)} is not known: {location.missing}"
    return ""


def _refused(text: str, expected: ExpectedZones) -> Aligned:
    verdict = ClaimVerdict(reason=Reason.NOT_ALIGNED, message=text, allocations={})
    return Aligned(verdict=verdict, alignment=Alignment.UNKNOWN, reason=text, expected=expected)
