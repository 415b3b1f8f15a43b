"""One decision about pods that are placed together: places for enough of them, or why not.

The joint solver finds the places; then each pod is tried there in thought, one after the other, so
that the rules between pods (affinity, spread, ports, volumes) hold among the pods of the gang too.
Where that fails, or where zones are not known, the pods are placed in turn without looking back, as
kube-scheduler does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rte.placement.joint.fit import FitTable
from rte.placement.joint.gang import STEPS, Answer, GangVerdict, place_together
from rte.placement.joint.node import Member
from rte.scheduler.loop.cycle import Decision
from rte.scheduler.loop.gangs.ground import allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Sequence

    from rte.placement.joint.fit import Missing
    from rte.placement.joint.node import JointNode
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.ground import GangGround
    from rte.scheduler.loop.gangs.unit import WantedPods

Places: TypeAlias = "list[tuple[PodView, Decision]]"

T = TypeVar("T")

#: A decision that goes on whenever a question of it is answered; None: it asks nothing, and others
#: may have a turn. Meanwhile the cluster may change.
Asking: TypeAlias = "Generator[GangQuestion | None, Found | None, T]"

#: Nodes that are read until others may have a turn.
NODES_AT_ONCE = 100

#: Admissions that a question about one node may cost, which is answered at once.
_STEPS_ON_ONE = 500


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What came of a decision.

    Attributes:
        places: of enough pods; empty: there are none.
        wanted: what was asked for.
        answer: of the solver.
        missing: a pod without a place, and what it lacks, as far as that was found out.
    """

    places: Places
    wanted: WantedPods
    answer: Answer
    missing: tuple[PodView, Missing] | None = None


