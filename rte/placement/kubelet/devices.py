"""The device manager (pkg/kubelet/cm/devicemanager: topology_hints.go, manager.go).

Inside each of its classes (reusable, aligned, other zones, no zone) the kubelet picks at random,
and a plugin may have preferences of its own. Devices with the same zone set are interchangeable;
where a choice is between zone sets, a :class:`Choices` says which one is followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.kubelet import merge, outcome
from rte.placement.kubelet.merge import Hints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.model.bits import Mask, ZoneSet
    from rte.model.node import DevicePool, NodeState
    from rte.placement.kubelet.merge import Family
    from rte.placement.kubelet.outcome import Hint

#: So many picks of one choice are told apart: more than anybody follows (``admission``).
MOST_PICKS = 65


@dataclass(slots=True)
class Choices:
    """Which of the kubelet's possible picks an execution follows.

    The script names the option at each choice; beyond its end the first one is taken: ascending
    ids. ``options`` counts the options at each choice met; those beyond :data:`MOST_PICKS` are not
    told apart, so that many can only be too many.
    """

    script: tuple[int, ...] = ()
    options: list[int] = field(default_factory=list)

    def next_script(self) -> tuple[int, ...] | None:
        """The script of the next execution, depth first; None after the last one."""
        taken = [*self.script, *[0] * len(self.options)][: len(self.options)]
        while taken:
            if taken[-1] + 1 < self.options[len(taken) - 1]:
                return (*taken[:-1], taken[-1] + 1)
            taken.pop()
        return None

    def pick(self, pool: DevicePool, candidates: Mask, count: int) -> Mask:
        """Some ``count`` of the candidates (all, where they are not more)."""
        ascending = bits.first(candidates, count)
        if ascending in (0, candidates):
            return ascending
        groups = [group & candidates for group in pool.by_zones.values() if group & candidates]
        if len(groups) == 1:
            return ascending
        picks = {_counts(groups, ascending): ascending}
        for pick in islice(_picks(groups, count), MOST_PICKS):
            picks.setdefault(_counts(groups, pick), pick)
        place = len(self.options)
        self.options.append(len(picks))
        wanted = self.script[place] if place < len(self.script) else 0
        return list(picks.values())[wanted]


def held(state: NodeState, resource: str) -> Mask:
    """Devices that any container holds."""
    mask = 0
    for containers in state.holdings.values():
        for holding in containers.values():
            mask |= holding.devices.get(resource, 0)
    return mask


def has_zones(pool: DevicePool) -> bool:
    """Whether any device names a zone; else the resource has no opinion on zones."""
    return any(pool.by_zones)


def hints(
    pool: DevicePool,
    zones: tuple[int, ...],
    available: Mask,
    reusable: Mask,
    count: int,
    *,
    device_zones_only: bool,
) -> Sequence[Hint] | None:
    """Combinations of zones that have the devices; None: no opinion, empty: impossible.

    ``zones`` are the machine's, ``available`` the healthy devices that nobody holds (or those that
    the asking one holds), ``reusable`` the devices of the pod's ordinary init containers.

    Raises:
        outcome.Unpredictable: unseen unhealthy devices may narrow the preferred width, or the zones
            are more than anybody combines.
    """
    if not has_zones(pool):
        return None
    if (available | reusable).bit_count() < count:
        return []
    groups = [
        (zone_set, group.bit_count(), (group & available).bit_count())
        for zone_set, group in pool.by_zones.items()
        if zone_set
    ]
    if device_zones_only:
        having = bits.of(zone for zone_set, _, _ in groups for zone in bits.members(zone_set))
        zones = tuple(zone for zone in zones if having >> zone & 1) or zones
    merge.check(zones)
    places = [
        (merge.places_of(zones, zone_set), members, unused) for zone_set, members, unused in groups
    ]
    large_enough = _reaching(len(zones), [each[:2] for each in places], count)
    fewest = merge.fewest(len(zones), large_enough)
    if fewest > 1 and not pool.complete:
        raise outcome.Unpredictable(
            outcome.DEVICES_INCOMPLETE,
            "unhealthy devices count for hints, and the kubelet does not show them",
        )
    reused = {
        zone_set: (group & reusable).bit_count()
        for zone_set, group in pool.by_zones.items()
        if zone_set is not None and group & reusable
    }
    offered = _reaching(
        len(zones), [(mask, unused) for mask, _, unused in places], count - sum(reused.values())
    )
    for zone_set in reused:
        offered &= merge.touching(len(zones), merge.places_of(zones, zone_set))
    return Hints(zones, offered, merge.by_width(len(zones))[fewest])


def _reaching(count: int, groups: Sequence[tuple[int, int]], least: int) -> Family:
    """Combinations that reach at least so many devices; of each group all, by any of its places."""
    single = [0] * count
    missing = {least: merge.containing(count, 0)}
    for places, devices in groups:
        if places.bit_count() == 1:
            single[bits.lowest(places)] += devices
            continue
        touched = merge.touching(count, places)
        for left, family in list(missing.items()):
            after = max(0, left - devices)
            missing[after] = missing.get(after, 0) | family & touched
    family = 0
    for left, having in missing.items():
        family |= having & merge.at_least(tuple(single), left)
    return family


def allocate(
    resource: str,
    pool: DevicePool,
    in_use: Mask,
    reusable: Mask,
    count: int,
    affinity: ZoneSet | None,
    choices: Choices,
) -> Mask:
    """The devices that a container gets (devicesToAllocate).

    Raises:
        outcome.Refused: no healthy device at all, or too few available.
    """
    if not pool.healthy:
        raise outcome.AllocationRefused.unexpected(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        )
    taken = choices.pick(pool, reusable, count)
    count -= taken.bit_count()
    available = pool.healthy & ~in_use
    if available.bit_count() < count:
        raise outcome.AllocationRefused.unexpected(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {count}, Available: {available.bit_count()}"
        )
    for candidates in _classes(pool, available, affinity):
        pick = choices.pick(pool, candidates, count)
        taken |= pick
        count -= pick.bit_count()
    return taken


def _classes(pool: DevicePool, available: Mask, affinity: ZoneSet | None) -> tuple[Mask, ...]:
    """Available devices in the order in which they are considered (filterByAffinity)."""
    if affinity is None:
        return (available,)
    aligned = elsewhere = 0
    for zone_set, group in pool.by_zones.items():
        if zone_set and zone_set & affinity:
            aligned |= group & available
        elif zone_set:
            elsewhere |= group & available
    return aligned, elsewhere, available & ~aligned & ~elsewhere


def _counts(groups: list[Mask], devices: Mask) -> tuple[int, ...]:
    return tuple((group & devices).bit_count() for group in groups)


def _picks(groups: list[Mask], count: int) -> Iterator[Mask]:
    """Every way to take ``count`` out of the groups, by how many of each."""
    if not groups:
        if count == 0:
            yield 0
        return
    others = sum(group.bit_count() for group in groups[1:])
    for part in range(min(count, groups[0].bit_count()), max(0, count - others) - 1, -1):
        for rest in _picks(groups[1:], count - part):
            yield bits.first(groups[0], part) | rest
