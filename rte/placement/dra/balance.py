"""Devices and CPUs of a node's zones, and how they are used up together (pure).

The kubelet gives a pod the lowest zone that holds its CPUs. Devices of a higher zone are beside the
CPUs of only those pods that the lower zones cannot hold, so which pod goes to a lower zone decides
what others can reach.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.inflight.zones import goes_to_one_zone
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.node import NodeState
    from rte.placement.dra.structured.allocator import DeviceSupply
    from rte.placement.dra.zones import Places


@dataclass(frozen=True, slots=True)
class ZoneBalance:
    """A zone of a node: all CPUs and devices that can be given, and what is free of them."""

    cpus: int
    free_cpus: int
    devices: int
    free_devices: int


def rooms(state: NodeState, supply: DeviceSupply, places: Places) -> dict[int, ZoneBalance]:
    """The zones of a node that have CPUs, ascending; devices of unknown place are left out."""
    total: Counter[int] = Counter()
    free: Counter[int] = Counter()
    for pool in supply.pools:
        for device in pool.devices:
            zone = (
                None if device in pool.away else places.locate(device.id.driver, device.device).zone
            )
            if zone is not None:
                total[zone] += 1
                free[zone] += not supply.usage.is_allocated(device.id)
    found = {}
    for zone, cpus in sorted(places.cpu_zones.items()):
        assignable = cpus & ~state.reserved
        found[zone] = ZoneBalance(
            cpus=assignable.bit_count(),
            free_cpus=(assignable & state.shared).bit_count(),
            devices=total[zone],
            free_devices=free[zone],
        )
    return found


def fills_lowest_first(state: NodeState) -> bool:
    """Whether the node's kubelet gives pods the lowest zone that holds them."""
    return goes_to_one_zone(state, rules_of(state.config, state.kubelet_version))


def score(zones: Mapping[int, ZoneBalance], *, lowest_first: bool) -> int:
    """0 to 100: how well CPUs and devices of the node run out together (after a placement).

    Less by every free device that pods will not reach: those whose zone has no CPUs left, and those
    whose zone the kubelet will not choose because a lower one has room. Pods are taken to be of all
    sizes, from one CPU to all CPUs of a zone.
    """
    total = sum(room.devices for room in zones.values())
    lost = 0.0
    below = 0
    for _, room in sorted(zones.items()):
        reach = max(0, room.free_cpus - below) / room.cpus if room.cpus else 0.0
        lost += max(0.0, room.free_devices - room.devices * reach)
        if lowest_first:
            below = max(below, room.free_cpus)
    return round(100 * (1 - lost / total)) if total else 100
