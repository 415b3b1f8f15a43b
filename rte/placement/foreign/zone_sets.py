"""Sets of several zones that have what is asked for, without looking at every set there is."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Zones that are tried before a search gives up: some milliseconds.
_MOST_TRIED = 4096


def lowest(
    rows: Sequence[Mapping[str, int]], width: int, wanted: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Positions of so many rows that together have what is wanted; None: no rows do.

    Of several sets the one whose last row comes first, then whose last but one does, and so on:
    for rows in the order of their ids the smallest mask, which the kubelet prefers.

    Args:
        rows: what each zone has, by resource; a resource that is not there counts as 0.
        width: how many rows.
        wanted: by resource.

    Raises:
        outcome.Unpredictable: several resources, each in other zones: too many sets to try.
    """
    tables = [([row.get(name, 0) for row in rows], amount) for name, amount in wanted.items()]
    most = [_most(values, width) for values, _ in tables]
    tried = 0

    def pick(end: int, count: int, left: Sequence[int]) -> tuple[int, ...] | None:
        nonlocal tried
        for last in range(count - 1, end):
            tried += 1
            if tried > _MOST_TRIED:
                raise outcome.Unpredictable(
                    outcome.TOO_MANY_ZONES,
                    f"{len(rows)} NUMA zones have too many sets of {width} to try",
                )
            rest = [need - values[last] for need, (values, _) in zip(left, tables, strict=True)]
            if any(before[last][count - 1] < need for before, need in zip(most, rest, strict=True)):
                continue
            if count == 1:
                return (last,)
            found = pick(last, count - 1, rest)
            if found is not None:
                return (*found, last)
        return None

    return pick(len(rows), width, [amount for _, amount in tables])


def _most(values: Sequence[int], width: int) -> list[list[int]]:
    """For each position the sums of the 0, 1, 2 ... largest values before it."""
    largest: list[int] = []
    sums = []
    for position in range(len(values)):
        found = list(accumulate(largest, initial=0))
        sums.append(found + [found[-1]] * (width + 1 - len(found)))
        largest = sorted([*largest, values[position]], reverse=True)[:width]
    return sums
