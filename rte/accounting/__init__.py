"""Machine and kubelet view to a consistent NodeReading (pure)."""

from rte.accounting.reading import ReadingOptions, build_reading
from rte.accounting.topology import kubelet_topology, machine_of
from rte.accounting.zones import ZoneResources, zone_resources

__all__ = [
    "ReadingOptions",
    "ZoneResources",
    "build_reading",
    "kubelet_topology",
    "machine_of",
    "zone_resources",
]
