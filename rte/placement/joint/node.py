"""Nodes and pods as the joint solver sees them, and what one node can take of the pods."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from rte import placement
from rte.model import quantity
from rte.model.totals import totals_of
from rte.placement.inflight.orders import OrderRefusal, Orders, free_key
from rte.placement.inflight.spread import spread_of
from rte.placement.inflight.zones import ZoneWalk
from rte.placement.kubelet import outcome
from rte.placement.kubelet.admission import shape_key
from rte.placement.kubelet.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.inflight.orders import Bundle, StepBudget


#: Stands for the resource that is short where a rule of another kind keeps a pod off a node.
NOT_ALLOWED = "(not allowed here)"


@dataclass(frozen=True, kw_only=True, eq=False)
class JointNode:
    """One node of a snapshot.

    Attributes:
        name: of the node.
        state: settled, without the pods of ``arriving``.
        allocatable: node totals (millicores, bytes, units; ``pods`` is the greatest number of
            pods); a resource that is not named has 0.
        used: what the pods that are there count for, in the same units (``pods``: their number),
            those of ``arriving`` included.
        labels: of the Node object.
        arriving: pods in flight, or promised a place here: bound and not admitted yet.
        lasting: nothing on it ends before the pods are admitted. Else they must find their places
            whatever ends meanwhile (:func:`rte.placement.fit_together`).
        overtaken: something has ended since the first of ``arriving`` was bound.
        ending: UIDs of pods that are being deleted.
    """

    name: str
    state: NodeState
    allocatable: Mapping[str, int]
    used: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    arriving: tuple[Pod, ...] = ()
    lasting: bool = True
    overtaken: bool = False
    ending: frozenset[str] = frozenset()

    @property
    def room(self) -> dict[str, int]:
        """What the totals leave, by resource; less than nothing where more is used."""
        return {
            name: quantity.capped(amount - self.used.get(name, 0))
            for name, amount in self.allocatable.items()
        }


@dataclass(frozen=True, kw_only=True)
class Member:
    """One of the pods that want a place together.

    Attributes:
        pod: as the kubelet sees it; the UID names it in the answer.
        nodes: names of the nodes that all other rules (selectors, taints, ports, ...) allow; None:
            every node.
    """

    pod: Pod
    nodes: frozenset[str] | None = None

    @property
    def kind(self) -> Hashable:
        """Members of one kind are interchangeable."""
        return shape_key(self.pod), frozenset(self.pod.overhead.items()), self.nodes


@dataclass(frozen=True)
class Kinds:
    """The members, sorted into kinds.

    Attributes:
        pods: one pod of each kind.
        members: kind -> the UIDs of its pods, in the order given.
        totals: kind -> what a pod counts for on node level.
        nodes: kind -> names of the nodes that it may go to, None: all.
    """

    pods: tuple[Pod, ...]
    members: tuple[tuple[str, ...], ...]
    totals: tuple[Mapping[str, int], ...]
    nodes: tuple[frozenset[str] | None, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Kind -> number of its pods."""
        return tuple(len(uids) for uids in self.members)


def kinds_of(members: Iterable[Member]) -> Kinds:
    """Sort the members into kinds, in the order in which a kind comes first."""
    table: dict[Hashable, list[Member]] = {}
    for member in members:
        table.setdefault(member.kind, []).append(member)
    groups = list(table.values())
    return Kinds(
        pods=tuple(group[0].pod for group in groups),
        members=tuple(tuple(member.pod.uid for member in group) for group in groups),
        totals=tuple(totals_of(group[0].pod) for group in groups),
        nodes=tuple(group[0].nodes for group in groups),
    )


#: Why some pods have no place on a node: a shortage of node totals in words, or the kubelet's no.
Obstacle: TypeAlias = "str | OrderRefusal"


