"""The switches of Kubernetes' allocator (``structured/internal/types.go`` ``Features``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the cluster's allocator would take part in.

    A scheduler cannot see feature gates. The API server drops the fields of a gate that is off, so
    what is found is meant: everything is on unless told otherwise. The one exception is
    ``list_type_attributes``: it decides how two scalars are compared with a list, and only there.
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
