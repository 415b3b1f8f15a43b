"""What is left of a node in the middle of a search, and what a whole place is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rte.model import bits
from rte.placement.groups.search.matching import Matching, cheapest

if TYPE_CHECKING:
    from rte.placement.groups.search.cores import Load
    from rte.placement.groups.search.problem import Item, Region, SearchProblem

#: The numbers of the preference, smallest first: zones, zones of groups, pages outside of them,
#: GPUs apart from their group's NICs, NIC functions. With the strategy ``spread`` the first two
#: are negative.
Cost: TypeAlias = tuple[int, int, int, int, int]
#: Function and back-up (-1 without one).
Given: TypeAlias = tuple[int, int]


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


class SearchState:
    """What is left of the node, and which item is where.

    Whatever takes something has its counterpart that gives it back; the search calls them in pairs.
    """

    def __init__(self, problem: SearchProblem) -> None:
        supply = problem.supply
        self.problem = problem
        self.supply = supply
        self.items = problem.items
        self.functions = supply.functions
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

    def _has(self, function: int, rx: int, tx: int) -> bool:
        port = self.functions[function].port
        return (
            rx <= self._rx[function]
            and tx <= self._tx[function]
            and rx <= self._port_rx[port]
            and tx <= self._port_tx[port]
        )

    def _enter(self, item: Item, region: Region) -> bool:
        """Take CPUs, pages and GPUs; False (and nothing taken) where something lacks."""
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

    def _hold(self, function: int, rx: int, tx: int, sign: int) -> None:
        port = self.functions[function].port
        self._rx[function] -= sign * rx
        self._tx[function] -= sign * tx
        self._port_rx[port] -= sign * rx
        self._port_tx[port] -= sign * tx
        self._function_users[function] += sign
        self._port_users[port] += sign

    def _likeness(self, function: int) -> tuple[int, ...]:
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
