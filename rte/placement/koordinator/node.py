"""Koordinator's allocation on one node: resources split over NUMA zones, then the CPUs.

Source: Koordinator ``pkg/scheduler/plugins/nodenumaresource/resource_manager.go``. Zones are walked
in ascending order of what they have (the original compares the zones at the list's positions, so an
affinity of zones 2 and 3 is ordered by zones 0 and 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.placement.koordinator.cpus import (
    FULL_PCPUS,
    LEAST_ALLOCATED,
    NOT_ENOUGH,
    SPREAD_BY_PCPUS,
    CPULedger,
    PickError,
    pick_cpus,
)
from rte.placement.koordinator.policy import RESTRICTED, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.bits import CPUSet, ZoneSet


class AllocationError(errors.RteError):
    """The node cannot give what is asked; ``reasons`` are Koordinator's, one per resource."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


@dataclass(frozen=True, kw_only=True)
class KoordinatorNode:
    """A node as Koordinator's scheduler keeps it. Amounts: millicores for ``cpu``, else base units.

    Attributes:
        ledger: CPUs and their holders.
        totals: zone -> resource -> amount, amplified already where a ratio is in force.
        allocated: zone -> resource -> amount held, CPU not amplified for pinned CPUs.
        cpu_ratio: CPU amplification (Koordinator's ``resource-amplification-ratio``), 1 = none.
        strategy: NUMA allocate strategy.
    """

    ledger: CPULedger
    totals: Mapping[int, Mapping[str, int]]
    allocated: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    cpu_ratio: float = 1.0
    strategy: str = LEAST_ALLOCATED


@dataclass(frozen=True, kw_only=True)
class NodeRequest:
    """What a pod asks of a node.

    Attributes:
        amounts: resource -> amount, not amplified.
        binds: wants CPUs of its own.
        bind: CPU bind policy, ``required`` when it is a must.
        exclusive: CPU exclusive policy.
    """

    amounts: Mapping[str, int]
    binds: bool = False
    bind: str = ""
    required: bool = False
    exclusive: str = ""


@dataclass(frozen=True, kw_only=True)
class ZoneAllocation:
    """The outcome: CPUs (0: none of its own) and zone -> resource -> amount."""

    cpus: CPUSet = 0
    zones: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


def amplify(amount: int, ratio: float) -> int:
    """An amount of raw resource in amplified units; ratios up to 1 change nothing."""
    return amount if ratio <= 1 else ceil(amount * ratio)


def available_resources(node: KoordinatorNode) -> dict[int, dict[str, int]]:
    """Zone -> resource -> what is left; pinned CPUs weigh their amplified worth."""
    pinned = bits.of(node.ledger.allocated)
    out: dict[int, dict[str, int]] = {}
    for zone, totals in node.totals.items():
        held = dict(node.allocated.get(zone, {}))
        if node.cpu_ratio > 1 and "cpu" in held:
            exclusive = 1000 * (pinned & node.ledger.topology.zone_cpus.get(zone, 0)).bit_count()
            held["cpu"] += amplify(exclusive, node.cpu_ratio) - exclusive
        out[zone] = {name: max(0, total - held.get(name, 0)) for name, total in totals.items()}
    return out


def allocate(
    node: KoordinatorNode, request: NodeRequest, affinity: ZoneSet | None
) -> ZoneAllocation:
    """Give the pod its share of the zones in ``affinity``, evenly, and its CPUs.

    Args:
        node: what is free.
        request: what is asked for.
        affinity: zones to take from; None: zones do not matter.

    Raises:
        AllocationError: with one reason per resource that is short.
    """
    usable = _usable_cpus(node.ledger, request)
    zones = _split(node, request, affinity, usable) if affinity is not None else {}
    if not request.binds:
        return ZoneAllocation(zones=zones)
    need = request.amounts.get("cpu", 0) // 1000
    try:
        cpus = _pick(node, request, need, usable, zones)
    except PickError as error:
        raise AllocationError([str(error)]) from error
    _check_required(node.ledger, request, cpus)
    return ZoneAllocation(cpus=cpus, zones=zones)


def hints(
    node: KoordinatorNode, request: NodeRequest, policy: str
) -> dict[str, list[TopologyHint]]:
    """This node's hints per requested resource that its zones know.

    A zone set is offered when a trial allocation from it succeeds; under Restricted every offer is
    preferred, under the other policies the narrowest ones.

    Raises:
        AllocationError: the node has no zone resources.
    """
    if not node.totals:
        raise AllocationError(["node(s) Insufficient NUMA Node resources"])
    free = available_resources(node)
    known = [
        name
        for name, amount in request.amounts.items()
        if amount and any(name in totals for totals in node.totals.values())
    ]
    lacking = {
        name: bits.of(zone for zone, amounts in free.items() if not amounts.get(name))
        for name in known
    }
    offers: dict[str, list[ZoneSet]] = {name: [] for name in known}
    zones = bits.of(node.totals)
    for mask in _zone_sets(zones):
        try:
            allocate(node, request, mask)
        except AllocationError:
            continue
        for name in known:
            if not mask & lacking[name]:
                offers[name].append(mask)
    out: dict[str, list[TopologyHint]] = {}
    for name, masks in offers.items():
        narrowest = min((mask.bit_count() for mask in masks), default=0)
        out[name] = [
            TopologyHint(mask, preferred=policy == RESTRICTED or mask.bit_count() == narrowest)
            for mask in masks
        ]
    return out


