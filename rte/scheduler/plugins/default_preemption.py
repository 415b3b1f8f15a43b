"""DefaultPreemption: whom to evict so that a kubelet admits a pod, by prediction, zone by zone.

Best is what disturbs least: no PodDisruptionBudget violated, then the lowest priority of the
highest victim, then the fewest victims, then the lowest sum of priorities, then the youngest.
Nobody is evicted while a place is there or on its way: where pods that are being deleted leave
enough room, that is the plan.

Rules between pods are asked once more without the victims: whom the pod has to be with stays.

Zones are looked at only where they are known. While a pod in flight is not confirmed it counts in
every zone, so more would be evicted than has to be; such a node is asked again when it has settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, combinations
from math import comb
from typing import TYPE_CHECKING

from rte.scheduler.framework.plugin import PodChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import DisruptionBudget, PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.profile import Around, Profile
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

    #: Violated budgets, the highest priority, number and sum of priorities of victims.
    Cost = tuple[int, int, int, int]

    #: Whether the node would take the pod without these, and who goes with them.
    Helps = Callable[[Sequence[PodView]], bool]

#: Of so many pods of lower priority on a node all sets of victims are compared.
_FEW = 8

#: Of more pods so many sets are tried, before the search becomes greedy.
_MOST_SETS = 96

#: Of so many nodes that can help the best is taken (kube-scheduler's minCandidateNodesAbsolute).
MOST = 100

#: Under this name a node keeps what plans on it cost at least.
_LEAST = "DefaultPreemption/least"

#: Below every priority that a pod can have.
_NOBODY = -(1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class EvictionPlan:
    """Evict these pods, and the node takes the pod. Plans compare by what they disturb.

    ``leaving``: API UIDs of pods being deleted there, which are waited for as well.
    """

    node: str
    victims: tuple[PodView, ...]
    leaving: frozenset[str] = frozenset()
    violations: int = 0

    @cached_property
    def cost(self) -> tuple[Cost, str]:
        """The smaller, the better."""
        if not self.victims:
            return ((0, _NOBODY, 0, 0), "")
        priorities = [pod.priority for pod in self.victims]
        # ISO times sort by age; the most recent start is the least work lost.
        oldest = min((pod.started or "~" for pod in self.victims), default="~")
        cost = (self.violations, max(priorities), len(priorities), sum(priorities))
        return cost, _flipped(oldest)


@lru_cache(maxsize=1024)
def _flipped(text: str) -> str:
    """Sorts the other way round."""
    return "".join(chr(0x10FFFF - ord(c)) for c in text)


def may_preempt(pod: PodView, snapshot: Snapshot, nominated: str) -> bool:
    """Whether the pod may have others evicted now: its policy allows it, and no room is coming.

    Who ends on its node for other reasons is not waited for (PodEligibleToPreemptOthers).
    """
    if not pod.preempts:
        return False
    entry = snapshot.nodes.get(nominated)
    return entry is None or not any(
        entry.pods[uid].priority < pod.priority for uid in entry.preempted
    )


def is_settled(entry: NodeEntry) -> bool:
    """Whether it is known where every pod of the node is: none is in flight."""
    outlook = entry.outlook()
    if outlook is not None:
        return not outlook.in_flight
    foreign = entry.report is not None and entry.report.table is not None
    return not (foreign and entry.unseen)


class _NodeTrial:
    """One node, looked at with some of its pods gone.

    Args:
        pod: that is to be placed.
        entry: the node; what is being deleted there has left.
        profile: the rules.
        around: what the rules that look at other nodes or objects have prepared for the pod.
    """

    def __init__(self, pod: PodView, entry: NodeEntry, profile: Profile, around: Around) -> None:
        self._pod, self._profile, self._around = pod, profile, around
        self._after = entry.without(entry.leaving)
        leaving = [entry.pods[uid] for uid in entry.leaving]
        self._gone = [PodChange(each, entry.name, -1) for each in leaving]
        self._ahead = entry.ahead_of(pod)

    def takes(self, victims: Sequence[PodView]) -> bool:
        """Whether the node is expected to take the pod without these.

        Who is nominated there comes first; but the pod must not need them, who may never come.
        """
        twin = self._after.without(frozenset(victim.uid for victim in victims))
        changes = [*self._gone, *(PodChange(victim, victim.node, -1) for victim in victims)]
        around = self._profile.changed(self._around, changes)
        if not self._ahead:
            return _takes(self._profile, self._pod.shape, twin) and self._is_let_in(around, twin)
        beside = twin.beside(self._ahead)
        return (
            _takes(self._profile, self._pod.shape, beside)
            and self._is_let_in(around, twin)
            and self._is_let_in(self._profile.beside(around, self._ahead, twin.name), beside)
        )

    def _is_let_in(self, around: Around, twin: NodeEntry) -> bool:
        refusal = self._profile.refused_around(around, self._pod, twin)
        return not refusal.reason or refusal.second_best

    def pools(self, lower: Sequence[PodView]) -> Iterator[Sequence[PodView]]:
        """Largest sets of these pods to evict: all, or all but one whom the pod joins there."""
        yield lower
        for other in lower:
            if self._profile.joins(self._around, self._pod, other):
                yield [each for each in lower if each is not other]


def plan_for(
    pod: PodView,
    entry: NodeEntry,
    budgets: Sequence[DisruptionBudget],
    profile: Profile,
    companions: Callable[[PodView], Sequence[PodView]] = lambda each: (each,),
    *,
    around: Around = (),
) -> EvictionPlan | None:
    """The cheapest plan on one node, None where no set of victims helps or zones are not known.

    ``companions``: who has to go with a pod, itself included, on whatever node; ``around``: what
    the rules that look at other nodes or objects have prepared for the pod.
    """
    if not is_settled(entry):
        return None
    leaving = entry.leaving
    trial = _NodeTrial(pod, entry, profile, around)
    if leaving and trial.takes(()):
        return EvictionPlan(node=entry.name, victims=(), leaving=leaving)
    lower = [
        other
        for other in victims_of(pod, entry)
        if other.uid not in leaving
        and all(each.priority < pod.priority for each in companions(other))
    ]

    def whole(victims: Iterable[PodView]) -> tuple[PodView, ...]:
        return tuple({each.uid: each for one in victims for each in companions(one)}.values())

    short = _shortage(pod, entry)

    def helps(victims: Sequence[PodView]) -> bool:
        return _frees(victims, short) and trial.takes(whole(victims))

    concerned = whole(lower)
    budgets = [budget for budget in budgets if any(map(budget.covers, concerned))]

    def plan_of(victims: Iterable[PodView]) -> EvictionPlan:
        going = whole(victims)
        violations = _violations(going, budgets)
        return EvictionPlan(node=entry.name, victims=going, leaving=leaving, violations=violations)

    pools = [pool for pool in trial.pools(lower) if pool and helps(pool)]
    if not pools:
        return None
    if len(lower) <= _FEW:
        every = [plan_of(each) for n in range(len(lower)) for each in combinations(lower, n + 1)]
        return next((p for p in sorted(every, key=lambda p: p.cost) if helps(p.victims)), None)
    found = []
    for pool in pools:
        spared = _cheapest(helps, [other for other in pool if not _is_protected(other, budgets)])
        found.append(spared)
        if not spared or plan_of(spared).violations:
            found += [
                _cheapest(helps, _least_guarded(helps, pool, budgets)),
                _cheapest(helps, pool),
            ]
    return min((plan_of(each) for each in found if each), key=lambda p: p.cost, default=None)


def victims_of(pod: PodView, entry: NodeEntry) -> list[PodView]:
    """Pods of lower priority, lowest and youngest first. Static pods cannot be evicted."""
    lower = list(_lower(entry, pod.priority))
    lower.sort(key=lambda p: p.started, reverse=True)
    lower.sort(key=lambda p: p.priority)
    return lower


def _lower(entry: NodeEntry, priority: int) -> Iterator[PodView]:
    """Pods of the node that are less important, in no order; static pods cannot be evicted."""
    return (p for p in entry.pods.values() if p.priority < priority and not p.mirror)


def could_make_room(pod: PodView, entry: NodeEntry, status: Status) -> bool:
    """Whether the node refuses the pod for want of room that will be there.

    Lower priorities hold it, or who is being deleted, however important.
    """
    return status.resources and bool(entry.leaving or next(_lower(entry, pod.priority), None))


def reach(entry: NodeEntry, priority: int) -> dict[str, int] | None:
    """What the node would have free if every pod of lower priority left; None: there is none."""
    lower = list(_lower(entry, priority))
    if not lower:
        return None
    free = {name: amount - entry.used[name] for name, amount in entry.allocatable().items()}
    for pod in lower:
        for name, amount in pod.shape.totals.items():
            free[name] = free.get(name, 0) + amount
    return free


def cheapest_first(
    pod: PodView, entries: Iterable[NodeEntry]
) -> list[tuple[tuple[Cost, str], NodeEntry]]:
    """Nodes with what a plan there costs at least, the cheapest first, then those with most pods.

    Nodes whose totals are too small even without all less important pods are left out.
    """
    found = []
    for entry in entries:
        kept: dict[tuple[int, bytes], tuple[tuple[Cost, str], int] | None]
        kept = entry.derived.setdefault(_LEAST, {})
        key = pod.priority, pod.shape.key
        if key not in kept:
            kept[key] = _least(pod, entry)
        least = kept[key]
        if least is not None:
            found.append((*least, entry.row, entry))
    found.sort(key=lambda item: item[:3])
    return [(least, entry) for least, _, _, entry in found]


def _shortage(pod: PodView, entry: NodeEntry) -> dict[str, int]:
    """What the node's totals lack for the pod once what is being deleted has left."""
    given, leaving = entry.allocatable(), [entry.pods[uid] for uid in entry.leaving]
    found = {
        name: amount
        - given.get(name, 0)
        + entry.used[name]
        - sum(other.shape.totals.get(name, 0) for other in leaving)
        for name, amount in pod.shape.totals.items()
    }
    return {name: amount for name, amount in found.items() if amount > 0}


