"""Combinations of NUMA zones, and sums over them: what every hint provider walks through."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations as choose
from typing import TYPE_CHECKING, NamedTuple

from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.model.bits import ZoneSet

#: 2**16 combinations are already more than a kubelet walks through in a useful time.
MAX_ZONES = 16


class Combination(NamedTuple):
    """A non-empty set of zones; ``place`` is its place in a :func:`sums` table."""

    mask: ZoneSet
    width: int
    place: int


@lru_cache(maxsize=256)
def of(zones: tuple[int, ...]) -> tuple[Combination, ...]:
    """All combinations, narrow ones first, then lexicographic (bitmask.IterateBitMasks).

    Raises:
        outcome.Unpredictable: more zones than anybody enumerates.
    """
    if len(zones) > MAX_ZONES:
        raise outcome.Unpredictable(
            outcome.TOO_MANY_ZONES, f"{len(zones)} NUMA zones have too many combinations"
        )
    return tuple(
        Combination(
            mask=sum(1 << zones[place] for place in places),
            width=width,
            place=sum(1 << place for place in places),
        )
        for width in range(1, len(zones) + 1)
        for places in choose(range(len(zones)), width)
    )


def sums(values: Iterable[int]) -> list[int]:
    """The sum of every subset; a subset is the bit mask of the places it takes."""
    table = [0]
    for value in values:
        table += [total + value for total in table]
    return table
