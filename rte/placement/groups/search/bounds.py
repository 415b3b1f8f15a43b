"""What no place can undercut, from sums alone; where a sum does not suffice there is no place."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rte.placement.groups.search.problem import ANYWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rte.placement.groups.search.cores import Load
    from rte.placement.groups.search.problem import Item, SearchProblem
    from rte.placement.groups.search.supply import GroupSupply


def floor(problem: SearchProblem) -> tuple[int, int, int] | None:
    """The least number of zones, of zones with groups, and of NIC functions.

    None where some item has no region, or the node as a whole has not what is asked for.
    """
    if any(not item.regions for item in problem.items) or not _enough(problem):
        return None
    aligned = [item for item in problem.items if item.regions[0].zone != ANYWHERE]
    groups = [item for item in aligned if item.group is not None]
    if _too_large(problem, aligned):
        return None
    zones = _least_zones(problem, aligned)
    functions = _least_functions(problem)
    if zones is None or functions is None:
        return None
    return zones, _least_zones(problem, groups) or 0, functions


def _enough(problem: SearchProblem) -> bool:
    """Whether the node as a whole has the cores and the pages."""
    supply = problem.supply
    wanted = problem.cores_of(problem.free_load) if supply.threads else 0
    if wanted + sum(item.cores for item in problem.items) > sum(map(sum, supply.stocks)):
        return False
    if not supply.threads and problem.free_load:
        loads: list[Load] = [()] * len(supply.stocks)
        if not supply.arithmetic.fits_all(supply.stocks, loads, problem.free_load):
            return False
    for size, name in enumerate(problem.sizes):
        total = problem.pod_pages[size] + sum(
            item.pages[size] for item in problem.items if item.pages
        )
        free = sum(max(count, 0) for count in problem.pages[size])
        if total > min(free, supply.node_pages(name)):
            return False
    return True


def _too_large(problem: SearchProblem, aligned: Sequence[Item]) -> bool:
    """Whether more items ask for much than there are places that have as much.

    A zone with 9 free cores serves one item of 5 cores, a port with 90 Gb/s two wishes of 31.
    """
    supply = problem.supply
    cores = [item.cores for item in aligned]
    for least in set(cores) - {0}:
        room = sum(sum(stock) // least for stock in supply.stocks)
        if sum(count >= least for count in cores) > room:
            return True
    wishes = [
        wish for item in problem.items for wish in item.nics for _ in range(1 + wish.redundant)
    ]
    functions = supply.functions
    return _rates_too_large(
        [wish.rx for wish in wishes],
        [(function.port, function.rx) for function in functions],
        supply.port_rx,
    ) or _rates_too_large(
        [wish.tx for wish in wishes],
        [(function.port, function.tx) for function in functions],
        supply.port_tx,
    )


def _rates_too_large(
    wanted: Sequence[int], functions: Sequence[tuple[int, int]], ports: Sequence[int]
) -> bool:
    for least in set(wanted) - {0}:
        room = [0] * len(ports)
        for port, rate in functions:
            room[port] += max(rate, 0) // least
        total = sum(
            min(count, max(rate, 0) // least) for count, rate in zip(room, ports, strict=True)
        )
        if sum(rate >= least for rate in wanted) > total:
            return True
    return False


def _least_zones(problem: SearchProblem, items: Sequence[Item]) -> int | None:
    """How many zones the items need at least; None where all zones together do not suffice."""
    if not items:
        return 0
    supply = problem.supply
    gpus: Counter[int | None] = Counter()
    for kind in supply.types:
        gpus[kind.zone] += len(kind.gpus)
    zones = range(len(supply.zones))
    needs = [
        ([sum(stock) for stock in supply.stocks], sum(item.cores for item in items)),
        ([gpus[zone] for zone in zones], sum(len(item.regions[0].types) for item in items)),
    ]
    wishes = [wish for item in items for wish in item.nics]
    if wishes:
        rx, tx = _zone_rates(supply)
        factors = [2 if wish.redundant else 1 for wish in wishes]
        needs += [
            (rx, sum(wish.rx * factor for wish, factor in zip(wishes, factors, strict=True))),
            (tx, sum(wish.tx * factor for wish, factor in zip(wishes, factors, strict=True))),
        ]
    least = 1
    for have, wanted in needs:
        count = _fewest(have, wanted)
        if count is None:
            return None
        least = max(least, count)
    return least


def _zone_rates(supply: GroupSupply) -> tuple[list[int], list[int]]:
    """What the functions of each zone can carry, their ports considered."""
    rx: Counter[tuple[int | None, int]] = Counter()
    tx: Counter[tuple[int | None, int]] = Counter()
    for function in supply.functions:
        rx[function.zone, function.port] += max(function.rx, 0)
        tx[function.zone, function.port] += max(function.tx, 0)
    sums = [0] * len(supply.zones), [0] * len(supply.zones)
    for have, ports, total in zip((rx, tx), (supply.port_rx, supply.port_tx), sums, strict=True):
        for (zone, port), rate in have.items():
            if zone is not None:
                total[zone] += min(rate, max(ports[port], 0))
    return sums


def _least_functions(problem: SearchProblem) -> int | None:
    """How many functions the NIC wishes need at least; None where all do not suffice."""
    wishes = [wish for item in problem.items for wish in item.nics]
    if not wishes:
        return 0
    own = max(sum(2 if wish.redundant else 1 for wish in item.nics) for item in problem.items)
    functions = problem.supply.functions
    counts = [
        _fewest([function.rx for function in functions], sum(wish.rx for wish in wishes)),
        _fewest([function.tx for function in functions], sum(wish.tx for wish in wishes)),
    ]
    known = [count for count in counts if count is not None]
    return max(own, *known) if len(known) == len(counts) else None


def _fewest(have: Iterable[int], wanted: int) -> int | None:
    """How many of the largest amounts reach what is wanted."""
    total = count = 0
    for amount in sorted(have, reverse=True):
        if total >= wanted:
            break
        total += amount
        count += 1
    return count if total >= wanted else None