def _frees(victims: Sequence[PodView], short: Mapping[str, int]) -> bool:
    """Whether these pods leave as much as the node's totals lack."""
    return all(
        sum(victim.shape.totals.get(name, 0) for victim in victims) >= amount
        for name, amount in short.items()
    )


def _least(pod: PodView, entry: NodeEntry) -> tuple[tuple[Cost, str], int] | None:
    """What no plan on the node is below, by totals alone, and minus the number of lower pods.

    None: there is no plan.
    """
    lower = sorted(_lower(entry, pod.priority), key=lambda other: other.priority)
    leaving, shortage = entry.leaving, _shortage(pod, entry)
    stay = [other for other in lower if other.uid not in leaving]
    number = 1 if stay and (shortage or not leaving) else 0
    highest = stay[0].priority if number else _NOBODY
    for name, short in shortage.items():
        held = [other.shape.totals.get(name, 0) for other in stay]
        level = next((i for i, total in enumerate(accumulate(held)) if total >= short), None)
        if level is None:
            return None
        highest = max(highest, stay[level].priority)
        largest = accumulate(sorted(held, reverse=True))
        number = max(number, 1 + next(i for i, total in enumerate(largest) if total >= short))
    cost = (0, highest, number, sum(other.priority for other in stay[:number]))
    starts = sorted((other.started or "~" for other in stay), reverse=True)
    return (cost, _flipped(starts[number - 1]) if number else ""), -len(lower)


