"""The largest placement, by search over all of them.

Nodes are taken one after the other. Kept are the sets of pods placed so far (as counts by kind)
that no other one contains: since a part of a placement is a placement, whoever has placed more of
every kind can go on in every way. Identical pods and identical nodes so cost nothing extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rte.placement.inflight.orders import CutOff, plus
from rte.placement.joint.field import Assignment

if TYPE_CHECKING:
    from rte.placement.inflight.orders import Bundle
    from rte.placement.joint.field import Field

#: Sets of pods that are followed at a time.
MAX_SETS = 2000
#: Kind -> pods placed.
Counts: TypeAlias = tuple[int, ...]


class _Step(NamedTuple):
    """How a set was reached: a bundle on a node, after the step before."""

    place: int
    bundle: Bundle
    before: _Step | None


def largest(ground: Field, beaten: int) -> Assignment | None:
    """The largest placement of more than ``beaten`` pods; None: there is none.

    Raises:
        CutOff: the budget does not suffice to tell.
    """
    counts = ground.kinds.counts
    places = [place for place in range(len(ground.nodes)) if any(_possible(ground, place))]
    capacities = {
        place: [
            ground.capacity(place, kind) if possible else 0
            for kind, possible in enumerate(_possible(ground, place))
        ]
        for place in places
    }
    left = [sum(capacities[place][kind] for place in places) for kind in range(len(counts))]
    reached: dict[Counts, _Step | None] = {(0,) * len(counts): None}
    for place in places:
        left = [amount - here for amount, here in zip(left, capacities[place], strict=True)]
        found: dict[Counts, _Step | None] = {}
        for placed, step in reached.items():
            room = [
                min(here, count - done)
                for here, count, done in zip(capacities[place], counts, placed, strict=True)
            ]
            for bundle in _bundles(ground, place, room):
                after = _sum(placed, bundle)
                if after not in found and _hope(after, left, counts) > beaten:
                    found[after] = _Step(place, bundle, step) if bundle else step
        reached = _undominated(found)
    if not reached:
        return None
    best = max(reached, key=sum)
    assignment = Assignment(ground)
    at = reached[best]
    while at is not None:
        assignment.bundles[at.place] = at.bundle
        at = at.before
    return assignment if assignment.size > beaten else None


def _possible(ground: Field, place: int) -> list[bool]:
    return [place in nodes for nodes in ground.candidate_sets]


def _hope(placed: Counts, left: list[int], counts: Counts) -> int:
    """No more pods than these can be placed in the end."""
    return sum(
        min(count, done + more) for done, more, count in zip(placed, left, counts, strict=True)
    )


def _bundles(ground: Field, place: int, room: list[int]) -> list[Bundle]:
    """Every set that the node takes, of at most ``room`` pods of each kind."""
    site = ground.sites[place]
    out: list[Bundle] = [()]
    level: list[Bundle] = [()]
    while level:
        larger = {
            plus(bundle, kind): None
            for bundle in level
            for kind, most in enumerate(room)
            if bundle.count(kind) < most and (not bundle or kind >= bundle[-1])
        }
        level = [bundle for bundle in larger if site.takes(bundle)]
        out += level
        if len(out) > MAX_SETS:
            raise CutOff
    return out


def _sum(placed: Counts, bundle: Bundle) -> Counts:
    after = list(placed)
    for kind in bundle:
        after[kind] += 1
    return tuple(after)


def _undominated(found: dict[Counts, _Step | None]) -> dict[Counts, _Step | None]:
    """The sets that are part of no other one."""
    kept: dict[Counts, _Step | None] = {}
    for placed in sorted(found, key=sum, reverse=True):
        if not any(
            all(other >= own for other, own in zip(larger, placed, strict=True)) for larger in kept
        ):
            kept[placed] = found[placed]
            if len(kept) > MAX_SETS:
                raise CutOff
    return kept
