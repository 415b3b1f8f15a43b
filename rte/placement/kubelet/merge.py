"""The topology manager's merge of hints (pkg/kubelet/cm/topologymanager/policy.go).

The kubelet tries every choice of one hint per list. A choice is *preferred* when all its hints are
preferred and their affinities equal, so preferred results are an intersection of sets; all other
results are ANDs of affinities, so folding the set of possible ANDs over the lists finds them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.placement.kubelet.outcome import Hint, ProviderHints

    Rank = tuple[float, ...]

BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE_NUMA_NODE = "single-numa-node"
NONE = "none"

#: From so many pairs on they are not looked at one by one, for ids of so many zones at most.
_MANY_PAIRS = 2000
_MOST_ZONES = 10

_DONT_CARE: Sequence[Hint] = ((None, True),)
_IMPOSSIBLE: Sequence[Hint] = ((None, False),)


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
            the kubelet indexes distances by id, and reads the wrong ones or dies.
    """
    if policy == NONE:
        return (None, False), True
    lists = _hint_lists(providers)
    if policy == SINGLE_NUMA_NODE:
        lists = [[hint for hint in hints if _is_single(hint)] for hints in lists]
        distances = None
    best = _best_hint(lists, all_zones, _order(distances))
    if policy == SINGLE_NUMA_NODE and best[0] == all_zones:
        best = (None, best[1])
    return best, best[1] or policy == BEST_EFFORT


def _hint_lists(providers: Iterable[ProviderHints]) -> list[Sequence[Hint]]:
    lists: list[Sequence[Hint]] = []
    for provider in providers:
        if not provider:
            lists.append(_DONT_CARE)
            continue
        lists += [
            _DONT_CARE if hints is None else hints or _IMPOSSIBLE for hints in provider.values()
        ]
    return lists


def _is_single(hint: Hint) -> bool:
    mask, preferred = hint
    return preferred and (mask is None or mask.bit_count() == 1)


def _best_hint(
    lists: Sequence[Sequence[Hint]], all_zones: ZoneSet, order: Callable[[ZoneSet], Rank]
) -> Hint:
    preferred = _preferred(lists, all_zones)
    if preferred:
        return min(preferred, key=order), True
    affinities = {all_zones}
    for hints in lists:
        masks = {all_zones if mask is None else mask for mask, _ in hints}
        affinities = _intersections(affinities, masks)
    affinities.discard(0)
    if not affinities:
        return all_zones, False
    return _closest_to_best_width(affinities, _best_width(lists), order), False


def _intersections(some: set[ZoneSet], others: set[ZoneSet]) -> set[ZoneSet]:
    """Every ``a & b``, with a of some and b of others."""
    many = len(some) * len(others) >= _MANY_PAIRS
    zones = max(*some, *others).bit_length() if many else 0
    if not many or zones > _MOST_ZONES:
        return {one & other for one in some for other in others}
    return set(bits.members(_meet(bits.of(some), list(others), zones, zones)))


def _meet(family: int, others: list[ZoneSet], left: int, zones: int) -> int:
    """The same for a set of zone sets, written as a bit mask; ``left`` zones are still to be cut.

    All others that agree on a zone cut it at once.
    """
    if not family or not others:
        return 0
    if not left:
        return family
    zone = left - 1
    with_zone = [mask for mask in others if mask >> zone & 1]
    without = [mask for mask in others if not mask >> zone & 1]
    having = _having(zone, zones)
    cut = family & ~having | (family & having) >> (1 << zone)
    return _meet(family, with_zone, zone, zones) | _meet(cut, without, zone, zones)


@lru_cache(maxsize=128)
def _having(zone: int, zones: int) -> int:
    """All sets of so many zones that have one of them, written as a bit mask."""
    return bits.of(mask for mask in range(1 << zones) if mask >> zone & 1)


def _preferred(lists: Sequence[Sequence[Hint]], all_zones: ZoneSet) -> set[ZoneSet]:
    """Affinities that every list can prefer; a preferred "no affinity" goes with any."""
    demanded: set[int] | None = None
    offered = {all_zones}
    for hints in lists:
        masks = {mask for mask, preferred in hints if preferred and mask is not None}
        if (None, True) in hints:
            offered |= masks
        else:
            demanded = masks if demanded is None else demanded & masks
    affinities = offered if demanded is None else demanded
    return {mask & all_zones for mask in affinities if mask & all_zones}


def _best_width(lists: Sequence[Sequence[Hint]]) -> int:
    """Width of the list that needs most zones (BestNonPreferredAffinityCount)."""
    return max(
        (
            min((mask.bit_count() for mask, _ in hints if mask is not None), default=0)
            for hints in lists
        ),
        default=0,
    )


def _closest_to_best_width(
    affinities: set[ZoneSet], best_width: int, order: Callable[[ZoneSet], Rank]
) -> ZoneSet:
    """The widest affinity that is not wider than the best width, else the narrowest."""
    widths = {mask.bit_count() for mask in affinities}
    width = max((width for width in widths if width <= best_width), default=min(widths))
    return min((mask for mask in affinities if mask.bit_count() == width), key=order)


def _order(distances: Mapping[int, Sequence[int]] | None) -> Callable[[ZoneSet], Rank]:
    if distances is None:
        return lambda mask: (mask.bit_count(), mask)

    def closest(mask: ZoneSet) -> Rank:
        return mask.bit_count(), _average_distance(mask, distances), mask

    return closest


def _average_distance(mask: ZoneSet, distances: Mapping[int, Sequence[int]]) -> float:
    zones = list(bits.members(mask))
    if zones and zones[-1] >= len(distances[zones[-1]]):
        raise outcome.Unpredictable(
            outcome.UNKNOWN_CONFIGURATION,
            "prefer-closest-numa-nodes on a machine whose zone ids have gaps",
        )
    return float(sum(distances[one][other] for one in zones for other in zones)) / len(zones) ** 2
