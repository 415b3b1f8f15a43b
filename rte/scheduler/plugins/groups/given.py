"""Processing groups on a node, in the form of what a kubelet gives: one truth for all parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.model import bits, quantity
from rte.model.node import DevicePool, Holding, MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.placement.groups.allocation import GroupsAllocation, PagesByZone
    from rte.placement.groups.inventory import PCIFunction
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.plugins.groups.books import Books

#: What devices of groups are called among resources; no device plugin can have such a name.
_GPUS, _NICS = "GPU", "NIC"


def with_groups(entry: NodeEntry, state: NodeState, books: Books) -> NodeState:
    """The state of the node, with what processing groups hold there among the holdings.

    On nodes without groups it is the same; where there are some, GPUs and NICs are devices.
    """
    known = books.on(entry)
    if known is None or not known.held.allocations:
        return state
    inventory = known.ground.inventory
    devices = {_GPUS: inventory.gpus, _NICS: inventory.nics}
    pools = {name: _pool(members) for name, members in devices.items() if members}
    holdings = {uid: dict(containers) for uid, containers in state.holdings.items()}
    taken = 0
    for uid, allocation in known.held.allocations.items():
        pod = entry.pods.get(uid)
        own = holdings.setdefault(pod.kubelet_uid if pod else uid, {})
        own.update(_holdings(allocation, pools))
        taken |= allocation.cpu_mask()
    return replace(
        state,
        # A kubelet that assigns no CPUs has no shared pool of its own.
        shared=(state.shared or state.topology.all_cpus) & ~taken,
        devices={**state.devices, **pools},
        holdings=holdings,
    )


def _pool(devices: Sequence[PCIFunction]) -> DevicePool:
    return DevicePool(
        ids=tuple(device.address for device in devices),
        zones=tuple(None if device.zone is None else 1 << device.zone for device in devices),
        healthy=(1 << len(devices)) - 1,
    )


def _holdings(
    allocation: GroupsAllocation, pools: Mapping[str, DevicePool]
) -> Iterator[tuple[str, Holding]]:
    for group in allocation.groups:
        given = {_GPUS: group.gpus, _NICS: group.functions()}
        yield (
            f"group {group.name}",
            Holding(
                cpus=bits.of(group.cpus.all()),
                memory=tuple(_pages(group.hugepages)),
                devices={
                    name: mask
                    for name, addresses in given.items()
                    if name in pools
                    for mask in [_mask(pools[name], addresses)]
                    if mask
                },
            ),
        )
    if allocation.misc.cpus or allocation.hugepages:
        memory = tuple(_pages(allocation.hugepages))
        yield "misc", Holding(cpus=bits.of(allocation.misc.cpus), memory=memory)


def _mask(pool: DevicePool, addresses: Iterable[str]) -> int:
    wanted = frozenset(addresses)
    return bits.of(place for place, address in enumerate(pool.ids) if address in wanted)


def _pages(pages: PagesByZone) -> Iterator[MemoryBlock]:
    for size, by_zone in pages.items():
        for zone, number in by_zone.items():
            zones = 1 << zone if zone >= 0 else 0
            yield MemoryBlock(f"hugepages-{size}", zones, number * quantity.parse(size))
