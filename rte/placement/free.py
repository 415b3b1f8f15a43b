"""What a node can still give exclusively: the ground of every bound, count and score of zones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.quantity import ZoneAmounts
from rte.placement.kubelet.memory import is_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.bits import Mask, ZoneSet
    from rte.model.node import NodeState, ZoneMemory


@dataclass(frozen=True)
class Free:
    """What is free on a node.

    Attributes:
        zones: id -> what is free there, in id order. CPUs are those that may be assigned; memory is
            what its manager counts; a device on several zones is in each, one without a zone in
            none, and resources of which no device has a zone are not listed.
        devices: resource -> free devices, wherever they are.
        grouped: zones whose memory serves only allocations that take it together with others'.
    """

    zones: Mapping[int, ZoneAmounts]
    devices: Mapping[str, int]
    grouped: ZoneSet

    @property
    def total(self) -> ZoneAmounts:
        """Of all zones together, and of none."""
        return ZoneAmounts(quantity.total(self.zones.values()) | dict(self.devices))

    @property
    def single(self) -> dict[int, ZoneAmounts]:
        """What is free for units of one zone: no memory where zones are grouped."""
        return {
            zone: ZoneAmounts({n: 0 if is_memory(n) else amount for n, amount in amounts.items()})
            if self.grouped >> zone & 1
            else amounts
            for zone, amounts in self.zones.items()
        }


def free_of(state: NodeState) -> Free:
    """What is free on a node in this state."""
    assignable = state.shared & ~state.reserved
    unused = unused_devices(state)
    zonal = {name: mask for name, mask in unused.items() if any(state.devices[name].by_zones)}
    zones, grouped = {}, 0
    for zone, cpus in state.topology.zone_cpus.items():
        amounts = {"cpu": (cpus & assignable).bit_count()}
        row = state.memory.get(zone)
        if row is not None:
            amounts |= {name: each.free for name, each in row.amounts.items()}
            grouped |= is_grouped(row) << zone
        for name, mask in zonal.items():
            amounts[name] = (state.devices[name].in_zone(zone) & mask).bit_count()
        zones[zone] = ZoneAmounts(amounts)
    return Free(zones, {name: mask.bit_count() for name, mask in unused.items()}, grouped)


def times(free: Mapping[str, int], unit: Mapping[str, int]) -> int:
    """How many such units it holds; resources that it does not know bound nothing."""
    most = quantity.MOST
    for name, amount in unit.items():
        if name in free:
            most = min(most, free[name] // amount)
    return most


def unused_devices(state: NodeState) -> dict[str, Mask]:
    """Resource -> its devices that are healthy and that nobody holds."""
    if not state.devices:
        return {}
    held: dict[str, Mask] = {}
    for containers in state.holdings.values():
        for holding in containers.values():
            for name, mask in holding.devices.items():
                held[name] = held.get(name, 0) | mask
    return {name: pool.healthy & ~held.get(name, 0) for name, pool in state.devices.items()}


def is_grouped(row: ZoneMemory) -> bool:
    """Whether the zone's memory serves only allocations that take it together with others."""
    return row.group & (row.group - 1) != 0
