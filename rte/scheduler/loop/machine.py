"""The scheduler as a machine: ``handle`` is the way in, effects and a deadline are the way out.

It has no clock, task, lock or I/O. Whoever feeds it carries the effects out and hands the results
back as events, so one property test can play every order of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.intake import Intake
from rte.scheduler.loop import messages
from rte.scheduler.loop.binding import Binding
from rte.scheduler.loop.bulkheads import RAISES, Bulkheads
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs import gangs
from rte.scheduler.loop.kubelets import KubeletWitness
from rte.scheduler.loop.messages import Due, Outcome, Post, Timers
from rte.scheduler.loop.room.descheduling import Descheduling
from rte.scheduler.loop.room.making_room import MakingRoom
from rte.scheduler.loop.telling import Telling
from rte.scheduler.loop.turns import SchedulingTurns
from rte.scheduler.loop.waking import Fates, Parts, Waking
from rte.scheduler.queue.queue import SchedulingQueue
from rte.scheduler.report.predictions import Predictions
from rte.telemetry.effects import Measured
from rte.telemetry.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.scheduler.cache.intake import IntakeResult
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Passed
    from rte.scheduler.loop.cycle import Decision
    from rte.scheduler.loop.gangs.decide import Found, GangQuestion
    from rte.scheduler.loop.messages import Answer, Effect, Event
    from rte.scheduler.plugins.registry import RuleOptions

#: Nodes that a turn loads into the columns; where more have changed, it does nothing else.
_NODES_LOADED = 100

_SECOND, _MINUTE = 1.0, 60.0


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
        quarantine: what has caused an internal error, and is put aside.
        turns: whose turn it is.
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
        self._names = {name, *also}
        self._reserves = reserve_after > 0
        self.cluster = Cluster(
            options.pool if options else None, images=options is not None and options.reads_images
        )
        self.cycle = Cycle(self.cluster, options)
        self.queue = SchedulingQueue()
        self.intake = Intake(self.cluster)
        self._timers = Timers()
        self._effects: list[Effect] = []
        self._fates = Fates(self.cluster, self.queue)
        self._predictions = Predictions()
        self.binding = Binding(
            self.cluster,
            self.cycle,
            self.queue,
            self._predictions,
            self._timers,
            self._names,
            self._fates.key,
        )
        self._room = MakingRoom(
            self.cluster,
            self.cycle,
            self.queue,
            self._fates.key,
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
        parts = Parts(
            cluster=self.cluster,
            cycle=self.cycle,
            queue=self.queue,
            fates=self._fates,
            intake=self.intake,
            binding=self.binding,
            room=self._room,
            gangs=self._gangs,
            telling=self._telling,
            timers=self._timers,
            bulkheads=self._bulkheads,
            effects=self._effects,
        )
        self._waking = Waking(parts)
        self.turns = SchedulingTurns(parts, name=name, patience=patience)
        #: Pods to which something is promised that is looked at when its time is over.
        self._watched: set[str] = set()
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
                    self._bulkheads.told(messages.Gone(event.collection, key, event.version), now)
            case messages.Restored():
                self.intake.restored(event.collection)
            case messages.Leading():
                self.turns.lead(active=event.active)
            case messages.Tick():
                self._tick(now)
            case messages.Turn():
                try:
                    self.turns.turn(now)
                except Exception as error:  # noqa: BLE001 - the next turn is another's
                    self.quarantine.put("steps", "turn", error, now)
            case _:
                self._answered(event, now)
        return self._settled(now)

    def _settled(self, now: float) -> list[Effect]:
        """What has changed is told to whom it may help; all effects."""
        if self._bulkheads.raised and self._bulkheads.settle(now):
            for group in self.queue.asleep():
                if RAISES in group.refused_by:
                    self.queue.rouse(group.first().uid)
        self._waking.wake(now, self.turns.group, self._review)
        self._watch_promises(now)
        effects = [*self._effects, *self.quarantine.effects]
        self._effects.clear()
        self.quarantine.effects.clear()
        return effects

    def deadline(self) -> float | None:
        """When ``handle(Tick(), now)`` is due, if nothing else happens."""
        return self._timers.next()

    def has_work(self) -> bool:
        """Whether ``handle(Turn(), now)`` would decide something."""
        return self.turns.has_work()

    @property
    def active(self) -> bool:
        """Whether this replica decides."""
        return self.turns.active

    @property
    def listeners(self) -> list[Callable[[Sequence[ClusterEvent]], None]]:
        """Told of what has changed in the cluster, after each event."""
        return self._waking.listeners

    def place(self, pod: PodView, decision: Decision, now: float) -> list[Effect]:
        """Put a decision of somebody else (the extender) in force."""
        self.turns.place(pod, decision, now)
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
        try:
            self._take_answer(event, now)
        except Exception as error:  # noqa: BLE001 - what it is about alone is put aside
            fault = self.quarantine.put("answers", type(event).__name__, error, now)
            # What is bound counts until the API shows it; what is not has another try.
            if isinstance(event, messages.Bound) and event.outcome is not Outcome.BOUND:
                with self._bulkheads.guard("retractions", event.uid):
                    self.binding.revoke(event.uid)
                    self.cluster.forget(event.uid)
                    self._bulkheads.put_aside([event.uid], fault, now)

    def _take_answer(self, event: Answer, now: float) -> None:
        match event:
            case messages.Bound():
                self._bound(event, now)
            case messages.TakenBack():
                self._told(event.written, now)
                self.turns.taken_back(event)
            case messages.Evicted():
                self._evicted(event, now)
            case messages.Solved():
                self.turns.solved(event)
            case messages.Planned():
                self._effects += self._moves.planned(event, now)
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
            in_gang = any(view is not None and view.gang is not None for view in (before, after))
            if in_gang:
                self.cluster.gangs.on_pod(before, after)
            self._on_pod(before, after, now)
            if in_gang:
                self._effects += self._gangs.look(before, after, now)
        if self.cluster.gangs.changed:
            for uid in self._gangs.described():
                pod = self.cluster.pods[uid]
                self.queue.push(pod, self._fates.key(pod), now)
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
            record = self.queue.push(after, self._fates.key(after), now)
            if not known and after.nominated:
                self._room.recover(record, now)
            elif before is not None and before.nominated != after.nominated:
                room = self._gangs.room if record.key.gang is not None else self._room
                self._effects += room.renominated(record, now)
            if before is not None and before.priority != after.priority:
                self._effects += self._room.end(record)
            group = self.queue.group_of(after.uid)
            if (
                not known
                and group is not None
                and group.sleeping
                and not group.key.gang is not None
            ):
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
        if self.queue.remove(uid) is not None:
            self.cluster.unnominate(uid)

    # --- what comes of decisions -----------------------------------------------------------------

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
        if record is not None and record.pod.gang is not None and record.key.gang is not None:
            again = self._gangs.room.evicted(record.pod.gang, event, now)
        else:
            effects, again = self._room.evicted(event, now)
            self._effects += effects
        if again is not None and record is not None:
            self._timers.at(again, Due.PREEMPT, event.uid)

    # --- deadlines -------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        for what, key in self._timers.due(now):
            with self._bulkheads.guard(what.value, key) as bulkhead:
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
            with self._bulkheads.guard("preemption", record.pod.key) as bulkhead:
                self._effects += self._room.review(record, now)
            if bulkhead.fault is not None:
                self._effects += self._room.end(record)

    def _watch_promises(self, now: float) -> None:
        """Each promise is looked at when its time is over."""
        for uid, promise in self.cluster.promises.items():
            if uid not in self._watched and uid in self.queue.records:
                # One that cannot be judged yet is looked at again.
                self._watched.add(uid)
                self._timers.at(max(promise.until, now + _SECOND), Due.NOMINATION, uid)

    def _second(self, now: float) -> None:
        self._timers.at(now + _SECOND, Due.SECOND)
        self.intake.judge_leases(now)
        if self.active:
            for step in (self._gangs.second, self._moves.second):
                with self._bulkheads.guard("steps", step.__qualname__):
                    self._effects += step(now)
            with self._bulkheads.guard("steps", "MakingRoom.second"):
                self._room.second(now)
            stopped = self.quarantine.holds("steps", "reservations", now) is not None
            if self._reserves and not self.turns.reserving and not stopped:
                self.turns.reserving = [self._gangs.reserve(now), self._room.reserve(now)]
        for plugin in self.cycle.profile.clocked:
            with self._bulkheads.guard("steps", plugin.name):
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
        self.turns.minute(now)
