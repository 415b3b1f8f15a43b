"""Devices and CPUs of a node's zones, and how they are used up together (pure).

The kubelet gives a pod the lowest zone that holds its CPUs. Devices of a higher zone are beside the
CPUs of only those pods that the lower zones cannot hold, so which pod goes to a lower zone decides
what others can reach. :func:`score` compares nodes for a pod, :func:`precedence` waiting pods on a
node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.inflight.zones import goes_to_one_zone
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.node import NodeState
    from rte.placement.dra.structured.allocator import Supply
    from rte.placement.dra.zones import Places

#: Weight of the share of a zone's CPUs that a pod takes where the zone is filled first.
_FILLING = 2.0


@dataclass(frozen=True, slots=True)
class Asking:
    """What a pod asks for.

    Attributes:
        cpus: exclusive CPUs.
        devices: how many.
        certain: it goes only where nothing can change its zone.
        pods: how many such pods.
    """

    cpus: int
    devices: int
    certain: bool
    pods: int = 1


@dataclass(frozen=True, slots=True)
class ZoneRoom:
    """A zone of a node: all CPUs and devices that can be given, and what is free of them."""

    cpus: int
    free_cpus: int
    devices: int
    free_devices: int


def rooms(state: NodeState, supply: Supply, places: Places) -> dict[int, ZoneRoom]:
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
        found[zone] = ZoneRoom(
            cpus=assignable.bit_count(),
            free_cpus=(assignable & state.shared).bit_count(),
            devices=total[zone],
            free_devices=free[zone],
        )
    return found


def fills_lowest_first(state: NodeState) -> bool:
    """Whether the node's kubelet gives pods the lowest zone that holds them."""
    return goes_to_one_zone(state, rules_of(state.config, state.kubelet_version))


def score(zones: Mapping[int, ZoneRoom], *, lowest_first: bool) -> int:
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


def precedence(
    zones: Mapping[int, ZoneRoom], zone: int, pod: Asking, waiting: Iterable[Asking]
) -> float:
    """How well the devices of a node are used if the pod goes there, in devices; more is better.

    * In the lowest zone: the free devices of higher zones that come within reach of waiting pods,
      by the share of what these ask for; the pod's own devices where it could hardly go anywhere
      else; and pods that fill the zone's CPUs.
    * In a higher zone: many devices and few CPUs, so that the zone's devices do not outlast its
      CPUs.

    Args:
        zones: of the node, after the placement.
        zone: where the pod goes.
        pod: what it asks for.
        waiting: what all waiting pods ask for.
    """
    movable = [one for one in waiting if not one.certain]
    total = sum(one.devices * one.pods for one in movable)
    opened = 0.0
    below = 0
    for number, room in sorted(zones.items()):
        if number > zone and total:
            reach = sum(
                one.devices * one.pods for one in movable if below < one.cpus <= room.free_cpus
            )
            opened += room.free_devices * reach / total
        below = max(below, room.free_cpus)
    own = zones[zone]
    cpus = pod.cpus / own.cpus if own.cpus else 1.0
    if zone == min(zones):
        return opened + pod.devices * pod.certain + _FILLING * cpus
    return opened + (pod.devices / own.devices if own.devices else 0.0) - cpus
