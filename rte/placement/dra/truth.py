"""Where running pods and their DRA devices are: aligned, across zones, or unknown.

Works for pods of any scheduler: the node's report tells the CPUs and memory, claims the devices,
slices and the report where those are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.dra.alignment import Alignment, judge, locate_all
from rte.placement.dra.zones import Places
from rte.placement.inflight.certainty import zones_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.model.machine import PCIZones
    from rte.model.node import NodeState
    from rte.placement.dra.objects import ResourceClaim
    from rte.placement.dra.structured.allocator import DeviceSupply
    from rte.placement.dra.structured.pools import DeviceID
    from rte.placement.dra.zones import Location


@dataclass(frozen=True, kw_only=True)
class PodTruth:
    """One pod with DRA devices on a node.

    Attributes:
        uid: of the pod.
        zones: of its CPUs and memory.
        devices: its devices and where they are.
        alignment: what that comes to.
        reason: why it is not aligned; empty if it is.
    """

    uid: str
    zones: ZoneSet
    devices: Mapping[DeviceID, Location]
    alignment: Alignment
    reason: str


def observe(
    state: NodeState, pci: PCIZones | None, claims: Iterable[ResourceClaim], supply: DeviceSupply
) -> list[PodTruth]:
    """Every pod of the node that uses an allocated claim, by UID.

    ``claims`` are those of pods on this node; a claim that several pods share is each one's.
    """
    places = Places.of(state.topology, pci)
    present = state.admitted | state.holdings.keys() | state.pod_holdings.keys()
    by_pod: dict[str, list[ResourceClaim]] = {}
    for claim in claims:
        if claim.status.allocation is None:
            continue
        for consumer in claim.status.reserved_for:
            if consumer.resource == "pods" and consumer.uid in present:
                by_pod.setdefault(consumer.uid, []).append(claim)
    return [_observe(state, uid, own, supply, places) for uid, own in sorted(by_pod.items())]


def count(truths: Iterable[PodTruth]) -> dict[Alignment, int]:
    """How many pods are in each state: the metric ``rte_pods_alignment``."""
    found = Counter(truth.alignment for truth in truths)
    return {alignment: found[alignment] for alignment in Alignment}


def _observe(
    state: NodeState,
    uid: str,
    claims: Sequence[ResourceClaim],
    supply: DeviceSupply,
    places: Places,
) -> PodTruth:
    held = [*state.holdings.get(uid, {}).values()]
    if uid in state.pod_holdings:
        held.append(state.pod_holdings[uid])
    zones = zones_of(held, state.topology)
    allocations = [c.status.allocation for c in claims if c.status.allocation is not None]
    devices = locate_all(allocations, supply, places)
    alignment, reason = judge(zones, devices)
    return PodTruth(uid=uid, zones=zones, devices=devices, alignment=alignment, reason=reason)
