"""The memory manager's Static policy (pkg/kubelet/cm/memorymanager/policy_static.go).

Rows (zone id -> :class:`rte.model.node.ZoneMemory`) are never changed in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.node import MemoryAmounts, MemoryBlock, ZoneMemory
from rte.model.quantity import hugepage_resource
from rte.placement.kubelet import merge, outcome
from rte.placement.kubelet.merge import Hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.model.node import KubeletConfig, Topology
    from rte.placement.kubelet.merge import Family
    from rte.placement.kubelet.outcome import Hint, ProviderHints

    Rows = Mapping[int, ZoneMemory]
    #: Memory of the pod's ordinary init containers: (affinity, resource) -> bytes.
    Reusable = Mapping[tuple[ZoneSet, str], int]

MEMORY = "memory"
_UINT64 = (1 << 64) - 1


def initial_rows(topology: Topology, config: KubeletConfig) -> dict[int, ZoneMemory]:
    """The state before any pod (getDefaultMachineState): huge pages are taken off memory.

    Like the kubelet's unsigned numbers, an amount below zero wraps around.
    """
    rows = {}
    for zone in topology.zones:
        reserved = config.reserved_memory.get(zone.id, {})
        pages = {hugepage_resource(size): size * count for size, count in zone.hugepages.items()}
        amounts = {
            name: _initial_amounts(total, total, reserved.get(name, 0))
            for name, total in pages.items()
        }
        amounts[MEMORY] = _initial_amounts(
            zone.memory_bytes, zone.memory_bytes - sum(pages.values()), reserved.get(MEMORY, 0)
        )
        rows[zone.id] = ZoneMemory(assignments=0, group=1 << zone.id, amounts=amounts)
    return rows


def _initial_amounts(total: int, usable: int, reserved: int) -> MemoryAmounts:
    allocatable = (usable - reserved) & _UINT64
    return MemoryAmounts(
        total=total,
        system_reserved=reserved,
        allocatable=allocatable,
        reserved=0,
        free=allocatable,
    )


def hints(rows: Rows, wanted: Mapping[str, int], reusable: Reusable) -> Hints:
    """Combinations of zones that have the memory; the same for every resource (calculateHints).

    A zone serves either allocations of its own or those of one group of zones. The preferred
    width counts combinations that are large enough by their size, even when they are not offered.

    Raises:
        outcome.Breaks: a zone knows nothing of a resource; the kubelet dies of it.
        outcome.Unpredictable: more zones than anybody combines.
    """
    _check_known(rows, wanted)
    zones = tuple(sorted(rows))
    merge.check(zones)
    large_enough = merge.containing(len(zones), 0)
    offered = _allowed(rows, zones)
    for name, amount in wanted.items():
        parts = [rows[zone].amounts[name] for zone in zones]
        large_enough &= merge.at_least(tuple(part.allocatable for part in parts), amount)
        fits = merge.at_least(tuple(part.free for part in parts), amount)
        for (mask, resource), more in reusable.items():
            if resource != name:
                continue
            free = sum(rows[zone].amounts[name].free for zone in bits.members(mask))
            if free + more >= amount:
                fits |= 1 << merge.places_of(zones, mask)
        offered &= fits
    fewest = merge.fewest(len(zones), large_enough)
    return Hints(zones, offered & large_enough, merge.by_width(len(zones))[fewest])


def _allowed(rows: Rows, zones: tuple[int, ...]) -> Family:
    """Single zones of no group, groups that are only used as such, and zones that nobody uses."""
    grouped, used, groups = _groups(rows)
    count = len(zones)
    if not grouped | used:
        return merge.containing(count, 0)
    single = merge.by_width(count)[1]
    family = single & ~merge.touching(count, merge.places_of(zones, grouped))
    family |= ~single & merge.within(count, ~merge.places_of(zones, used))
    for group, members in groups.items():
        # Every member in use must be bound to exactly this group.
        if members == group & used:
            family |= 1 << merge.places_of(zones, group)
    return family


def _groups(rows: Rows) -> tuple[ZoneSet, ZoneSet, dict[ZoneSet, ZoneSet]]:
    """Zones in a group of several, zones in use, and for each group its zones in use."""
    grouped = used = 0
    groups: dict[ZoneSet, ZoneSet] = {}
    for zone, row in rows.items():
        if row.group & (row.group - 1):
            grouped |= 1 << zone
        if row.assignments > 0:
            used |= 1 << zone
            if row.group & (row.group - 1):
                groups[row.group] = groups.get(row.group, 0) | 1 << zone
    return grouped, used, groups


def allocate(
    rows: Rows, wanted: Mapping[str, int], reusable: Reusable, hint: Hint
) -> tuple[dict[int, ZoneMemory], tuple[MemoryBlock, ...]]:
    """The rows afterwards, and the container's blocks.

    Raises:
        outcome.Refused: no combination that contains the hint has the memory.
        outcome.Breaks: a zone knows nothing of a resource; the kubelet dies of it.
    """
    mask = _affinity(rows, wanted, reusable, hint)
    if _violates_groups(rows, mask):
        raise outcome.AllocationRefused.unexpected(
            "[memorymanager] preferred hint violates NUMA node allocation"
        )
    after = dict(rows)
    for name, amount in wanted.items():
        fill(after, mask, name, max(0, amount - reusable.get((mask, name), 0)))
    return after, tuple(MemoryBlock(name, mask, amount) for name, amount in wanted.items())


def _affinity(rows: Rows, wanted: Mapping[str, int], reusable: Reusable, hint: Hint) -> ZoneSet:
    affinity, preferred = hint
    if affinity is None:
        own = hints(rows, wanted, reusable).best() if wanted else None
        if own is None:
            raise outcome.AllocationRefused.unexpected(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with "
                "enough memory is available"
            )
        affinity, best_preferred = own
        if preferred and not best_preferred:
            raise outcome.AllocationRefused.unexpected(
                "[memorymanager] failed to find the default preferred hint"
            )
        preferred = best_preferred
    mask = affinity or 0
    chosen = {zone: row for zone, row in rows.items() if mask >> zone & 1}
    _check_known(chosen, wanted)
    if all(
        sum([row.amounts[name].free for row in chosen.values()]) >= amount
        for name, amount in wanted.items()
    ):
        return mask
    wider = hints(rows, wanted, reusable).best(mask)
    if wider is None:
        raise outcome.AllocationRefused.unexpected(
            "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
        )
    best, best_preferred = wider
    if preferred and not best_preferred:
        raise outcome.AllocationRefused.unexpected(
            "[memorymanager] failed to find the extended preferred hint"
        )
    return best


def _violates_groups(rows: Rows, mask: ZoneSet) -> bool:
    """Several zones, one of which serves itself alone or another group (a single zone passes)."""
    return mask & (mask - 1) != 0 and any(
        rows[zone].assignments > 0 and rows[zone].group != mask for zone in bits.members(mask)
    )


def fill(rows: dict[int, ZoneMemory], mask: ZoneSet, name: str, amount: int) -> None:
    """Reserve an amount in the zones, in ascending order, and bind them to each other."""
    for zone in bits.members(mask):
        row = rows[zone]
        old = row.amounts[name]
        part = min(amount, old.free)
        amount -= part
        rows[zone] = _with_amounts(
            row, row.assignments + 1, mask, name, old, reserved=old.reserved + part
        )


def held_hints(blocks: Sequence[MemoryBlock], wanted: Mapping[str, int]) -> ProviderHints:
    """Hints for what is held already (regenerateHints); no opinion where the amounts differ."""
    if {block.resource: block.size for block in blocks} != wanted or len(blocks) != len(wanted):
        return None
    return {block.resource: [(block.zones, True)] for block in blocks}


def release(rows: Rows, blocks: Iterable[MemoryBlock]) -> dict[int, ZoneMemory]:
    """The rows after a container's blocks are given back (RemoveContainer).

    Each zone gives back what it can, whoever it was reserved for, before the next one does.
    """
    after = dict(rows)
    for block in blocks:
        left = block.size
        for zone in bits.members(block.zones):
            row = after.get(zone)
            old = row.amounts.get(block.resource) if row else None
            if row is None or old is None:  # a report that no kubelet makes
                continue
            part = min(left, old.reserved)
            left -= part
            assignments = row.assignments - 1
            group = row.group if assignments else 1 << zone
            after[zone] = _with_amounts(
                row, assignments, group, block.resource, old, reserved=old.reserved - part
            )
    return after


def _with_amounts(
    row: ZoneMemory,
    assignments: int,
    group: ZoneSet,
    name: str,
    old: MemoryAmounts,
    *,
    reserved: int,
) -> ZoneMemory:
    amounts = row.amounts
    if reserved != old.reserved:
        changed = MemoryAmounts(
            old.total,
            old.system_reserved,
            old.allocatable,
            reserved,
            old.free + old.reserved - reserved,
        )
        amounts = {**amounts, name: changed}
    return ZoneMemory(assignments, group, amounts)


def _check_known(rows: Rows, wanted: Mapping[str, int]) -> None:
    for zone, row in rows.items():
        for name in wanted:
            if name not in row.amounts:
                raise outcome.Breaks(
                    outcome.KUBELET_PANICS,
                    f"the kubelet's memory manager would die: NUMA zone {zone} has no {name}",
                )
