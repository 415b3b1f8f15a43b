"""Room for gangs that fit nowhere: evictions and reservations for all of their pods at once (pure).

Places are looked for as if the pods that may go had gone; of these, as many stay as the places
allow, the most important first. What is promised is promised to each pod on its node, so everybody
else keeps away from it as from any nomination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.joint.gang import GangVerdict
from rte.scheduler.framework.node import Promise, PromiseKind
from rte.scheduler.loop import promises
from rte.scheduler.loop.gangs import words
from rte.scheduler.loop.gangs.decide import ask
from rte.scheduler.loop.messages import Evict, Nominate, Post
from rte.scheduler.plugins import default_preemption
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.k8s.gang import GangKey
    from rte.placement.joint.gang import Answer
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.gangs.decide import Asking, Decider
    from rte.scheduler.loop.gangs.ground import GangGround
    from rte.scheduler.loop.gangs.unit import WantedPods
    from rte.scheduler.loop.messages import Effect, Evicted
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import Waiting

    #: UIDs of the pods of a node that may go.
    _Going = Callable[[NodeEntry], frozenset[str]]


@dataclass
class _Waits:
    """A gang whose pods are all there and find no place.

    Attributes:
        since: when, or since its last reservation came to nothing.
        turns: reservations that came to nothing.
        preempt_after: until then nobody is evicted for it.
    """

    wanted: WantedPods
    since: float
    turns: int = 0
    preempt_after: float = 0.0


class GangRoom:
    """Plans evictions and reservations for gangs, and watches over them.

    Args:
        cluster: what is known.
        queue: who waits.
        ground: the nodes.
        decider: asks the solver.
        preempts: whether evictions are allowed.
        reserve_after: seconds of waiting after which nodes are reserved; 0: never.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        ground: GangGround,
        decider: Decider,
        *,
        preempts: bool,
        reserve_after: float,
    ) -> None:
        self._cluster, self._queue, self._ground, self._decider = cluster, queue, ground, decider
        self._preempts, self._reserve_after = preempts, reserve_after
        self._promises: dict[GangKey, Promise] = {}
        self._waiting: dict[GangKey, _Waits] = {}

    def placed(self, key: GangKey) -> None:
        """The gang has its places."""
        self._waiting.pop(key, None)
        self._withdraw(key)

    def refused(self, key: GangKey, wanted: WantedPods, now: float) -> Asking[list[Effect]]:
        """Enough pods are there, and too few fit: whom to evict for them, if that helps."""
        waits = self._waiting.setdefault(key, _Waits(wanted, now))
        waits.wanted = wanted
        if key in self._promises or now < waits.preempt_after or not self.may_evict(wanted):
            return []
        priority = min(pod.priority for pod in wanted.pods)
        effects: list[Effect] = [Measured("preemption_attempts")]
        ways: tuple[_Going, ...] = (self._unprotected(priority), self._lower(priority))
        if any(pod.shape.company.affinity for pod in wanted.pods):
            joined = self._decider.joined(wanted.pods)
            ways = (*(_but_for(joined, way) for way in ways), *ways)
        for going in (_leaving, *ways):
            question = yield from self._decider.question(wanted, vacate=going)
            answer = (yield from ask(question)).answer
            if not all(pod.uid in self._queue for pod in wanted.pods):
                return effects
            if answer.verdict is GangVerdict.FITS:
                return effects + self._evict(key, wanted, answer, going, now)
        return effects

    def may_evict(self, wanted: WantedPods) -> bool:
        """Whether there is anybody who may be evicted for these pods."""
        return (
            self._preempts
            and all(pod.preempts for pod in wanted.pods)
            and self._cluster.has_lower(wanted.pods[0].priority)
        )

    # --- evictions -------------------------------------------------------------------------------

    def _lower(self, priority: int) -> _Going:
        """Pods of lower priority, whose gangs may be broken up or go as a whole."""

        def going(entry: NodeEntry) -> frozenset[str]:
            if not default_preemption.is_settled(entry):
                return _leaving(entry)
            lower = (pod for pod in entry.pods.values() if not pod.mirror)
            return _leaving(entry) | {
                pod.uid
                for pod in lower
                if all(each.priority < priority for each in self._cluster.gangs.companions(pod))
            }

        return going

    def _unprotected(self, priority: int) -> _Going:
        lower = self._lower(priority)
        budgets = [b for b in self._cluster.budgets.values() if b.left <= 0]

        def going(entry: NodeEntry) -> frozenset[str]:
            return frozenset(
                uid
                for uid in lower(entry)
                if uid in entry.leaving or not any(b.covers(entry.pods[uid]) for b in budgets)
            )

        return going

    def _evict(
        self,
        key: GangKey,
        wanted: WantedPods,
        answer: Answer,
        going: _Going,
        now: float,
    ) -> list[Effect]:
        victims: dict[str, PodView] = {}
        leaving: set[str] = set()
        for name in dict.fromkeys(answer.places.values()):
            entry = self._cluster.nodes.get(name)
            members = [pod for pod in wanted.pods if answer.places.get(pod.uid) == name]
            could_go = going(entry) - entry.leaving if entry is not None else frozenset()
            if entry is None or not self._takes(entry, members, could_go):
                # It has changed since that was asked; nobody is evicted in vain.
                return []
            leaving |= entry.leaving
            for uid in self._needed(entry, members, could_go):
                for each in self._cluster.gangs.companions(entry.pods[uid]):
                    victims[each.uid] = each
        gone = [self._cluster.pods.get(uid) for uid in leaving]
        everybody = [*victims.values(), *(pod for pod in gone if pod is not None)]
        if not all(self._decider.allows(*place, everybody) for place in self._places(answer)):
            # Those who go were somebody's company.
            return []
        uids = frozenset(victims) | leaving
        until = promises.until(self._cluster, uids, now)
        effects = self._promise(key, Promise(places=answer.places, until=until, victims=uids))
        if not victims:
            return effects
        for uid in victims:
            self._cluster.evicting(uid)
        effects.append(Measured("preemption_victims", float(len(victims)), how="observe"))
        effects.append(Evict(wanted.pods[0], words.names([key]), tuple(victims.values())))
        return effects

    def _places(self, answer: Answer) -> list[tuple[PodView, NodeEntry]]:
        nodes, pods = self._cluster.nodes, self._cluster.pods
        return [(pods[uid], nodes[name]) for uid, name in answer.places.items()]

    def _needed(
        self, entry: NodeEntry, members: Sequence[PodView], going: frozenset[str]
    ) -> frozenset[str]:
        """Who has to go so that the node takes the members; the most important are spared first."""
        order = sorted(going, key=lambda uid: (-entry.pods[uid].priority, entry.pods[uid].started))
        for uid in order:
            if self._takes(entry, members, going - {uid}):
                going -= {uid}
        return going

    def _takes(self, entry: NodeEntry, members: Sequence[PodView], going: frozenset[str]) -> bool:
        gone = going | entry.leaving
        node = self._ground.node(entry, members, gone)
        views = [entry.pods[uid] for uid in gone]
        heads = {id(pod.shape): pod for pod in members}.values()
        return (
            node is not None
            and all(self._decider.allows(pod, entry, views) for pod in heads)
            and self._decider.fits_on(node, members)
        )

    def evicted(self, key: GangKey, event: Evicted, now: float) -> float | None:
        """What became of evictions; the moment at which to try again, if they failed."""
        if event.complete:
            return None
        self._withdraw(key)
        if key in self._waiting:
            self._waiting[key].preempt_after = now + promises.AGAIN_S
        return now + promises.AGAIN_S

    # --- reservations ----------------------------------------------------------------------------

    def second(self, now: float) -> None:
        """Give up promises whose time is over; to be called each second."""
        for key, promise in list(self._promises.items()):
            if not any(uid in self._queue for uid in promise.places):
                self._withdraw(key)
            elif now >= promise.until:
                self._withdraw(key)
                waits = self._waiting.get(key)
                if waits is not None and promise.reserved:
                    waits.since, waits.turns = now, waits.turns + 1
                elif waits is not None and not promise.external:
                    waits.preempt_after = now + promises.AVOID_S
                for uid in promise.places:
                    self._queue.rouse(uid)
        for key in [key for key in self._waiting if not self._cluster.gangs.pods.get(key)]:
            del self._waiting[key]

    def due(self, now: float) -> GangKey | None:
        """The gang for which nodes are to be reserved; one at a time."""
        if not self._reserve_after or any(each.reserved for each in self._promises.values()):
            return None
        due = [
            (waits.turns, waits.since, key)
            for key, waits in self._waiting.items()
            if key not in self._promises and now - waits.since >= self._reserve_after
        ]
        return min(due)[2] if due else None

    def reserve(self, key: GangKey, now: float) -> Asking[list[Effect]]:
        """Reserve nodes that drain by themselves."""
        waits = self._waiting.get(key)
        if waits is None:
            return []
        question = yield from self._decider.question(waits.wanted, vacate=_passing)
        answer = (yield from ask(question)).answer
        pods = [pod for pod in waits.wanted.pods if pod.uid in self._queue]
        stands = self._cluster.nodes.keys() >= set(answer.places.values())
        if not pods or not stands or answer.verdict is not GangVerdict.FITS:
            # Whoever gets nothing now comes again after those who have not had a look yet.
            waits.since, waits.turns = now, waits.turns + 1
            return []
        until = now + promises.PATIENCE * self._reserve_after
        kind = PromiseKind.RESERVATION
        promise = Promise(places=answer.places, until=until, kind=kind)
        nodes = sorted(set(answer.places.values()))
        text = f"nodes {', '.join(nodes)} are kept for gang {words.names([key])}"
        return [
            *self._promise(key, promise),
            Said("info", f"{text}, which has waited long"),
            Post(pods[0], "Normal", "NodeReserved", f"{text}: they drain towards it"),
        ]

    # --- promises --------------------------------------------------------------------------------

    def _promise(self, key: GangKey, promise: Promise) -> list[Effect]:
        self._promises[key] = promise
        self._cluster.nominate(promise)
        if promise.kind is not PromiseKind.EVICTION:
            return []
        waiting = self._queue.records
        places = promise.places.items()
        return [Nominate(waiting[uid].pod, node) for uid, node in places if uid in waiting]

    def renominated(self, record: Waiting, now: float) -> list[Effect]:
        """A pod's nomination in the API has changed, by us or by somebody else (KEP-5278).

        Our own plans come before those of others.
        """
        key, uid, node = record.pod.gang, record.pod.uid, record.pod.nominated
        promise = self._promises.get(key) if key else None
        if key is None or (promise is not None and not promise.external):
            return []
        if promise is None:
            # It may have been nominated when it was no gang yet.
            self._cluster.unnominate(uid)
        places = dict(promise.places) if promise is not None else {}
        places.pop(uid, None)
        entry = self._cluster.nodes.get(node)
        if entry is not None and entry.info is not None:
            places[uid] = node
        self._withdraw(key)
        if not places:
            return []
        until = now + promises.EXTERNAL_S
        return self._promise(key, Promise(places=places, until=until, kind=PromiseKind.EXTERNAL))

    def _withdraw(self, key: GangKey) -> None:
        promise = self._promises.pop(key, None)
        for uid in promise.places if promise else ():
            self._cluster.unnominate(uid)


def _but_for(kept: Callable[[PodView], bool], going: _Going) -> _Going:
    """Those who go, less whom somebody may want to be with."""
    return lambda entry: frozenset(
        uid for uid in going(entry) if uid in entry.leaving or not kept(entry.pods[uid])
    )


def _leaving(entry: NodeEntry) -> frozenset[str]:
    return frozenset(entry.leaving)


def _passing(entry: NodeEntry) -> frozenset[str]:
    """Pods that end by themselves."""
    return frozenset(
        uid for uid, pod in entry.pods.items() if pod.deleting or not (pod.mirror or pod.lasting)
    )
