"""The topology manager's merge of hints (pkg/kubelet/cm/topologymanager/policy.go).

The kubelet tries every choice of one hint per list. A choice is *preferred* when all its hints are
preferred and their affinities equal, so preferred results are an intersection of families; all
other results are ANDs of affinities, so folding the family of possible ANDs over the lists finds
them.

The kubelet walks through the combinations of zones one by one (bitmask.IterateBitMasks). Here a
*family*, a set of combinations of n zones, is one integer of 2**n bits: bit *m* stands for the
combination of the zones at the places in *m*, counted from the lowest id. So an offer is found, and
offers are merged, by a few operations on long integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations as choose
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, overload

from rte.model import bits
from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sized

    from rte.model.bits import ZoneSet
    from rte.placement.kubelet.outcome import Hint, ProviderHints

BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE_NUMA_NODE = "single-numa-node"
NONE = "none"

Family: TypeAlias = int

#: A kubelet takes seconds for the 2**16 combinations of one container, and twice as long for each
#: zone more.
MAX_ZONES = 16
#: So many zones have their sums sorted; intersections of families of so many are remembered.
_SORTED, _REMEMBERED = 8, 3
#: The only family without a zone is that of the empty combination, which nobody offers.
_EMPTY = 1

_IMPOSSIBLE: Sequence[Hint] = ((None, False),)


class _Offer(NamedTuple):
    """A list of hints: the families of its affinities, and whether any hint has none."""

    affinities: Family
    preferred: Family
    any_zone: bool
    prefers_any_zone: bool


def merge(
    policy: str,
    providers: Iterable[ProviderHints],
    all_zones: ZoneSet,
    distances: Mapping[int, Sequence[int]] | None = None,
) -> tuple[Hint, bool]:
    """The merged hint, and whether the policy admits it.

    ``distances`` (zone id -> distances indexed by zone id) is given with prefer-closest-numa-nodes.

    Raises:
        outcome.Unpredictable: prefer-closest-numa-nodes with zone ids that are not 0, 1, 2 ...:
            the kubelet indexes distances by id, and reads the wrong ones or dies. Or hints over
            more zones than anybody combines.
    """
    if policy == NONE:
        return (None, False), True
    single = policy == SINGLE_NUMA_NODE
    merger = _Merger(all_zones, list(_hint_lists(providers)), None if single else distances)
    best = merger.best(single=single)
    if single and best[0] == all_zones:
        best = (None, best[1])
    return best, best[1] or policy == BEST_EFFORT


def _hint_lists(providers: Iterable[ProviderHints]) -> Iterator[Sequence[Hint]]:
    """Those of providers that have an opinion: the others go with any affinity."""
    for provider in providers:
        for hints in (provider or {}).values():
            if hints is not None:
                yield hints or _IMPOSSIBLE


class _Merger:
    """Lists of hints as families over the zones that any of them names.

    All zones beside these count as one more, the last: it is in no hint, and so only in the
    affinity to all zones.
    """

    def __init__(
        self,
        all_zones: ZoneSet,
        lists: Sequence[Sequence[Hint]],
        distances: Mapping[int, Sequence[int]] | None,
    ) -> None:
        named = 0
        for hints in lists:
            named |= _zones_of(hints)
        zones = tuple(bits.members(named & all_zones))
        check(zones)
        rest = all_zones & ~named
        self._zones = (*zones, bits.lowest(rest)) if rest else zones
        self._rest = 1 << len(zones) if rest else 0
        self._count = len(self._zones)
        self._all = 1 << ((1 << self._count) - 1)
        self._all_zones = all_zones
        self._distances = distances
        self._offers = [self._offer(hints) for hints in lists]

    def _offer(self, hints: Sequence[Hint]) -> _Offer:
        if type(hints) is Hints:  # quicker than isinstance, which asks the abstract class
            zones, offered, preferred = hints.zones, hints.offered, hints.preferred
            if zones != self._zones[: len(zones)]:
                offered = spread(offered, zones, self._zones)
                preferred = spread(preferred, zones, self._zones)
            return _Offer(offered, preferred, False, False)
        affinities = liked = 0
        for mask, preferred in hints:
            if mask is not None:
                family = 1 << places_of(self._zones, mask)
                affinities |= family
                liked |= family if preferred else 0
        any_zone = any(mask is None for mask, _ in hints)
        return _Offer(affinities, liked, any_zone, (None, True) in hints)

    def best(self, *, single: bool) -> Hint:
        """The hint that wins; ``single``: of preferred ones of one zone each."""
        offers = self._offers
        if single:
            width = by_width(self._count)[1]
            offers = [
                _Offer(
                    each.preferred & width,
                    each.preferred & width,
                    each.prefers_any_zone,
                    each.prefers_any_zone,
                )
                for each in offers
            ]
        preferred = self._preferred(offers)
        if preferred:
            return self._narrowest(preferred, range(self._count + 1)), True
        affinities = self._all
        for each in offers:
            choice = each.affinities | (self._all if each.any_zone else 0)
            affinities = meet(self._count, affinities, choice)
        if not affinities & ~1:
            return self._all_zones, False
        width = max(
            (narrowest(self._count, each.affinities).bit_count() for each in offers),
            default=0,
        )
        # The widest that is not wider than the list that needs most zones
        # (BestNonPreferredAffinityCount), else the narrowest.
        order = [*range(width, 0, -1), *range(width + 1, self._count + 1)]
        return self._narrowest(affinities, order), False

    def _preferred(self, offers: Sequence[_Offer]) -> Family:
        """Affinities that every list can prefer; a preferred "no affinity" goes with any."""
        demanded: Family | None = None
        offered = self._all
        for each in offers:
            if each.prefers_any_zone:
                offered |= each.preferred
            else:
                demanded = each.preferred if demanded is None else demanded & each.preferred
        return (offered if demanded is None else demanded) & ~1

    def _narrowest(self, family: Family, widths: Iterable[int]) -> ZoneSet:
        """The affinity of the first width that any has; among these the closest, then the lowest.

        (IsNarrowerThan, or Closest with prefer-closest-numa-nodes.)
        """
        families = by_width(self._count)
        found = next(family & families[width] for width in widths if family & families[width])
        if self._distances is None:
            return self._mask(bits.lowest(found))
        return min(
            (self._average_distance(mask), mask) for mask in map(self._mask, bits.members(found))
        )[1]

    def _mask(self, places: int) -> ZoneSet:
        if places & self._rest:
            return self._all_zones
        return zones_at(self._zones, places)

    def _average_distance(self, mask: ZoneSet) -> float:
        distances = self._distances or {}
        zones = list(bits.members(mask))
        if zones[-1] >= len(distances[zones[-1]]):
            raise outcome.Unpredictable(
                outcome.UNKNOWN_CONFIGURATION,
                "prefer-closest-numa-nodes on a machine whose zone ids have gaps",
            )
        total = sum(distances[one][other] for one in zones for other in zones)
        return float(total) / len(zones) ** 2


def _zones_of(hints: Sequence[Hint]) -> ZoneSet:
    if type(hints) is Hints:
        return mask_of(hints.zones)
    zones = 0
    for mask, _ in hints:
        zones |= mask or 0
    return zones


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


@lru_cache(maxsize=16)  # 20 KiB each for 8 zones
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
