"""The zones of any exporter's NRT as zone arithmetic reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.nrt import attributes
from rte.placement.foreign import zones
from rte.placement.kubelet import rules
from rte.placement.kubelet.demand import is_memory

if TYPE_CHECKING:
    from rte.nrt.reader import NRT

LIMIT_MAX_ZONES = 1024


def zone_table(decoded: NRT) -> zones.ZoneTable:
    """The zones in the object's order, as NodeResourceTopologyMatch takes them.

    An id may stand twice; the costs of its last zone then hold for all. A zone whose id is beyond
    the kubelet's mask is in no affinity and left out.
    """
    known = [zone for zone in decoded.zones if zone.id <= zones.MAX_ZONE_ID]
    costs = {zone.id: zone.costs for zone in known}
    return zones.ZoneTable(
        zones=tuple(
            zones.ZoneEntry(
                id=zone.id,
                available={name: each.available for name, each in zone.resources.items()},
                total={
                    name: each.allocatable if is_memory(name) else each.capacity
                    for name, each in zone.resources.items()
                },
                costs={
                    other: cost
                    for other, cost in costs[zone.id].items()
                    if other <= zones.MAX_ZONE_ID
                },
            )
            for zone in known
        ),
        policy=decoded.policy,
        scope=decoded.scope,
        max_zones=_max_zones(decoded),
    )


def _max_zones(decoded: NRT) -> int:
    found = rules.DEFAULT_MAX_ZONES
    for name, value in decoded.attributes:
        digits = value.removeprefix("+")
        if name == attributes.MAX_ZONES_ATTRIBUTE and digits.isascii() and digits.isdigit():
            number = int(digits[:9])
            found = min(number, LIMIT_MAX_ZONES) if number > 1 else found
    return found
