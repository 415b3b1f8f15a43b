"""Which CPUs, GPUs, functions and pages exactly: what the search has left open."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rte.placement.groups.allocation import (
    GivenCPUs,
    GivenNIC,
    GroupAllocation,
    GroupCPUs,
    GroupsAllocation,
    QueueCPUs,
)
from rte.placement.groups.search.cores import Load, need

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.placement.groups.inventory import Core
    from rte.placement.groups.request import CPUClass, GroupWish
    from rte.placement.groups.search.problem import Item, SearchProblem
    from rte.placement.groups.search.state import Solution


def allocate(problem: SearchProblem, solution: Solution) -> GroupsAllocation:
    """The allocation of a solution."""
    request, supply = problem.request, problem.supply
    zones = _zones(solution)
    classes = _hand_out_cpus(problem, zones)
    gpus = [list(kind.gpus) for kind in supply.types]
    groups = []
    for index, group in enumerate(request.groups):
        zone = zones[index]
        groups.append(
            GroupAllocation(
                name=group.name,
                zone=None if zone is None else supply.zones[zone],
                cpus=_roles(group, classes[index]),
                gpus=tuple(
                    supply.inventory.gpus[gpus[kind].pop(0)].address
                    for kind in solution.types[index]
                ),
                nics=tuple(_nics(problem, problem.items[index], solution.nics[index])),
                hugepages={}
                if zone is None
                else {size: {supply.zones[zone]: n} for size, n in sorted(group.hugepages.items())},
            )
        )
    misc_zone = zones[-1] if len(zones) > len(request.groups) else None
    return GroupsAllocation(
        groups=tuple(groups),
        misc=GivenCPUs(None if misc_zone is None else supply.zones[misc_zone], classes[-1][0]),
        hugepages=_pod_pages(problem, zones),
    )


def _zones(solution: Solution) -> list[int | None]:
    """Zone number of each item."""
    return [region.zone if region.zone >= 0 else None for region in solution.regions]


def _nics(
    problem: SearchProblem, item: Item, given: Iterable[tuple[int, int]]
) -> Iterator[GivenNIC]:
    functions = problem.supply.functions
    for wish, (function, backup) in zip(item.nics, given, strict=True):
        yield GivenNIC(
            functions[function].nic.address,
            wish.rx,
            wish.tx,
            functions[backup].nic.address if backup >= 0 else None,
            wish.exclusive,
        )


def _roles(group: GroupWish, classes: list[tuple[int, ...]]) -> GroupCPUs:
    """What the CPUs of a group's classes are for, in the order of hand-out."""
    cpus = itertools.chain(*classes[:-1])
    feeders = tuple(tuple(next(cpus) for _ in range(gpu.feeders)) for gpu in group.gpus)
    queues = []
    for queue in group.queues:
        rx = next(cpus)
        queues.append(QueueCPUs(rx, next(cpus) if queue.cpus == 2 else rx))
    return GroupCPUs(
        feeders=feeders, queues=tuple(queues), workers=tuple(cpus), helpers=classes[-1]
    )


def _hand_out_cpus(problem: SearchProblem, zones: list[int | None]) -> list[list[tuple[int, ...]]]:
    """CPUs of each class of each group, those of the misc CPUs last.

    Classes that are bound to a zone go first, groups before misc CPUs, cores by lowest CPU.
    """
    request = problem.request
    stock = _CoreStock(problem)
    owners: list[list[CPUClass]] = [
        *(group.all_classes() for group in request.groups),
        [request.misc],
    ]
    zones = [*zones, None] if len(zones) == len(request.groups) else zones
    given: list[list[tuple[int, ...]]] = [[()] * len(classes) for classes in owners]
    turns = [
        (zone is None, owner, number)
        for owner, (classes, zone) in enumerate(zip(owners, zones, strict=True))
        for number, wish in enumerate(classes)
        if wish.count
    ]
    turns.sort()
    for _, owner, number in turns:
        stock.owe(owners[owner][number], zones[owner])
    for _, owner, number in turns:
        given[owner][number] = stock.take(owners[owner][number], zones[owner])
    return given


class _CoreStock:
    """Free cores, and the classes that are still to be served from them."""

    def __init__(self, problem: SearchProblem) -> None:
        self._supply = problem.supply
        self._free = [list(cores) for cores in problem.supply.free_cores]
        self._owed: list[list[tuple[int, bool]]] = [[] for _ in self._free]
        self._owed_anywhere: list[tuple[int, bool]] = []

    def owe(self, wish: CPUClass, zone: int | None) -> None:
        """A class is still to be served."""
        (self._owed_anywhere if zone is None else self._owed[zone]).append(need(wish))

    def take(self, wish: CPUClass, zone: int | None) -> tuple[int, ...]:
        """CPUs of a class, core by core, so that all others can still be served."""
        (self._owed_anywhere if zone is None else self._owed[zone]).remove(need(wish))
        pools = self._free if zone is None else [self._free[zone]]
        cores = self._choose(sorted((core for pool in pools for core in pool), key=_by_cpu), wish)
        for core in cores:
            next(pool for pool in pools if core in pool).remove(core)
        if wish.smt == "isolate":
            return tuple(core.cpus[0] for core in cores)
        return tuple(cpu for core in cores for cpu in core.cpus)[: wish.count]

    def _choose(self, cores: list[Core], wish: CPUClass) -> list[Core]:
        threads = self._supply.threads
        if threads:
            return cores[: -(-wish.count // threads) if wish.smt == "share" else wish.count]
        arithmetic = self._supply.arithmetic
        stock = tuple(sum(len(core.cpus) == t for core in cores) for t in arithmetic.threads)
        choices = []
        for take in arithmetic.takes(stock, need(wish)):
            left = dict(zip(arithmetic.threads, take, strict=True))
            chosen = []
            for core in cores:
                if left[len(core.cpus)]:
                    left[len(core.cpus)] -= 1
                    chosen.append(core)
            choices.append(chosen)
        choices.sort(key=lambda chosen: [core.cpus[0] for core in chosen])
        return next(chosen for chosen in choices if self._serves_others_without(chosen))

    def _serves_others_without(self, chosen: list[Core]) -> bool:
        arithmetic = self._supply.arithmetic
        stocks = [
            tuple(
                sum(len(core.cpus) == t and core not in chosen for core in cores)
                for t in arithmetic.threads
            )
            for cores in self._free
        ]
        loads: list[Load] = [tuple(sorted(owed)) for owed in self._owed]
        return arithmetic.fits_all(stocks, loads, tuple(sorted(self._owed_anywhere)))


def _by_cpu(core: Core) -> int:
    return core.cpus[0]


def _pod_pages(problem: SearchProblem, zones: list[int | None]) -> dict[str, dict[int, int]]:
    """Pages bound to no zone: from the zones of the pod first, then from the others."""
    names = problem.supply.zones
    own = sorted({zone for zone in zones if zone is not None})
    order = [*own, *(zone for zone in range(len(names)) if zone not in own)]
    pages: dict[str, dict[int, int]] = {}
    for number, (size, wanted) in enumerate(zip(problem.sizes, problem.pod_pages, strict=True)):
        free = list(problem.pages[number])
        for item, zone in zip(problem.items, zones, strict=True):
            if zone is not None and item.pages:
                free[zone] -= item.pages[number]
        given: dict[int, int] = {}
        for zone in order:
            count = min(wanted - sum(given.values()), max(free[zone], 0))
            if count:
                given[names[zone]] = count
        if given:
            pages[size] = given
    return pages
