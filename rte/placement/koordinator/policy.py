"""Koordinator's NUMA topology policies: how hints of several providers become one affinity.

Source of the rules: Koordinator ``pkg/scheduler/frameworkext/topologymanager``. It differs from the
kubelet's Topology Manager (``rte.placement.hints``): hints carry scores and may be unsatisfied, an
exclusive policy looks at who else is in a zone, and refusals have reasons.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.bits import ZoneSet

BEST_EFFORT = "BestEffort"
RESTRICTED = "Restricted"
SINGLE_NUMA_NODE = "SingleNUMANode"
POLICIES = (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)

#: What is in a zone: nothing, only pods bound to this zone, or also pods over several zones.
IDLE, SINGLE, SHARED = "idle", "single", "shared"
REQUIRED = "Required"


@dataclass(frozen=True, slots=True)
class TopologyHint:
    """A provider's offer. ``zones`` None: any zones will do."""

    zones: ZoneSet | None
    preferred: bool
    unsatisfied: bool = False
    score: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome of a merge: one affinity, whether the pod is admitted, and why not."""

    hint: TopologyHint
    admitted: bool
    reasons: tuple[str, ...] = ()


#: A provider's hints by resource; None: it has no hints at all. A resource mapped to None has no
#: preference, one mapped to an empty list cannot be satisfied.
ProviderHints = "Mapping[str, Sequence[Hint] | None] | None"


def merge(
    policy: str,
    all_zones: ZoneSet,
    providers: Sequence[Mapping[str, Sequence[TopologyHint] | None] | None],
    *,
    exclusive: str = "",
    status: Mapping[int, str] | None = None,
) -> Merged:
    """Merge all providers' hints under one of :data:`POLICIES`.

    Args:
        policy: the node's or the pod's NUMA topology policy; an unknown one is refused with a
            reason (the original has no policy object then and crashes).
        all_zones: the node's zones.
        providers: in order; the choice among equal offers depends on it, as in the original.
        exclusive: ``Required``: never join zones that others hold alone, and the reverse.
        status: zone id -> :data:`IDLE`, :data:`SINGLE` or :data:`SHARED`.
    """
    default = TopologyHint(all_zones, preferred=False)
    if policy not in POLICIES:
        return Merged(
            default, admitted=False, reasons=(f"unknown NUMA topology policy {policy!r}",)
        )
    lists, reasons, summaries = _flatten(providers)
    status = status or {}
    if policy == BEST_EFFORT:
        best = _best(lists, all_zones, exclusive, status)
        return Merged(default if best.unsatisfied else best, admitted=True)
    if reasons:
        none = default if policy == RESTRICTED else TopologyHint(None, preferred=False)
        return Merged(none, admitted=False, reasons=tuple(reasons))
    if policy == RESTRICTED:
        best, joint = _best(lists, all_zones, exclusive, status), " & "
    else:
        single = [[hint for hint in hints if _is_single(hint)] for hints in lists]
        best, joint = _best(single, all_zones, exclusive, status), ","
        if best.zones == all_zones:
            best = TopologyHint(None, best.preferred)
    if best.preferred:
        return Merged(best, admitted=True)
    return Merged(
        best, admitted=False, reasons=(f"Unaligned NUMA Hint cause {joint.join(summaries)}",)
    )


def format_zones(zones: ZoneSet | None) -> str:
    """A zone set as Koordinator prints it: binary, padded in groups of two digits."""
    if zones is None:
        return "<nil>"
    width = 2
    while zones > 1 << width:
        width += 2
    return f"{zones:0{width}b}"


def _flatten(
    providers: Sequence[Mapping[str, Sequence[TopologyHint] | None] | None],
) -> tuple[list[list[TopologyHint]], list[str], list[str]]:
    lists: list[list[TopologyHint]] = []
    reasons: list[str] = []
    summaries: list[str] = []
    for provider in providers:
        if not provider:
            lists.append([TopologyHint(None, preferred=True)])
            continue
        for resource, hints in provider.items():
            if hints is None:
                lists.append([TopologyHint(None, preferred=True)])
                continue
            if not hints:
                offers = [TopologyHint(None, preferred=False, unsatisfied=True)]
                reasons.append(f"Unsatisfied NUMA {resource}")
            else:
                offers = list(hints)
            lists.append(offers)
            satisfied = [hint for hint in offers if not hint.unsatisfied]
            preferred = " ".join(format_zones(hint.zones) for hint in satisfied if hint.preferred)
            among = " ".join(format_zones(hint.zones) for hint in satisfied)
            summaries.append(f"{resource} prefer [{preferred}] among [{among}]")
    return lists, reasons, sorted(summaries)


def _is_single(hint: TopologyHint) -> bool:
    return hint.preferred and (hint.zones is None or hint.zones.bit_count() == 1)


def _best(
    lists: Sequence[Sequence[TopologyHint]],
    all_zones: ZoneSet,
    exclusive: str,
    status: Mapping[int, str],
) -> TopologyHint:
    """The best combination of one hint per list.

    Order matters: a narrower affinity (or a smaller one of the same width) wins whatever its score,
    a higher score wins only over the same width, so the walk has to be the original's.
    """
    best = TopologyHint(all_zones, preferred=False)
    for choice in itertools.product(*lists):
        candidate = _combine(choice, all_zones, exclusive, status)
        if candidate.zones and _better(candidate, best):
            best = candidate
    return best


def _combine(
    choice: Sequence[TopologyHint], all_zones: ZoneSet, exclusive: str, status: Mapping[int, str]
) -> TopologyHint:
    masks = [hint.zones for hint in choice if hint.zones is not None]
    zones = all_zones
    for mask in masks:
        zones &= mask
    preferred = all(hint.preferred for hint in choice) and len(set(masks)) <= 1
    if preferred and exclusive == REQUIRED and not _may_be_exclusive(zones, status):
        preferred = False
    widest = max((mask.bit_count() for mask in masks), default=zones.bit_count())
    return TopologyHint(
        zones,
        preferred,
        unsatisfied=any(hint.unsatisfied for hint in choice) or widest != zones.bit_count(),
        score=sum(hint.score for hint in choice if hint.zones == zones),
    )


def _may_be_exclusive(zones: ZoneSet, status: Mapping[int, str]) -> bool:
    forbidden = SHARED if zones.bit_count() == 1 else SINGLE
    return not any(zones >> zone & 1 and what == forbidden for zone, what in status.items())


def _better(candidate: TopologyHint, best: TopologyHint) -> bool:
    if candidate.preferred != best.preferred:
        return candidate.preferred
    new, old = candidate.zones or 0, best.zones or 0
    if (new.bit_count(), new) < (old.bit_count(), old):
        return True
    return new.bit_count() == old.bit_count() and candidate.score > best.score
