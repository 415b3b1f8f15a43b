"""How the CPU manager spreads CPUs evenly over zones (cpu_assignment.go, KEP-2902)."""

from __future__ import annotations

from itertools import combinations as choose
from math import comb, sqrt
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.kubelet import merge, outcome
from rte.placement.kubelet.cpu.pickers import Accumulator, check_enough, take_packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.placement.kubelet.cpu.pickers import Layout

#: So many sets of zones are compared on machines of any number of zones.
_MOST_SETS = 512


def take_distributed(
    layout: Layout,
    available: CPUSet,
    count: int,
    group: int,
    *,
    spread: bool = False,
    by_core: bool = False,
    in_socket: bool = False,
    lowers_share: bool = False,
) -> CPUSet:
    """Spread CPUs evenly over as few zones as possible (takeByTopologyNUMADistributed, KEP-2902).

    Args:
        layout: the machine.
        available: CPUs that may be picked.
        count: CPUs wanted; if it is no multiple of ``group``, they are packed.
        group: CPUs that stay together.
        spread: distribute-cpus-across-cores.
        by_core: it heeds which CPUs are of one core (since 1.38).
        in_socket: zones of one socket win (align-by-socket since 1.37).
        lowers_share: each zone gives no more than it has (since 1.37).

    Raises:
        outcome.Refused: not enough CPUs, or none in the zones that slice sharing led to.
        outcome.Breaks: the kubelet would deal out the remainder for ever.
        outcome.Unpredictable: more zones have free CPUs than anybody combines to so many.
    """
    if count % group:
        return take_packed(layout, available, count, spread=spread, by_core=by_core)
    if count < 1:
        return 0
    check_enough(available, count)
    need = Accumulator(layout, available, count)
    zones = need.zone_order()
    free = {zone.id: (zone.cpus & available).bit_count() for zone in zones}
    fewest, most = _zones_needed(layout, len(zones), count, group)
    for width in range(fewest, most + 1):
        if comb(len(zones), width) > _MOST_SETS:
            merge.check(zones)
        winner = _best_distribution(
            [zone.id for zone in zones], free, width, count, group, layout if in_socket else None
        )
        if winner:
            share = count // width // group * group
            if lowers_share:
                share = _lowered(share, winner[0], free, group)
            return _deal(need, winner, count, share, group, spread=spread, by_core=by_core)
    return take_packed(layout, available, count, spread=spread, by_core=by_core)


