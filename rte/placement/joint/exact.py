"""The largest placement, by search over all of them.

Nodes are taken one after the other. Kept are the sets of pods placed so far (as counts by kind)
that no other one contains: since a part of a placement is a placement, whoever has placed more of
every kind can go on in every way. Identical pods and identical nodes so cost nothing extra.
"""

from __future__ import annotations

from operator import ge
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rte.placement.inflight.orders import CutOff, without
from rte.placement.joint.field import Bundles

if TYPE_CHECKING:
    from rte.placement.inflight.orders import Bundle, StepBudget
    from rte.placement.joint.field import JointField

#: Sets of pods that are followed at a time.
MAX_SETS = 2000
#: Comparisons that count as one step of the budget.
LOOKS_PER_STEP = 200
#: Kind -> pods placed.
Counts: TypeAlias = tuple[int, ...]


class _Step(NamedTuple):
    """How a set was reached: a bundle on a node, after the step before."""

    place: int
    bundle: Bundle
    before: _Step | None


def largest(ground: JointField, beaten: int) -> Bundles | None:
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
    bundles = {place: _bundles(ground, place, capacities[place]) for place in places}
    left = [sum(capacities[place][kind] for place in places) for kind in range(len(counts))]
    largest_left = sum(len(taken[0]) for taken in bundles.values())
    reached: dict[Counts, _Step | None] = {(0,) * len(counts): None}
    for place in places:
        left = [amount - here for amount, here in zip(left, capacities[place], strict=True)]
        taken = bundles[place]
        largest_left -= len(taken[0])
        found: dict[Counts, _Step | None] = {}
        for placed, step in reached.items():
            room = [count - done for count, done in zip(counts, placed, strict=True)]
            for bundle in _largest(taken, room):
                after = _sum(placed, bundle)
                hope = min(_hope(after, left, counts), sum(after) + largest_left)
                if after not in found and hope > beaten:
                    found[after] = _Step(place, bundle, step) if bundle else step
            ground.budget.spend(len(taken) // LOOKS_PER_STEP)
        reached = _undominated(found, ground.budget)
    if not reached:
        return None
    best = max(reached, key=sum)
    assignment = Bundles(ground)
    at = reached[best]
    while at is not None:
        assignment.bundles[at.place] = at.bundle
        at = at.before
    return assignment if assignment.size > beaten else None


def _possible(ground: JointField, place: int) -> list[bool]:
    return [place in nodes for nodes in ground.candidate_sets]


def _hope(placed: Counts, left: list[int], counts: Counts) -> int:
    """No more pods than these can be placed in the end."""
    return sum(
        min(count, done + more) for done, more, count in zip(placed, left, counts, strict=True)
    )


def _bundles(ground: JointField, place: int, room: list[int]) -> list[Bundle]:
    """Every set that the node takes, of at most ``room`` pods of each kind, the largest first."""
    site = ground.sites[place]
    out: list[Bundle] = [()]
    level: list[Bundle] = [()]
    while level:
        larger = {
            (*bundle, kind): None
            for bundle in level
            for kind in range(bundle[-1] if bundle else 0, len(room))
            if bundle.count(kind) < room[kind]
        }
        level = [bundle for bundle in larger if site.takes(bundle)]
        out += level
        if len(out) > MAX_SETS:
            raise CutOff
    return out[::-1]


def _largest(bundles: list[Bundle], room: list[int]) -> list[Bundle]:
    """Those of at most ``room`` pods of each kind that are part of no other such one."""
    out: list[Bundle] = []
    covered: set[Bundle] = set()
    for bundle in bundles:
        if bundle in covered or any(bundle.count(kind) > room[kind] for kind in bundle):
            continue
        out.append(bundle)
        _cover(bundle, covered)
    return out


def _cover(bundle: Bundle, covered: set[Bundle]) -> None:
    """Note all parts of a bundle."""
    for kind in dict.fromkeys(bundle):
        part = without(bundle, kind)
        if part not in covered:
            covered.add(part)
            _cover(part, covered)


def _sum(placed: Counts, bundle: Bundle) -> Counts:
    after = list(placed)
    for kind in bundle:
        after[kind] += 1
    return tuple(after)


def _undominated(
    found: dict[Counts, _Step | None], budget: StepBudget
) -> dict[Counts, _Step | None]:
    """The sets that are part of no other one."""
    kept: dict[Counts, _Step | None] = {}
    for placed in sorted(found, key=sum, reverse=True):
        budget.spend(len(kept) // LOOKS_PER_STEP)
        if not any(all(map(ge, larger, placed)) for larger in kept):
            kept[placed] = found[placed]
            if len(kept) > MAX_SETS:
                raise CutOff
    return kept
