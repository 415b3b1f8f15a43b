"""Is an allocation right? The rules once more, written from the contract and not from the search.

Tests and the recorded cases hold every answer of the search against this; what pods hold asks it
whether an allocation answers its request (:func:`answers`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.groups import inventory as hardware
from rte.placement.groups.request import SMTByKind, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.placement.groups.allocation import GroupAllocation, GroupsAllocation
    from rte.placement.groups.inventory import NIC, GroupInventory, Policy, Used
    from rte.placement.groups.request import SMT, GroupsRequest, GroupWish, NICWish


def violations(
    request: GroupsRequest,
    allocation: GroupsAllocation,
    inventory: GroupInventory,
    used: Used = hardware.NOTHING_USED,
    policy: Policy = hardware.DEFAULT_POLICY,
) -> list[str]:
    """Every rule that the allocation breaks, one line each; none = it is valid."""
    if [group.name for group in request.groups] != [group.name for group in allocation.groups]:
        return ["the groups are not those of the request"]
    pairs = list(zip(request.groups, allocation.groups, strict=True))
    found: list[str] = []
    for wish, given in pairs:
        found += (f"{wish.name}: {fault}" for fault in _group_faults(wish, given, inventory))
        for i, (entry, nic) in enumerate(zip(wish.nics, given.nics, strict=False)):
            for address in nic.addresses():
                found += (
                    f"{wish.name}: nics[{i}]: {fault}"
                    for fault in _function_faults(entry, address, inventory, used, policy)
                )
    found += _misc_faults(request, allocation, inventory)
    found += _core_faults(request, allocation, inventory, used)
    found += _gpu_faults(allocation, used)
    found += _bandwidth_faults(allocation, inventory, used, policy)
    found += _page_faults(request, allocation, inventory, used)
    if request.strict_pages and preference(request, allocation, inventory)[2]:
        found.append("pages outside of the pod's zones")
    return found


def answers(request: GroupsRequest, allocation: GroupsAllocation) -> bool:
    """Whether it gives just the amounts that are asked for, on whatever machine."""
    if [group.name for group in request.groups] != [group.name for group in allocation.groups]:
        return False
    given = Counter[str]()
    for size, _, count in allocation.all_pages():
        given[size] += count
    pairs = zip(request.groups, allocation.groups, strict=True)
    return (
        not any(fault for wish, got in pairs for fault in _amount_faults(wish, got))
        and len(allocation.misc.cpus) == request.misc.count
        and request.all_pages() == given
    )


def preference(
    request: GroupsRequest, allocation: GroupsAllocation, inventory: GroupInventory
) -> tuple[int, int, int, int, int]:
    """The five numbers of the preference, as the strategy ``pack`` counts them."""
    group_zones = {group.zone for group in allocation.groups if group.zone is not None}
    misc_zone = allocation.misc.zone
    zones = group_zones | ({misc_zone} if misc_zone is not None else set())
    outside = sum(
        count
        for by_zone in allocation.hugepages.values()
        for zone, count in by_zone.items()
        if zones and zone not in zones
    )
    gpus = {gpu.address: gpu for gpu in inventory.gpus}
    apart = 0
    for wish, given in zip(request.groups, allocation.groups, strict=True):
        near = {
            inventory.nic_by_address[address].domain(wish.scope) for address in given.functions()
        }
        if near:
            apart += sum(gpus[address].domain(wish.scope) not in near for address in given.gpus)
    functions = {address for group in allocation.groups for address in group.functions()}
    return len(zones), len(group_zones), outside, apart, len(functions)


def _amount_faults(wish: GroupWish, given: GroupAllocation) -> Iterator[str]:
    if [len(cpus) for cpus in given.cpus.feeders] != [gpu.feeders for gpu in wish.gpus]:
        yield "wrong number of feeders"
    pairs = [1 if queue.rx == queue.tx else 2 for queue in given.cpus.queues]
    if pairs != [queue.cpus for queue in wish.queues]:
        yield "wrong number of queue CPUs"
    workers, helpers = given.cpus.workers, given.cpus.helpers
    if len(workers) != wish.workers or len(helpers) != wish.helpers.count:
        yield "wrong number of workers or helpers"
    if len(given.gpus) != len(wish.gpus) or len(given.nics) != len(wish.nics):
        yield "wrong number of GPUs or NICs"
    for entry, nic in zip(wish.nics, given.nics, strict=False):
        if (nic.rx, nic.tx) != (entry.rx, entry.tx) or bool(nic.backup) != entry.redundant:
            yield f"{nic.address} does not have what was asked for"


def _group_faults(
    wish: GroupWish, given: GroupAllocation, inventory: GroupInventory
) -> Iterator[str]:
    yield from _amount_faults(wish, given)
    own = list(given.functions())
    if len(set(own)) < len(own):
        yield "one function for two entries"
    yield from _gpu_wish_faults(wish, given, inventory)
    yield from _alignment_faults(wish, given, inventory)


def _gpu_wish_faults(
    wish: GroupWish, given: GroupAllocation, inventory: GroupInventory
) -> Iterator[str]:
    known = {gpu.address: gpu for gpu in inventory.gpus}
    for entry, address in zip(wish.gpus, given.gpus, strict=False):
        gpu = known.get(address)
        if gpu is None:
            yield f"there is no GPU {address}"
        elif gpu.memory_gib < entry.memory_gib or not matches(entry.models, gpu.model):
            yield f"GPU {address} is another model"


def _alignment_faults(
    wish: GroupWish, given: GroupAllocation, inventory: GroupInventory
) -> Iterator[str]:
    if wish.mapping == "none":
        if given.zone is not None or given.hugepages:
            yield "has a zone without asking for one"
        return
    if given.zone not in inventory.pages:
        yield f"there is no zone {given.zone}"
    zone_of_cpu = {cpu: core.zone for core in inventory.cores for cpu in core.cpus}
    if any(zone_of_cpu.get(cpu) != given.zone for cpu in given.cpus.all()):
        yield "CPUs of another zone"
    addresses = {*given.gpus, *given.functions()}
    devices = [it for it in (*inventory.gpus, *inventory.nics) if it.address in addresses]
    if any(inventory.zone_of(device) != given.zone for device in devices):
        yield "devices of another zone"
    if wish.mapping == "pcie" and len({device.domain(wish.scope) for device in devices}) > 1:
        yield "devices of several PCIe domains"
    if {size: {given.zone: count} for size, count in wish.hugepages.items()} != given.hugepages:
        yield "not its pages in its zone"


def _function_faults(
    wish: NICWish, address: str, inventory: GroupInventory, used: Used, policy: Policy
) -> Iterator[str]:
    nic = inventory.nic_by_address.get(address)
    if nic is None:
        yield f"there is no function {address}"
        return
    port = inventory.port(nic)
    speed = nic.mbps if nic.mbps is not None else port.mbps
    if speed is None or speed < policy.nic_min_mbps or speed < wish.min_mbps:
        yield f"{address} is too slow"
    if port.link == "down":
        yield f"{address} has no link"
    if any(other.pf == address for other in inventory.nics):
        yield f"{address} has VFs"
    if wish.rdma and not nic.rdma:
        yield f"{address} has no RDMA device"
    if wish.kind not in {"any", "pf" if nic.pf is None else "vf"}:
        yield f"{address} is no {wish.kind}"
    holder = used.nics.get(address)
    if holder is not None and (
        policy.nic_sharing == "exclusive" or holder.exclusive or wish.exclusive
    ):
        yield f"{address} belongs to another pod"


def _misc_faults(
    request: GroupsRequest, allocation: GroupsAllocation, inventory: GroupInventory
) -> Iterator[str]:
    misc, zone, cpus = request.misc, allocation.misc.zone, allocation.misc.cpus
    if len(cpus) != misc.count:
        yield "misc: wrong number of CPUs"
    if (zone is None) != (misc.mapping == "none" or not misc.count):
        yield "misc: a zone where none belongs, or none where one does"
    zone_of_cpu = {cpu: core.zone for core in inventory.cores for cpu in core.cpus}
    if zone is not None and any(zone_of_cpu.get(cpu) != zone for cpu in cpus):
        yield "misc: CPUs of another zone"


def _cpu_classes(
    request: GroupsRequest, allocation: GroupsAllocation
) -> Iterator[tuple[str, SMT, tuple[int, ...]]]:
    """Name, SMT rule and CPUs of each class, in the order of hand-out."""
    for wish, given in zip(request.groups, allocation.groups, strict=True):
        cpus = given.cpus
        if isinstance(wish.smt, SMTByKind):
            yield f"{wish.name} feeders", wish.smt.feeders, cpus.of_feeders()
            yield f"{wish.name} queues", wish.smt.queues, cpus.of_queues()
            yield f"{wish.name} workers", wish.smt.workers, cpus.workers
        else:
            yield wish.name, wish.smt, (*cpus.of_feeders(), *cpus.of_queues(), *cpus.workers)
        yield f"{wish.name} helpers", wish.helpers.smt, cpus.helpers
    yield "misc", request.misc.smt, allocation.misc.cpus


def _core_faults(
    request: GroupsRequest, allocation: GroupsAllocation, inventory: GroupInventory, used: Used
) -> Iterator[str]:
    core_of = {cpu: core.cpus for core in inventory.cores for cpu in core.cpus}
    taken = inventory.reserved_cpus | used.cpus
    owners: dict[tuple[int, ...], str] = {}
    for name, smt, cpus in _cpu_classes(request, allocation):
        if any(cpu not in core_of for cpu in cpus):
            yield f"{name}: no such CPU"
            continue
        cores = list(dict.fromkeys(core_of[cpu] for cpu in cpus))
        for core in cores:
            if bits.of(core) & taken:
                yield f"{name}: core {core[0]} is not free"
            if owners.setdefault(core, name) != name:
                yield f"{name}: core {core[0]} belongs to {owners[core]}"
        if smt == "isolate":
            right = list(cpus) == [core[0] for core in cores]
        else:
            in_turn = [cpu for core in cores for cpu in core]
            right = list(cpus) == in_turn[: len(cpus)] and all(
                len(in_turn) - len(core) < len(cpus) for core in cores
            )
        if not right:
            yield f"{name}: CPUs {cpus} are not core by core"


def _gpu_faults(allocation: GroupsAllocation, used: Used) -> Iterator[str]:
    given = Counter(address for group in allocation.groups for address in group.gpus)
    for address, times in given.items():
        if times > 1 or address in used.gpus:
            yield f"GPU {address} is given twice"


def _bandwidth_faults(
    allocation: GroupsAllocation, inventory: GroupInventory, used: Used, policy: Policy
) -> Iterator[str]:
    rx: Counter[str] = Counter()
    tx: Counter[str] = Counter()
    given: set[str] = set()
    for group in allocation.groups:
        for nic in group.nics:
            for address in nic.addresses():
                given.add(address)
                rx[address] += nic.rx
                tx[address] += nic.tx
    for address, use in used.nics.items():
        rx[address] += use.rx
        tx[address] += use.tx
    for address in sorted(given & set(inventory.nic_by_address)):
        function = inventory.nic_by_address[address]
        port = inventory.port(function)
        speed = function.mbps if function.mbps is not None else port.mbps
        if speed is not None and _exceeds(speed, rx[address], tx[address], policy):
            yield f"function {address} is over its capacity"
        through = [other for other in inventory.nics if inventory.port(other) is port]
        if port.mbps is not None and _exceeds(
            port.mbps, _sum(rx, through), _sum(tx, through), policy
        ):
            yield f"port {port.address} is over its capacity"


def _sum(rates: Mapping[str, int], functions: Iterable[NIC]) -> int:
    return sum(rates.get(nic.address, 0) for nic in functions)


def _exceeds(mbps: int, rx: int, tx: int, policy: Policy) -> bool:
    return max(rx, tx) > mbps * policy.nic_headroom_percent // 100


def _page_faults(
    request: GroupsRequest, allocation: GroupsAllocation, inventory: GroupInventory, used: Used
) -> Iterator[str]:
    wanted: Counter[str] = Counter(request.hugepages)
    for wish in request.groups:
        if wish.mapping == "none":
            wanted.update(wish.hugepages)
    given = {size: sum(by_zone.values()) for size, by_zone in allocation.hugepages.items()}
    if {size: count for size, count in wanted.items() if count} != given:
        yield "not the pages of the pod"
    held: Counter[tuple[str, int]] = Counter()
    for size, zone, count in allocation.all_pages():
        held[size, zone] += count
    free = {
        (size, zone): count - used.pages.get(zone, {}).get(size, 0)
        for zone, pool in inventory.pages.items()
        for size, count in pool.items()
    }
    for (size, zone), count in held.items():
        if count > free.get((size, zone), 0):
            yield f"zone {zone} has not {count} pages of {size}"
    for size in {size for size, _ in held}:
        left = sum(count for (other, _), count in free.items() if other == size)
        left -= inventory.reserved_pages.get(size, 0) + used.pages_anywhere.get(size, 0)
        if sum(count for (other, _), count in held.items() if other == size) > left:
            yield f"the node has not so many pages of {size}"
