"""The zones of all PCI functions: what DRA devices are placed by."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rte.model import machine
from rte.sysfs import pci

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rte.sysfs.tree import Notes, Tree


def read_pci_zones(sys: Tree, zones: Sequence[machine.Zone], notes: Notes) -> machine.PCIZones:
    """Zones of roots and functions as the platform tells them."""
    members = {zone.cpus: zone.id for zone in zones if zone.cpus}
    known = {zone.id for zone in zones}
    found = []
    for address, place in sorted(pci.find_devices(sys, notes).items()):
        zone = pci.zone_of(sys, place, members)
        found.append((address, _root_of(place), zone if zone in known else None))
    return summarize(found)


def summarize(found: Iterable[tuple[str, str, int | None]]) -> machine.PCIZones:
    """The zones of functions (address, root or "", zone), by root where a root has one zone."""
    rows = list(found)
    members: dict[str, set[int]] = defaultdict(set)
    for _, root, zone in rows:
        if root:
            members[root].update(() if zone is None else (zone,))
    roots = {root: zones.pop() if len(zones) == 1 else None for root, zones in members.items()}
    return machine.PCIZones(
        roots=dict(sorted(roots.items())),
        functions={
            address: zone
            for address, root, zone in sorted(rows)
            # Behind a controller that makes a domain of its own, buses do not tell the root.
            if zone is not None
            and (roots.get(root) is None or root[3:-3] != address.partition(":")[0])
        },
    )


def _root_of(place: str) -> str:
    """The root in a path ``devices/pci0000:17/...``; empty where the path does not tell."""
    first, _, rest = place.partition("/")
    root = rest.partition("/")[0]
    return root if first == "devices" and root.startswith("pci") else ""
