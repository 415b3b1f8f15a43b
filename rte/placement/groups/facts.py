"""What the labels of a Node say to processing groups; NHD's labels are read where ours are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.groups.inventory import GroupNodeFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names joined by dots: a label's value may hold no commas.
GROUPS = "topology.rte.dev/node-groups"
#: ``true`` = no new pods; nobody is evicted.
MAINTENANCE = "topology.rte.dev/maintenance"
#: Prefix of labels that become ``values`` of allocations: ``values.topology.rte.dev/vlan``.
VALUES = "values.topology.rte.dev/"

#: NHD's labels of the same.
NHD_GROUPS = "NHD_GROUP"
NHD_MAINTENANCE = "sigproc.viasat.io/maintenance"
NHD_VALUES = {"vlan": "DATA_PLANE_VLAN", "gateway": "DATA_DEFAULT_GW"}


def node_facts(
    labels: Mapping[str, str], *, unschedulable: bool = False, cpu_arch: str = ""
) -> GroupNodeFacts:
    """The facts about a node."""
    names = labels.get(GROUPS, labels.get(NHD_GROUPS, ""))
    maintenance = labels.get(MAINTENANCE, labels.get(NHD_MAINTENANCE, ""))
    return GroupNodeFacts(
        cordoned=unschedulable,
        maintenance=is_maintenance(maintenance),
        groups=tuple(sorted(set(filter(None, names.split("."))))) or ("default",),
        cpu_arch=cpu_arch,
    )


def is_maintenance(value: str) -> bool:
    """What is meant by the label; NHD takes any value for yes, ``false`` and ``""`` too."""
    return value.lower() not in {"", "false", "not_scheduled"}


def site_values(labels: Mapping[str, str]) -> dict[str, str]:
    """What the site says about a node, for the application: name -> value."""
    values = {name: labels[key] for name, key in NHD_VALUES.items() if key in labels}
    return values | {
        key.removeprefix(VALUES): value for key, value in labels.items() if key.startswith(VALUES)
    }
