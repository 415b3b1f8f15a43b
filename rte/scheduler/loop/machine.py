"""The scheduler as a machine: ``handle`` is the way in, effects and a deadline are the way out.

It has no clock, task, lock or I/O. Whoever feeds it carries the effects out and hands the results
back as events, so one property test can play every order of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.intake import Intake
from rte.scheduler.framework.events import Help, Kind
from rte.scheduler.loop import messages
from rte.scheduler.loop.binding import Binding
from rte.scheduler.loop.bulkheads import RAISES, Bulkheads
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs import gangs
from rte.scheduler.loop.gangs.unit import is_gang
from rte.scheduler.loop.kubelets import KubeletWitness
from rte.scheduler.loop.messages import Outcome, Post
from rte.scheduler.loop.room.descheduling import Descheduling
from rte.scheduler.loop.room.making_room import MakingRoom
from rte.scheduler.loop.telling import Telling
from rte.scheduler.loop.timers import Due, Timers
from rte.scheduler.queue.queue import SchedulingQueue
from rte.scheduler.report.predictions import Predictions
from rte.telemetry.effects import Measured
from rte.telemetry.quarantine import FIRST_S, Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.scheduler.cache.intake import IntakeResult
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Passed
    from rte.scheduler.framework.room import Room
    from rte.scheduler.loop.cycle import Decision
    from rte.scheduler.loop.gangs.decide import Asking, Found, GangQuestion
    from rte.scheduler.loop.messages import Answer, Effect, Event
    from rte.scheduler.plugins.registry import RuleOptions
    from rte.scheduler.queue.group import EquivalenceClass
    from rte.scheduler.queue.waiting import Waiting
    from rte.telemetry.quarantine import Bulkhead

#: Nodes that a turn loads into the columns; where more have changed, it does nothing else.
_NODES_LOADED = 100

_SECOND, _MINUTE = 1.0, 60.0


@dataclass
class _Deciding:
    """A decision that takes several steps.

    Attributes:
        steps: what is left of it.
        first: nothing else is decided before it.
        group: of the gang, if it is about one.
        waits: for the answer to the last question.
    """

    steps: Asking[None]
    first: bool
    group: EquivalenceClass | None = None
    waits: bool = False


class SchedulerMachine:
    """One scheduler for the pods of its names.

    Args:
        name: ``spec.schedulerName`` of its pods.
        options: which optional rules are in force.
        preempts: whether pods of lower priority may be evicted.
        reserve_after: seconds after which a waiting pod gets a node reserved; 0: never.
        patience: seconds for which a pod that some node takes, though not well, waits for better.
        gang_timeout: seconds after which a gang that stays in part is released; 0: never.
        move_every: seconds between two pods that are moved for others; 0: none is.
        also: further names.

    Attributes:
        cluster: what is known.
        cycle: the rules, and one decision.
        queue: who waits.
        intake: objects of the API into the cluster.
        binding: decisions that the API has not confirmed yet.
        active: this replica decides.
        listeners: told of what has changed in the cluster, after each event.
        quarantine: what has caused an internal error, and is put aside.
    """

    def __init__(
        self,
        name: str,
        options: RuleOptions | None = None,
        *,
        preempts: bool = True,
        reserve_after: float = 0.0,
        patience: float = 0.0,
        gang_timeout: float = 60.0,
        move_every: float = 0.0,
        also: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._names = {name, *also}
        self._patience, self._reserves = patience, reserve_after > 0
        self.cluster = Cluster(
            options.pool if options else None, images=options is not None and options.reads_images
        )
        self.cycle = Cycle(self.cluster, options)
        self.queue = SchedulingQueue(takes_long=is_gang)
        self.intake = Intake(self.cluster)
        self.active = False
        self.listeners: list[Callable[[Sequence[ClusterEvent]], None]] = []
        self._timers = Timers()
        self._predictions = Predictions()
        self.binding = Binding(
            self.cluster,
            self.cycle,
            self.queue,
            self._predictions,
            self._timers,
            self._names,
            self._key,
        )
        self._room = MakingRoom(
            self.cluster,
            self.cycle,
            self.queue,
            self._key,
            preempts=preempts,
            reserve_after=reserve_after,
        )
        self._gangs = gangs.Gangs(
            self.cluster,
            self.cycle,
            self.queue,
            self.is_ours,
            self.binding.reserve,
            self.binding.unreserve,
            gangs.GangOptions(timeout=gang_timeout, preempts=preempts, reserve_after=reserve_after),
        )
        self._kubelets = KubeletWitness(self.cluster, self._predictions, self._timers, self._names)
        self._telling = Telling(
            self.cluster, self.cycle, self.queue, self._gangs, self._timers, self._tells_of
        )
        self._moves = Descheduling(self.cluster, self.cycle, self.queue, self._room, move_every)
        self.quarantine = Quarantine()
        self._bulkheads = Bulkheads(
            self.quarantine,
            self.cluster,
            self.cycle.profile,
            self.intake,
            self._timers,
            self._taken,
        )
        #: Groups of which a pod has raised, until when: the next one that does takes all along.
        self._raised: dict[bytes, float] = {}
        self._taking_back: set[str] = set()
        self._watched: set[str] = set()
        #: Label keys that some required anti-affinity of a placed pod looks at.
        self._seen_labels: frozenset[str] = frozenset()
        #: Who had the last turn but one, where two that are equal take turns.
        self._room_had_it = self._long_had_it = False
        self._effects: list[Effect] = []
        self._deciding: _Deciding | None = None
        self._reserving: list[Asking[list[Effect]]] = []
        self._questions = 0
        self._timers.at(0.0, Due.SECOND)
        self._timers.at(0.0, Due.MINUTE)

    # --- the way in, and the way out -------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; what has to be done about it."""
        self._bulkheads.now = now
        match event:
            case messages.Seen() | messages.Gone():
                self._bulkheads.told(event, now)
            case messages.Listed():
                gone = self.intake.listed(event.collection, event.keys, event.version)
                for key in self._bulkheads.missing(event, gone):
                    self._bulkheads.told(messages.Gone(event.collection, key), now)
            case messages.Leading():
                self._lead(active=event.active)
            case messages.Tick():
                self._tick(now)
            case messages.Turn():
                with self.quarantine.guard("steps", "turn", now):
                    self._turn(now)
            case _:
                self._answered(event, now)
        return self._settled(now)

    def _settled(self, now: float) -> list[Effect]:
        """What has changed is told to whom it may help; all effects."""
        if self._bulkheads.settle(now):
            for group in self.queue.asleep():
                if RAISES in group.refused_by:
                    self.queue.rouse(group.first().uid)
        self._wake(now)
        self._effects += self.quarantine.drain()
        effects, self._effects = self._effects, []
        return effects

    def deadline(self) -> float | None:
        """When ``handle(Tick(), now)`` is due, if nothing else happens."""
        return self._timers.next()

    def has_work(self) -> bool:
        """Whether ``handle(Turn(), now)`` would decide something."""
        long = self._deciding
        if not self.active or (long is not None and long.waits and long.first):
            return False
        if long is None:
            return not (self.queue.is_idle() and self._room.is_idle() and not self._reserving)
        return not (long.waits and self.queue.is_idle(quick=True) and self._room.is_idle())

    @property
    def is_in_the_middle(self) -> bool:
        """Whether the next turn goes on with a decision that was begun: every other one, where it
        need not be first and somebody else wants one.
        """
        long = self._deciding
        if long is None or long.waits:
            return False
        others = not (self.queue.is_idle(quick=True) and self._room.is_idle())
        return long.first or not (self._long_had_it and others)

    @property
    def went_on(self) -> bool:
        """Whether the last turn was that of a decision of several steps."""
        return self._long_had_it

    def place(self, pod: PodView, decision: Decision, now: float) -> list[Effect]:
        """Put a decision of somebody else (the extender) in force."""
        self._place(pod, decision, now)
        return self._settled(now)

    def is_ours(self, pod: PodView) -> bool:
        """Whether the pod waits for us."""
        return (
            pod.scheduler in self._names
            and not pod.node
            and not pod.terminal
            and not pod.deleting
            and not pod.gated
            and pod.uid not in self.cluster.assumed
        )

    def why(self, pod: PodView) -> str:
        """Why the pod waits, in one line."""
        text, effects = self._telling.why(pod)
        self._effects += effects
        return text

    def rehearse(self, ahead: Sequence[PodView], pods: Sequence[PodView]) -> GangQuestion | str:
        """What has to be found out about pods that do not exist yet; see :meth:`Gangs.rehearse`."""
        return self._gangs.rehearse(ahead, pods)

    def rehearsed(self, found: Found) -> str:
        """Why they would not all be placed now; empty: they would."""
        return self._gangs.rehearsed(found)

    def _tells_of(self, pod: PodView) -> bool:
        return self.active and self.is_ours(pod)

    def _answered(self, event: Answer, now: float) -> None:
        """An effect was carried out."""
        with self._bulkhead("answers", type(event).__name__) as bulkhead:
            self._take_answer(event, now)
        if bulkhead.fault is not None and isinstance(event, messages.Bound):
            # What is bound counts until the API shows it; what is not has another try.
            with self._bulkhead("retractions", event.uid):
                if event.outcome is not Outcome.BOUND:
                    self.binding.revoke(event.uid)
                    self.cluster.forget(event.uid)
                    self._bulkheads.put_aside([event.uid], bulkhead.fault, now)

    def _take_answer(self, event: Answer, now: float) -> None:
        match event:
            case messages.Bound():
                self._bound(event, now)
            case messages.TakenBack():
                self._taken_back(event, now)
            case messages.Evicted():
                self._evicted(event, now)
            case messages.Solved():
                if self._deciding is not None and event.number == self._questions:
                    self._go_on(self._deciding, event.found)
            case messages.Planned():
                self._effects += self._moves.planned(event, now)
                self._watch_nominations(now)
            case messages.Moved():
                self._effects += self._moves.moved(event, now)
            case messages.Reread():
                self._effects += self._kubelets.reread(event.node, now)

    # --- what watches tell -----------------------------------------------------------------------

    def _taken(self, taken: IntakeResult, now: float) -> None:
        self._effects += taken.told
        if taken.told and taken.author is not None:
            problem = taken.malformed[1]
            self._effects.append(
                Post(taken.author, "Warning", "MalformedObject", problem, "Reading")
            )
        for before, after in taken.pods:
            self.cluster.gangs.on_pod(before, after)
            self._on_pod(before, after, now)
            self._effects += self._gangs.look(before, after, now)
        if self.cluster.gangs.changed:
            for uid in self._gangs.described():
                pod = self.cluster.pods[uid]
                self.queue.push(pod, self._key(pod), now)
        if taken.report:
            self._effects += self._kubelets.reported(taken.report, now)
        if taken.unread:
            self._effects.append(messages.Read(taken.unread))

    def _on_pod(self, before: PodView | None, after: PodView | None, now: float) -> None:
        pod = after or before
        if pod is None:
            return
        if after is not None and self.is_ours(after):
            known = after.uid in self.queue.records
            record = self.queue.push(after, self._key(after), now)
            if not known and after.nominated:
                self._room.recover(record, now)
                self._watch_nominations(now)
            elif before is not None and before.nominated != after.nominated:
                room = self._gangs.room if is_gang(record.key) else self._room
                self._effects += room.renominated(record, now)
                self._watch_nominations(now)
            group = self.queue.group_of(after.uid)
            if not known and group is not None and group.sleeping and not is_gang(group.key):
                # It shares the fate of its likes, which were tried already.
                self._room.wants(record)
                self._telling.refused(record, now)
            return
        if pod.uid not in self.cluster.assumed:
            self._drop(pod.uid)
        if after is None or after.terminal:
            self._predictions.ended(pod)
            if before is not None:
                self._ended(before, now)
        if after is not None and after.rejected and before is not None:
            self._effects += self._kubelets.refused(after, now)

    def _ended(self, pod: PodView, now: float) -> None:
        entry = self.cluster.nodes.get(pod.node)
        if entry is not None:
            for plugin in self.cycle.profile.clocked:
                plugin.ended(pod, entry, now)

    def _drop(self, uid: str) -> None:
        """Nothing is known of the pod as one that waits any more."""
        self._room.forget(uid)
        record = self.queue.remove(uid)
        if record is not None and record.nominated is not None:
            self.cluster.unnominate(uid)

    def _key(self, pod: PodView) -> bytes:
        """Pods with equal keys share their fate."""
        together = self._gangs.key(pod)
        if together is not None:
            return together
        key = pod.shape.key + (b"" if pod.preempts else b"!")
        if pod.uid in self.cluster.nominations:
            # A node makes room for it, not for its likes.
            key += pod.uid.encode()
        key += self.cluster.devices.fate(pod)
        seen = sorted(self._seen_labels & pod.labels.keys())
        if seen:
            key += repr([(name, pod.labels[name]) for name in seen]).encode()
        return key

    def _lead(self, *, active: bool) -> None:
        self.active = active
        if active:
            self.queue.rouse_all()
            return
        # Whatever is answered now, another replica decides.
        deciding, self._deciding, self._reserving = self._deciding, None, []
        if deciding is not None and deciding.group is not None:
            self.queue.again(deciding.group)

    # --- decisions -------------------------------------------------------------------------------

    def _unit(self, group: EquivalenceClass | None, now: float) -> list[str]:
        """UIDs of the pods that are put aside if a decision about the group raises."""
        if group is None:
            return []
        head = group.head()
        if is_gang(group.key) or self._raised.get(group.key, now) > now:
            return list(group.pods)
        return [] if head is None else [head.pod.uid]

    def _failed(
        self, group: EquivalenceClass | None, unit: Sequence[str], error: Exception
    ) -> None:
        """A decision about the unit has raised: it, or a node, is put aside."""
        now = self._bulkheads.now
        if group is None:
            self.quarantine.put("steps", "reservations", error, now)
            return
        self._effects.append(Measured("attempts", labels=("error", self._name)))
        if self._bulkheads.is_to_blame(error):
            self.quarantine.put("decisions", str(group.key[:40]), error, now)
        else:
            for uid in unit:
                fault = self.quarantine.put("pods", uid, error, now)
                self._raised[group.key] = fault.until
                self._bulkheads.put_aside([uid], fault, now)
        self.queue.again(group)

    def _turn(self, now: float) -> None:
        if not self.active or self.cycle.catch_up(_NODES_LOADED) > 0:
            return
        long = self._deciding
        if long is not None and self.is_in_the_middle:
            self._go_on(long)
            return
        self._long_had_it = False
        if long is None and self._reserving:
            self._go_on(_Deciding(self._reserve(self._reserving.pop(0), now), first=False))
            return
        if self._makes_room(now):
            self._make_room(now)
            return
        urgent = self._urgent() if long is None else None
        group = urgent or self.queue.pop(now, quick=long is not None)
        if group is not None:
            unit = self._unit(group, now)
            try:
                self._decide(group, now)
            except Exception as error:  # noqa: BLE001 - these pods alone are put aside
                self._failed(group, unit, error)

    def _urgent(self) -> EquivalenceClass | None:
        with self._bulkhead("steps", "urgent"):
            return self._gangs.urgent()
        return None

    def _decide(self, group: EquivalenceClass, now: float) -> None:
        if is_gang(group.key):
            first = self._gangs.goes_first(group.first())
            self._go_on(_Deciding(self._try_gang(group, now), first=first, group=group))
        else:
            self._try(group, now)

    def _makes_room(self, now: float) -> bool:
        """Whether the turn is that of a pod for which room is made: it comes before who is less
        important, takes turns with its equals, and goes before who backs off.
        """
        if self._room.is_idle():
            return False
        quick = self._deciding is not None
        order, first = self._room.order(), self.queue.first(now, quick=quick)
        if order is None:
            # Only looks at what may have come within reach: nobody waits for that.
            return self.queue.is_idle(quick=quick)
        if first is None or order[0] != first[0]:
            return first is None or order[0] < first[0]
        self._room_had_it = not self._room_had_it
        return self._room_had_it

    def _make_room(self, now: float) -> None:
        """A step of what may end with evictions for a pod; whoever raises stays as it is."""
        with self._bulkhead("preemption", self._room.whose()) as bulkhead:
            self._effects += self._room.step(now)
        if bulkhead.fault is not None:
            uid, until = self._room.abandon(bulkhead.fault.until), bulkhead.fault.until
            self._timers.at(until, Due.PREEMPT, uid)
        self._watch_nominations(now)

    def _try(self, group: EquivalenceClass, now: float) -> None:
        record = group.head()
        if record is None:
            return
        if record.pod.uid in self._taking_back:
            # What it holds is on its way out: that must not be built on.
            self.queue.sleep(group, frozenset(), Kind(0))
            return
        claims = record.pod.shape.device_claims
        if claims and (key := self._key(record.pod)) != group.key:
            # They are not as they were when it came.
            self.queue.push(record.pod, key, now)
            self.queue.again(group)
            return
        sequence = self.cluster.sequence
        decision = self.cycle.decide(
            record.pod,
            group.seen,
            group.helped,
            settles=not self._is_patient(record, now),
        )
        record.attempts += 1
        result = "unschedulable" if decision.node is None else "scheduled"
        self._effects.append(Measured("attempts", labels=(result, self._name)))
        if decision.node is not None:
            self._place_together([(record.pod, decision)], now)
            self.queue.placed(group)
            return
        if decision.second_best and record.second_best_since is None:
            record.second_best_since = now
            self._timers.at(now + self._patience, Due.PATIENCE, record.pod.uid)
        group.seen, group.helped = -1 if decision.withheld else sequence, set()
        refused_by = group.refused_by | decision.refused_by
        waits_on = group.waits_on | decision.waits_on
        self.queue.sleep(group, refused_by, self.cycle.kinds(refused_by), waits_on, now)
        if RAISES in refused_by:
            self._timers.at(now + FIRST_S, Due.PATIENCE, record.pod.uid)
        if not decision.waits:
            self._free_leftovers(record.pod)
            if record.pod.preempts:
                self._effects += self._room.refused(record, now)
        if not decision.hopes and record.pod.preempts:
            self._room.wants(record)
        for each in group.pods.values():
            self._telling.refused(each, now)

    def _is_patient(self, record: Waiting, now: float) -> bool:
        """Whether the pod still waits for a better place than it could have."""
        since = record.second_best_since
        return self._patience > 0 and (since is None or now - since < self._patience)

    def _free_leftovers(self, pod: PodView) -> None:
        """What an attempt before has left may be what keeps the pod from every node."""
        reserves = self.cycle.profile.reserves
        writes = tuple(write for plugin in reserves for write in plugin.leftovers(pod))
        if writes and pod.uid not in self._taking_back:
            self._taking_back.add(pod.uid)
            self._effects.append(messages.TakeBack(pod, writes))

    def _taken_back(self, event: messages.TakenBack, now: float) -> None:
        self._taking_back.discard(event.uid)
        self._told(event.written, now)
        self.queue.rouse(event.uid)

    def _go_on(self, deciding: _Deciding, found: Found | Exception | None = None) -> None:
        """Carry a decision on until it is made, asks the next question, or lets others go first.

        ``found``: the answer to its last question, or what finding it out has raised.
        """
        self._deciding, self._long_had_it = None, True
        unit = self._unit(deciding.group, self._bulkheads.now)
        try:
            if isinstance(found, Exception):
                question = deciding.steps.throw(found)
            else:
                question = deciding.steps.send(found)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - this gang alone is put aside
            self._failed(deciding.group, unit, error)
            return
        self._deciding, deciding.waits = deciding, question is not None
        if question is not None:
            self._questions += 1
            self._effects.append(messages.Solve(self._questions, question))

    def _try_gang(self, group: EquivalenceClass, now: float) -> Asking[None]:
        record = group.head()
        if record is None:
            return
        record.attempts += 1
        group.seen = self.cluster.sequence
        places = yield from self._gangs.decide(record.pod, now)
        result = "scheduled" if places else "unschedulable"
        self._effects.append(Measured("attempts", labels=(result, self._name)))
        self._effects.append(Measured("gang_attempts", labels=(result,)))
        self._place_together(places or (), now)
        if places:
            self.queue.placed(group)
            return
        if places is None:
            self.queue.again(group)
            return
        effects = yield from self._gangs.refused(record.pod, now)
        self._effects += effects
        if group.seen < 0:
            # What may help it has happened since that was asked.
            self.queue.again(group)
        else:
            self.queue.sleep(group, frozenset(), gangs.HELPED_BY, now=now)
        for each in group.pods.values():
            self._telling.refused(each, now)

    def _reserve(self, steps: Asking[list[Effect]], now: float) -> Asking[None]:
        effects = yield from steps
        self._effects += effects
        self._watch_nominations(now)

    def _place_together(self, places: Sequence[tuple[PodView, Decision]], now: float) -> None:
        """All of them, or none where one raises."""
        mark, count = len(self._effects), 0
        try:
            for pod, decision in places:
                self._place(pod, decision, now)
                count += 1
        except Exception:
            del self._effects[mark:]
            for pod, _ in places[: count + 1]:
                self.binding.revoke(pod.uid)
            raise

    def _place(self, pod: PodView, decision: Decision, now: float) -> None:
        self._effects += self.binding.place(pod, decision, now, self.intake.pods_seen)

    def _bound(self, event: messages.Bound, now: float) -> None:
        uid = event.uid
        # What was written is known before its promise ends, so that nobody gets it meanwhile.
        self._told(event.written, now)
        decision = self.binding.answered(uid)
        self._effects.append(Measured("binds", labels=(event.outcome.value,)))
        pod = self.cluster.pods.get(uid)
        if event.obj is not None and pod is not None:
            self._bulkheads.told(messages.Seen("pods", event.obj), now)
        if decision is not None and (event.outcome is not Outcome.BOUND or pod is None):
            self.binding.came_to_nothing(decision)
        if event.outcome is Outcome.BOUND:
            self._effects += self.binding.came_true(uid, pod, decision, now)
            self._room.forget(uid)
            return
        if event.outcome is Outcome.GONE and event.obj is None:
            self._bulkheads.told(messages.Gone("pods", uid), now)
        self.cluster.forget(uid)
        waiting = self.cluster.pods.get(uid)
        if waiting is None or not self.is_ours(waiting):
            self._drop(uid)
            return
        self.binding.again(waiting, now)
        if event.outcome in (Outcome.REFUSED, Outcome.FAILED):
            self._effects.append(
                Post(waiting, "Warning", "FailedBinding", event.message, "Binding")
            )

    def _told(self, written: Sequence[messages.Seen | messages.Gone], now: float) -> None:
        for event in written:
            self._bulkheads.told(event, now)

    def _evicted(self, event: messages.Evicted, now: float) -> None:
        record = self.queue.records.get(event.uid)
        for victim in event.victims:
            note = f"Preempted by pod {event.uid} on node {victim.node}"
            self._effects.append(Post(victim, "Normal", "Preempted", note, "Preempting"))
        if record is not None and record.pod.gang is not None and is_gang(record.key):
            again = self._gangs.room.evicted(record.pod.gang, event, now)
        else:
            effects, again = self._room.evicted(event, now)
            self._effects += effects
        if again is not None and record is not None:
            self._timers.at(again, Due.PREEMPT, event.uid)

    # --- events that help ------------------------------------------------------------------------

    def _wake(self, now: float) -> None:
        """Wake the pods that the changes so far can help."""
        # While a label is looked at, before or after the events, it tells pods apart.
        seen = frozenset(self.cluster.matches.refusing.labels)
        self._look_at_labels(self._seen_labels | seen)
        while events := self.cluster.drain():
            for listen in self.listeners:
                with self._bulkhead("listeners", getattr(listen, "__qualname__", "")):
                    listen(events)
            self._note_what_helps(events)
            self._regroup(events, now)
            names = {event.node for event in events}
            for event in events:
                with self._bulkhead("preemption", event.node):
                    self._room.note(event)
            for name in names:
                with self._bulkhead("preemption", name):
                    self._room.changed(name)
            for uid, node in list(self.cluster.nominations.items()):
                if node in names and uid in self.queue.records:
                    self._review(uid, now)
            self.queue.wake(events, self._helps, self._rooms, self.cluster.sequence, now)
        self._look_at_labels(seen)

    def _bulkhead(self, kind: str, key: str) -> Bulkhead:
        return self.quarantine.guard(kind, key, self._bulkheads.now)

    def _look_at_labels(self, seen: frozenset[str]) -> None:
        """These labels tell waiting pods apart from now on, and no others."""
        changed, self._seen_labels = self._seen_labels ^ seen, seen
        if not changed:
            return
        for record in self.queue:
            if not changed.isdisjoint(record.pod.labels):
                with self._bulkhead("keys", record.pod.key):
                    self.queue.regroup(record.pod.uid, self._key(record.pod))

    def _regroup(self, events: Sequence[ClusterEvent], now: float) -> None:
        """A pod whose own claim of devices has changed may not share the fate of others."""
        for event in events:
            for path in event.claims if event.kind & Kind.DEVICES else ():
                known = self.cluster.devices.claims.get(path)
                record = self.queue.records.get(known.owner) if known else None
                if record is not None and record.pod.uid in self.queue:
                    with self._bulkhead("keys", record.pod.key):
                        self.queue.push(record.pod, self._key(record.pod), now)

    def _note_what_helps(self, events: Sequence[ClusterEvent]) -> None:
        """What is being found out about a gang may be otherwise by now."""
        group = self._deciding.group if self._deciding is not None else None
        if group is None or group.head() is None:
            return
        if any(self._helps(event, group) for event in events):
            group.seen = -1

    def _helps(self, event: ClusterEvent, group: EquivalenceClass) -> Help:
        with self._bulkhead("hints", group.first().key):
            if is_gang(group.key):
                return self._gangs.helps(event, group.first())
            return self.cycle.helps(event, group)
        return Help.ANY  # it raises: a decision tells, and who is at fault

    def _rooms(self, event: ClusterEvent, refused_by: frozenset[str]) -> Sequence[Room] | None:
        with self._bulkhead("hints", event.node):
            return self.cycle.rooms(event, refused_by)
        return None

    # --- deadlines -------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        for what, key in self._timers.due(now):
            with self._bulkhead(what.value, key) as bulkhead:
                self._due(what, key, now)
            record = self.queue.records.get(key)
            if bulkhead.fault is not None and what is Due.TELL and record is not None:
                self._effects.append(messages.Unschedulable(record.pod, str(bulkhead.fault)))

    def _due(self, what: Due, key: str, now: float) -> None:
        match what:
            case Due.RELEASE:
                self.queue.release(now)
            case Due.TELL:
                self._effects += self._telling.due(key, now)
            case Due.PREEMPT | Due.PATIENCE:
                record = self.queue.records.get(key)
                if record is not None and what is Due.PREEMPT:
                    self._room.wants(record)
                self.queue.rouse(key)
            case Due.NOMINATION:
                self._watched.discard(key)
                self._review(key, now)
            case Due.EVIDENCE:
                self._kubelets.rejections.due(key, now)
            case Due.REREAD:
                self._effects.append(messages.Read(key))
            case Due.ASIDE:
                self._bulkheads.due(key, now)
            case Due.SECOND:
                self._second(now)
            case Due.MINUTE:
                self._minute(now)

    def _review(self, uid: str, now: float) -> None:
        record = self.queue.records.get(uid)
        if record is not None:
            with self._bulkhead("preemption", record.pod.key) as bulkhead:
                self._effects += self._room.review(record, now)
            if bulkhead.fault is not None:
                self._effects += self._room.end(record)
            self._watch_nominations(now)

    def _watch_nominations(self, now: float) -> None:
        """Each nomination is looked at when its time is over."""
        for uid in self.cluster.nominations.keys() - self._watched:
            record = self.queue.records.get(uid)
            if record is not None and record.nominated is not None:
                # One that cannot be judged yet is looked at again.
                self._watched.add(uid)
                self._timers.at(max(record.nominated.until, now + _SECOND), Due.NOMINATION, uid)

    def _second(self, now: float) -> None:
        self._timers.at(now + _SECOND, Due.SECOND)
        self.intake.judge_leases(now)
        if self.active:
            for step in (self._gangs.second, self._moves.second):
                with self._bulkhead("steps", step.__qualname__):
                    self._effects += step(now)
            with self._bulkhead("steps", "MakingRoom.second"):
                self._room.second(now)
            stopped = self.quarantine.holds("steps", "reservations", now) is not None
            if self._reserves and not self._reserving and not stopped:
                self._reserving = [self._gangs.reserve(now), self._room.reserve(now)]
            self._watch_nominations(now)
        for plugin in self.cycle.profile.clocked:
            with self._bulkhead("steps", plugin.name):
                self._passed(plugin.second(now, self.cluster))
        self.cluster.settle_budgets()
        for name, size in self.queue.sizes().items():
            self._effects.append(Measured("pending", float(size), (name,), how="set"))
        known = Counter(e.knowledge() for e in self.cluster.nodes.values() if e.info is not None)
        for kind in ("exact", "zones", "none", "distrusted"):
            self._effects.append(Measured("nodes", float(known[kind]), (kind,), how="set"))

    def _passed(self, passed: Passed) -> None:
        """What time has changed for a rule."""
        for name in passed.nodes:
            self.cluster.rested(name)
        self._effects += passed.metrics
        if self.active:
            for pod, reason, note in passed.notes:
                self._effects.append(Post(pod, "Warning", reason, note))

    def _minute(self, now: float) -> None:
        self._timers.at(now + _MINUTE, Due.MINUTE)
        self.cluster.collect(now)
        self._kubelets.rejections.tidy(now)
        self._gangs.minute()
        self.quarantine.tidy(now)
        self._raised = {key: until for key, until in self._raised.items() if until > now}