def _cheapest(helps: Helps, pool: Sequence[PodView]) -> tuple[PodView, ...] | None:
    """The best set out of the pool, which is sorted by priority; None when all of it is too few."""
    within = next(filter(helps, _by_level(pool)), None)
    return (_fewest(helps, within) or _greedy(helps, within)) if within else None


def _by_level(pool: Sequence[PodView]) -> Iterator[list[PodView]]:
    """Of the pool those of the lowest priority, then those of the next one as well, and so on."""
    for level in sorted({other.priority for other in pool}):
        yield [other for other in pool if other.priority <= level]


def _fewest(helps: Helps, pool: Sequence[PodView]) -> tuple[PodView, ...] | None:
    """The smallest set that helps, cheapest sum first; None when there are too many sets to try."""
    tried = 0
    for size in range(1, len(pool) + 1):
        tried += comb(len(pool), size)
        if tried > _MOST_SETS:
            return None
        sets = sorted(combinations(pool, size), key=lambda s: sum(p.priority for p in s))
        for victims in sets:
            if helps(victims):
                return victims
    return None


def _greedy(helps: Helps, pool: Sequence[PodView]) -> tuple[PodView, ...]:
    """All of the pool, less those that may stay: the important ones are spared first.

    Among equally important ones the small ones, the large ones, or as kube-scheduler the oldest:
    whatever leaves the fewest victims.
    """
    orders: list[Callable[[PodView], tuple[int, int | str]]] = [
        lambda p: (-p.priority, p.shape.totals.get("cpu", 0)),
        lambda p: (-p.priority, -p.shape.totals.get("cpu", 0)),
        lambda p: (-p.priority, p.started or "~"),
    ]
    found = (_spared(helps, sorted(pool, key=order)) for order in orders)
    return min(found, key=lambda victims: (len(victims), sum(p.priority for p in victims)))


def _spared(helps: Helps, order: Sequence[PodView]) -> tuple[PodView, ...]:
    victims = list(order)
    for other in order:
        rest = [p for p in victims if p is not other]
        if rest and helps(rest):
            victims = rest
    return tuple(victims)


def _takes(profile: Profile, shape: Shape, twin: NodeEntry) -> bool:
    """Whether a node is expected to take pods of the shape, by the rules about it alone."""
    check = profile.check(shape, twin)
    if not check.reason:
        return True
    # The rest of the node is settled: only those nominated are in flight, and they are predicted.
    outlook = twin.outlook()
    return bool(
        check.verdict and check.verdict.waits and outlook is not None and not outlook.doubtful
    )


def _is_protected(pod: PodView, budgets: Sequence[DisruptionBudget]) -> bool:
    return any(budget.left <= 0 and budget.covers(pod) for budget in budgets)


def _least_guarded(
    helps: Helps, lower: Sequence[PodView], budgets: Sequence[DisruptionBudget]
) -> list[PodView]:
    """Of these pods all whom no budget counts, and of the others only who has to go.

    The important ones are spared first, as kube-scheduler reprieves pods whose budgets have nothing
    left (framework/plugins/defaultpreemption, SelectVictimsOnNode).
    """
    pool = list(lower)
    for other in reversed(lower):
        rest = [each for each in pool if each is not other]
        if any(budget.covers(other) for budget in budgets) and helps(rest):
            pool = rest
    return pool


def _violations(victims: Iterable[PodView], budgets: Sequence[DisruptionBudget]) -> int:
    """Victims beyond what their budgets allow."""
    left = [budget.left for budget in budgets]
    count = 0
    for pod in victims:
        broken = False
        for index, budget in enumerate(budgets):
            if budget.covers(pod):
                left[index] -= 1
                broken = broken or left[index] < 0
        count += broken
    return count
