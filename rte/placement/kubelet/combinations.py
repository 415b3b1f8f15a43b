"""Combinations of NUMA zones, all at once: what hint providers offer, and the merge chooses from.

The kubelet walks through the combinations one by one (bitmask.IterateBitMasks). Here a *family*, a
set of combinations of n zones, is one integer of 2**n bits: bit *m* stands for the combination of
the zones at the places in *m*, counted from the lowest id. So an offer is found, and offers are
merged, by a few operations on long integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations as choose
from typing import TYPE_CHECKING, TypeAlias, overload

from rte.model import bits
from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sized

    from rte.model.bits import ZoneSet
    from rte.placement.kubelet.outcome import Hint

Family: TypeAlias = int

#: A kubelet takes seconds for the 2**16 combinations of one container, and twice as long for each
#: zone more.
MAX_ZONES = 16
#: So many zones have their sums sorted; intersections of families of so many are remembered.
_SORTED, _REMEMBERED = 8, 3
#: The only family without a zone is that of the empty combination, which nobody offers.
_EMPTY = 1


class Hints(Sequence["Hint"]):
    """Offers of one provider for one resource, in the kubelet's order: narrow ones first, then
    lexicographic.

    Attributes:
        zones: ids of the zones that are combined, ascending.
        offered: the family of all affinities; the empty one is none.
        preferred: those of them that are preferred.
    """

    __slots__ = ("offered", "preferred", "zones")

    def __init__(self, zones: tuple[int, ...], offered: Family, preferred: Family) -> None:
        self.zones = zones
        self.offered = offered & ~_EMPTY
        self.preferred = preferred & self.offered

    def __len__(self) -> int:
        return self.offered.bit_count()

    def __iter__(self) -> Iterator[Hint]:
        for width in range(1, len(self.zones) + 1):
            for places in choose(range(len(self.zones)), width):
                index = bits.of(places)
                if self.offered >> index & 1:
                    yield zones_at(self.zones, index), bool(self.preferred >> index & 1)

    @overload
    def __getitem__(self, index: int) -> Hint: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hint]: ...
    def __getitem__(self, index: int | slice) -> Hint | Sequence[Hint]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash((self.zones, self.offered, self.preferred))

    def __repr__(self) -> str:
        return repr(list(self))

    def best(self, within: ZoneSet = 0) -> tuple[ZoneSet, bool] | None:
        """The preferred one, else the narrowest, else that of the lowest zones; of those with all
        the given zones (findBestHint). None: there is none.
        """
        having = containing(len(self.zones), places_of(self.zones, within))
        for family, preferred in ((self.preferred, True), (self.offered, False)):
            index = narrowest(len(self.zones), family & having)
            if index:
                return zones_at(self.zones, index), preferred
        return None


def check(zones: Sized) -> None:
    """Whether so many zones are combined here.

    Raises:
        outcome.Unpredictable: more zones than a kubelet combines in a useful time.
    """
    if len(zones) > MAX_ZONES:
        raise outcome.Unpredictable(
            outcome.TOO_MANY_ZONES, f"{len(zones)} NUMA zones have too many combinations"
        )


@lru_cache(maxsize=256)
def mask_of(zones: tuple[int, ...]) -> ZoneSet:
    """These zones as a set."""
    return bits.of(zones)


@lru_cache(maxsize=4096)
def zones_at(zones: tuple[int, ...], places: int) -> ZoneSet:
    """The zones at these places."""
    return bits.of(zones[place] for place in bits.members(places))


@lru_cache(maxsize=4096)
def places_of(zones: tuple[int, ...], mask: ZoneSet) -> int:
    """The places of these zones; those that are not there have none."""
    return bits.of(place for place, zone in enumerate(zones) if mask >> zone & 1)


@lru_cache(maxsize=64)
def by_width(count: int) -> tuple[Family, ...]:
    """For each number of zones the combinations of so many."""
    families = [1]
    for place in range(count):
        shift = 1 << place
        wider = [0, *(family << shift for family in families)]
        families = [a | b for a, b in zip([*families, 0], wider, strict=True)]
    return tuple(families)


@lru_cache(maxsize=256)
def containing(count: int, places: int) -> Family:
    """The combinations that have all these places."""
    family = 1
    for place in range(count):
        size = 1 << place
        family = family << size if places & size else family | family << size
    return family


@lru_cache(maxsize=256)
def within(count: int, places: int) -> Family:
    """The combinations of these places alone, with the empty one."""
    family = 1
    for place in bits.members(places & ((1 << count) - 1)):
        family |= family << (1 << place)
    return family


def touching(count: int, places: int) -> Family:
    """The combinations that have any of these places."""
    return containing(count, 0) & ~within(count, ~places)


def narrowest(count: int, family: Family) -> int:
    """The combination of fewest zones, of several that with the smallest mask; 0 if there is none
    but the empty one.
    """
    for width in by_width(count)[1:]:
        if family & width:
            return bits.lowest(family & width)
    return 0


def fewest(count: int, family: Family) -> int:
    """How many zones the narrowest combination has; all of them where the family has none."""
    return narrowest(count, family).bit_count() or count


@lru_cache(maxsize=128)
def at_least(values: tuple[int, ...], least: int) -> Family:
    """The combinations whose values add up to at least that much; one value for each place, none
    below zero.
    """
    return _at_least(values, sum(values), least)


def _at_least(values: tuple[int, ...], total: int, least: int) -> Family:
    if total < least:
        return 0
    count = len(values)
    if least <= 0 or min(values) >= least:
        return containing(count, 0) & ~(_EMPTY if least > 0 else 0)
    if count <= _SORTED:
        totals, families = _ranked(values)
        return families[bisect_left(totals, least)]
    *rest, last = values
    others = tuple(rest)
    without = _at_least(others, total - last, least)
    return without | _at_least(others, total - last, least - last) << (1 << (count - 1))


@lru_cache(maxsize=128)
def _ranked(values: tuple[int, ...]) -> tuple[list[int], list[Family]]:
    """The sums of all combinations, ascending; for each the family of it and all behind it."""
    totals = _sums(values)
    order = sorted(range(len(totals)), key=totals.__getitem__)
    families = [0]
    for index in reversed(order):
        families.append(families[-1] | 1 << index)
    families.reverse()
    return [totals[index] for index in order], families


def _sums(values: Iterable[int]) -> list[int]:
    table = [0]
    for value in values:
        table += [total + value for total in table]
    return table


def spread(family: Family, zones: tuple[int, ...], among: tuple[int, ...]) -> Family:
    """The same combinations, as places among more zones; both ascending."""
    for place, zone in enumerate(among):
        if zones == among[: len(zones)]:
            break
        if zone not in zones:
            # The new place is absent from every combination: zeros above each block below it.
            size = 1 << place
            digits = f"{family:0{1 << len(zones)}b}"
            blocks = (digits[at : at + size] for at in range(0, len(digits), size))
            family = int("".join("0" * size + block for block in blocks), 2)
            zones = (*zones[:place], zone, *zones[place:])
    return family


def meet(count: int, some: Family, others: Family) -> Family:
    """Every combination that is the intersection of one and one of the others."""
    return _meet(count, some, others, {})


def _meet(
    count: int, some: Family, others: Family, known: dict[tuple[int, Family, Family], Family]
) -> Family:
    if not some or not others:
        return 0
    full = 1 << ((1 << count) - 1)
    if full in (some, others):
        return others if some == full else some
    if count <= _REMEMBERED:
        return _meet_few(some, others)
    key = (count, some, others)
    if key not in known:
        half = 1 << (count - 1)
        low = (1 << half) - 1
        without, having = some & low, some >> half
        lacking, taking = others & low, others >> half
        known[key] = (
            _meet(count - 1, without, lacking | taking, known)
            | _meet(count - 1, having, lacking, known)
            | _meet(count - 1, having, taking, known) << half
        )
    return known[key]


@lru_cache(maxsize=1 << 14)
def _meet_few(some: Family, others: Family) -> Family:
    return bits.of(one & other for one in bits.members(some) for other in bits.members(others))
