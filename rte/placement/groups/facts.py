"""What the labels of a Node say to processing groups; NHD's labels are read where ours are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.groups.inventory import GroupNodeFacts
from rte.placement.groups.nhd import labels as nhd

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names joined by dots: a label's value may hold no commas.
GROUPS = "topology.rte.dev/node-groups"
#: ``true`` = no new pods; nobody is evicted.
MAINTENANCE = "topology.rte.dev/maintenance"
#: Prefix of labels that become ``values`` of allocations: ``values.topology.rte.dev/vlan``.
VALUES = "values.topology.rte.dev/"

_NHD_VALUES = {"vlan": nhd.VLAN, "gateway": nhd.GATEWAY}


def node_facts(
    labels: Mapping[str, str], *, unschedulable: bool = False, cpu_arch: str = ""
) -> GroupNodeFacts:
    """The facts about a node."""
    names = labels.get(GROUPS, labels.get(nhd.GROUP, ""))
    maintenance = labels.get(MAINTENANCE, labels.get(nhd.MAINTENANCE, ""))
    return GroupNodeFacts(
        cordoned=unschedulable,
        maintenance=nhd.is_maintenance(maintenance),
        groups=tuple(sorted(set(filter(None, names.split("."))))) or ("default",),
        cpu_arch=cpu_arch,
    )


def site_values(labels: Mapping[str, str]) -> dict[str, str]:
    """What the site says about a node, for the application: name -> value."""
    values = {name: labels[key] for name, key in _NHD_VALUES.items() if key in labels}
    return values | {
        key.removeprefix(VALUES): value for key, value in labels.items() if key.startswith(VALUES)
    }
