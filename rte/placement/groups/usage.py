"""How full a node is for processing groups, in amounts that can be summed over nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from rte.placement.groups.inventory import GroupInventory, Used

HUGEPAGES = "hugepages-"


def amounts(inventory: GroupInventory, used: Used) -> dict[str, dict[str, int]]:
    """Resource -> state -> amount; what a node has is the sum over its states.

    ``cpus`` (logical CPUs): free (on cores of which every CPU is), held, reserved, and stranded:
    the idle siblings of those. ``gpus`` and ``nics`` (functions that may be given, so no PFs that
    have VFs): free and held. ``hugepages-<size>``: pages that are free, held and reserved.
    """
    return {
        "cpus": _cpus(inventory, used),
        "gpus": _devices({gpu.address for gpu in inventory.gpus}, used.gpus),
        "nics": _devices(inventory.nic_by_address.keys() - inventory.parents, used.nics.keys()),
        **{
            f"{HUGEPAGES}{size}": _pages(inventory, used, size)
            for size in sorted({size for pools in inventory.pages.values() for size in pools})
        },
    }


def _cpus(inventory: GroupInventory, used: Used) -> dict[str, int]:
    every = 0
    free = 0
    taken = inventory.reserved_cpus | used.cpus
    for mask in inventory.core_masks:
        every |= mask
        free |= 0 if mask & taken else mask
    held = used.cpus & every
    reserved = inventory.reserved_cpus & every & ~held
    stranded = every & ~(free | held | reserved)
    states = {"free": free, "held": held, "reserved": reserved, "stranded": stranded}
    return {state: mask.bit_count() for state, mask in states.items()}


def _devices(there: AbstractSet[str], held: AbstractSet[str]) -> dict[str, int]:
    count = len(there & held)
    return {"free": len(there) - count, "held": count}


def _pages(inventory: GroupInventory, used: Used, size: str) -> dict[str, int]:
    pools = sum(pools.get(size, 0) for pools in inventory.pages.values())
    held = used.pages_anywhere.get(size, 0) + sum(
        pages.get(size, 0) for pages in used.pages.values()
    )
    reserved = inventory.reserved_pages.get(size, 0)
    return {"free": max(0, pools - held - reserved), "held": held, "reserved": reserved}
