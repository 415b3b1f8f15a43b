"""The search: first any place for all items at once, then a better one.

Both halves go item by item, and for each region by region and function by function, and come back
when something does not fit. The first half always takes the item that has the fewest regions left,
which finds a place soon or proves soon that there is none. The second half goes in the order of the
request and in ascending order of zones and addresses, so that among equally good places the first
in that order is the answer; it leaves out whatever cannot become better than the best so far.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rte.model import bits
from rte.placement.groups.search.matching import Matching, cheapest

if TYPE_CHECKING:
    from rte.placement.groups.search.cores import Load
    from rte.placement.groups.search.problem import Item, Problem, Region

#: The numbers of the preference, smallest first: zones, zones of groups, pages outside of them,
#: GPUs apart from their group's NICs, NIC functions. With the strategy ``spread`` the first two
#: are negative.
Cost: TypeAlias = tuple[int, int, int, int, int]
#: What it costs to look at a whole place, in steps.
_STEPS_OF_A_PLACE = 20

#: Function and back-up (-1 without one).
Given: TypeAlias = tuple[int, int]


class SearchLimit(Exception):  # noqa: N818 - an outcome, not an error
    """The budget of steps ran out."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A place for every item.

    Attributes:
        cost: its preference.
        regions: item -> its region.
        nics: item -> function and back-up of each NIC wish.
        types: item -> GPU type of each GPU wish.
    """

    cost: Cost
    regions: tuple[Region, ...]
    nics: tuple[tuple[Given, ...], ...]
    types: tuple[tuple[int, ...], ...]


def find(problem: Problem, max_steps: int) -> Solution | None:
    """Any place; None is proof that there is none.

    Raises:
        SearchLimit: neither was found in so many steps.
    """
    if not _enough(problem) or any(not item.regions for item in problem.items):
        return None
    search = _Search(problem, max_steps)
    search.run()
    return search.found


def improve(problem: Problem, solution: Solution, max_steps: int) -> Solution:
    """The best place, or the best that was found in so many steps."""
    search = _Improvement(problem, solution, max_steps)
    with contextlib.suppress(SearchLimit):
        search.run()
    return search.best


def _enough(problem: Problem) -> bool:
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


class _Search:
    """The state of a search; every method that gives something takes it back before it returns."""

    def __init__(self, problem: Problem, max_steps: int) -> None:
        supply = problem.supply
        self.problem = problem
        self.supply = supply
        self.items = problem.items
        self.functions = supply.functions
        self.found: Solution | None = None
        self._steps_left = max_steps
        self._cores = [sum(stock) for stock in supply.stocks]
        self._loads: list[Load] = [()] * len(supply.zones)
        self._pages = [list(pages) for pages in problem.pages]
        self._rx = [function.rx for function in supply.functions]
        self._tx = [function.tx for function in supply.functions]
        self._port_rx = list(supply.port_rx)
        self._port_tx = list(supply.port_tx)
        self._zone_items = [0] * len(supply.zones)
        self._zone_groups = [0] * len(supply.zones)
        self._function_users = [0] * len(supply.functions)
        self._port_users = [0] * len(supply.port_rx)
        self._matching = Matching([len(kind.gpus) for kind in supply.types])
        self._placed: list[int | None] = [None] * len(self.items)
        self._given: list[list[Given]] = [[] for _ in self.items]
        # Where a back-up must be on another port of the card, ports differ by their cards.
        redundant = any(nic.redundant for item in self.items for nic in item.nics)
        self._port_kind = (
            list(range(len(supply.port_make))) if redundant else [-1 - m for m in supply.port_make]
        )

    def run(self) -> bool:
        """Search on; True = stop, there is an answer."""
        position = self._choose()
        if position is None:
            return self._finish()
        if position < 0:
            return False
        item = self.items[position]
        twin = self._placed[item.twin] if item.twin >= 0 else None
        for number in range(twin or 0, len(item.regions)):
            region = item.regions[number]
            if not self._enter(item, region):
                continue
            self._placed[position] = number
            done = self._promising() and self._give(item, position, region)
            self._placed[position] = None
            self._leave(item, region)
            if done:
                return True
        return False

    def _choose(self) -> int | None:
        """The item with the fewest regions; None = all are placed, -1 = one cannot be."""
        best, fewest = None, 1 << 30
        for position, item in enumerate(self.items):
            if self._placed[position] is not None or (
                item.twin >= 0 and self._placed[item.twin] is None
            ):
                continue
            count = 0
            for region in item.regions:
                if self._may_enter(item, region):
                    count += 1
                    if count >= fewest:
                        break
            else:
                if not count:
                    return -1
                best, fewest = position, count
        return best

    def _may_enter(self, item: Item, region: Region) -> bool:
        """A quick look: CPUs, and for each NIC wish one function."""
        zone = region.zone
        if zone >= 0 and item.cores > self._cores[zone]:
            return False
        for wish, functions in zip(item.nics, region.functions, strict=True):
            for i in functions:
                if self._has(i, wish.rx, wish.tx):
                    break
            else:
                return False
        return True

    def _has(self, function: int, rx: int, tx: int) -> bool:
        port = self.functions[function].port
        return (
            rx <= self._rx[function]
            and tx <= self._tx[function]
            and rx <= self._port_rx[port]
            and tx <= self._port_tx[port]
        )

    def _promising(self) -> bool:
        """Whether it is worth going on from here."""
        return True

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SearchLimit

    def _enter(self, item: Item, region: Region) -> bool:
        """Take CPUs, pages and GPUs; False (and nothing taken) where something lacks."""
        self._step()
        zone = region.zone
        if zone >= 0 and not self._take_of_zone(item, zone):
            return False
        for count, allowed in enumerate(region.types):
            if not self._matching.add(allowed):
                for _ in range(count):
                    self._matching.pop()
                if zone >= 0:
                    self._return_to_zone(item, zone)
                return False
        return True

    def _leave(self, item: Item, region: Region) -> None:
        for _ in region.types:
            self._matching.pop()
        if region.zone >= 0:
            self._return_to_zone(item, region.zone)

    def _take_of_zone(self, item: Item, zone: int) -> bool:
        if any(count > self._pages[size][zone] for size, count in enumerate(item.pages)):
            return False
        if self.supply.threads:
            if item.cores > self._cores[zone]:
                return False
            self._cores[zone] -= item.cores
        elif item.load:
            before = self._loads[zone]
            self._loads[zone] = tuple(sorted(before + item.load))
            if not self._loads_fit(zone):
                self._loads[zone] = before
                return False
        for size, count in enumerate(item.pages):
            self._pages[size][zone] -= count
        self._count_in_zone(item, zone, 1)
        return True

    def _return_to_zone(self, item: Item, zone: int) -> None:
        for size, count in enumerate(item.pages):
            self._pages[size][zone] += count
        self._cores[zone] += item.cores
        if item.load and not self.supply.threads:
            load = list(self._loads[zone])
            for need in item.load:
                load.remove(need)
            self._loads[zone] = tuple(load)
        self._count_in_zone(item, zone, -1)

    def _count_in_zone(self, item: Item, zone: int, sign: int) -> None:
        self._zone_items[zone] += sign
        if item.group is not None:
            self._zone_groups[zone] += sign

    def _loads_fit(self, zone: int) -> bool:
        supply, free_load = self.supply, self.problem.free_load
        arithmetic = supply.arithmetic
        if not arithmetic.rests(supply.stocks[zone], self._loads[zone]):
            return False
        return not free_load or arithmetic.fits_all(supply.stocks, self._loads, free_load)

    def _give(self, item: Item, position: int, region: Region) -> bool:
        """Give the next NIC wish of an item its function, then go on."""
        given = self._given[position]
        number = len(given)
        if number == len(item.nics):
            return self.run()
        wish = item.nics[number]
        candidates = region.functions[number]
        lowest = -1
        if number and item.nics[number - 1] == wish:
            # Equal wishes in ascending order: the other orders are the same.
            lowest = given[-1][0]
        own = [function for pair in given for function in pair]
        seen: set[tuple[int, ...]] = set()
        for i in candidates:
            if i <= lowest or i in own or not self._has(i, wish.rx, wish.tx):
                continue
            state = self._state(i)
            if state in seen:
                continue
            seen.add(state)
            self._step()
            self._hold(i, wish.rx, wish.tx, 1)
            backups = (
                self._backups(i, wish.rx, wish.tx, candidates, own) if wish.redundant else (-1,)
            )
            for backup in backups:
                if backup >= 0:
                    self._hold(backup, wish.rx, wish.tx, 1)
                given.append((i, backup))
                done = self._promising() and self._give(item, position, region)
                given.pop()
                if backup >= 0:
                    self._hold(backup, wish.rx, wish.tx, -1)
                if done:
                    break
            else:
                done = False
            self._hold(i, wish.rx, wish.tx, -1)
            if done:
                return True
        return False

    def _state(self, function: int) -> tuple[int, ...]:
        """Functions in the same state lead to the same answers."""
        it = self.functions[function]
        port = it.port if self._port_users[it.port] else self._port_kind[it.port]
        users = min(self._function_users[function], 1)
        return it.make, port, self._rx[function], self._tx[function], users

    def _backups(
        self, function: int, rx: int, tx: int, candidates: tuple[int, ...], own: list[int]
    ) -> list[int]:
        it = self.functions[function]
        return [
            i
            for i in candidates
            if self.functions[i].card == it.card
            and self.functions[i].port != it.port
            and i not in own
            and self._has(i, rx, tx)
        ]

    def _hold(self, function: int, rx: int, tx: int, sign: int) -> None:
        port = self.functions[function].port
        self._rx[function] -= sign * rx
        self._tx[function] -= sign * tx
        self._port_rx[port] -= sign * rx
        self._port_tx[port] -= sign * tx
        self._function_users[function] += sign
        self._port_users[port] += sign

    # Where every item has its place.

    def _finish(self) -> bool:
        self.found = self._solution()
        return self.found is not None

    def _solution(self) -> Solution | None:
        pages_outside = self._pages_outside()
        if pages_outside is None:
            return None
        if not self.supply.threads and self.problem.free_load:
            arithmetic, supply = self.supply.arithmetic, self.supply
            if not arithmetic.fits_all(supply.stocks, self._loads, self.problem.free_load):
                return None
        types, apart = self._match_gpus()
        zones, group_zones, functions = self._counts()
        sign = -1 if self.supply.policy.strategy == "spread" else 1
        cost = (sign * zones, sign * group_zones, pages_outside, apart, functions)
        return Solution(
            cost=cost,
            regions=tuple(self._region(position) for position in range(len(self.items))),
            nics=tuple(map(tuple, self._given)),
            types=types,
        )

    def _region(self, position: int) -> Region:
        number = self._placed[position]
        return self.items[position].regions[number or 0]

    def _counts(self) -> tuple[int, int, int]:
        """Zones of aligned groups and misc CPUs, zones of groups alone, functions."""
        lists = self._zone_items, self._zone_groups, self._function_users
        zones, group_zones, functions = (len(users) - users.count(0) for users in lists)
        return zones, group_zones, functions

    def _pages_outside(self) -> int | None:
        """Pages of the pod that its zones have not; None where that may not be."""
        problem = self.problem
        zones = [zone for zone, items in enumerate(self._zone_items) if items]
        outside = 0
        for size, wanted in enumerate(problem.pod_pages):
            free = self._pages[size]
            inside = sum(max(free[zone], 0) for zone in zones)
            if zones and wanted > inside:
                if problem.request.strict_pages:
                    return None
                outside += wanted - inside
        return outside

    def _match_gpus(self) -> tuple[tuple[tuple[int, ...], ...], int]:
        """GPU types of each item, and how many GPUs are in no domain of their group's NICs."""
        allowed: list[int] = []
        preferred: list[int] = []
        for position, item in enumerate(self.items):
            near = self._near(item, position)
            for types in self._region(position).types:
                allowed.append(types)
                preferred.append(types & near)
        matched = cheapest([len(kind.gpus) for kind in self.supply.types], allowed, preferred)
        if matched is None:
            raise AssertionError("the matching was complete")
        kinds, apart = matched
        left = iter(kinds)
        by_item = (
            tuple(next(left) for _ in self._region(position).types)
            for position in range(len(self.items))
        )
        return tuple(by_item), apart

    def _near(self, item: Item, position: int) -> int:
        """GPU types in a domain of the item's NICs; all of them where it has none."""
        if not item.nics:
            return -1
        scope = item.scope
        domains = {
            self.functions[function].domains[scope]
            for pair in self._given[position]
            for function in pair
            if function >= 0
        }
        return bits.of(
            i for i, kind in enumerate(self.supply.types) if kind.domains[scope] in domains
        )


class _Improvement(_Search):
    """The second half: in the order of the request, only what may become better."""

    def __init__(self, problem: Problem, solution: Solution, max_steps: int) -> None:
        super().__init__(problem, max_steps)
        self.best = solution
        # The first answer of this half may be just as good: it is the first in order.
        self._ties = True

    def _choose(self) -> int | None:
        for position, placed in enumerate(self._placed):
            if placed is None:
                return position
        return None

    def _promising(self) -> bool:
        bound = self._bound()
        return bound < self.best.cost or (self._ties and bound == self.best.cost)

    def _bound(self) -> Cost:
        """No place that goes on from here costs less, number by number."""
        zones, group_zones, functions = self._counts()
        if self.supply.policy.strategy == "spread":
            left = sum(placed is None for placed in self._placed)
            most = len(self.supply.zones)
            return (
                -min(most, zones + left), -min(most, group_zones + left), 0, 0, functions,
            )  # fmt: skip
        return zones, group_zones, 0, 0, functions

    def _finish(self) -> bool:
        self._steps_left -= _STEPS_OF_A_PLACE
        found = self._solution()
        if found is not None and (
            found.cost < self.best.cost or (self._ties and found.cost == self.best.cost)
        ):
            self.best = found
            self._ties = False
        return False
