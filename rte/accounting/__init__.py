"""Machine and kubelet view to a consistent NodeReading (pure)."""

from rte.accounting.zones import ZoneResources, zone_resources

__all__ = ["ZoneResources", "zone_resources"]
