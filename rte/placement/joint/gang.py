"""A place for each of several pods: all of them, or at least so many.

First pods are placed one after the other, and one that finds no place may put others out
(:mod:`rte.placement.joint.ejection`). Where that does not soon reach the number asked for, the
exact search (:mod:`rte.placement.joint.exact`) decides; where that is cut off, the first goes on.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rte.placement.inflight.orders import CutOff, StepBudget
from rte.placement.joint.ejection import Ejection
from rte.placement.joint.exact import largest
from rte.placement.joint.field import Bundles, JointField
from rte.placement.joint.node import kinds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.placement.joint.node import JointNode, Kinds, Member

#: Admissions by prediction that one question may cost.
STEPS = 5_600
#: Rounds of ejections before the exact search, and the part of the budget that this gets then.
FIRST_ROUNDS, EXACT_SHARE = 4, 0.2
#: Numbers of pods by kind that an exact search may come upon; with more it is the last resort.
MAX_COUNTS = 10_000


class GangVerdict(StrEnum):
    """The three answers."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    CUT_OFF = "cut off"


class Blame(StrEnum):
    """What stands in the way of pods that do not fit."""

    TOTALS = "node totals"
    ZONES = "NUMA zones"
    TOPOLOGY_KEY = "topology key"


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Pods of one kind of which too few find a place, even without the others.

    Attributes:
        pods: UIDs of the kind's pods.
        places: how many of them find a place at the same time.
    """

    pods: tuple[str, ...]
    places: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Whether the pods have places together.

    Attributes:
        verdict: fits; does not fit; cut off: the budget was used up before either was proven.
        places: pod UID -> node name, of the largest placement found. Every kubelet admits its pods
            in any order. Complete enough only where the verdict says that it fits.
        most: pods in the largest placement that exists; None where that was not proven.
        value: of the topology key, on whose nodes the places are.
        level: the preferred key of which all places have one value; empty: of none.
        blame: what stands in the way, where the pods do not fit.
        shortages: kinds of which too few find a place on their own.
        steps: admissions that were predicted.
    """

    verdict: GangVerdict
    places: Mapping[str, str]
    most: int | None
    value: str = ""
    level: str = ""
    blame: Blame | None = None
    shortages: tuple[Shortage, ...] = field(default=())
    steps: int


