"""What each NUMA zone has, offers to pods, and has left: the zones of an NRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.accounting.holdings import counted_holdings
from rte.model import bits
from rte.model.node import Amounts
from rte.model.quantity import hugepage_resource
from rte.placement.kubelet.admission import settle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine
    from rte.model.node import NodeReading, NodeState, ZoneInfo

#: Zone id -> resource -> amounts (millicores for ``cpu``, base units for all others).
ZoneResources = dict[int, dict[str, Amounts]]


def zone_resources(reading: NodeReading) -> ZoneResources:
    """The resources of every zone; zones ascend by id, resources by name.

    capacity = hardware as the kubelet read it, allocatable = less what is reserved, available =
    less what is exclusively held. Where a manager's policy is none, nothing is held of its resource
    and its share of the node's reservation is taken off the zones (memory in proportion, CPUs from
    the first zones on), so that the zones add up to the node's allocatable. A device counts in
    every zone that it is attached to; one without a zone counts in none. A zone that the kubelet
    has not seen (hot-plugged since its start) offers nothing.

    Excluded pods do not count, as if they had gone.

    Without a kubelet (``reading.state`` is None) everything is allocatable and available.
    """
    state = reading.state
    if state is not None and reading.excluded:
        state = settle(state, (state.admitted | state.holdings.keys()) - reading.excluded)
    table = _of_machine(reading.machine, offered=state is None)
    if state is not None:
        for zone in state.topology.zones:
            table[zone.id] = {}
        _add_cpus(table, state)
        _add_memory(table, state)
        _add_devices(table, state)
    return {zone: dict(sorted(table[zone].items())) for zone in sorted(table)}


def _of_machine(machine: Machine, *, offered: bool) -> ZoneResources:
    table: ZoneResources = {}
    for zone in machine.zones:
        sizes = {"cpu": zone.cpus.bit_count() * 1000, "memory": zone.memory_bytes}
        sizes |= _pools(zone.hugepages)
        table[zone.id] = {
            name: Amounts(size, size if offered else 0, size if offered else 0)
            for name, size in sizes.items()
        }
    return table


def _add_cpus(table: ZoneResources, state: NodeState) -> None:
    """CPUs; a reservation that is only an amount has no place under the CPU policy none."""
    config = state.config
    reserved = state.reserved or config.reserved_cpus or 0
    unplaced = 0 if reserved else -(-config.cpu_reservation_milli // 1000)
    held = 0
    for holding in counted_holdings(state.holdings, state.pod_holdings):
        held |= holding.cpus
    if config.cpu_policy == "static":
        held |= state.topology.all_cpus & ~state.shared  # also what the kubelet has lost
    for zone, cpus in state.topology.zone_cpus.items():
        usable = (cpus & ~reserved).bit_count()
        taken = min(unplaced, usable)
        unplaced -= taken
        free = (cpus & ~reserved & ~held).bit_count()
        table.setdefault(zone, {})["cpu"] = Amounts(
            cpus.bit_count() * 1000, (usable - taken) * 1000, max(free - taken, 0) * 1000
        )


def _add_memory(table: ZoneResources, state: NodeState) -> None:
    """Memory and huge pages: the memory manager's rows, or the hardware where there are none.

    Huge pages are carved out of a zone's memory, so pods cannot have them as plain memory too.
    """
    plain = {zone.id: _plain_memory(zone) for zone in state.topology.zones}
    reserved = state.config.node_reserved.get("memory", 0)
    total = max(sum(plain.values()), 1)
    before = 0
    for zone in state.topology.zones:
        share = reserved * (before + plain[zone.id]) // total - reserved * before // total
        before += plain[zone.id]
        left = max(plain[zone.id] - share, 0)
        resources = table[zone.id]
        resources["memory"] = Amounts(zone.memory_bytes, left, left)
        for name, size in _pools(zone.hugepages).items():
            resources[name] = Amounts(size, size, size)
        row = state.memory.get(zone.id)
        for name, amounts in row.amounts.items() if row else ():
            resources[name] = Amounts(amounts.total, amounts.allocatable, amounts.free)


def _add_devices(table: ZoneResources, state: NodeState) -> None:
    held: dict[str, int] = {}
    for containers in state.holdings.values():
        for holding in containers.values():
            for resource, mask in holding.devices.items():
                held[resource] = held.get(resource, 0) | mask
    for resource, pool in state.devices.items():
        attached: dict[int, int] = {}
        for zones, group in pool.by_zones.items():
            for zone in bits.members(zones or 0):
                attached[zone] = attached.get(zone, 0) | group
        for zone, mask in attached.items():
            if zone in table:
                healthy = mask & pool.healthy
                table[zone][resource] = Amounts(
                    mask.bit_count(),
                    healthy.bit_count(),
                    (healthy & ~held.get(resource, 0)).bit_count(),
                )


def _plain_memory(zone: ZoneInfo) -> int:
    return max(zone.memory_bytes - sum(_pools(zone.hugepages).values()), 0)


def _pools(hugepages: Mapping[int, int]) -> dict[str, int]:
    """Bytes per huge page resource, from page size -> number of pages."""
    return {hugepage_resource(size): size * number for size, number in hugepages.items()}
