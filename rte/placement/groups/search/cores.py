"""How many cores CPU classes take, where cores have different numbers of threads.

A *stock* is a tuple of counts: free cores of each *thread count*, in the order of ``threads``
(ascending). A class with SMT rule ``isolate`` takes as many cores as it has CPUs; with ``share`` it
takes whole cores that together have its CPUs, none of them superfluous.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.placement.groups.request import CPUClass

Stock: TypeAlias = tuple[int, ...]
#: A class as it matters here: its CPUs and whether they share cores.
Need: TypeAlias = tuple[int, bool]
#: The classes that one place must serve, ascending.
Load: TypeAlias = tuple[Need, ...]


def need(wish: CPUClass) -> Need:
    """The need of a class."""
    return wish.count, wish.smt == "share"


class Cores:
    """Core arithmetic for the given thread counts; answers are remembered."""

    def __init__(self, threads: tuple[int, ...]) -> None:
        self.threads = threads
        self._rests: dict[tuple[Stock, Load], frozenset[Stock]] = {}

    def takes(self, stock: Stock, wish: Need) -> Iterator[Stock]:
        """Every way for a class to take cores, by number of each thread count."""
        cpus, shares = wish
        for take in itertools.product(*(range(min(have, cpus) + 1) for have in stock)):
            if not shares:
                if sum(take) == cpus:
                    yield take
                continue
            given = sum(map(int.__mul__, take, self.threads))
            least = next((t for n, t in zip(take, self.threads, strict=True) if n), 0)
            if cpus <= given < cpus + least:
                yield take

    def rests(self, stock: Stock, load: Load) -> frozenset[Stock]:
        """What can be left of a stock after a load, less than which nothing better is left.

        A core with more threads serves wherever one with fewer does. Empty = the load does not fit.
        """
        key = stock, load
        known = self._rests.get(key)
        if known is None:
            left = {stock}
            for wish in load:
                left = self._best(
                    {
                        tuple(map(int.__sub__, rest, take))
                        for rest in left
                        for take in self.takes(rest, wish)
                    }
                )
            known = self._rests[key] = frozenset(left)
        return known

    def fits_all(self, stocks: list[Stock], loads: list[Load], free: Load) -> bool:
        """Whether each load fits its stock and ``free`` then fits the rest of all together."""
        sums = {(0,) * len(self.threads)}
        for stock, load in zip(stocks, loads, strict=True):
            sums = self._best(
                {
                    tuple(map(int.__add__, total, rest))
                    for total in sums
                    for rest in self.rests(stock, load)
                }
            )
        return any(self.rests(total, free) for total in sums)

    def _best(self, stocks: set[Stock]) -> set[Stock]:
        if len(stocks) < 2:
            return stocks
        # Compared by the number of cores with at least t threads, for every t.
        ranked = {stock: tuple(itertools.accumulate(reversed(stock))) for stock in stocks}
        return {
            stock
            for stock, rank in ranked.items()
            if not any(
                other != rank and all(map(int.__ge__, other, rank)) for other in ranked.values()
            )
        }
