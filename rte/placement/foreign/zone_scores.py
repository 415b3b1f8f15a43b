"""Scores of NodeResourceTopologyMatch over the zones of an NRT: 0 (worst) to 100.

Source: kubernetes-sigs/scheduler-plugins ``pkg/noderesourcetopology/{score,least_numa}.go``. The
ancestor crashes on gaps in the zone ids and on empty requests, answers outside 0..100 in corners,
and mixes up ids and positions in LeastNUMANodes; here these have answers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from rte import errors
from rte.model.pod import QOS, ContainerKind
from rte.placement.foreign import zone_sets
from rte.placement.foreign.zones import ZoneTable, effective_requests
from rte.placement.kubelet import outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rte.model.pod import Pod
from rte.placement.foreign.zones import ZoneEntry

MAX_SCORE = 100
#: ACPI SLIT: 255 = unreachable; used where an NRT tells no distance.
FAR = 255
#: More zone sets than this are not compared by distance: the answer is then never "optimal".
MAX_COMBINATIONS = 2048


def score_zones(
    table: ZoneTable | None,
    pod: Pod,
    strategy: str,
    weights: Mapping[str, int] | None = None,
    *,
    fresh: bool = True,
) -> int:
    """Score a node for a pod.

    Args:
        table: the node's zones; a node without an NRT scores 0.
        pod: any QoS class but Guaranteed scores 100 everywhere.
        strategy: ``LeastAllocated``, ``MostAllocated``, ``BalancedAllocation`` (single-numa-node
            only) or ``LeastNUMANodes`` (any policy).
        weights: resource -> weight for Least/MostAllocated; below 1 or absent counts as 1.
        fresh: False when the NRT cannot be trusted at the moment.

    Raises:
        errors.UsageError: unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise errors.UsageError(f"unknown score {strategy!r}; known: {', '.join(STRATEGIES)}")
    if pod.qos is not QOS.GUARANTEED:
        return MAX_SCORE
    if not fresh or table is None:
        return 0
    if strategy == "LeastNUMANodes":
        return _least_zones(table, pod)
    if table.policy != "single-numa-node":
        return 0
    zone_score = _ZONE_SCORES[strategy]
    if table.scope == "pod":
        requests: list[Mapping[str, int]] = [effective_requests(pod)]
    else:
        requests = [container.requests for container in pod.containers]
    scores = [_node_score(table.zones, wanted, zone_score, weights or {}) for wanted in requests]
    return int(sum(scores) / len(scores)) if scores else 0


def _node_score(
    zones: Sequence[ZoneEntry],
    requests: Mapping[str, int],
    zone_score: Callable[[Mapping[str, int], Mapping[str, int], Mapping[str, int]], int],
    weights: Mapping[str, int],
) -> int:
    """The worst zone that can take the request at all: the kubelet chooses the zone, not we."""
    scores = [zone_score(requests, zone.available, weights) for zone in zones]
    return min((score for score in scores if score), default=0)