def place_together(
    nodes: Sequence[JointNode],
    members: Sequence[Member],
    *,
    min_count: int | None = None,
    topology_key: str = "",
    preferred: Sequence[str] = (),
    maximize: bool = False,
    steps: int = STEPS,
    explains: bool = True,
) -> Answer:
    """Find a node for at least ``min_count`` of the members (default: all).

    Args:
        nodes: the snapshot; of places that are equally good, those on earlier nodes are taken.
        members: the pods; none is special, UIDs differ.
        min_count: how many must be placed; more are placed where that costs no search.
        topology_key: all places are on nodes with one value of this label.
        preferred: labels of which the places have one value if there are enough such places: the
            first of them for which there are. Each is given its share of as many steps once more.
        maximize: go on until ``most`` is known.
        steps: admissions that may be predicted.
        explains: find out who is to blame where they do not fit; that is solving it once more.
    """
    kinds = kinds_of(members)
    need = len(members) if min_count is None else min_count
    spent = 0
    for level in preferred:
        budget = StepBudget(steps // len(preferred))
        found = _place(nodes, kinds, need, (topology_key, level), budget, maximize=maximize)
        spent += budget.spent
        if found.verdict is GangVerdict.FITS:
            return replace(found, level=level, steps=spent)
    budget = StepBudget(steps)
    answer = _place(nodes, kinds, need, (topology_key,), budget, maximize=maximize)
    if explains and answer.verdict is GangVerdict.DOES_NOT_FIT:
        blame = _blame(nodes, kinds, need, topology_key, budget)
        answer = replace(answer, blame=blame)
    return replace(answer, steps=spent + budget.spent)


def _place(
    nodes: Sequence[JointNode],
    kinds: Kinds,
    need: int,
    keys: Sequence[str],
    budget: StepBudget,
    *,
    maximize: bool,
) -> Answer:
    """Places on nodes that have one value of each of the keys."""
    best: tuple[str, Bundles] | None = None
    proven = True
    fields = {
        values: JointField(part, kinds, budget) for values, part in _domains(nodes, keys).items()
    }
    for (value, *_), ground in fields.items():
        size = best[1].size if best else 0
        found, complete = _solve(ground, need, size, maximize=maximize)
        proven = proven and complete
        if best is None or found.size > size:
            best = value, found
        if found.size >= need and not maximize:
            break
    size = best[1].size if best else 0
    verdict = GangVerdict.DOES_NOT_FIT if proven else GangVerdict.CUT_OFF
    if size >= need:
        verdict = GangVerdict.FITS
    knows_most = size == sum(kinds.counts) or (proven and (maximize or size == need - 1))
    return Answer(
        verdict=verdict,
        places=best[1].names() if best else {},
        most=size if knows_most else None,
        value=best[0] if best else "",
        shortages=() if verdict is GangVerdict.FITS else _shortages(list(fields.values())),
        steps=budget.spent,
    )


def _domains(
    nodes: Sequence[JointNode], keys: Sequence[str]
) -> dict[tuple[str, ...], list[JointNode]]:
    """Values of the labels -> nodes with them; a node that lacks one takes no pod. Of an empty key
    every node has the same value.
    """
    out: dict[tuple[str, ...], list[JointNode]] = {}
    for node in nodes:
        if all(key in node.labels for key in keys if key):
            out.setdefault(tuple(node.labels.get(key, "") for key in keys), []).append(node)
    return out


def _solve(ground: JointField, need: int, beaten: int, *, maximize: bool) -> tuple[Bundles, bool]:
    """The largest placement found, and whether it is proven that no more is to be found: of
    ``need`` pods, or (``maximize``) of more than were found and of more than ``beaten``.
    """
    found = Bundles(ground)
    counts, budget = ground.kinds.counts, ground.budget
    search = Ejection(found)

    def suffices() -> bool:
        return found.size == sum(counts) or (found.size >= need and not maximize)

    def exactly() -> tuple[Bundles, bool]:
        at_least = max(found.size, beaten if maximize else need - 1)
        return largest(ground, at_least) or found, True

    if ground.is_small:
        with suppress(CutOff), budget.part(int(EXACT_SHARE * budget.steps)):
            most = largest(ground, 0) or Bundles(ground)
            if maximize or most.size < need:
                return most, True
    try:
        search.go_on(FIRST_ROUNDS)
        if not suffices() and math.prod(count + 1 for count in counts) <= MAX_COUNTS:
            with suppress(CutOff), budget.part(int(EXACT_SHARE * budget.steps)):
                return exactly()
        while not suffices() and search.go_on(1):
            pass
        return (found, True) if suffices() else exactly()
    except CutOff:
        return found, suffices()


def _blame(
    nodes: Sequence[JointNode], kinds: Kinds, need: int, topology_key: str, budget: StepBudget
) -> Blame | None:
    """What would have to be otherwise for the pods to fit; None where that is not proven."""

    def fits(key: str, *, totals_only: bool) -> tuple[bool, bool]:
        proven = True
        for part in _domains(nodes, (key,)).values():
            ground = JointField(part, kinds, budget, totals_only=totals_only)
            found, complete = _solve(ground, need, 0, maximize=False)
            if found.size >= need:
                return True, True
            proven = proven and complete
        return False, proven

    if topology_key and fits("", totals_only=False)[0]:
        return Blame.TOPOLOGY_KEY
    enough, proven = fits(topology_key, totals_only=True)
    if enough:
        return Blame.ZONES
    return Blame.TOTALS if proven else None


def _shortages(fields: Sequence[JointField]) -> tuple[Shortage, ...]:
    """Kinds of which fewer than there are find a place, on the nodes of the best value."""
    out = []
    try:
        for kind, pods in enumerate(fields[0].kinds.members if fields else ()):
            places = max(
                sum(ground.capacity(place, kind) for place in ground.candidates[kind])
                for ground in fields
            )
            if places < len(pods):
                out.append(Shortage(pods=pods, places=places))
    except CutOff:
        return ()
    return tuple(out)
