"""Places found quickly: hardest pods first, and pods that push others to another node.

Not complete: what it does not find may exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rte.placement.inflight.orders import plus, without
from rte.placement.joint.node import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rte.placement.inflight.orders import Bundle
    from rte.placement.joint.field import Assignment

    #: Whether a node takes a bundle.
    _Takes: TypeAlias = Callable[[Site, Bundle], bool]

#: Nodes that one pod may look at on its way, pushes of others included.
MAX_LOOKS = 4000
#: Looks that count as one step of the budget.
LOOKS_PER_STEP = 50
#: Ways that are tried for one pod, each from another node on.
MAX_TURNS = 24
#: Part of the budget; the rest is left to others.
SHARE = 0.75
#: Times that all pods are placed anew, in another order.
MAX_ROUNDS = 12
#: Pushes on one path.
MAX_DEPTH = 6


def place_by_paths(assignment: Assignment) -> None:
    """Place as many pods as are found a place for; the assignment is valid at every moment.

    First only places are looked at that can be told without predicting admissions.

    Raises:
        CutOff: the budget is used up.
    """
    wanted = sum(assignment.ground.kinds.counts)
    _place_all(assignment, Site.likely_takes, SHARE / 2)
    for place, bundle in enumerate(assignment.bundles):
        if bundle and not assignment.ground.sites[place].takes(bundle):
            assignment.bundles[place] = ()
    if assignment.size < wanted:
        _place_all(assignment, Site.takes, SHARE)


def _place_all(assignment: Assignment, takes: _Takes, share: float) -> None:
    """Place the kinds in turn; those that found no place for all go first in the next round."""
    ground = assignment.ground
    counts = ground.kinds.counts
    scarcity = [len(nodes) / count for nodes, count in zip(ground.candidates, counts, strict=True)]
    order = sorted(range(len(counts)), key=lambda kind: (scarcity[kind], kind))
    most = ground.budget.steps * share
    best = list(assignment.bundles)
    tried: set[tuple[int, ...]] = set()
    try:
        while tuple(order) not in tried and len(tried) < MAX_ROUNDS:
            tried.add(tuple(order))
            assignment.clear()
            left_out = [k for k in order if not _place_kind(assignment, k, takes, most)]
            if assignment.size > sum(map(len, best)):
                best = list(assignment.bundles)
            if not left_out or ground.budget.spent > most:
                break
            order = [*left_out, *(kind for kind in order if kind not in left_out)]
    finally:
        if assignment.size < sum(map(len, best)):
            assignment.bundles[:] = best


def _place_kind(assignment: Assignment, kind: int, takes: _Takes, most: float) -> bool:
    """Whether all pods of a kind have found a place."""
    count = assignment.ground.kinds.counts[kind]
    return all(_place_one(assignment, kind, takes, most) for _ in range(count))


def _place_one(assignment: Assignment, kind: int, takes: _Takes, most: float) -> bool:
    budget = assignment.ground.budget
    for turn in range(MAX_TURNS):
        path = _Path(assignment, turn, takes, most)
        found = path.place(kind, 0)
        budget.spend(path.looks // LOOKS_PER_STEP)
        if found or not path.pushed:
            return found
    return False


class _Path:
    """One pod's way to a place; each node is pushed at once at most.

    Ways differ by the ``turn`` from which on nodes are pushed.

    Attributes:
        looks: nodes looked at so far.
        pushed: nodes that others were pushed from.
    """

    def __init__(self, assignment: Assignment, turn: int, takes: _Takes, most: float) -> None:
        self._turn, self._takes, self._most = turn, takes, most
        self._ground = assignment.ground
        self._bundles = assignment.bundles
        self.pushed: set[int] = set()
        self.looks = 0

    def place(self, kind: int, depth: int) -> bool:
        """Give one pod of the kind a place; False: nothing has changed."""
        rooms = self._ground.rooms
        known = self._ground.candidates[kind]
        left = [self._left(place) if self._bundles[place] else rooms[place] for place in known]
        candidates = [known[number] for number in sorted(range(len(known)), key=left.__getitem__)]
        for place in candidates:
            if self._is_tired():
                return False
            bundle = plus(self._bundles[place], kind)
            if self._takes(self._ground.sites[place], bundle):
                self._bundles[place] = bundle
                return True
        used = [place for place in candidates if self._bundles[place]]
        start = self._turn * 7 % len(used) if used else 0
        used = used[start:] + used[:start]
        return depth < MAX_DEPTH and any(self._push(place, kind, depth) for place in used)

    def _left(self, place: int) -> int:
        """Millicores that node totals leave: the fullest node that takes a pod is the best."""
        millis = self._ground.millis
        return self._ground.rooms[place] - sum([millis[kind] for kind in self._bundles[place]])

    def _push(self, place: int, kind: int, depth: int) -> bool:
        """Give the pod a place on this node, and the pods that leave it one elsewhere."""
        if place in self.pushed:
            return False
        self.pushed.add(place)
        for leaving in _leavers(self._bundles[place], kind):
            if self._is_tired():
                return False
            rest = self._bundles[place]
            for other in leaving:
                rest = without(rest, other)
            rest = plus(rest, kind)
            if self._takes(self._ground.sites[place], rest) and self._move(
                place, rest, leaving, depth
            ):
                return True
        return False

    def _is_tired(self) -> bool:
        """Counts a look; whether there is none left."""
        self.looks += 1
        return self.looks > MAX_LOOKS or self._ground.budget.spent > self._most

    def _move(self, place: int, rest: Bundle, leaving: Bundle, depth: int) -> bool:
        before = list(self._bundles)
        done = False
        try:
            self._bundles[place] = rest
            done = all(self.place(other, depth + 1) for other in leaving)
        finally:
            if not done:
                self._bundles[:] = before
        return done


def _leavers(bundle: Bundle, kind: int) -> Iterator[Bundle]:
    """One pod, then two, of another kind than the one that comes."""
    others = [other for other in dict.fromkeys(bundle) if other != kind]
    yield from ((other,) for other in others)
    rest = [other for other in bundle if other != kind]
    pairs = {(one, two) for place, one in enumerate(rest) for two in rest[place + 1 :]}
    yield from sorted(pairs)
