"""What a node still has for processing groups: zone by zone, and in sums over nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from rte.placement.groups.inventory import GroupInventory, Used
    from rte.placement.groups.search.supply import GroupSupply, NICFunction


@dataclass(frozen=True, kw_only=True, slots=True)
class FreeNIC:
    """A function that may be given to a pod that shares nothing; rates in Mb/s."""

    address: str
    name: str
    rx: int
    tx: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FreeInZone:
    """What a zone has left.

    Attributes:
        zone: None for devices of which no zone is known.
        cores: cores of which every CPU is free; cpus: their CPUs.
        gpus: model -> free GPUs; ``""`` where the driver tells no model.
        nics: functions with what they and their port can still carry.
        pages: size -> free pages.
    """

    zone: int | None
    cores: int = 0
    cpus: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    nics: tuple[FreeNIC, ...] = ()
    pages: Mapping[str, int] = field(default_factory=dict)


def free(supply: GroupSupply) -> tuple[FreeInZone, ...]:
    """What is free on a node, by zone; devices without a zone come last."""
    return tuple(_free(supply))


def _free(supply: GroupSupply) -> Iterator[FreeInZone]:
    sizes = sorted({size for pools in supply.inventory.pages.values() for size in pools})
    pages = {size: supply.pages(size) for size in sizes}
    for number, zone in enumerate(supply.zones):
        cores = supply.free_cores[number]
        yield FreeInZone(
            zone=zone,
            cores=len(cores),
            cpus=sum(len(core.cpus) for core in cores),
            gpus=_gpus(supply, number),
            nics=_nics(supply, number),
            pages={size: counts[number] for size, counts in pages.items()},
        )
    elsewhere = FreeInZone(zone=None, gpus=_gpus(supply, None), nics=_nics(supply, None))
    if elsewhere.gpus or elsewhere.nics:
        yield elsewhere


def _gpus(supply: GroupSupply, zone: int | None) -> dict[str, int]:
    models: Counter[str] = Counter()
    for kind in supply.types:
        if kind.zone == zone:
            models[kind.model] += len(kind.gpus)
    return dict(sorted(models.items()))


def _nics(supply: GroupSupply, zone: int | None) -> tuple[FreeNIC, ...]:
    return tuple(
        _nic(supply, function)
        for function in supply.functions
        if function.zone == zone and supply.may_share(function, exclusive=False)
    )


def _nic(supply: GroupSupply, function: NICFunction) -> FreeNIC:
    return FreeNIC(
        address=function.nic.address,
        name=function.nic.name,
        rx=max(0, min(function.rx, supply.port_rx[function.port])),
        tx=max(0, min(function.tx, supply.port_tx[function.port])),
    )


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
