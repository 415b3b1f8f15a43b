"""What a pod holds, part by part, in a form that can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rte.model.kubelet import WHOLE_POD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.bits import CPUSet, Mask, ZoneSet
    from rte.model.node import DevicePool, NodeState, Topology

CPUS, MEMORY = "cpus", "memory"

#: Sorted rows of (resource, zones, amount): blocks of memory in bytes; devices by their zone set
#: (None: no topology), because those of one zone set are interchangeable.
Rows: TypeAlias = "tuple[tuple[str, ZoneSet | None, int], ...]"
#: A CPUSet for ``cpus``, else Rows.
Held: TypeAlias = "CPUSet | Rows"


class Part(NamedTuple):
    """One thing that a container (:data:`WHOLE_POD`: the pod as a whole) may hold.

    ``what`` is ``cpus``, ``memory`` or the name of a device resource.
    """

    container: str
    what: str


Parts: TypeAlias = "Mapping[Part, Held]"


def parts_of(state: NodeState, uid: str) -> dict[Part, Held]:
    """What the pod holds in that state; of what it does not hold there is no part."""
    found: dict[Part, Held] = {}
    holdings = dict(state.holdings.get(uid, {}))
    if uid in state.pod_holdings:
        holdings[WHOLE_POD] = state.pod_holdings[uid]
    for name, holding in holdings.items():
        if holding.cpus:
            found[Part(name, CPUS)] = holding.cpus
        blocks = tuple(sorted((b.resource, b.zones, b.size) for b in holding.memory if b.size))
        if blocks:
            found[Part(name, MEMORY)] = blocks
        for resource, mask in holding.devices.items():
            if mask:
                found[Part(name, resource)] = _by_zones(resource, state.devices[resource], mask)
    return found


def zones_of(topology: Topology, held: Held | None) -> ZoneSet:
    """The zones that a part touches."""
    zones = 0
    if isinstance(held, int):
        for zone, cpus in topology.zone_cpus.items():
            zones |= bool(cpus & held) << zone
    else:
        for _, touched, _ in held or ():
            zones |= touched or 0
    return zones


def _by_zones(resource: str, pool: DevicePool, mask: Mask) -> Rows:
    counts = {zones: (group & mask).bit_count() for zones, group in pool.by_zones.items()}
    rows = ((resource, zones, count) for zones, count in counts.items() if count)
    return tuple(sorted(rows, key=lambda row: -1 if row[1] is None else row[1]))