class Site:
    """What one node can take of the kinds; nodes that are alike may share it.

    Args:
        node: the node.
        kinds: of the pods that want a place.
        budget: what asking may cost.
        states: of the node, where more than one is possible (default: the node's own).
        totals_only: the node's totals are all that counts.
    """

    def __init__(
        self,
        node: JointNode,
        kinds: Kinds,
        budget: StepBudget,
        states: Sequence[NodeState] | None = None,
        *,
        totals_only: bool = False,
    ) -> None:
        self.node = node
        self._totals_only = totals_only
        self._kinds = kinds
        self._budget = budget
        arriving: dict[Hashable, list[Pod]] = {}
        for pod in node.arriving:
            arriving.setdefault(shape_key(pod), []).append(pod)
        self._base: Bundle = tuple(
            number for number, alike in enumerate(arriving.values(), len(kinds.pods)) for _ in alike
        )
        self._states = states or (node.state,)
        self._pods = (*kinds.pods, *(alike[0] for alike in arriving.values()))
        self._orders = Orders(self._states, self._pods, budget)
        self._walk: ZoneWalk | None = None
        self._spread = None if totals_only else spread_of(self._states[0])
        self._units = [self._spread.units(pod) if self._spread else None for pod in self._pods]
        self._admitted: dict[int, bool] = {}
        self._room = node.room
        self._known: dict[Bundle, Obstacle | None] = {}
        self._likely: dict[Bundle, bool] = {}

    def takes(self, bundle: Bundle) -> bool:
        """Whether the node admits these pods in every order, within its totals.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        return self.obstacle(bundle) is None

    def known(self, bundle: Bundle) -> bool | None:
        """The same where it has been asked before; None: it has not."""
        return self._known[bundle] is None if bundle in self._known else None

    def obstacle(self, bundle: Bundle) -> Obstacle | None:
        """Why not; None: it takes them.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        if bundle not in self._known:
            obstacle: Obstacle | None = self.shortage(bundle)
            if obstacle is None and not self._totals_only:
                obstacle = self._refusal(bundle)
            self._known[bundle] = obstacle
        return self._known[bundle]

    def likely_takes(self, bundle: Bundle) -> bool:
        """Whether the pods find their zones, where that can be told without predicting admissions.

        :meth:`takes` has the last word; it may know of more sets that the node takes.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        if bundle in self._known:
            return self._known[bundle] is None
        if bundle not in self._likely:
            self._likely[bundle] = self.shortage(bundle) is None and self._find_zones(bundle)
        return self._likely[bundle]

    def _find_zones(self, bundle: Bundle) -> bool:
        node = self.node
        if self._totals_only:
            return True
        if not node.lasting or len(self._states) > 1:
            return self.takes(bundle)
        every = (*bundle, *self._base)
        return bool(self._follow(every) or self._by_amounts(every))

    def _follow(self, bundle: Bundle) -> bool | None:
        """Whether all orders admit the pods; None: they have to be predicted."""
        if self._walk is None:
            self._walk = ZoneWalk(self._states[0], self._pods, self._budget)
        return self._walk.admits(bundle)

    def _by_amounts(self, bundle: Bundle) -> bool | None:
        """The same for a node that refuses nobody for zones."""
        if self._spread is None:
            return None
        units = [self._units[kind] for kind in bundle]
        known = [each for each in units if each is not None]
        return self._spread.admits(known) if len(known) == len(units) else None

    def _refusal(self, bundle: Bundle) -> OrderRefusal | None:
        node = self.node
        if node.lasting:
            return self._in_any_order((*bundle, *self._base))
        if len(bundle) == 1 and not node.arriving:
            # One alone has to find its place as things are; what ends gives room.
            refusal = self._orders.refusal(bundle)
            pod = self._kinds.pods[bundle[0]]
            if refusal or not node.ending:
                return refusal
            stands = placement.certain_under_endings(node.state, pod, node.ending)
        else:
            pods = [replace(self._kinds.pods[kind], uid=str(n)) for n, kind in enumerate(bundle)]
            self._budget.spend(len(pods) + 1)
            stands = placement.fit_together(
                node.state, (*node.arriving, *pods), fuller=node.overtaken
            )
        return None if stands else _overtaken(bundle)

    def _in_any_order(self, bundle: Bundle) -> OrderRefusal | None:
        if len(bundle) < 2 or len(self._states) > 1:
            return self._orders.refusal(bundle)
        admits = self._follow(bundle)
        if admits is None:
            admits = self._by_amounts(bundle)
        if admits is False:
            return _no_zone(bundle)
        if admits and all(self._is_admitted(kind) for kind in dict.fromkeys(bundle)):
            return None
        return self._orders.refusal(bundle)

    def _is_admitted(self, kind: int) -> bool:
        """Whether the kubelet admits a pod of the kind alone: nothing but zones can change that."""
        if kind not in self._admitted:
            self._budget.spend()
            answer = placement.admit(self._states[0], self._pods[kind])
            self._admitted[kind] = answer.admitted
        return self._admitted[kind]

    def shortage(self, bundle: Bundle) -> str | None:
        """The resource of which the node's totals are too small; None: none."""
        wanted: Counter[str] = Counter()
        for kind, count in Counter(bundle).items():
            allowed = self._kinds.nodes[kind]
            if allowed is not None and self.node.name not in allowed:
                return NOT_ALLOWED
            for name, amount in self._kinds.totals[kind].items():
                wanted[name] += count * amount
        return next(
            (name for name, amount in wanted.items() if amount > self._room.get(name, 0)), None
        )


def _no_zone(bundle: Bundle) -> OrderRefusal:
    return OrderRefusal(
        kind=bundle[-1],
        ahead=bundle[:-1],
        verdict=Verdict.REFUSED,
        reason=outcome.TOPOLOGY_AFFINITY_ERROR,
        message="in some order one of the pods finds no zone",
    )


def _overtaken(bundle: Bundle) -> OrderRefusal:
    return OrderRefusal(
        kind=bundle[-1],
        ahead=bundle[:-1],
        verdict=Verdict.UNCERTAIN,
        reason=outcome.TOPOLOGY_AFFINITY_ERROR,
        message="what ends on the node meanwhile may change the pods' zones",
    )


def is_uncertain(obstacle: Obstacle) -> bool:
    """Whether nobody can know if the pods would be admitted."""
    return isinstance(obstacle, OrderRefusal) and obstacle.verdict is Verdict.UNCERTAIN


class Classes:
    """Tells nodes that are alike: no admission of these pods can tell one from the other.

    Machines and configurations are compared by value, once for each object.
    """

    def __init__(self) -> None:
        self._values: list[object] = []
        self._numbers: dict[int, int] = {}

    def key(self, node: JointNode, kinds: Kinds) -> Hashable:
        """Equal for nodes that are alike."""
        state = node.state
        return (
            self._number(state.topology),
            self._number(state.config),
            state.kubelet_version,
            state.reserved,
            tuple(
                (name, pool.zones, pool.healthy, pool.complete)
                for name, pool in state.devices.items()
            ),
            free_key(state),
            frozenset(
                (name, amount - node.used.get(name, 0)) for name, amount in node.allocatable.items()
            ),
            tuple(shape_key(pod) for pod in node.arriving),
            (node.lasting, node.overtaken),
            # Who is about to leave there is like nobody elsewhere.
            node.name if node.ending else "",
            tuple(allowed is None or node.name in allowed for allowed in kinds.nodes),
        )

    def _number(self, value: object) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            if value not in self._values:
                self._values.append(value)
            number = self._numbers[id(value)] = self._values.index(value)
        return number
