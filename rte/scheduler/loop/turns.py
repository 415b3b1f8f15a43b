"""Turns: each decides about one unit, or goes on with a decision that takes several (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.loop import messages
from rte.scheduler.loop.bulkheads import RAISES
from rte.scheduler.loop.gangs.gangs import HELPED_BY
from rte.scheduler.loop.messages import Due
from rte.telemetry.effects import Measured
from rte.telemetry.quarantine import FIRST_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Decision
    from rte.scheduler.loop.gangs.decide import Asking, Found
    from rte.scheduler.loop.messages import Effect
    from rte.scheduler.loop.waking import Parts
    from rte.scheduler.queue.waiting import EquivalenceClass, UnitKey, Waiting

#: Nodes that a turn loads into the columns; where more have changed, it does nothing else.
_NODES_LOADED = 100


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


class SchedulingTurns:
    """Whose turn it is, and what comes of it.

    Args:
        parts: what it works with.
        name: of the scheduler, for metrics.
        patience: seconds for which a pod that some node takes, though not well, waits for better.

    Attributes:
        active: this replica decides.
        reserving: searches for nodes to reserve that wait for a turn.
        group: the gang about which something is being found out.
        went_on: the last turn was that of a decision of several steps.
    """

    def __init__(self, parts: Parts, *, name: str, patience: float) -> None:
        self._cluster, self._cycle, self._queue = parts.cluster, parts.cycle, parts.queue
        self._fates, self._intake, self._binding = parts.fates, parts.intake, parts.binding
        self._room, self._gangs, self._telling = parts.room, parts.gangs, parts.telling
        self._timers, self._bulkheads, self._effects = parts.timers, parts.bulkheads, parts.effects
        self._name, self._patience = name, patience
        self.active = False
        self.reserving: list[Asking[list[Effect]]] = []
        self.group: EquivalenceClass | None = None
        self._deciding: _Deciding | None = None
        self._questions = 0
        #: Groups of which a pod has raised, until when: the next one that does takes all along.
        self._raised: dict[UnitKey, float] = {}
        self._taking_back: set[str] = set()
        #: Who had the last turn but one, where two that are equal take turns.
        self._room_had_it = self.went_on = False

    def has_work(self) -> bool:
        """Whether a turn would decide something."""
        long = self._deciding
        if not self.active or (long is not None and long.waits and long.first):
            return False
        if long is None:
            return not (self._queue.is_idle() and self._room.is_idle() and not self.reserving)
        return not (long.waits and self._queue.is_idle(quick=True) and self._room.is_idle())

    @property
    def is_in_the_middle(self) -> bool:
        """Whether the next turn goes on with a decision that was begun: every other one, where it
        need not be first and somebody else wants one.
        """
        long = self._deciding
        if long is None or long.waits:
            return False
        others = not (self._queue.is_idle(quick=True) and self._room.is_idle())
        return long.first or not (self.went_on and others)

    def lead(self, *, active: bool) -> None:
        """This replica decides from now on, or does not."""
        self.active = active
        if active:
            self._queue.rouse_all()
            return
        # Whatever is answered now, another replica decides.
        group, self.group, self._deciding, self.reserving = self.group, None, None, []
        if group is not None:
            self._queue.again(group)

    def solved(self, event: messages.Solved) -> None:
        """A question was answered."""
        if self._deciding is not None and event.number == self._questions:
            self._go_on(self._deciding, event.found)

    def minute(self, now: float) -> None:
        """Forget what is over."""
        self._raised = {key: until for key, until in self._raised.items() if until > now}

    def turn(self, now: float) -> None:
        """Decide about the unit whose turn it is, or go on with a decision."""
        if not self.active or self._cycle.candidates.catch_up(_NODES_LOADED) > 0:
            return
        long = self._deciding
        if long is not None and self.is_in_the_middle:
            self._go_on(long)
            return
        self.went_on = False
        if long is None and self.reserving:
            self._go_on(_Deciding(self._reserve(self.reserving.pop(0)), first=False))
            return
        if self._makes_room(now):
            self._make_room(now)
            return
        urgent = self._urgent() if long is None else None
        group = urgent or self._queue.pop(now, quick=long is not None)
        if group is not None:
            record = group.head()
            unit = self._unit(group, record, now)
            try:
                self._decide(group, record, now)
            except Exception as error:  # noqa: BLE001 - these pods alone are put aside
                self._failed(group, unit, error)

    def _urgent(self) -> EquivalenceClass | None:
        if not self._gangs.in_part:
            return None
        with self._bulkheads.guard("steps", "urgent"):
            return self._gangs.urgent()
        return None

    def _decide(self, group: EquivalenceClass, record: Waiting | None, now: float) -> None:
        if group.key.gang is not None:
            first = self._gangs.goes_first(group.first())
            self._go_on(_Deciding(self._try_gang(group, now), first=first, group=group))
        else:
            self._try(group, record, now)

    def _makes_room(self, now: float) -> bool:
        """Whether the turn is that of a pod for which room is made: it comes before who is less
        important, takes turns with its equals, and goes before who backs off.
        """
        if self._room.is_idle():
            return False
        quick = self._deciding is not None
        order, first = self._room.order(), self._queue.first(now, quick=quick)
        if order is None:
            # Only looks at what may have come within reach: nobody waits for that.
            return self._queue.is_idle(quick=quick)
        if first is None or order[0] != first[0]:
            return first is None or order[0] < first[0]
        self._room_had_it = not self._room_had_it
        return self._room_had_it

    def _make_room(self, now: float) -> None:
        """A step of what may end with evictions for a pod; whoever raises stays as it is."""
        with self._bulkheads.guard("preemption", self._room.whose()) as bulkhead:
            self._effects += self._room.step(now)
        if bulkhead.fault is not None:
            uid, until = self._room.abandon(bulkhead.fault.until), bulkhead.fault.until
            self._timers.at(until, Due.PREEMPT, uid)

    def _unit(self, group: EquivalenceClass | None, head: Waiting | None, now: float) -> list[str]:
        """UIDs of the pods that are put aside if a decision about the group raises."""
        if group is None:
            return []
        if group.key.gang is not None or self._raised.get(group.key, now) > now:
            return list(group.pods)
        return [] if head is None else [head.pod.uid]

    def _failed(
        self, group: EquivalenceClass | None, unit: Sequence[str], error: Exception
    ) -> None:
        """A decision about the unit has raised: it, or a node, is put aside."""
        now = self._bulkheads.now
        if group is None:
            self._bulkheads.quarantine.put("steps", "reservations", error, now)
            return
        self._effects.append(Measured("attempts", labels=("error", self._name)))
        if self._bulkheads.is_to_blame(error):
            self._bulkheads.quarantine.put("decisions", str(group.key), error, now)
        else:
            for uid in unit:
                fault = self._bulkheads.quarantine.put("pods", uid, error, now)
                self._raised[group.key] = fault.until
                self._bulkheads.put_aside([uid], fault, now)
        self._queue.again(group)

    def _try(self, group: EquivalenceClass, record: Waiting | None, now: float) -> None:
        if record is None:
            return
        if record.pod.uid in self._taking_back:
            # What it holds is on its way out: that must not be built on.
            self._queue.sleep(group, frozenset(), Kind(0))
            return
        claims = record.pod.shape.device_claims
        if claims and (key := self._fates.key(record.pod)) != group.key:
            # They are not as they were when it came.
            self._queue.push(record.pod, key, now)
            self._queue.again(group)
            return
        sequence = self._cluster.sequence
        decision = self._cycle.decide(
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
            self._queue.placed(group)
            return
        if decision.second_best and record.second_best_since is None:
            record.second_best_since = now
            self._timers.at(now + self._patience, Due.PATIENCE, record.pod.uid)
        group.seen, group.helped = -1 if decision.withheld else sequence, set()
        refused_by = group.refused_by | decision.refused_by
        waits_on = group.waits_on | decision.waits_on
        self._queue.sleep(group, refused_by, self._cycle.kinds(refused_by), waits_on, now)
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
        reserves = self._cycle.profile.reserves
        writes = tuple(write for plugin in reserves for write in plugin.leftovers(pod))
        if writes and pod.uid not in self._taking_back:
            self._taking_back.add(pod.uid)
            self._effects.append(messages.TakeBack(pod, writes))

    def taken_back(self, event: messages.TakenBack) -> None:
        """What stood of an attempt before has been undone."""
        self._taking_back.discard(event.uid)
        self._queue.rouse(event.uid)

    def _go_on(self, deciding: _Deciding, found: Found | Exception | None = None) -> None:
        """Carry a decision on until it is made, asks the next question, or lets others go first.

        ``found``: the answer to its last question, or what finding it out has raised.
        """
        self._deciding, self.group, self.went_on = None, None, True
        unit = self._unit(deciding.group, None, self._bulkheads.now)
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
        self._deciding, self.group = deciding, deciding.group
        deciding.waits = question is not None
        if question is not None:
            self._questions += 1
            self._effects.append(messages.Solve(self._questions, question))

    def _try_gang(self, group: EquivalenceClass, now: float) -> Asking[None]:
        record = group.head()
        if record is None:
            return
        record.attempts += 1
        group.seen = self._cluster.sequence
        places = yield from self._gangs.decide(record.pod, now)
        result = "scheduled" if places else "unschedulable"
        self._effects.append(Measured("attempts", labels=(result, self._name)))
        self._effects.append(Measured("gang_attempts", labels=(result,)))
        self._place_together(places or (), now)
        if places:
            self._queue.placed(group)
            return
        if places is None:
            self._queue.again(group)
            return
        effects = yield from self._gangs.refused(record.pod, now)
        self._effects += effects
        if group.seen < 0:
            # What may help it has happened since that was asked.
            self._queue.again(group)
        else:
            self._queue.sleep(group, frozenset(), HELPED_BY, now=now)
        for each in group.pods.values():
            self._telling.refused(each, now)

    def _reserve(self, steps: Asking[list[Effect]]) -> Asking[None]:
        effects = yield from steps
        self._effects += effects

    def _place_together(self, places: Sequence[tuple[PodView, Decision]], now: float) -> None:
        """All of them, or none where one raises."""
        mark, count = len(self._effects), 0
        try:
            for pod, decision in places:
                self.place(pod, decision, now)
                count += 1
        except Exception:
            del self._effects[mark:]
            for pod, _ in places[: count + 1]:
                self._binding.revoke(pod.uid)
            raise

    def place(self, pod: PodView, decision: Decision, now: float) -> None:
        """Put a decision in force."""
        self._effects += self._binding.place(pod, decision, now, self._intake.pods_seen)
