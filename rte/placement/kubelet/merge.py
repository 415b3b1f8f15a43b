"""The topology manager's merge of hints (pkg/kubelet/cm/topologymanager/policy.go).

The kubelet tries every choice of one hint per list. A choice is *preferred* when all its hints are
preferred and their affinities equal, so preferred results are an intersection of families; all
other results are ANDs of affinities, so folding the family of possible ANDs over the lists finds
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rte.model import bits
from rte.placement.kubelet import combinations, outcome
from rte.placement.kubelet.combinations import Hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.placement.kubelet.combinations import Family
    from rte.placement.kubelet.outcome import Hint, ProviderHints

BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE_NUMA_NODE = "single-numa-node"
NONE = "none"

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
        combinations.check(zones)
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
                offered = combinations.spread(offered, zones, self._zones)
                preferred = combinations.spread(preferred, zones, self._zones)
            return _Offer(offered, preferred, False, False)
        affinities = liked = 0
        for mask, preferred in hints:
            if mask is not None:
                family = 1 << combinations.places_of(self._zones, mask)
                affinities |= family
                liked |= family if preferred else 0
        any_zone = any(mask is None for mask, _ in hints)
        return _Offer(affinities, liked, any_zone, (None, True) in hints)

    def best(self, *, single: bool) -> Hint:
        """The hint that wins; ``single``: of preferred ones of one zone each."""
        offers = self._offers
        if single:
            width = combinations.by_width(self._count)[1]
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
            affinities = combinations.meet(self._count, affinities, choice)
        if not affinities & ~1:
            return self._all_zones, False
        width = max(
            (combinations.narrowest(self._count, each.affinities).bit_count() for each in offers),
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
        families = combinations.by_width(self._count)
        found = next(family & families[width] for width in widths if family & families[width])
        if self._distances is None:
            return self._mask(bits.lowest(found))
        return min(
            (self._average_distance(mask), mask) for mask in map(self._mask, bits.members(found))
        )[1]

    def _mask(self, places: int) -> ZoneSet:
        if places & self._rest:
            return self._all_zones
        return combinations.zones_at(self._zones, places)

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
        return combinations.mask_of(hints.zones)
    zones = 0
    for mask, _ in hints:
        zones |= mask or 0
    return zones
