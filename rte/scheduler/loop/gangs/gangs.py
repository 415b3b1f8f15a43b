"""Gangs from their first pod to their last: when they are tried, what is told, what is repaired.

A gang waits as one group of the queue. When enough of its pods are there it is decided about as a
whole, and all binds go out at once. A gang of which a bind fails, or which a kubelet refuses in
part, is completed first of all; if that is not possible for a time, its other pods are released.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rte.model.words import counted
from rte.placement.joint.gang import GangVerdict
from rte.scheduler.framework.events import ANY, Help, Kind
from rte.scheduler.loop.gangs import unit as units
from rte.scheduler.loop.gangs import words
from rte.scheduler.loop.gangs.decide import Decider, ask, at_once
from rte.scheduler.loop.gangs.ground import GangGround, problem_of
from rte.scheduler.loop.gangs.room import GangRoom
from rte.scheduler.loop.messages import GroupCondition, ReleaseGang
from rte.scheduler.queue.waiting import UnitKey
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rte.k8s.gang import GangKey
    from rte.placement.joint.gang import Answer
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.loop.gangs.decide import Asking, Attempt, Found, GangQuestion, Places
    from rte.scheduler.loop.gangs.unit import GangTally
    from rte.scheduler.loop.messages import Effect
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import EquivalenceClass

#: Admissions that may be predicted where nobody waits for the answer.
_STEPS = 30_000

#: What the pods of a gang lack is found out anew after so long at the earliest: it takes as long as
#: a decision.
_EXPLAIN_S = 5.0

#: And of all gangs together, of which there may be thousands.
_BETWEEN_EXPLANATIONS_S = 0.5

#: Kinds of events after which a gang may fit; :meth:`Gangs.helps` looks closer.
HELPED_BY = ANY


@dataclass(frozen=True, kw_only=True)
class GangOptions:
    """What can be set for gangs.

    Attributes:
        timeout: seconds after which a gang that stays in part is released; 0: never.
        preempts: whether pods of lower priority may be evicted for a gang.
        reserve_after: seconds after which a waiting gang gets nodes reserved; 0: never.
    """

    timeout: float
    preempts: bool
    reserve_after: float


class Gangs:
    """Watches over the gangs of one scheduler.

    Args:
        cluster: what is known.
        cycle: the rules.
        queue: who waits.
        waits: whether a pod waits for us.
        reserve: takes what a pod needs beside a node's room; None: it is not there.
        unreserve: gives it back.
        options: what can be set.

    Attributes:
        room: evictions and reservations.
        in_part: gangs of which some pods have places, and the others are due; since when.
    """

    def __init__(
        self,
        cluster: Cluster,
        cycle: Cycle,
        queue: SchedulingQueue,
        waits: Callable[[PodView], bool],
        reserve: Callable[[PodView, NodeEntry], Any],
        unreserve: Callable[[Any], None],
        options: GangOptions,
    ) -> None:
        self._cluster, self._cycle, self._queue, self._waits = cluster, cycle, queue, waits
        self._timeout = options.timeout
        self._ground = GangGround(cluster)
        self._decider = Decider(cluster, cycle, self._ground, reserve, unreserve)
        self.room = GangRoom(
            cluster,
            queue,
            self._ground,
            self._decider,
            preempts=options.preempts,
            reserve_after=options.reserve_after,
        )
        self._attempts: dict[GangKey, Attempt] = {}
        self._explained_last = 0.0
        self._explained: dict[GangKey, float] = {}
        self._overtaken: set[GangKey] = set()
        self.in_part: dict[GangKey, float] = {}
        self._needs: dict[GangKey, int] = {}
        self._said: dict[GangKey, tuple[str, str]] = {}
        #: A pod of each kind, and the labels that tell them apart, until one of them changes.
        self._by_kind: dict[GangKey, tuple[tuple[str, ...], Sequence[PodView]]] = {}

    # --- what watches tell -----------------------------------------------------------------------

    def look(self, before: PodView | None, after: PodView | None, now: float) -> list[Effect]:
        """A pod has come, changed or gone, and the queue knows of it."""
        key = pod.gang if (pod := after or before) else None
        if key is None:
            return []
        for each in (key, *self._cluster.gangs.grouped):
            self._by_kind.pop(each, None)
        if after is not None and self._waits(after) and (before is None or not self._waits(before)):
            self._rouse(key)
        return self._judge(key, now)

    def described(self) -> set[str]:
        """Descriptions have changed: who waits in those gangs looks again.

        Returns: UIDs of waiting pods whose group in the queue may be another now.
        """
        changed, self._cluster.gangs.changed = self._cluster.gangs.changed, set()
        uids: set[str] = set()
        self._by_kind.clear()
        for key in changed:
            self._rouse(key)
            uids |= {uid for uid in self._cluster.gangs.pods.get(key, ()) if uid in self._queue}
        return uids

    def _rouse(self, key: GangKey) -> None:
        """The pods that are placed together with that gang's have another try."""
        partners = {key, *units.unit_of(self._cluster, key)}
        partners |= {
            each
            for each in self._cluster.gangs.grouped
            if key in units.unit_of(self._cluster, each)
        }
        for each in partners:
            if not self._queue.rouse_unit(UnitKey(gang=each)):
                for uid in self._cluster.gangs.pods.get(each, ()):
                    self._queue.rouse(uid)

    def _judge(self, key: GangKey, now: float) -> list[Effect]:
        """Whether the gang is whole, in part, or has not begun."""
        book = self._cluster.gangs
        if key not in book.whole and units.has_run_whole(self._cluster, key):
            book.whole.add(key)
        if self._is_settled(key):
            self.in_part.pop(key, None)
            return []
        count = units.tally(self._cluster, key)
        if isinstance(count, str) or not count.is_in_part or key in book.whole:
            self.in_part.pop(key, None)
        elif key not in self.in_part:
            self.in_part[key] = now
        if key not in book.pods:
            self._said.pop(key, None)
            self._needs.pop(key, None)
        elif not isinstance(count, str) and self._needs.get(key) != count.need:
            self._needs[key] = count.need
            self._rouse(key)
        return self._tell_bound(count) if not isinstance(count, str) else []

    def _is_settled(self, key: GangKey) -> bool:
        """Whether no pod of the gang changes how it stands: it is whole, stays so, and says so."""
        book = self._cluster.gangs
        gang = book.gang(key) if key in book.whole and key in book.pods else ""
        if isinstance(gang, str) or not gang.stays_whole or self._needs.get(key) != 0:
            return False
        return not book.condition(key) or self._said.get(key, ("", ""))[0] == "True"

    def _waits_now(self, pod: PodView) -> bool:
        return (
            self._waits(pod)
            and self._queue.group_of(pod.uid) is not None
            and not self._cycle.problem(pod).reason
        )

    # --- decisions -------------------------------------------------------------------------------

    def urgent(self) -> EquivalenceClass | None:
        """The group of a gang that is in part and can be tried: it comes before all others."""
        for key in self.in_part:
            for uid in self._cluster.gangs.pods.get(key, ()):
                group = self._queue.group_of(uid)
                if group is not None and not group.sleeping:
                    return group
        return None

    def goes_first(self, pod: PodView) -> bool:
        """Whether nothing else is decided until the gang of the pod is.

        One that has waited before is looked at beside the decisions about others, or gangs that
        are hard to place would hold up everybody; not when these took the places found for it.
        """
        key = pod.gang
        return key not in self._attempts or key in self._overtaken or key in self.in_part

    def decide(self, pod: PodView, now: float) -> Asking[Places | None]:
        """Places for the gang of the pod, and for all that are placed with it; None: what was asked
        has been overtaken by what happened since.
        """
        key = pod.gang
        if key is None:
            return []
        for number, asked in enumerate(self._wanted(key)):
            sequence = self._cluster.sequence
            before = self._attempts.get(key)
            explains = before is None or self._may_explain(key, now)
            question = yield from self._decider.question(
                asked, list(self._partners(pod)), explains=explains
            )
            found = yield from ask(question)
            wanted = next(iter(self._wanted(key)[number:]), None)
            if wanted is None or not wanted.is_like(asked):
                return None
            stands = self._stands(found.answer, sequence)
            with self._set_aside(key):
                attempt = self._decider.conclude(wanted, found.answer)
            self._overtaken.discard(key)
            if not attempt.places and not stands:
                self._overtaken.add(key)
                return None
            if attempt.places:
                self._attempts.pop(key, None)
                self.room.placed(key)
                return attempt.places
            if explains or before is None:
                self._explained[key] = self._explained_last = now
                self._attempts[key] = replace(attempt, missing=found.missing)
            else:
                answer = replace(attempt.answer, blame=before.answer.blame)
                self._attempts[key] = replace(attempt, answer=answer, missing=before.missing)
        return []

    def _may_explain(self, key: GangKey, now: float) -> bool:
        return (
            now - self._explained[key] >= _EXPLAIN_S
            and now - self._explained_last >= _BETWEEN_EXPLANATIONS_S
        )

    def _stands(self, answer: Answer, sequence: int) -> bool:
        """Whether the nodes of the places are as they were when that was asked."""
        entries = map(self._cluster.nodes.get, set(answer.places.values()))
        return answer.verdict is not GangVerdict.FITS or all(
            entry is not None and entry.changed <= sequence for entry in entries
        )

    def _wanted(self, key: GangKey) -> list[units.WantedPods]:
        """What may be asked of the solver for the gang, the most first; nothing, for now."""
        tallies = self._tallies(units.unit_of(self._cluster, key))
        return [] if isinstance(tallies, str) else units.wanted(self._cluster, tallies)

    def rehearse(self, ahead: Sequence[PodView], pods: Sequence[PodView]) -> GangQuestion | str:
        """What has to be found out about pods that do not exist yet, were they a gang, beside those
        that were let start ``ahead`` of them; a text where one of them can be placed nowhere.
        """
        heads = {id(pod.shape): pod for pod in (*ahead, *pods)}
        problems = {key: problem_of(self._cycle, pod) for key, pod in heads.items()}
        for pod in pods:
            if problem := problems[id(pod.shape)]:
                return f"{pod.key} can be placed nowhere: {problem}"
        before = [pod for pod in ahead if not problems[id(pod.shape)]]
        everybody = (*before, *pods)
        wanted = units.WantedPods(pods=everybody, need=len(everybody))
        question = at_once(self._decider.question(wanted))
        return replace(question, ahead=len(before), steps=_STEPS)

    def rehearsed(self, found: Found) -> str:
        """Why they would not all be placed now; empty: they would."""
        wanted, known = found.question.wanted, self._cluster.pods
        known.update((pod.uid, pod) for pod in wanted.pods)
        try:
            attempt = self._decider.conclude(wanted, found.answer)
        finally:
            for pod in wanted.pods:
                del known[pod.uid]
        return "" if attempt.places else words.unrehearsed(found, self._cycle)

    def refused(self, pod: PodView, now: float) -> Asking[list[Effect]]:
        """The gang of the pod fits nowhere: room may be made for it."""
        attempt = self._attempts.get(pod.gang) if pod.gang else None
        tallies = self._tallies(units.unit_of(self._cluster, pod.gang)) if pod.gang else ""
        if pod.gang is None or attempt is None or isinstance(tallies, str):
            return []
        if not any(each.need for each in tallies):
            # Extra pods make do with the room that there is.
            return []
        return (yield from self.room.refused(pod.gang, attempt.wanted, now))

    def reserve(self, now: float) -> Asking[list[Effect]]:
        """Nodes are reserved for a gang that has waited long."""
        key = self.room.due(now)
        return [] if key is None else (yield from self.room.reserve(key, now))

    def _tallies(self, unit: Iterable[GangKey]) -> list[GangTally] | str:
        """How the gangs of a unit stand; a text where they cannot be placed yet."""
        found = []
        for key in unit:
            count = units.tally(self._cluster, key, self._waits_now)
            if isinstance(count, str):
                return f"waits: {count}"
            if count.lacking:
                return words.lacking(count)
            found.append(count)
        return found if any(each.waiting for each in found) else "no pod of the gang waits"

    @contextmanager
    def _set_aside(self, key: GangKey) -> Iterator[None]:
        """Meanwhile what was promised to pods of the unit does not stand in their own way."""
        cluster = self._cluster
        promised = [
            (uid, cluster.promises[uid])
            for unit in units.unit_of(cluster, key)
            for uid in cluster.gangs.pods.get(unit, ())
            if uid in cluster.promises
        ]
        with cluster.what_if() as undo:
            for uid, promise in promised:
                undo.callback(cluster.nominate, promise, (uid,))
                cluster.unnominate(uid)
            yield

    def helps(self, event: ClusterEvent, pod: PodView) -> Help:
        """What an event can do for the gang of the pod."""
        kinds = self._kinds(pod)
        help_ = max(
            self._cycle.profile.helps_anywhere(event, each, self._cluster) for each in kinds
        )
        if not help_ and self._may_take(event, kinds):
            help_ = Help.ANY
        return Help.NONE if help_ and self._is_hopeless(pod) else help_

    def _may_take(self, event: ClusterEvent, kinds: Sequence[PodView]) -> bool:
        """Whether the node of the event may take one of these pods now."""
        entry = self._cluster.nodes.get(event.node)
        if event.kind in (Kind.POD_PLACED, Kind.NODE_GONE) or entry is None or entry.info is None:
            return False
        # Pods of a gang stand in each other's way there, until they are placed together.
        unit = {each.gang for each in kinds}
        nominated = any(other.gang in unit for other, _ in entry.nominated.values())
        return nominated or any(not self._cycle.check(entry, each).reason for each in kinds)

    def _kinds(self, pod: PodView) -> Sequence[PodView]:
        """A pod of each kind that is placed together with that pod."""
        if pod.gang is None:
            return [pod]
        seen = tuple(self._cluster.matches.refusing.labels)
        known = self._by_kind.get(pod.gang)
        if known is None or known[0] != seen:
            kinds = {
                (each.gang, id(each.shape), *map(each.labels.get, seen)): each
                for each in self._partners(pod)
            }
            known = self._by_kind[pod.gang] = seen, list(kinds.values()) or [pod]
        return known[1]

    def _is_hopeless(self, pod: PodView) -> bool:
        """Whether all nodes together lack the CPUs for a gang that was tried before, and nobody
        may be evicted for it.

        Of the many that an event could help most are told apart by this.
        """
        attempt = self._attempts.get(pod.gang) if pod.gang else None
        if attempt is None or self.room.may_evict(attempt.wanted):
            return False
        least, needed = attempt.wanted.milli
        return self._cycle.candidates.milli_left(least) < needed

    def _partners(self, pod: PodView) -> Iterator[PodView]:
        """All pods of the gangs that are placed together with that pod's."""
        unit = units.unit_of(self._cluster, pod.gang) if pod.gang else ()
        for key in unit:
            yield from self._cluster.gangs.pods.get(key, {}).values()

    # --- what is told ----------------------------------------------------------------------------

    def why(self, pod: PodView) -> str:
        """Why the gang of the pod waits, in one line."""
        problem = self._cycle.problem(pod).reason
        if problem or pod.gang is None:
            return problem
        unit = units.unit_of(self._cluster, pod.gang)
        tallies = self._tallies(unit)
        if isinstance(tallies, str):
            return tallies
        attempt = self._attempts.get(pod.gang)
        if attempt is None:
            return f"gang {words.names(unit)} has not been tried yet"
        return words.unplaced(unit, attempt, self._cluster)

    def told(self, pod: PodView, text: str) -> list[Effect]:
        """Users are told why a pod waits: its PodGroup says so as well."""
        key = pod.gang
        if key is None or key in self._cluster.gangs.whole:
            return []
        return self._say(key, "False", "Unschedulable", text)

    def _tell_bound(self, count: GangTally) -> list[Effect]:
        bound = [pod for pod in count.placed if pod.node]
        if not bound or count.need or len(bound) < (count.gang.min_count or 1):
            return []
        text = f"{counted(len(bound), 'pod')} bound, {count.gang.min_count or 1} needed"
        return self._say(count.gang.key, "True", "Scheduled", text, once=True)

    def _say(
        self, key: GangKey, status: str, reason: str, text: str, *, once: bool = False
    ) -> list[Effect]:
        kind = self._cluster.gangs.condition(key)
        said = self._said.get(key, ("", ""))
        if (
            not kind
            or said == (status, text)
            or said[0] == "True"
            or (once and key in self._cluster.gangs.whole and not said[0])
        ):
            return []
        self._said[key] = status, text
        return [GroupCondition(key, kind, status, reason, text)]

    # --- repair ----------------------------------------------------------------------------------

    def second(self, now: float) -> list[Effect]:
        """Release gangs that have been in part for too long; to be called each second."""
        self.room.second(now)
        effects: list[Effect] = []
        for key, since in list(self.in_part.items()):
            count = units.tally(self._cluster, key)
            if isinstance(count, str) or not count.is_in_part:
                del self.in_part[key]
                continue
            timeout = count.gang.timeout_s or self._timeout
            if not timeout or not count.gang.gives_up or now - since < timeout:
                continue
            self.in_part[key] = now
            effects += _release(count)
        effects.append(Measured("gangs_in_part", float(len(self.in_part)), how="set"))
        return effects

    def minute(self) -> None:
        """Forget what nobody needs."""
        self._ground.forget()
        known = self._cluster.gangs.pods
        self._attempts = {key: kept for key, kept in self._attempts.items() if key in known}
        self._overtaken &= known.keys()
        self._explained = {key: at for key, at in self._explained.items() if key in self._attempts}


def _release(count: GangTally) -> list[Effect]:
    going = tuple(pod for pod in count.placed if pod.node and not pod.deleting and not pod.mirror)
    if not going:
        return []
    name = words.names([count.gang.key])
    text = f"gang {name} could not be completed: no place for {counted(count.need, 'more pod')}"
    return [
        Measured("gang_releases"),
        Said("warning", f"{text}; its {len(going)} bound pods are released"),
        ReleaseGang(going, text),
    ]