def _zones_needed(layout: Layout, zones: int, count: int, group: int) -> tuple[int, int]:
    """Smallest and largest number of zones to try (rangeNUMANodesNeededToSatisfy)."""
    groups = -(-layout.all_cpus.bit_count() // group)
    groups_per_zone = -(-groups // len(layout.zones))
    groups_needed = -(-count // group)
    return -(-groups_needed // groups_per_zone), min(groups_needed, zones)


def _best_distribution(
    zones: list[int],
    free: dict[int, int],
    width: int,
    count: int,
    group: int,
    sockets_of: Layout | None,
) -> tuple[list[int], list[int]] | None:
    """Zones that leave the free CPUs most even, and those of them that give the remainder.

    With a layout in ``sockets_of``, zones of one socket beat all that are not, and the share
    shrinks to what each zone has.
    """
    best_score = float("inf")
    best: tuple[list[int], list[int]] | None = None
    best_in_socket = False
    for combination in _shared_combinations(zones, width):
        if best_score == 0 and (sockets_of is None or best_in_socket):
            break
        share = count // width // group * group
        if sockets_of is not None:
            share = _lowered(share, combination, free, group)
        if (
            sum(free[zone] for zone in combination) < count
            or sum(free[zone] // group for zone in combination) * group < count
            or any(free[zone] < share for zone in combination)
        ):
            continue
        left = dict(free)
        for zone in combination:
            left[zone] -= share
        remainder = count - share * width
        if remainder == 0:
            givers: list[int] = []
            score = _unevenness(left.values())
        else:
            score, givers = _best_remainder(
                [zone for zone in combination if left[zone] >= group], left, remainder, group
            )
        in_socket = sockets_of is not None and _is_in_one_socket(sockets_of, combination)
        if score < best_score if in_socket == best_in_socket else in_socket:
            best_score, best, best_in_socket = score, (combination, givers), in_socket
    return best


def _lowered(share: int, zones: Iterable[int], free: Mapping[int, int], group: int) -> int:
    """The share, or less: what each of the zones has in whole groups."""
    return min(share, *(free[zone] // group * group for zone in zones))


def _is_in_one_socket(layout: Layout, zones: Iterable[int]) -> bool:
    cpus = layout.cpus_in(bits.of(zones))
    return len(layout.sockets_with(cpus)) <= 1


def _best_remainder(
    candidates: list[int], left: dict[int, int], remainder: int, group: int
) -> tuple[float, list[int]]:
    best_score = float("inf")
    best: list[int] = []
    for size in range(len(candidates), 0, -1):
        for subset in _shared_combinations(candidates, size):
            if sum(left[zone] for zone in subset) < remainder:
                continue
            after = dict(left)
            for zone in _round_robin(subset, after, remainder, group):
                after[zone] -= group
            score = _unevenness(after.values())
            if score < best_score:
                best_score, best = score, subset
    return best_score, best


def _round_robin(
    zones: Sequence[int], left: dict[int, int], remainder: int, group: int
) -> Iterator[int]:
    """Whose turn it is to give one group, until the remainder is met; the caller takes it.

    Raises:
        outcome.Breaks: no zone has a whole group left; the kubelet's loop has no way out.
    """
    while remainder > 0:
        before = remainder
        for zone in zones:
            if remainder > 0 and left[zone] >= group:
                remainder -= group
                yield zone
        if remainder == before:
            raise outcome.Breaks(
                outcome.KUBELET_HANGS,
                "distribute-cpus-across-numa: the kubelet would never end dealing out CPUs, "
                "because the chosen zones have too few whole cores left",
            )


def _deal(
    need: Accumulator,
    winner: tuple[list[int], list[int]],
    count: int,
    share: int,
    group: int,
    *,
    spread: bool,
    by_core: bool,
) -> CPUSet:
    zones, givers = winner
    cpus_of = {zone.id: zone.cpus for zone in need.layout.zones}

    def take_from(zone: int, number: int) -> None:
        # The kubelet drops this error: a zone may have too few CPUs after slice sharing.
        try:
            free = need.free & cpus_of[zone]
            cpus = take_packed(need.layout, free, number, spread=spread, by_core=by_core)
        except outcome.AllocationRefused:
            return
        need.take(cpus, cpus.bit_count())

    for zone in zones:
        take_from(zone, share)
    remainder = count - share * len(zones)
    left: dict[int, int] = {}

    def count_left() -> None:
        left.update((zone, (need.free & cpus_of[zone]).bit_count()) for zone in givers)

    count_left()
    for zone in _round_robin(givers, left, remainder, group):
        take_from(zone, group)
        count_left()
    if need.count > 0:
        raise outcome.AllocationRefused.unexpected(
            f"accounting error, not enough CPUs allocated, remaining: {need.count}"
        )
    return need.result


def _shared_combinations(items: list[int], size: int) -> Iterator[list[int]]:
    """Combinations in lexicographic order, **sharing lists as the kubelet's slices share memory**.

    iterateCombinations grows a slice by append; capacities are 1, 2, 4, 8, 16, and siblings write
    into the same array while there is room. A combination that the caller remembers is thus
    overwritten by the later ones that begin with the same elements: three of them for size 4, five
    for 6 to 8, nine for 10 to 16. Other sizes are copied as they grow.
    """
    kept = {4: 3, 6: 5, 7: 5, 8: 5}.get(size, min(size, 9))
    shared: list[int] = []
    for combination in choose(items, size):
        if shared[:kept] == list(combination[:kept]):
            shared[kept:] = combination[kept:]
        else:
            shared = list(combination)
        yield shared


def _unevenness(values: Iterable[int]) -> float:
    """Standard deviation as the kubelet rounds it: the mean to three decimals, the result too."""
    numbers = list(values)
    mean = _round3(sum(numbers) / len(numbers))
    return _round3(
        sqrt(sum((number - mean) * (number - mean) for number in numbers) / len(numbers))
    )


def _round3(value: float) -> float:
    """math.Round(value * 1000) / 1000 of Go: halves away from zero."""
    scaled = value * 1000
    whole = int(scaled)
    return (whole + (scaled - whole >= 0.5)) / 1000