def _zone_sets(zones: ZoneSet) -> list[ZoneSet]:
    subsets = [0]
    for zone in bits.members(zones):
        subsets += [mask | 1 << zone for mask in subsets]
    return sorted(subsets[1:], key=lambda mask: (mask.bit_count(), tuple(bits.members(mask))))


def _usable_cpus(ledger: CPULedger, request: NodeRequest) -> CPUSet:
    """Free CPUs that a required bind policy can use: whole cores, or one CPU of each core."""
    free = ledger.available()
    if not request.required:
        return free
    by_core: dict[int, CPUSet] = {}
    for info in ledger.topology.cpus:
        if free >> info.cpu & 1:
            by_core[info.core] = by_core.get(info.core, 0) | 1 << info.cpu
    if request.bind == SPREAD_BY_PCPUS:
        return bits.of(bits.lowest(mask) for mask in by_core.values())
    per_core = _cpus_per_core(ledger)
    usable = 0
    for mask in by_core.values():
        if mask.bit_count() == per_core:
            usable |= mask
    return usable


def _cpus_per_core(ledger: CPULedger) -> int:
    cpus = ledger.topology.cpus
    return len(cpus) // max(1, len({info.core for info in cpus}))


def _split(
    node: KoordinatorNode, request: NodeRequest, affinity: ZoneSet, usable: CPUSet
) -> dict[int, dict[str, int]]:
    free = available_resources(node)
    if not free:
        raise AllocationError(["insufficient resources on NUMA Node"])
    if request.required:
        for zone, amounts in free.items():
            if amounts.get("cpu"):
                mine = usable & node.ledger.topology.zone_cpus.get(zone, 0)
                amounts["cpu"] = min(amounts["cpu"], 1000 * mine.bit_count())
    out: dict[int, dict[str, int]] = {}
    reasons: list[str] = []
    for name, amount in request.amounts.items():
        if not amount or not any(name in amounts for amounts in free.values()):
            continue
        zones = sorted(
            bits.members(affinity), key=lambda zone: (free.get(zone, {}).get(name, 0), zone)
        )
        left = amount
        for position, zone in enumerate(zones):
            share = _share(node.ledger, request, name, left, len(zones) - position)
            given = min(free.get(zone, {}).get(name, 0), share)
            left -= given
            if given:
                out.setdefault(zone, {})[name] = given
        if left:
            reasons.append(f"Insufficient NUMA {name}")
    if reasons:
        raise AllocationError(reasons)
    return dict(sorted(out.items()))


def _share(ledger: CPULedger, request: NodeRequest, name: str, left: int, zones: int) -> int:
    """An even share of what is left, in the unit that can be given."""
    if name != "cpu" or not request.binds:
        return left // zones
    step = _cpus_per_core(ledger) if request.required and request.bind == FULL_PCPUS else 1
    return 1000 * step * (left // 1000 // step // zones)


def _pick(
    node: KoordinatorNode,
    request: NodeRequest,
    need: int,
    usable: CPUSet,
    zones: Mapping[int, Mapping[str, int]],
) -> CPUSet:
    if usable.bit_count() < need:
        raise PickError(NOT_ENOUGH)
    parts = {zone: amounts["cpu"] // 1000 for zone, amounts in zones.items() if "cpu" in amounts}
    if not parts:
        return pick_cpus(
            node.ledger,
            need,
            available=usable,
            bind=request.bind,
            exclusive=request.exclusive,
            strategy=node.strategy,
        )
    result = 0
    for zone, part in sorted(parts.items()):
        mine = usable & node.ledger.topology.zone_cpus.get(zone, 0)
        result |= pick_cpus(
            node.ledger,
            min(part, mine.bit_count()),
            available=mine,
            bind=request.bind,
            exclusive=request.exclusive,
            strategy=node.strategy,
        )
    if result.bit_count() != need:
        raise PickError(NOT_ENOUGH)
    return result


def _check_required(ledger: CPULedger, request: NodeRequest, cpus: CPUSet) -> None:
    if not request.required:
        return
    cores = len({info.core for info in ledger.topology.cpus if cpus >> info.cpu & 1})
    per_core = _cpus_per_core(ledger) if request.bind == FULL_PCPUS else 1
    if cores * per_core != cpus.bit_count():
        raise AllocationError(
            [f"insufficient CPUs to satisfy required cpu bind policy {request.bind}"]
        )
