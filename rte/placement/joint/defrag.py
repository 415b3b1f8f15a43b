"""The smallest set of moves that opens a place for pods that wait.

A move evicts one pod and admits it anew on some node, where it is started before the next move: so
no moment needs more room than there is. The plan with the fewest moves is wanted, of those the one
with the lowest sum of priorities. No pod moves twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

from rte.model.totals import totals_of
from rte.placement.inflight.orders import CutOff, StepBudget, free_key, states_after
from rte.placement.joint.ejection import Ejection
from rte.placement.joint.exact import largest
from rte.placement.joint.field import Bundles, JointField
from rte.placement.joint.gang import FIRST_ROUNDS, GangVerdict
from rte.placement.joint.node import Site, kinds_of
from rte.placement.kubelet.admission import remove, start

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.joint.node import JointNode, Member

#: Admissions by prediction that one plan may cost.
STEPS = 30_000
#: Moves of a plan that is looked for before all others are.
MOST_QUICK = 3


@dataclass(frozen=True, kw_only=True)
class Movable:
    """A running pod that may be evicted.

    Attributes:
        pod: as it was admitted; the UID is that of the node's state.
        node: where it runs.
        priority: of the pod; plans move low ones first.
        nodes: names of the nodes that may take it, as for a member; None: every node.
    """

    pod: Pod
    node: str
    priority: int = 0
    nodes: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Disruptions:
    """A budget: so many of these pods may be moved (a PodDisruptionBudget)."""

    pods: frozenset[str]
    allowed: int


@dataclass(frozen=True, kw_only=True)
class DefragMove:
    """One eviction, and where the pod is admitted anew."""

    pod: str
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class DefragPlan:
    """How a place is opened.

    Attributes:
        verdict: fits (by ``moves``, none where the pods fit as it is); does not fit, by whatever
            moves; cut off: no plan was found with the budget.
        moves: in the order in which they are proven.
        places: waiting pod -> its node after the moves.
        priority: sum of the priorities of the moved pods.
        minimal: it is proven that no plan is smaller.
        steps: admissions that were predicted.
    """

    verdict: GangVerdict
    moves: tuple[DefragMove, ...] = ()
    places: Mapping[str, str]
    priority: int = 0
    minimal: bool = True
    steps: int


def plan_moves(
    nodes: Sequence[JointNode],
    members: Sequence[Member],
    movable: Sequence[Movable],
    *,
    budgets: Sequence[Disruptions] = (),
    most_moves: int | None = None,
    steps: int = STEPS,
) -> DefragPlan:
    """The smallest plan after which all members have places together.

    Args:
        nodes: the snapshot.
        members: the pods that wait.
        movable: pods that may be evicted; each is on one of the nodes.
        budgets: of disruption.
        most_moves: no plan with more moves is looked for (default: as many as there are pods).
        steps: admissions that may be predicted.
    """
    search = _PlanSearch(nodes, members, movable, budgets, StepBudget(steps))
    most = len(movable) if most_moves is None else min(most_moves, len(movable))
    proven = False
    try:
        search.look_quickly(most)
        proven = search.look_everywhere(most)
    except CutOff:
        pass
    best = search.best
    if best is None:
        verdict = GangVerdict.DOES_NOT_FIT if proven else GangVerdict.CUT_OFF
        return DefragPlan(verdict=verdict, places={}, minimal=False, steps=search.budget.spent)
    return DefragPlan(
        verdict=GangVerdict.FITS,
        moves=best.moves,
        places=best.places,
        priority=best.priority,
        minimal=proven,
        steps=search.budget.spent,
    )


#: Every state that a node may be in: what devices the kubelet will pick is not known.
_States: TypeAlias = "tuple[NodeState, ...]"


@dataclass(frozen=True)
class _Situation:
    """The nodes after some moves: what they may be like, and what their totals are charged."""

    states: Mapping[str, _States]
    used: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class _Best:
    moves: tuple[DefragMove, ...]
    places: Mapping[str, str]
    priority: int


class _PlanSearch:
    """Plans of a given number of moves, one number after the other."""

    def __init__(
        self,
        nodes: Sequence[JointNode],
        members: Sequence[Member],
        movable: Sequence[Movable],
        budgets: Sequence[Disruptions],
        budget: StepBudget,
    ) -> None:
        self.budget = budget
        self.best: _Best | None = None
        self._nodes = {node.name: node for node in nodes}
        self._kinds = kinds_of(members)
        self._movable = sorted(movable, key=lambda each: (each.priority, each.pod.uid))
        self._budgets = budgets
        self._totals = {each.pod.uid: totals_of(each.pod) for each in movable}
        self._seen: dict[Hashable, int] = {}
        self._sites: dict[Hashable, Site] = {}
        self._start = _Situation(
            {node.name: (node.state,) for node in nodes},
            {node.name: dict(node.used) for node in nodes},
        )

    # The usual plan: pods of one node go to others.

    def look_quickly(self, most: int) -> None:
        """Look for plans that take pods off the node where the first waiting pod then goes.

        Half of the budget is left to others.
        """
        for count in range(min(most, MOST_QUICK) + 1):
            for name in self._nodes:
                here = [each for each in self._movable if each.node == name]
                for leaving in combinations(here, count):
                    if self.budget.spent > self.budget.steps // 2:
                        return
                    self._take_off(leaving)
            if self.best is not None:
                return

    def _take_off(self, leaving: Sequence[Movable]) -> None:
        priority = sum(each.priority for each in leaving)
        uids = frozenset(each.pod.uid for each in leaving)
        if not self._beats(len(leaving), priority) or not self._is_allowed(uids):
            return
        rest = self._start
        for each in leaving:
            rest = self._without(rest, each)
        if leaving and not any(
            self._site(rest, leaving[0].node).takes((kind,)) for kind in range(self._kind_count)
        ):
            return
        moves: list[DefragMove] = []
        now = self._start
        for each in leaving:
            gone = self._without(now, each)
            targets = (name for name in self._nodes if name != each.node)
            after = next(
                (
                    (name, after)
                    for name in targets
                    if (after := self._with(gone, each, name)) is not None
                ),
                None,
            )
            if after is None:
                return
            moves.append(DefragMove(pod=each.pod.uid, source=each.node, target=after[0]))
            now = after[1]
        places = self._places(now, tuple(self._nodes))
        if places is not None:
            self.best = _Best(tuple(moves), places, priority)

    # Every plan.

    def look_everywhere(self, most: int) -> bool:
        """Look for all plans of ever more moves, until one is found; False: ``most`` moves are not
        enough, and more were not looked for.

        Raises:
            CutOff: the budget is used up.
        """
        for count in range(most + 1):
            self._seen.clear()
            self._reached = False
            self._extend(self._start, (), 0, count)
            if self.best is not None and len(self.best.moves) <= count:
                return True
            if not self._reached:
                # There are not even so many moves, so there are no more.
                return True
        return most == len(self._movable)

    def _extend(
        self, now: _Situation, moves: tuple[DefragMove, ...], priority: int, left: int
    ) -> None:
        if not self._beats(len(moves) + left, priority):
            return
        moved = frozenset(move.pod for move in moves)
        key = self._key(now, moved)
        if self._seen.get(key, priority + 1) <= priority:
            return
        self._seen[key] = priority
        if not left:
            self._reached = True
            # A plan with one move less is none: the last one changed the node of a waiting pod.
            changed = {moves[-1].source, moves[-1].target} if moves else set(self._nodes)
            places = self._places(now, tuple(sorted(changed)))
            if places is not None:
                self.best = _Best(moves, places, priority)
            return
        for each in self._movable:
            if each.pod.uid in moved or not self._is_allowed(moved | {each.pod.uid}):
                continue
            gone = self._without(now, each)
            for name in self._nodes:
                after = self._with(gone, each, name)
                if after is not None:
                    move = DefragMove(pod=each.pod.uid, source=each.node, target=name)
                    self._extend(after, (*moves, move), priority + each.priority, left - 1)

    # What both are made of.

    @property
    def _kind_count(self) -> int:
        return len(self._kinds.pods)

    def _beats(self, moves: int, priority: int) -> bool:
        """Whether such a plan would be better than the best one."""
        best = self.best
        return best is None or (moves, priority) < (len(best.moves), best.priority)

    def _is_allowed(self, moved: frozenset[str]) -> bool:
        return all(len(moved & each.pods) <= each.allowed for each in self._budgets)

    def _without(self, now: _Situation, each: Movable) -> _Situation:
        used = Counter(now.used[each.node])
        used.subtract(self._totals[each.pod.uid])
        states = tuple(remove(state, each.pod.uid) for state in now.states[each.node])
        return _Situation({**now.states, each.node: states}, {**now.used, each.node: used})

    def _with(self, now: _Situation, each: Movable, name: str) -> _Situation | None:
        """The pod admitted on a node and started; None where that is not certain."""
        if each.nodes is not None and name not in each.nodes:
            return None
        wanted = self._totals[each.pod.uid]
        used = Counter(now.used[name])
        used.update(wanted)
        allocatable = self._nodes[name].allocatable
        if any(used[resource] > allocatable.get(resource, 0) for resource in wanted):
            return None
        found: dict[Hashable, NodeState] = {}
        for state in now.states[name]:
            self.budget.spend()
            possible = states_after(state, each.pod)
            if possible is None:
                return None
            for after in possible:
                started = start(after, each.pod)
                found.setdefault(free_key(started), started)
        return _Situation({**now.states, name: tuple(found.values())}, {**now.used, name: used})

    def _site(self, now: _Situation, name: str) -> Site:
        key = name, self._node_key(now, name)
        if key not in self._sites:
            node = replace(self._nodes[name], state=now.states[name][0], used=dict(now.used[name]))
            self._sites[key] = Site(node, self._kinds, self.budget, now.states[name])
        return self._sites[key]

    def _places(self, now: _Situation, names: Sequence[str]) -> Mapping[str, str] | None:
        """Places of all members, None where they do not fit together.

        One pod alone is looked for on the named nodes only.
        """
        if self._kinds.counts == (1,):
            uid = self._kinds.members[0][0]
            return next(({uid: name} for name in names if self._site(now, name).takes((0,))), None)
        ground = JointField(
            [self._site(now, name).node for name in self._nodes],
            self._kinds,
            self.budget,
            sites=[self._site(now, name) for name in self._nodes],
        )
        found = Bundles(ground)
        Ejection(found).go_on(FIRST_ROUNDS)
        need = sum(self._kinds.counts)
        if found.size < need:
            found = largest(ground, need - 1) or found
        return found.names() if found.size == need else None

    def _key(self, now: _Situation, moved: frozenset[str]) -> Hashable:
        """Who has moved holds all that is not held by those who have not."""
        return moved, tuple(self._node_key(now, name) for name in self._nodes)

    def _node_key(self, now: _Situation, name: str) -> Hashable:
        states = frozenset(free_key(state) for state in now.states[name])
        return states, frozenset((+Counter(now.used[name])).items())
