"""How many copies of a pod fit: node by node, one after the other until the first is refused."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.totals import totals_of
from rte.placement.explain import explain
from rte.placement.fleet.copies import UNKNOWN, count_by_totals, count_copies
from rte.placement.fleet.screen import NodeTable
from rte.placement.inflight.orders import CutOff, StepBudget
from rte.placement.inflight.spread import spread_of
from rte.placement.joint.node import Classes, Member, Site, is_uncertain, kinds_of
from rte.placement.kubelet.admission import execute, settle, shape_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from rte.model.pod import Pod
    from rte.placement.inflight.spread import InflightSpread
    from rte.placement.joint.node import JointNode, Kinds

#: Admissions by prediction that one question may cost.
STEPS = 1000
#: Answers that are kept, one for each kind of pod and class of nodes.
MAX_REMEMBERED = 100_000
#: Nodes without room that are looked at to find what is missing.
MAX_NEAR = 6
#: The reason where node totals are short.
TOTALS = "node totals"


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the node that comes nearest to one more copy lacks.

    Attributes:
        node: its name.
        zone: the zone that comes nearest, None where node totals are short.
        short: resource -> how much more would have to be free (whole CPUs in a zone, millicores in
            node totals, bytes, devices). Empty where no amount is to blame: ``reason`` says what.
        reason: the kubelet's, or :data:`TOTALS`.
    """

    node: str
    zone: int | None
    short: Mapping[str, int]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How many copies fit.

    Attributes:
        copies: node -> copies that are admitted there in any case, for nodes that it may go to.
        totals: node -> copies that its totals alone would allow, likewise.
        unsure: nodes that may admit more: a pick of devices decides, their kubelet is not known, or
            the search was cut off there.
        missing: for the next copy; None where none is missing or nothing can be said.
    """

    copies: Mapping[str, int]
    totals: Mapping[str, int]
    unsure: frozenset[str]
    missing: Missing | None = None

    @property
    def total(self) -> int:
        """Copies on all nodes together."""
        return sum(self.copies.values())


class FitTable:
    """The nodes of a cluster, kept up to date one at a time, and how many of a pod fit on them.

    Nodes on which counting is exact are answered by arrays, the others by prediction: once for
    nodes that are alike, and remembered.
    """

    def __init__(self, nodes: Iterable[JointNode] = ()) -> None:
        self._nodes: dict[str, JointNode] = {}
        self._table = NodeTable()
        self._classes = Classes()
        self._spreads: dict[str, InflightSpread | None] = {}
        self._known: OrderedDict[Hashable, tuple[int, bool]] = OrderedDict()
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: JointNode) -> None:
        """Add a node, or replace it."""
        self._nodes[node.name] = node
        self._spreads.pop(node.name, None)
        self._table.put(node.name, node.state, node.room)

    def count(self, member: Member, *, steps: int = STEPS) -> Fit:
        """How many copies fit on each node.

        Args:
            member: the pod, and the nodes that it may go to.
            steps: admissions that may be predicted.
        """
        kinds = kinds_of([member])
        budget = StepBudget(steps)
        totals = count_by_totals(self._table, kinds.totals[0]).tolist()
        counted = count_copies(self._table, member.pod, kinds.totals[0]).tolist()
        copies: dict[str, int] = {}
        allowed: dict[str, int] = {}
        unsure: set[str] = set()
        for name, by_totals, by_zones in zip(self._table.names, totals, counted, strict=True):
            if member.nodes is not None and name not in member.nodes:
                continue
            node = self._nodes[name]
            allowed[name] = by_totals
            if not by_totals or (by_zones != UNKNOWN and not node.arriving):
                copies[name] = min(by_zones, by_totals) if by_totals else 0
                continue
            by_amounts = self._by_amounts(node, member.pod, by_totals)
            if by_amounts is not None:
                copies[name] = by_amounts
                continue
            copies[name], sure = self._predict(node, kinds, budget)
            if not sure:
                unsure.add(name)
        sure_of = {name: count for name, count in copies.items() if name not in unsure}
        return Fit(
            copies=copies,
            totals=allowed,
            unsure=frozenset(unsure),
            missing=self._missing(sure_of, allowed, member.pod),
        )

    def _by_amounts(self, node: JointNode, pod: Pod, most: int) -> int | None:
        """The copies on a node that refuses nobody for zones; None: they have to be predicted."""
        if node.arriving:
            return None
        if node.name not in self._spreads:
            self._spreads[node.name] = spread_of(node.state)
        spread = self._spreads[node.name]
        units = spread.units(pod) if spread else None
        return None if spread is None or units is None else spread.copies(units, most)

    def _predict(self, node: JointNode, kinds: Kinds, budget: StepBudget) -> tuple[int, bool]:
        key = (
            self._classes.key(node, kinds),
            shape_key(kinds.pods[0]),
            frozenset(kinds.totals[0].items()),
        )
        if key in self._known:
            return self._known[key]
        site, count = Site(node, kinds, budget), 0
        try:
            while (obstacle := site.obstacle((0,) * (count + 1))) is None:
                count += 1
        except CutOff:
            return count, False
        self._known[key] = count, not is_uncertain(obstacle)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return self._known[key]

    def _missing(
        self, copies: Mapping[str, int], totals: Mapping[str, int], pod: Pod
    ) -> Missing | None:
        """What one more copy lacks: in zones where totals have room for it, else in totals."""
        by_zones = [name for name, count in copies.items() if totals[name] > count]
        by_zones.sort(key=lambda name: (copies[name], -totals[name]))
        found = [_short_zone(self._nodes[name], pod, copies[name]) for name in by_zones[:MAX_NEAR]]
        if not by_zones:
            found = [_short_totals(self._nodes[name], pod, count) for name, count in copies.items()]
        return min(
            (each for each in found if each is not None),
            key=lambda each: (not each.short, len(each.short), sorted(each.short.values())),
            default=None,
        )


def emptied(node: JointNode) -> JointNode:
    """The node as if no pod were there (what an autoscaler would add)."""
    return replace(node, state=settle(node.state, frozenset()), used={}, arriving=())


def _short_zone(node: JointNode, pod: Pod, ahead: int) -> Missing | None:
    """What the zones of a node lack for one more copy; None: it would be admitted."""
    state = node.state
    for number in range(ahead):
        state = execute(state, replace(pod, uid=f"copy-{number}")).state
    answer = explain(state, replace(pod, uid="next"))
    if answer.admission.admitted:
        return None
    short = [zone for zone in answer.zones if zone.short]
    nearest = min(short, key=lambda zone: sorted(zone.short.values()), default=None)
    return Missing(
        node=node.name,
        zone=nearest.zone if nearest else None,
        short=nearest.short if nearest else {},
        reason=answer.admission.reason,
    )


def _short_totals(node: JointNode, pod: Pod, ahead: int) -> Missing | None:
    """What node totals lack for one more copy."""
    wanted, room = totals_of(pod), node.room
    lacks = {
        name: quantity.capped((ahead + 1) * amount - room.get(name, 0))
        for name, amount in wanted.items()
        if (ahead + 1) * amount > room.get(name, 0)
    }
    return Missing(node=node.name, zone=None, short=lacks, reason=TOTALS) if lacks else None
