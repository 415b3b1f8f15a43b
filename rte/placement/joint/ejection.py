"""Places found quickly: a pod that finds no place takes one, and who is in its way looks anew.

A local search with ejections and a short tabu list. Pods are placed in turn; one that no node
takes goes where the least has to leave for it, and may not come back to where it was put out for a
few turns. Pods that have looked for a place often weigh more, so others leave for them. Which of
several equals is taken changes from turn to turn and round to round. Not complete: what it does not
find may exist.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from rte.placement.inflight.orders import CutOff, plus, without

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.placement.inflight.orders import Bundle
    from rte.placement.joint.field import Bundles, JointField

#: Rounds that begin with no pod placed and look only at what can be told without predicting
#: admissions.
QUICK_ROUNDS = 3
#: Turns without a pod more, after which a round ends: of those rounds, of the others.
QUICK_TURNS, TURNS = 120, 200
#: Rounds after which it is given up.
MAX_ROUNDS = 24
#: Part of the budget; the rest is left to others.
SHARE = 0.9
#: Predicted admissions that one look may cost at first; four times as many each second round.
LOOK_STEPS = 60
#: Looks that count as one step of the budget.
LOOKS_PER_STEP = 30
#: Turns for which a pod does not come back, at least, and less than twice as many.
TENURE = 3
#: A prime: from turn to turn another one of several equals is taken.
STRIDE = 7919
#: Weight of a pod that only one node may take, beside 1 of one that many may.
SCARCITY = 100.0


class Ejection:
    """The search for an assignment, round by round.

    Args:
        assignment: it is the best one found, and valid at every moment.
    """

    def __init__(self, assignment: Bundles) -> None:
        self._assignment = assignment
        self._ground = assignment.ground
        self._wanted = sum(assignment.ground.kinds.counts)
        self._most = assignment.ground.budget.steps * SHARE
        self._round = 0
        self._may_help = True
        # Nobody leaves for one of its kind: at the same price a second round is like the first.
        self._is_uniform = len(assignment.ground.kinds.counts) == 1

    def go_on(self, rounds: int = MAX_ROUNDS) -> bool:
        """So many more rounds; whether still more could help.

        Raises:
            CutOff: the budget is used up.
        """
        for _ in range(rounds):
            if self._is_over:
                break
            number, self._round = self._round, self._round + 1
            self._play(number)
        return not self._is_over

    @property
    def _is_over(self) -> bool:
        is_spent = self._ground.budget.spent > self._most
        is_done = self._assignment.size == self._wanted
        return is_done or is_spent or self._round >= MAX_ROUNDS or not self._may_help

    def _play(self, number: int) -> None:
        exact = number - QUICK_ROUNDS
        look = _Look(self._ground, exact)
        begin = self._assignment.bundles if exact >= 0 and exact % 3 else ()
        found = _Round(self._ground, look, begin, number)
        if exact < 0:
            found.play()
            self._keep(
                [
                    bundle if bundle and look.is_sure(place, bundle) else ()
                    for place, bundle in enumerate(found.best)
                ]
            )
            if self._is_uniform:
                self._round = QUICK_ROUNDS
            return
        try:
            found.play()
        finally:
            self._keep(found.best)
        self._may_help = look.was_costly or not self._is_uniform

    def _keep(self, bundles: list[Bundle]) -> None:
        if sum(map(len, bundles)) > self._assignment.size:
            self._assignment.bundles[:] = bundles


class _Look:
    """Whether nodes take bundles, at a limited price.

    Attributes:
        was_costly: some look would have cost more, and was answered with no.
    """

    def __init__(self, ground: JointField, exact: int) -> None:
        self._ground = ground
        self._is_quick = exact < 0
        self._steps = LOOK_STEPS * 4 ** (max(exact, 0) // 2)
        self._costly: set[tuple[int, Bundle]] = set()
        self._looks = 0
        self.was_costly = False

    def takes(self, place: int, bundle: Bundle) -> bool:
        """Whether the node takes them, as far as this round wants to know."""
        self._looks += 1
        self._ground.budget.spend(self._looks % LOOKS_PER_STEP == 0)
        if self._is_quick:
            return self._ground.sites[place].likely_takes(bundle)
        return self.is_sure(place, bundle)

    def is_sure(self, place: int, bundle: Bundle) -> bool:
        """Whether it is known that the node takes them."""
        site, budget = self._ground.sites[place], self._ground.budget
        known = site.known(bundle)
        if known is not None:
            return known
        key = id(site), bundle
        if key in self._costly:
            return False
        try:
            with budget.part(self._steps):
                return site.takes(bundle)
        except CutOff:
            if budget.spent + self._steps > budget.steps:
                raise
            self.was_costly = True
            self._costly.add(key)
            return False


class _Round:
    """One round of the search, from some places on.

    Attributes:
        best: the largest assignment so far: node -> bundle.
    """

    def __init__(
        self, ground: JointField, look: _Look, bundles: Sequence[Bundle], number: int
    ) -> None:
        self._ground, self._look = ground, look
        self._number = number
        self._most = QUICK_TURNS if number < QUICK_ROUNDS else TURNS
        self._bundles: list[Bundle] = list(bundles) or [()] * len(ground.nodes)
        self.best = list(self._bundles)
        counts = ground.kinds.counts
        placed = Counter(kind for bundle in self._bundles for kind in bundle)
        self._waiting = {
            kind: count - placed[kind] for kind, count in enumerate(counts) if count > placed[kind]
        }
        self._weights = [1 + SCARCITY / max(1, len(nodes)) for nodes in ground.candidates]
        self._looked = [-1] * len(counts)
        self._tabu: dict[tuple[int, int], int] = {}
        #: (kind, node) -> the bundle beside which the node took no pod of the kind.
        self._full: dict[tuple[int, int], Bundle] = {}

    def play(self) -> None:
        """Place pods until all are placed or it leads no further."""
        fewest, turn, since, stuck = self._left(), 0, 0, set[int]()
        while self._waiting and since < self._most and len(stuck) < len(self._waiting):
            kind = min(self._waiting, key=lambda each: (self._looked[each], -self._weights[each]))
            self._looked[kind] = turn
            self._weights[kind] += 1
            if self._place(kind, turn):
                stuck.clear()
            elif not any(until >= turn for until in self._tabu.values()):
                stuck.add(kind)
            turn, since = turn + 1, since + 1
            if self._left() < fewest:
                self.best, fewest, since = list(self._bundles), self._left(), 0

    def _left(self) -> int:
        return sum(self._waiting.values())

    def _place(self, kind: int, turn: int) -> bool:
        """Give one pod of a kind a place; False: nothing has changed."""
        candidates, rooms = self._ground.candidates[kind], self._ground.rooms
        left = [self._room(place) if self._bundles[place] else rooms[place] for place in candidates]
        for number in sorted(range(len(left)), key=left.__getitem__):
            place = candidates[number]
            if self._full.get((kind, place)) == self._bundles[place]:
                continue
            if self._look.takes(place, plus(self._bundles[place], kind)):
                self._put(kind, place, (), turn)
                return True
            self._full[kind, place] = self._bundles[place]
        fewest = math.inf
        options: list[tuple[int, Bundle]] = []
        for place in candidates:
            if self._tabu.get((kind, place), -1) >= turn:
                continue
            for leaving in _leavers(self._bundles[place], kind):
                cost = sum(self._weights[other] for other in leaving)
                if cost <= fewest and self._look.takes(place, self._after(kind, place, leaving)):
                    options = [*options, (place, leaving)] if cost == fewest else [(place, leaving)]
                    fewest = cost
        if not options:
            return False
        self._put(kind, *options[(turn + self._number) * STRIDE % len(options)], turn)
        return True

    def _room(self, place: int) -> int:
        """Millicores that node totals leave: the fullest node that takes a pod is the best."""
        millis = self._ground.millis
        return self._ground.rooms[place] - sum([millis[kind] for kind in self._bundles[place]])

    def _after(self, kind: int, place: int, leaving: Bundle) -> Bundle:
        rest = self._bundles[place]
        for other in leaving:
            rest = without(rest, other)
        return plus(rest, kind)

    def _put(self, kind: int, place: int, leaving: Bundle, turn: int) -> None:
        self._bundles[place] = self._after(kind, place, leaving)
        self._waiting[kind] -= 1
        for other in leaving:
            self._waiting[other] = self._waiting.get(other, 0) + 1
            self._tabu[other, place] = turn + TENURE + (turn + self._number) % TENURE
        if not self._waiting[kind]:
            del self._waiting[kind]


@lru_cache(maxsize=1 << 16)
def _leavers(bundle: Bundle, kind: int) -> tuple[Bundle, ...]:
    """One pod, then two, of another kind than the one that comes."""
    others = [other for other in bundle if other != kind]
    two = {(one, two) for place, one in enumerate(others) for two in others[place + 1 :]}
    return (*((other,) for other in dict.fromkeys(others)), *sorted(two))
