"""What the pods of one node hold, summed up from their records."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.groups.allocation import NO_ZONE
from rte.placement.groups.inventory import NICUse, Used

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.placement.groups.allocation import GroupsAllocation


def used_by(allocations: Mapping[str, GroupsAllocation]) -> Used:
    """All that is held, by whom does not matter: what two hold is offered to nobody."""
    held = 0
    gpus: set[str] = set()
    rx: Counter[str] = Counter()
    tx: Counter[str] = Counter()
    exclusive: dict[str, bool] = {}
    pages: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for allocation in allocations.values():
        held |= allocation.cpu_mask()
        for group in allocation.groups:
            gpus.update(group.gpus)
            for nic in group.nics:
                for address in nic.addresses():
                    rx[address] += nic.rx
                    tx[address] += nic.tx
                    exclusive[address] = exclusive.get(address, False) or nic.exclusive
        for size, zone, count in allocation.all_pages():
            pages[zone][size] += count
    return Used(
        cpus=held,
        gpus=frozenset(gpus),
        nics={
            address: NICUse(rx[address], tx[address], alone)
            for address, alone in sorted(exclusive.items())
        },
        pages={zone: dict(counts) for zone, counts in sorted(pages.items()) if zone != NO_ZONE},
        pages_anywhere=dict(pages.get(NO_ZONE, {})),
    )


def conflicts(allocations: Mapping[str, GroupsAllocation]) -> Iterator[tuple[str, frozenset[str]]]:
    """What two pods hold that only one can: a line for each such thing, and the pods."""
    for holders, what in _exclusively_held(allocations):
        if len(holders) > 1:
            yield f"{what} is held by pods {', '.join(sorted(holders))}", frozenset(holders)


def _exclusively_held(
    allocations: Mapping[str, GroupsAllocation],
) -> Iterator[tuple[set[str], str]]:
    threads: defaultdict[int, set[str]] = defaultdict(set)
    gpus: defaultdict[str, set[str]] = defaultdict(set)
    nics: defaultdict[str, set[str]] = defaultdict(set)
    alone: set[str] = set()
    for uid, allocation in allocations.items():
        for cpu in bits.members(allocation.cpu_mask()):
            threads[cpu].add(uid)
        for group in allocation.groups:
            for gpu in group.gpus:
                gpus[gpu].add(uid)
            for nic in group.nics:
                for address in nic.addresses():
                    nics[address].add(uid)
                    alone.update({address} if nic.exclusive else ())
    yield from ((holders, f"CPU {cpu}") for cpu, holders in sorted(threads.items()))
    yield from ((holders, f"GPU {gpu}") for gpu, holders in sorted(gpus.items()))
    yield from ((nics[address], f"NIC {address}") for address in sorted(alone))
