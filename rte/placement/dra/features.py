"""The switches of Kubernetes' allocator (``structured/internal/types.go`` ``Features``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the cluster's allocator takes into account.

    A scheduler cannot see feature gates, but the API server drops the fields of a gate that is off:
    what is found is meant, so everything is on. Turn off what a comparison with an older release
    needs; ``repeated_shares`` (up to 1.35 one request could take several shares of a device) is the
    only one that is off.
    """

    admin_access: bool = True
    compatibility_groups: bool = True
    consumable_capacity: bool = True
    derived_attributes: bool = True
    device_binding_and_status: bool = True
    device_taints: bool = True
    fractional_capacity_range: bool = True
    list_type_attributes: bool = True
    optional_node_operations: bool = True
    partitionable_devices: bool = True
    prioritized_list: bool = True
    repeated_shares: bool = False