@dataclass(frozen=True, kw_only=True)
class GangQuestion:
    """What the solver is asked; all of it is values.

    Attributes:
        wanted: pods, and how many of them need a place.
        nodes: on which these may be.
        members: the pods as the solver sees them.
        ahead: so many of the pods, the first, were let start before.
        steps: admissions that may be predicted.
        explains: who is to blame, and what a pod without a place lacks, is to be found out as well.
    """

    wanted: WantedPods
    nodes: Sequence[JointNode]
    members: Sequence[Member]
    ahead: int = 0
    steps: int = STEPS
    explains: bool = True

    def solve(self) -> Answer:
        """Places for enough of the pods."""
        return place_together(
            self.nodes,
            self.members,
            min_count=self.wanted.need,
            topology_key=self.wanted.topology_key,
            preferred=self.wanted.preferred,
            steps=self.steps,
            explains=self.explains,
        )

    def missing(self, answer: Answer) -> tuple[PodView, Missing] | None:
        """A pod without a place, and what the nearest node lacks for it."""
        for pod, member in zip(self.wanted.pods, self.members, strict=True):
            if pod.uid not in answer.places:
                found = FitTable(self.nodes).count(member).missing
                return (pod, found) if found else None
        return None

    def find_out(self) -> Found:
        """Both: the long part of a decision, which leaves the cluster alone.

        Pods that were let start before and have lost their room are in nobody's way.
        """
        answer = self.solve()
        if answer.verdict is GangVerdict.FITS:
            return Found(question=self, answer=answer)
        rest = self._feasible()
        if rest is not self:
            return rest.find_out()
        missing = self.missing(answer) if self.explains else None
        return Found(question=self, answer=answer, missing=missing)

    def _feasible(self) -> GangQuestion:
        """This question without those of the first pods that are proven to find no place alone."""
        first = self._of(range(self.ahead), self.ahead)
        answer = first.solve() if self.ahead else None
        if answer is None or answer.verdict is not GangVerdict.DOES_NOT_FIT:
            return self
        pods = self.wanted.pods
        kept = [place for place in range(self.ahead) if pods[place].uid in answer.places]
        return self._of([*kept, *range(self.ahead, len(pods))], len(kept))

    def _of(self, places: Sequence[int], ahead: int) -> GangQuestion:
        pods = tuple(self.wanted.pods[place] for place in places)
        wanted = replace(self.wanted, pods=pods, need=len(pods))
        members = [self.members[place] for place in places]
        return replace(self, wanted=wanted, members=members, ahead=ahead)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found out.

    Attributes:
        question: that was answered in the end.
        answer: of the solver.
        missing: a pod without a place, and what it lacks, where too few fit.
    """

    question: GangQuestion
    answer: Answer
    missing: tuple[PodView, Missing] | None = None


class Decider:
    """Decides about gangs.

    Args:
        cluster: what is known.
        cycle: the rules.
        ground: the nodes.
        reserve: takes what a pod needs beside a node's room; None: it is not there.
        unreserve: gives it back.
    """

    def __init__(
        self,
        cluster: Cluster,
        cycle: Cycle,
        ground: GangGround,
        reserve: Callable[[PodView, NodeEntry], Any],
        unreserve: Callable[[Any], None],
    ) -> None:
        self._cluster, self._cycle, self._ground = cluster, cycle, ground
        self._reserve, self._unreserve = reserve, unreserve

    def question(
        self,
        wanted: WantedPods,
        own: Sequence[PodView] = (),
        vacate: Callable[[NodeEntry], frozenset[str]] | None = None,
        *,
        explains: bool = True,
    ) -> Asking[GangQuestion]:
        """What has to be found out.

        Nodes that change while the others are read are left out.

        Args:
            wanted: pods that need places.
            own: pods, beside those, of which promises are in nobody's way.
            vacate: UIDs of pods of a node that are looked at as if they had ended.
            explains: see :class:`GangQuestion`; without it nodes that have no room are left out.
        """
        sequence = self._cluster.sequence
        heads = {id(pod.shape): pod for pod in wanted.pods}
        tests = {key: allowance(self._cycle, pod) for key, pod in heads.items()}
        allowed: dict[int, list[str]] = {key: [] for key in heads}
        nodes = []
        entries = list(self._cluster.nodes.values())
        if not explains and vacate is None:
            entries = self._cycle.candidates.roomy(
                {id(pod.shape): pod.shape for pod in wanted.pods}.values()
            )
        for number, entry in enumerate(entries, 1):
            if number % NODES_AT_ONCE == 0:
                yield None
            if entry.changed > sequence or not _is_of(entry, wanted):
                continue
            ended = vacate(entry) if vacate else frozenset()
            node = self._ground.node(entry, (*wanted.pods, *own), ended)
            if node is not None:
                nodes.append(node)
                for key, allows in tests.items():
                    if allows(entry, [entry.pods[uid] for uid in ended]):
                        allowed[key].append(entry.name)
        names = {key: frozenset(found) for key, found in allowed.items()}
        return GangQuestion(
            wanted=wanted,
            nodes=sorted(nodes, key=lambda node: node.name),
            members=[
                Member(pod=pod.shape.as_pod(pod.uid), nodes=names[id(pod.shape)])
                for pod in wanted.pods
            ],
            explains=explains,
        )

    def conclude(self, wanted: WantedPods, answer: Answer) -> Attempt:
        """What follows from an answer; the cluster may have changed since it was asked for."""
        places: Places = []
        if answer.verdict is GangVerdict.FITS:
            places = self._try_in_turn(wanted, self._where(answer))
        if not places and (answer.verdict is GangVerdict.FITS or not self._ground.is_exact()):
            places = self._greedily(wanted)
        if not places and answer.verdict is GangVerdict.FITS:
            places = self._try_in_turn(wanted, self._where(answer, settles=True))
        return Attempt(places=places, wanted=wanted, answer=answer)

    def fits_on(self, node: JointNode, pods: Sequence[PodView]) -> bool:
        """Whether one node takes all these pods, by zones and totals; no, where that is hard."""
        members = [Member(pod=pod.shape.as_pod(pod.uid)) for pod in pods]
        return place_together([node], members, steps=_STEPS_ON_ONE).verdict is GangVerdict.FITS

    def allows(self, pod: PodView, entry: NodeEntry, gone: Collection[PodView]) -> bool:
        """Whether all other rules allow the node once these pods have ended."""
        return allowance(self._cycle, pod)(entry, gone)

    def joined(self, pods: Iterable[PodView]) -> Callable[[PodView], bool]:
        """Whether some of these pods may need another one where they go."""
        heads = {id(pod.shape): pod for pod in pods}.values()
        arounds = [(pod, self._cycle.around(pod)) for pod in heads]
        joins = self._cycle.profile.joins
        return lambda other: any(joins(around, pod, other) for pod, around in arounds)

    def _where(
        self, answer: Answer, *, settles: bool = False
    ) -> Callable[[PodView], Decision | None]:
        def choose(pod: PodView) -> Decision | None:
            entry = self._cluster.nodes.get(answer.places.get(pod.uid, ""))
            return self._check(pod, entry, settles=settles) if entry is not None else None

        return choose

    def _check(self, pod: PodView, entry: NodeEntry, *, settles: bool = False) -> Decision | None:
        """``settles``: it goes there even if that is second best."""
        status = self._cycle.check(entry, pod, self._cycle.around(pod))
        if status.reason and not (settles and status.second_best):
            return None
        return Decision(node=entry.name, status=status)

    def _greedily(self, wanted: WantedPods) -> Places:
        entries = self._ground.entries(wanted.pods)
        if not wanted.topology_key:
            if len(entries) == len(self._cluster.nodes):
                return self._try_in_turn(wanted, self._freely)
            return self._try_in_turn(wanted, self._first_of(entries))
        domains: dict[str, list[NodeEntry]] = {}
        for entry in entries:
            value = entry.info.labels.get(wanted.topology_key) if entry.info else None
            if value is not None and wanted.value in ("", value):
                domains.setdefault(value, []).append(entry)
        found = (self._try_in_turn(wanted, self._first_of(each)) for each in domains.values())
        return next((places for places in found if places), [])

    def _freely(self, pod: PodView) -> Decision | None:
        decision = self._cycle.decide(pod)
        # A last resort is no place for a gang: one refusal would leave it in part.
        return None if decision.node is None or decision.status.uncertain else decision

    def _first_of(self, entries: Sequence[NodeEntry]) -> Callable[[PodView], Decision | None]:
        def choose(pod: PodView) -> Decision | None:
            found = (self._check(pod, entry) for entry in entries)
            return next((each for each in found if each is not None), None)

        return choose

    def _try_in_turn(
        self, wanted: WantedPods, choose: Callable[[PodView], Decision | None]
    ) -> Places:
        """Place the pods in thought, each beside those before it; empty where too few find room.

        The cluster is afterwards as it was before.
        """
        cluster = self._cluster
        done: Places = []
        with cluster.what_if() as undo:
            undo.callback(setattr, cluster.devices, "at_once", frozenset())
            cluster.devices.at_once = frozenset(pod.uid for pod in wanted.pods)
            for left, pod in zip(range(len(wanted.pods), 0, -1), wanted.pods, strict=True):
                if len(done) + left < wanted.need:
                    return []
                decision = choose(pod)
                entry = cluster.nodes.get((decision and decision.node) or "")
                if decision is None or entry is None:
                    continue
                taken = self._reserve(pod, entry)
                if taken is None:
                    continue
                undo.callback(self._unreserve, taken)
                done.append((pod, decision))
                written = self._cycle.profile.annotations(pod, entry, decision.status)
                undo.callback(cluster.forget, pod.uid)
                cluster.assume(pod.uid, entry.name, written)
        return done if len(done) >= wanted.need else []


def ask(question: GangQuestion) -> Asking[Found]:
    """What is found out."""
    found = yield question
    if found is None:
        raise ValueError("the question was not answered")
    return found


def at_once(steps: Asking[T]) -> T:
    """What comes of steps that ask nothing; nobody else has a turn."""
    try:
        while next(steps) is None:
            pass
    except StopIteration as end:
        value: T = end.value
        return value
    raise ValueError("a question has to be answered first")


def _is_of(entry: NodeEntry, wanted: WantedPods) -> bool:
    return not wanted.value or (
        entry.info is not None and entry.info.labels.get(wanted.topology_key) == wanted.value
    )
