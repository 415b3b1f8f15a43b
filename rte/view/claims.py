"""Devices of DRA on a node: where they are, which are free, and which pod holds them by a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rte.placement.dra.structured.pools import DeviceID
from rte.placement.dra.zones import Places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.reader.json import JsonObject
    from rte.scheduler.framework.claims.devices import Devices
    from rte.scheduler.framework.node import NodeEntry


class OfferedDevices(NamedTuple):
    """What drivers offer on a node.

    Attributes:
        zones: device -> its zone; None where nobody says.
        taken: those that claims hold.
    """

    zones: Mapping[DeviceID, int | None] = {}
    taken: frozenset[DeviceID] = frozenset()

    def in_zone(self, zone: int) -> dict[str, list[int]]:
        """Driver -> free devices and all devices of a zone."""
        out: dict[str, list[int]] = {}
        for device, where in self.zones.items():
            if where == zone:
                row = out.setdefault(device.driver, [0, 0])
                row[0] += device not in self.taken
                row[1] += 1
        return out


def of_node(entry: NodeEntry, devices: Devices) -> OfferedDevices:
    """Devices of the pools that the node sees whole."""
    outlook = entry.outlook()
    if entry.info is None or outlook is None:
        return OfferedDevices()
    supply = devices.fleet.supply(devices.node(entry.info))
    pci = entry.report.pci if entry.report else None
    places = Places.of(outlook.base.topology, pci)
    zones = {
        one.id: places.locate(one.id.driver, one.device).zone
        for pool in supply.pools
        if not pool.problem
        for one in pool.devices
        if one not in pool.away
    }
    taken = frozenset(device for device in zones if supply.usage.is_allocated(device))
    return OfferedDevices(zones, taken)


def held_by(uid: str, devices: Devices, offered: OfferedDevices) -> list[JsonObject]:
    """What each claim of a pod holds there, in the form of what a container holds."""
    rows = []
    for claim in devices.used_by(uid):
        allocation = claim.status.allocation
        given: dict[str, list[list[str | None]]] = {}
        for result in allocation.devices.results if allocation else ():
            zone = offered.zones.get(DeviceID(result.driver, result.pool, result.device))
            place = None if zone is None else str(zone)
            given.setdefault(result.driver, []).append([result.device, place])
        name = f"claim {claim.name}"
        rows.append({"name": name, "cpus": "", "memory": [], "devices": sorted(given.items())})
    return rows
