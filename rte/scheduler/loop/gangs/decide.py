"""One decision about pods that are placed together: places for enough of them, or why not.

The joint solver finds the places; then each pod is tried there in thought, one after the other, so
that the rules between pods (affinity, spread, ports, volumes) hold among the pods of the gang too.
Where that fails, or where zones are not known, the pods are placed in turn without looking back, as
kube-scheduler does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from rte.placement.joint.fit import FitTable
from rte.placement.joint.gang import STEPS, Answer, Verdict, place_together
from rte.scheduler.loop.cycle import Decision
from rte.scheduler.loop.gangs.ground import members_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.placement.joint.fit import Missing
    from rte.placement.joint.node import Member, Node
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.ground import Ground
    from rte.scheduler.loop.gangs.unit import Wanted

Places: TypeAlias = "list[tuple[PodView, Decision]]"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What came of a decision.

    Attributes:
        places: of enough pods; empty: there are none.
        wanted: what was asked for.
        answer: of the solver; None where it was not asked.
    """

    places: Places
    wanted: Wanted
    answer: Answer | None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the solver is asked; all of it is values.

    Attributes:
        wanted: pods, and how many of them need a place.
        nodes: on which these may be.
        members: the pods as the solver sees them.
        ahead: so many of the pods, the first, were let start before.
        steps: admissions that may be predicted.
    """

    wanted: Wanted
    nodes: Sequence[Node]
    members: Sequence[Member]
    ahead: int = 0
    steps: int = STEPS

    def solve(self) -> Answer:
        """The long part of a decision: it leaves the cluster alone."""
        return place_together(
            self.nodes,
            self.members,
            min_count=self.wanted.need,
            topology_key=self.wanted.topology_key,
            steps=self.steps,
        )

    def missing(self, answer: Answer) -> tuple[PodView, Missing] | None:
        """A pod without a place, and what the nearest node lacks for it; likewise long."""
        for pod, member in zip(self.wanted.pods, self.members, strict=True):
            if pod.uid not in answer.places:
                found = FitTable(self.nodes).count(member).missing
                return (pod, found) if found else None
        return None

    def find_out(self) -> Found:
        """Both; pods that were let start before and have lost their room are in nobody's way."""
        answer = self.solve()
        if answer.verdict is Verdict.FITS:
            return Found(question=self, answer=answer)
        rest = self._feasible()
        if rest is not self:
            return rest.find_out()
        return Found(question=self, answer=answer, missing=self.missing(answer))

    def _feasible(self) -> Question:
        """This question without those of the first pods that are proven to find no place alone."""
        first = self._of(range(self.ahead), self.ahead)
        answer = first.solve() if self.ahead else None
        if answer is None or answer.verdict is not Verdict.DOES_NOT_FIT:
            return self
        pods = self.wanted.pods
        kept = [place for place in range(self.ahead) if pods[place].uid in answer.places]
        return self._of([*kept, *range(self.ahead, len(pods))], len(kept))

    def _of(self, places: Sequence[int], ahead: int) -> Question:
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

    question: Question
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
        ground: Ground,
        reserve: Callable[[PodView, NodeEntry], Any],
        unreserve: Callable[[Any], None],
    ) -> None:
        self._cluster, self._cycle, self._ground = cluster, cycle, ground
        self._reserve, self._unreserve = reserve, unreserve

    def decide(self, wanted: Wanted) -> Attempt:
        """Places for at least as many pods as are needed, or none."""
        return self.conclude(wanted, self.question(wanted).solve())

    def question(self, wanted: Wanted) -> Question:
        """What has to be found out."""
        nodes = [node for node in self._ground.nodes(wanted.pods[0]) if _is_of(node, wanted)]
        members = members_of(self._cluster, self._cycle, wanted.pods)
        return Question(wanted=wanted, nodes=nodes, members=members)

    def conclude(self, wanted: Wanted, answer: Answer) -> Attempt:
        """What follows from an answer; the cluster may have changed since it was asked for."""
        places: Places = []
        if answer.verdict is Verdict.FITS:
            places = self._try_in_turn(wanted, self._where(answer))
        if not places and (answer.verdict is Verdict.FITS or not self._ground.is_exact()):
            places = self._greedily(wanted)
        if not places and answer.verdict is Verdict.FITS:
            places = self._try_in_turn(wanted, self._where(answer, settles=True))
        return Attempt(places=places, wanted=wanted, answer=answer)

    def solve(self, wanted: Wanted, nodes: Sequence[Node]) -> Answer:
        """What the solver says of these nodes."""
        members = members_of(self._cluster, self._cycle, wanted.pods)
        return Question(wanted=wanted, nodes=nodes, members=members).solve()

    def fits_on(self, node: Node, pods: Sequence[PodView]) -> bool:
        """Whether one node takes all these pods."""
        members = members_of(self._cluster, self._cycle, pods)
        return place_together([node], members).verdict is Verdict.FITS

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

    def _greedily(self, wanted: Wanted) -> Places:
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

    def _try_in_turn(self, wanted: Wanted, choose: Callable[[PodView], Decision | None]) -> Places:
        """Place the pods in thought, each beside those before it; empty where too few find room.

        The cluster is afterwards as it was before.
        """
        cluster = self._cluster
        mark = len(cluster.events)
        done: Places = []
        held: list[Any] = []
        cluster.devices.at_once = frozenset(pod.uid for pod in wanted.pods)
        try:
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
                held.append(taken)
                done.append((pod, decision))
                written = self._cycle.profile.annotations(pod, entry, decision.status)
                cluster.assume(pod.uid, entry.name, written)
            return done if len(done) >= wanted.need else []
        finally:
            cluster.devices.at_once = frozenset()
            for taken in reversed(held):
                self._unreserve(taken)
            for pod, _ in reversed(done):
                cluster.forget(pod.uid)
            # Nothing has happened that others should hear of.
            del cluster.events[mark:]


def _is_of(node: Node, wanted: Wanted) -> bool:
    return not wanted.value or node.labels.get(wanted.topology_key) == wanted.value