def _units(resource: str, amount: int) -> int:
    """Whole units, rounded up: the API's ``Quantity.Value()``."""
    return -(-amount // 1000) if resource == "cpu" else amount


def _weighted(
    requests: Mapping[str, int],
    available: Mapping[str, int],
    weights: Mapping[str, int],
    share: Callable[[int, int], int],
) -> int:
    total = weight_sum = 0
    for name, amount in requests.items():
        weight = max(1, weights.get(name, 1))
        weight_sum += weight
        have = available.get(name, 0)
        if have and amount <= have:
            total += weight * share(_units(name, amount), _units(name, have))
    return total // weight_sum if weight_sum else 0


def _least_allocated(
    requests: Mapping[str, int], available: Mapping[str, int], weights: Mapping[str, int]
) -> int:
    return _weighted(requests, available, weights, lambda want, have: (have - want) * 100 // have)


def _most_allocated(
    requests: Mapping[str, int], available: Mapping[str, int], weights: Mapping[str, int]
) -> int:
    return _weighted(requests, available, weights, lambda want, have: want * 100 // have)


def _balanced(
    requests: Mapping[str, int],
    available: Mapping[str, int],
    weights: Mapping[str, int],  # noqa: ARG001 - one signature for all zone scores
) -> int:
    """100 less the sample variance of the used fractions; one resource alone is balanced."""
    fractions = []
    for name, amount in requests.items():
        have = _units(name, available.get(name, 0))
        fractions.append(_units(name, amount) / have if have else 1.0)
    if not fractions or max(fractions) > 1:
        return 0
    if len(fractions) == 1:
        return MAX_SCORE
    mean = sum(fractions) / len(fractions)
    squares = sum((fraction - mean) ** 2 for fraction in fractions)
    drift = sum(fraction - mean for fraction in fractions)
    variance = (squares - drift * drift / len(fractions)) / (len(fractions) - 1)
    return int((1 - variance) * 100.0)


_ZONE_SCORES = {
    "LeastAllocated": _least_allocated,
    "MostAllocated": _most_allocated,
    "BalancedAllocation": _balanced,
}
STRATEGIES = (*_ZONE_SCORES, "LeastNUMANodes")


# -- LeastNUMANodes -------------------------------------------------------------------------------


def _least_zones(table: ZoneTable, pod: Pod) -> int:
    listed = {name for zone in table.zones for name in zone.available}
    zones = list(table.zones)
    if table.scope == "pod":
        sequence = [effective_requests(pod)]
    else:
        order = sorted(pod.containers, key=lambda container: container.kind is ContainerKind.APP)
        sequence = [dict(container.requests) for container in order]
    most, optimal = 0, True
    for requests in sequence:
        if listed.isdisjoint(requests):
            continue
        found = _narrowest(zones, requests)
        if found is None:
            return 0
        chosen, best_distance = found
        most, optimal = (
            max(most, len({zones[position].id for position in chosen})),
            (optimal and best_distance),
        )
        zones = _debit(zones, chosen, requests)
    if most == 0:
        return MAX_SCORE
    unit = MAX_SCORE // table.max_zones
    score = MAX_SCORE - most * unit + (unit // 2 if optimal else 0)
    return min(MAX_SCORE, max(0, score))


def _narrowest(
    zones: Sequence[ZoneEntry], requests: Mapping[str, int]
) -> tuple[tuple[int, ...], bool] | None:
    """Positions of the fewest zones that hold the request; True: no set of that width is closer."""
    usable = {
        position for position, zone in enumerate(zones) if zone.available.keys() >= requests.keys()
    }
    for width in range(1, len(zones) + 1):
        if not _could_hold(zones, usable, requests, width):
            continue
        if comb(len(zones), width) > MAX_COMBINATIONS:
            holding = sorted(usable)
            rows = [zones[position].available for position in holding]
            try:
                found = zone_sets.lowest(rows, width, requests)
            except outcome.Unpredictable:
                return None
            if found is not None:
                return tuple(holding[place] for place in found), False
            continue
        closest = min(
            FAR * width * width,
            *(_distance(zones, chosen) for chosen in combinations(range(len(zones)), width)),
        )
        best: tuple[int, ...] | None = None
        best_distance = (FAR + 1) * width * width
        for chosen in combinations(sorted(usable), width):
            if not _fits(zones, chosen, requests):
                continue
            distance = _distance(zones, chosen)
            if distance == closest:
                return chosen, True
            if distance < best_distance:
                best, best_distance = chosen, distance
        if best is not None:
            return best, False
    return None


def _could_hold(
    zones: Sequence[ZoneEntry], usable: set[int], requests: Mapping[str, int], width: int
) -> bool:
    """Necessary condition: the ``width`` largest zones hold each resource on its own."""
    if len(usable) < width:
        return False
    for name, amount in requests.items():
        largest = sorted((zones[position].available[name] for position in usable), reverse=True)
        if sum(largest[:width]) < amount:
            return False
    return True


def _fits(zones: Sequence[ZoneEntry], chosen: Sequence[int], requests: Mapping[str, int]) -> bool:
    return all(
        sum(zones[position].available[name] for position in chosen) >= amount
        for name, amount in requests.items()
    )


def _distance(zones: Sequence[ZoneEntry], chosen: Sequence[int]) -> int:
    """Sum of all pairwise distances, own and both directions (the average times width squared)."""
    return sum(zones[a].costs.get(zones[b].id, FAR) for a in chosen for b in chosen)


def _debit(
    zones: Sequence[ZoneEntry], chosen: Sequence[int], requests: Mapping[str, int]
) -> list[ZoneEntry]:
    """Take the request from the chosen zones, lowest id first, each as far as it goes."""
    out = list(zones)
    left = dict(requests)
    for position in sorted(chosen, key=lambda position: zones[position].id):
        available = dict(out[position].available)
        for name, amount in left.items():
            take = min(amount, available.get(name, 0))
            available[name] = available.get(name, 0) - take
            left[name] = amount - take
        out[position] = replace(out[position], available=available)
    return out
