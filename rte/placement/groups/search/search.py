"""The search: first any place for all items at once, then a better one.

Both halves go item by item, and for each region by region and function by function, and come back
when something does not fit. The first half always takes the item that has the fewest regions left,
which finds a place soon or proves soon that there is none. The second half goes in the order of the
request and in ascending order of zones and addresses, so that among equally good places the first
in that order is the answer; it leaves out whatever cannot become better than the best so far.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rte.placement.groups.search import bounds
from rte.placement.groups.search.state import Cost, SearchState, Solution

if TYPE_CHECKING:
    from rte.placement.groups.search.problem import Item, Region, SearchProblem

#: What it costs to look at a whole place, in steps.
_STEPS_OF_A_PLACE = 20


class SearchLimit(Exception):  # noqa: N818 - an outcome, not an error
    """The budget of steps ran out."""


def find(problem: SearchProblem, max_steps: int) -> Solution | None:
    """Any place; None is proof that there is none.

    Raises:
        SearchLimit: neither was found in so many steps.
    """
    if bounds.floor(problem) is None:
        return None
    search = _GroupSearch(problem, max_steps)
    search.run()
    return search.found


def improve(problem: SearchProblem, solution: Solution, max_steps: int) -> Solution:
    """The best place, or the best that was found in so many steps."""
    search = _Improvement(problem, solution, max_steps)
    with contextlib.suppress(SearchLimit):
        search.run()
    return search.best


class _GroupSearch(SearchState):
    """The first half: the item with the fewest regions first."""

    def __init__(self, problem: SearchProblem, max_steps: int) -> None:
        super().__init__(problem)
        self.found: Solution | None = None
        self._steps_left = max_steps

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
            self._step()
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

    def _promising(self) -> bool:
        """Whether it is worth going on from here."""
        return True

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SearchLimit

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
            likeness = self._likeness(i)
            if likeness in seen:
                continue
            seen.add(likeness)
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

    def _finish(self) -> bool:
        self.found = self._solution()
        return self.found is not None


class _Improvement(_GroupSearch):
    """The second half: in the order of the request, only what may become better."""

    def __init__(self, problem: SearchProblem, solution: Solution, max_steps: int) -> None:
        super().__init__(problem, max_steps)
        self.best = solution
        self._floor = bounds.floor(problem) or (0, 0, 0)
        spread = self.supply.policy.strategy == "spread"
        self._ideal: Cost = self._bound() if spread else (*self._floor[:2], 0, 0, self._floor[2])
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
        least_zones, least_group_zones, least_functions = self._floor
        functions = max(functions, least_functions)
        if self.supply.policy.strategy == "spread":
            left = sum(placed is None for placed in self._placed)
            most = len(self.supply.zones)
            return (
                -min(most, zones + left), -min(most, group_zones + left), 0, 0, functions,
            )  # fmt: skip
        return max(zones, least_zones), max(group_zones, least_group_zones), 0, 0, functions

    def _finish(self) -> bool:
        self._steps_left -= _STEPS_OF_A_PLACE
        found = self._solution()
        if found is None or found.cost > self.best.cost:
            return False
        if found.cost < self.best.cost or self._ties:
            self.best = found
            self._ties = False
        return self.best.cost == self._ideal
