"""DefaultPreemption: whom to evict so that a kubelet admits a pod, by prediction, zone by zone.

Best is what disturbs least: no PodDisruptionBudget violated, then the lowest priority of the
highest victim, then the fewest victims, then the lowest sum of priorities, then the youngest.
Nobody is evicted while a place is there or on its way: where pods that are being deleted leave
enough room, that is the plan.

Zones are looked at only where they are known. While a pod in flight is not confirmed it counts in
every zone, so more would be evicted than has to be; such a node is asked again when it has settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rte.scheduler.framework.budgets import Budget
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.profile import Around, Profile
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

    #: Whether the node would take the pod without these.
    Helps = Callable[[Sequence[PodView]], bool]

#: Of so many pods of lower priority on a node all sets of victims are compared.
_FEW = 7

#: Of more pods so many sets are tried, before the search becomes greedy.
_MOST_SETS = 96

#: Nodes looked at for one pod: those that look cheapest.
_MOST_NODES = 32

#: Below every priority that a pod can have.
_NOBODY = -(1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Evict these pods, and the node takes the pod. Plans compare by what they disturb.

    ``leaving``: API UIDs of pods being deleted there, which are waited for as well.
    """

    node: str
    victims: tuple[PodView, ...]
    leaving: frozenset[str] = frozenset()
    violations: int = 0

    @property
    def cost(self) -> tuple[int, int, int, int, str]:
        """The smaller, the better."""
        if not self.victims:
            return (0, _NOBODY, 0, 0, "")
        priorities = [pod.priority for pod in self.victims]
        # ISO times sort by age; the most recent start is the least work lost.
        oldest = min((pod.started or "~" for pod in self.victims), default="~")
        flipped = "".join(chr(0x10FFFF - ord(c)) for c in oldest)
        return (self.violations, max(priorities), len(priorities), sum(priorities), flipped)


def may_preempt(pod: PodView, snapshot: Snapshot, nominated: str) -> bool:
    """Whether the pod may have others evicted now: its policy allows it, and no room is coming."""
    if not pod.preempts:
        return False
    entry = snapshot.nodes.get(nominated)
    return entry is None or not any(
        entry.pods[uid].priority < pod.priority for uid in entry.leaving
    )


def is_settled(entry: NodeEntry) -> bool:
    """Whether it is known where every pod of the node is: none is in flight."""
    outlook = entry.outlook()
    if outlook is not None:
        return not outlook.in_flight
    foreign = entry.report is not None and entry.report.table is not None
    return not (foreign and entry.unseen)


def plan_for(
    pod: PodView,
    entry: NodeEntry,
    budgets: Sequence[Budget],
    profile: Profile,
    companions: Callable[[PodView], Sequence[PodView]] = lambda each: (each,),
    *,
    around: Around = (),
) -> Plan | None:
    """The cheapest plan on one node, None where no set of victims helps or zones are not known.

    ``companions``: who has to go with a pod, itself included, on whatever node; ``around``: what
    the rules that look at other nodes or objects have prepared for the pod.
    """
    if not is_settled(entry):
        return None
    leaving = entry.leaving
    after = entry.without(leaving)
    ahead = entry.ahead_of(pod)
    if ahead:
        after = after.beside(ahead)
    on_their_way = [entry.pods[uid] for uid in leaving]

    def helps(victims: Sequence[PodView]) -> bool:
        """Whether the node is expected to take the pod; who is nominated there comes first."""
        twin = after.without(frozenset(p.uid for p in victims))
        return _takes(profile, pod.shape, twin) and not profile.refused_without(
            around, pod, twin, [*on_their_way, *victims]
        )

    if leaving and helps(()):
        return Plan(node=entry.name, victims=(), leaving=leaving)
    lower = [
        other
        for other in victims_of(pod, entry)
        if not other.deleting and all(each.priority < pod.priority for each in companions(other))
    ]
    if not any(map(helps, _by_level(lower))):
        return None
    concerned = [each for other in lower for each in companions(other)]
    budgets = [budget for budget in budgets if any(map(budget.covers, concerned))]

    def plan_of(victims: Iterable[PodView]) -> Plan:
        whole = tuple({each.uid: each for one in victims for each in companions(one)}.values())
        violations = _violations(whole, budgets)
        return Plan(node=entry.name, victims=whole, leaving=leaving, violations=violations)

    if len(lower) <= _FEW:
        every = [plan_of(each) for n in range(len(lower)) for each in combinations(lower, n + 1)]
        return next((p for p in sorted(every, key=lambda p: p.cost) if helps(p.victims)), None)
    spared = _cheapest(helps, [other for other in lower if not _is_protected(other, budgets)])
    if spared and not plan_of(spared).violations:
        return plan_of(spared)
    pools = (_least_guarded(helps, lower, budgets), lower)
    found = [spared, *(_cheapest(helps, pool) for pool in pools)]
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
    """Whether the node refuses the pod for want of room that lower priorities hold."""
    return status.resources and next(_lower(entry, pod.priority), None) is not None


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


def cheapest_first(pod: PodView, entries: Iterable[NodeEntry]) -> list[NodeEntry]:
    """Nodes whose lowest priority is lowest, then those with most such pods; the first few."""
    found = []
    for entry in entries:
        lower = list(_lower(entry, pod.priority))
        found.append((min(p.priority for p in lower), -len(lower), entry.row, entry))
    found.sort(key=lambda item: item[:3])
    return [item[3] for item in islice(found, _MOST_NODES)]


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
    """All of the pool, less those that may stay: important and large ones are spared first."""
    victims = list(pool)
    for other in sorted(pool, key=lambda p: (-p.priority, -p.shape.totals.get("cpu", 0))):
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


def _is_protected(pod: PodView, budgets: Sequence[Budget]) -> bool:
    return any(budget.left <= 0 and budget.covers(pod) for budget in budgets)


def _least_guarded(
    helps: Helps, lower: Sequence[PodView], budgets: Sequence[Budget]
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


def _violations(victims: Iterable[PodView], budgets: Sequence[Budget]) -> int:
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
