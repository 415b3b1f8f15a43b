"""In which NUMA zone a device of DRA is (docs/dra.md).

Its driver may say so; else the report of its node knows where its PCI function or root is. A device
of which neither is true has no known zone, and that is said, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import PCIZones
    from rte.model.node import Topology
    from rte.placement.dra.objects import Attribute, Device

#: Attributes that name a zone: Kubernetes' own, then those of drivers in the field.
ZONE_ATTRIBUTES = (
    "resource.kubernetes.io/numaNode",
    "dra.net/numaNode",
    "dra.cpu/numaNodeID",
    "dra.memory/numaNode",
)
FUNCTION_ATTRIBUTE = "resource.kubernetes.io/pciBusID"
ROOT_ATTRIBUTE = "resource.kubernetes.io/pcieRoot"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a device is: ``zone``, or None and ``missing`` says what would tell it."""

    zone: int | None
    missing: str = ""


@dataclass(frozen=True)
class Places:
    """What a node's report knows of the places of devices.

    Attributes:
        cpu_zones: every zone of the node -> its CPUs (0: a zone of memory alone).
        pci: zones of PCI functions; None where the report does not tell.
    """

    cpu_zones: Mapping[int, int]
    pci: PCIZones | None = None

    @classmethod
    def of(cls, topology: Topology, pci: PCIZones | None) -> Places:
        """From a report."""
        return cls(topology.zone_cpus, pci)

    def locate(self, driver: str, device: Device) -> Location:
        """The zone of a device of a driver.

        A zone that the driver names counts, unless it has no CPUs (GPUs with memory of their own
        report the zone of that memory) and the device's PCI function is known to be elsewhere.
        """
        named = _named_zone(driver, device.attributes)
        if named is not None and self.cpu_zones.get(named):
            return Location(named)
        by_function = self._by_pci(device)
        if by_function is not None:
            return Location(by_function)
        if named is None:
            return Location(None, self._missing(device))
        if named in self.cpu_zones:
            return Location(None, f"zone {named} has no CPUs, and {self._missing(device)}")
        return Location(None, f"the node has no zone {named}, and {self._missing(device)}")

    def _by_pci(self, device: Device) -> int | None:
        if self.pci is None:
            return None
        zone = None
        if (address := _text(device.attributes, FUNCTION_ATTRIBUTE)) is not None:
            zone = self.pci.of_function(address)
        if zone is None and (root := _text(device.attributes, ROOT_ATTRIBUTE)) is not None:
            zone = self.pci.of_root(root)
        return zone if zone in self.cpu_zones else None

    def _missing(self, device: Device) -> str:
        told = [
            name
            for name in (FUNCTION_ATTRIBUTE, ROOT_ATTRIBUTE)
            if _text(device.attributes, name) is not None
        ]
        if not told:
            return f"the driver publishes no {ZONE_ATTRIBUTES[0]}, {ROOT_ATTRIBUTE} or pciBusID"
        name = told[0].rpartition("/")[2]
        return f"the node's report does not tell the zone of its {name}"


def _named_zone(driver: str, attributes: Mapping[str, Attribute]) -> int | None:
    """The zone that the driver names; of a list the first, which is where the device is."""
    for name in ZONE_ATTRIBUTES:
        domain, _, bare = name.partition("/")
        found = attributes.get(name) or (attributes.get(bare) if domain == driver else None)
        if found is None:
            continue
        zone = found.integers[0] if found.integers else found.integer
        if zone is not None and zone >= 0:
            return zone
    return None


def _text(attributes: Mapping[str, Attribute], name: str) -> str | None:
    found = attributes.get(name)
    if found is None:
        return None
    return found.strings[0] if found.strings else found.string
