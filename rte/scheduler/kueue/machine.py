"""The controller of our AdmissionChecks as a machine: events in, effects and a deadline out.

A Workload that has its quota is tried as a gang: whether the scheduler would place all its pods
now, beside all that was promised before. If so, its check becomes Ready, and the room counts as
promised until its pods have it. If not, it keeps its quota for a time and is tried again whenever
something has happened that may help; then the check says Retry: Kueue takes the quota back, lets
others go first, and comes again after a back-off that grows with each time.

Times are Unix times, for they are compared with those of the API.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.scheduler.framework.events import Kind
from rte.scheduler.kueue import objects, pods, states
from rte.scheduler.kueue.known import KueueKnown
from rte.scheduler.kueue.messages import (
    CHECKS,
    FLAVORS,
    TEMPLATES,
    WORKLOADS,
    Activate,
    Happened,
    Judge,
    SolveWorkload,
    WorkloadSolved,
    Written,
)
from rte.scheduler.kueue.objects import PENDING, READY, REJECTED, RETRY
from rte.scheduler.kueue.promises import Promises
from rte.scheduler.loop import messages
from rte.telemetry.effects import Measured, Said
from rte.telemetry.quarantine import MalformedObjects, Quarantine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.kueue.messages import Effect, Event
    from rte.scheduler.kueue.objects import AdmissionCheck, Workload
    from rte.scheduler.kueue.promises import Promised
    from rte.scheduler.loop.machine import SchedulerMachine

#: Room is promised for so long after Kueue has admitted a Workload; its pods are bound by then, or
#: are not coming.
PROMISE_S = 300.0

#: A Workload that does not fit is tried again after this at the earliest, whatever happens.
AGAIN_S = 0.5

#: What is said of a Workload that waits changes at most so often.
TELL_S = 5.0

#: A condition whose write is not seen is written again after this.
ACTIVATE_AGAIN_S = 10.0

#: A turn takes so many times as long as its trial: the rest is for others than Workloads.
TURN = 5.0

_UNHELPFUL = Kind.POD_PLACED | Kind.NODE_GONE


@dataclass(slots=True)
class _Wait:
    """A Workload that has its quota and waits for us.

    Attributes:
        until: when it gives its quota back.
        not_before: when it may be tried again.
        is_due: something has happened that may help.
        heads: a pod of each kind.
        told_at: when its message was written.
    """

    until: float
    not_before: float = 0.0
    is_due: bool = True
    heads: Sequence[PodView] = ()
    told_at: float | None = None


@dataclass(frozen=True, slots=True)
class _WorkloadTrial:
    """A Workload that is being tried, beside ``ahead``: what was promised before."""

    workload: Workload
    found: Sequence[Promised]
    ahead: Sequence[Promised]
    began: float


class Admissions:
    """Decides about the AdmissionChecks of one controller name.

    Args:
        controller: ``spec.controllerName`` of our AdmissionChecks.
        scheduler: knows the cluster, and would place pods.
        hold_s: seconds for which a Workload that does not fit keeps its quota.
    """

    def __init__(self, controller: str, scheduler: SchedulerMachine, hold_s: float) -> None:
        self._scheduler, self._hold_s = scheduler, hold_s
        self._active = False
        self._known = KueueKnown(controller)
        self._promises = Promises()
        #: Check of which the condition Active is not as it should be -> when that was last written.
        self._inactive: dict[str, float] = {}
        #: Workload -> when what is left of its promise lapses.
        self._lapses: dict[str, float] = {}
        self._waiting: dict[str, _Wait] = {}
        self._writing: set[str] = set()
        self._trial: _WorkloadTrial | None = None
        self._quarantine = Quarantine()
        self._measured: dict[str, int] = {}
        self._malformed = MalformedObjects()
        self._effects: list[Effect] = []

    # --- the way in, and the way out -------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; what has to be done about it."""
        key = event.key if isinstance(event, WorkloadSolved) else self._about(event, now)
        with self._quarantine.guard("kueue", key, now) as bulkhead:
            self._take(event, now)
        if bulkhead.fault is not None and isinstance(event, messages.Turn | WorkloadSolved):
            self._trial = None
            if (wait := self._waiting.get(key)) is not None:
                wait.is_due, wait.not_before = True, bulkhead.fault.until
        self._measure()
        effects = [*self._effects, *self._quarantine.effects]
        self._effects.clear()
        self._quarantine.effects.clear()
        return effects

    def _about(self, event: Event, now: float) -> str:
        """Whom an event is about."""
        match event:
            case messages.Seen():
                return f"{event.collection} {(event.obj.get('metadata') or {}).get('name')}"
            case messages.Turn() if self._active and self._trial is None:
                return self._next(now) or ""
            case _:
                return type(event).__name__

    def _take(self, event: Event, now: float) -> None:
        match event:
            case messages.Seen():
                self._seen(event, now)
            case messages.Gone():
                self._gone(event.collection, event.key, now)
            case messages.Listed():
                for key in self._known.keys(event.collection) - event.keys:
                    self._gone(event.collection, key, now)
            case messages.Leading():
                self._active = event.active
                self._rouse()
                for check in self._known.checks.values():
                    self._activate(check, now)
            case Happened():
                self._happened(event.events)
            case WorkloadSolved():
                self._solved(event, now)
            case Written():
                self._written(event, now)
            case messages.Tick():
                self._tick(now)
            case messages.Turn():
                self._turn(now)

    def deadline(self) -> float | None:
        """When there is something to do, if nothing else happens: a Tick or a Turn."""
        moments = list(self._lapses.values())
        moments += [at + ACTIVATE_AGAIN_S for at in self._inactive.values()]
        if self._active and self._trial is None:
            moments += [
                max(wait.not_before, 0.0 if wait.is_due else wait.until)
                for key, wait in self._waiting.items()
                if key not in self._writing
            ]
        return min(moments, default=None)

    def has_work(self, now: float) -> bool:
        """Whether ``handle(Turn(), now)`` would try a Workload."""
        return self._active and self._trial is None and self._next(now) is not None

    # --- what watches tell -----------------------------------------------------------------------

    def _seen(self, event: messages.Seen, now: float) -> None:
        before = dict(self._known.checks)
        metadata = event.obj.get("metadata") or {}
        name = f"{metadata.get('namespace') or ''}/{metadata.get('name')}".lstrip("/")
        try:
            key = self._known.take(event.collection, event.obj)
        except errors.ParseError as error:
            self._effects += self._malformed.note(event.collection, name, str(error))
            self._look_at_all(now)
            return
        self._effects += self._malformed.note(event.collection, name)
        if not key:
            return
        if event.collection == WORKLOADS:
            self._look(key, now)
            return
        if event.collection == CHECKS:
            self._activate(self._known.checks[key], now)
        if before.keys() != self._known.checks.keys() or event.collection in (FLAVORS, TEMPLATES):
            self._look_at_all(now)
            self._rouse()

    def _gone(self, collection: str, key: str, now: float) -> None:
        self._effects += self._malformed.note(collection, key)
        if not self._known.drop(collection, key):
            return
        if collection == WORKLOADS:
            self._look(key, now)
        else:
            self._look_at_all(now)

    def _activate(self, check: AdmissionCheck, now: float) -> None:
        wanted = states.activity(check, now)
        self._inactive.pop(check.name, None)
        if self._active and check.active != (wanted["status"], wanted["reason"]):
            self._inactive[check.name] = now
            self._effects.append(Activate(check.name, check.version, wanted))

    # --- what there is to do ---------------------------------------------------------------------

    def _look_at_all(self, now: float) -> None:
        for key in {*self._known.workloads, *self._waiting, *self._promises.keys()}:
            self._look(key, now)

    def _look(self, key: str, now: float) -> None:
        """The Workload or the checks have changed: does it wait for us, or hold a promise?"""
        if key in self._writing:
            return
        workload = self._known.workloads.get(key)
        found = {check.state for check in self._known.ours(workload)} if workload else set()
        if (
            workload is None
            or workload.reserved_at is None
            or workload.is_over
            or not found
            or not found.isdisjoint((RETRY, REJECTED))
        ):
            self._waiting.pop(key, None)
            self._withdraw(key)
        elif PENDING in found:
            self._withdraw(key)
            if key not in self._waiting:
                self._waiting[key] = _Wait(workload.reserved_at + self._hold_s)
        else:
            self._waiting.pop(key, None)
            self._keep_promise(workload, now)

    def _keep_promise(self, workload: Workload, now: float) -> None:
        """The Workload may go; what we promised before a restart is known from this alone."""
        until = None if workload.admitted_at is None else workload.admitted_at + PROMISE_S
        if workload.key not in self._promises:
            room: list[Promised] | str = []
            if until is None or until > now:
                with contextlib.suppress(errors.ParseError):
                    room = self._pods(workload)
            if isinstance(room, str):
                # It is made when flavors and templates are there.
                return
            self._promises.make(workload.key, room)
        if until is not None and workload.key not in self._lapses:
            self._lapses[workload.key] = max(now, until)

    def _pods(self, workload: Workload) -> list[Promised] | str:
        known, shapes = self._known, self._scheduler.cluster.shapes
        return pods.pods_of(workload, known.flavors, known.templates, shapes)

    def _withdraw(self, key: str) -> None:
        self._lapses.pop(key, None)
        if self._promises.end(key):
            self._rouse()

    def _rouse(self) -> None:
        """All that wait get another try."""
        for wait in self._waiting.values():
            wait.is_due = True

    def _tick(self, now: float) -> None:
        self._quarantine.tidy(now)
        for name, at in list(self._inactive.items()):
            if name not in self._known.checks:
                del self._inactive[name]
            elif at + ACTIVATE_AGAIN_S <= now:
                self._activate(self._known.checks[name], now)
        for key in [key for key, when in self._lapses.items() if when <= now]:
            del self._lapses[key]
            if self._promises.lapse(key):
                self._rouse()

    def _happened(self, events: Sequence[ClusterEvent]) -> None:
        for event in events:
            if event.pod is not None and event.pod.workload:
                self._on_pod(event, event.pod)
        helpful = [event for event in events if not event.kind & _UNHELPFUL]
        for wait in self._waiting.values():
            if not wait.is_due:
                wait.is_due = any(self._may_help(event, wait.heads) for event in helpful)

    def _on_pod(self, event: ClusterEvent, pod: PodView) -> None:
        cluster = self._scheduler.cluster
        key = f"{pod.namespace}/{pod.workload}"
        if event.kind & Kind.POD_PLACED:
            entry = cluster.nodes.get(event.node)
            labels = entry.info.labels if entry is not None and entry.info else {}
            pod_set = pod.labels.get(objects.POD_SET, objects.ONLY_POD_SET)
            self._promises.placed(key, pod.uid, pod_set, labels)
        elif event.kind & Kind.POD_GONE:
            left = cluster.pods.get(pod.uid)
            if left is None:
                self._promises.ended(key, pod.uid)
            elif not left.node and pod.uid not in cluster.assumed:
                self._promises.lifted(key, pod.uid)

    def _may_help(self, event: ClusterEvent, heads: Sequence[PodView]) -> bool:
        entry = self._scheduler.cluster.nodes.get(event.node)
        if entry is None:
            return not event.node
        bound = entry.zone_bound()
        return any(
            bound.lets(pod.shape.needs) and not self._scheduler.cycle.check(entry, pod).reason
            for pod in heads
        )

    # --- decisions -------------------------------------------------------------------------------

    def _next(self, now: float) -> str | None:
        """Who is tried next: the most important, of those the one that has waited longest."""
        due = [
            key
            for key, wait in self._waiting.items()
            if key not in self._writing
            and wait.not_before <= now
            and (wait.is_due or wait.until <= now)
        ]
        return min(due, key=self._order, default=None)

    def _order(self, key: str) -> tuple[int, float, str]:
        workload = self._known.workloads[key]
        return -workload.priority, workload.reserved_at or 0.0, key

    def _turn(self, now: float) -> None:
        key = self._next(now) if self._active and self._trial is None else None
        if key is None:
            return
        workload, wait = self._known.workloads[key], self._waiting[key]
        wait.is_due, wait.not_before = False, now + AGAIN_S
        try:
            found = self._pods(workload)
        except errors.ParseError as error:
            self._judge(workload, REJECTED, f"its pods cannot be read: {error}", now)
            return
        if isinstance(found, str):
            self._refuse(workload, wait, found, now)
            return
        if not found:  # Kueue takes a Workload of pod sets without pods
            self._judge(workload, READY, "it has no pods, which fit anywhere", now)
            return
        wait.heads, ahead = pods.heads(found), self._promises.left()
        with self._claims_of(ahead, found):
            before, these = [each.pod for each in ahead], [each.pod for each in found]
            question = self._scheduler.rehearse(before, these)
        if isinstance(question, str):
            self._refuse(workload, wait, question, now)
            return
        self._trial = _WorkloadTrial(workload, found, ahead, now)
        self._effects.append(SolveWorkload(key, question))

    def _solved(self, event: WorkloadSolved, now: float) -> None:
        """An answer has come; the Workload, the promises and the cluster may be others by now."""
        trial, self._trial = self._trial, None
        wait = self._waiting.get(event.key)
        if trial is None or wait is None or not self._active:
            return
        # Each gets a turn before one is tried again, however long that takes.
        round_s = TURN * (now - trial.began) * len(self._waiting)
        wait.not_before = max(wait.not_before, now + round_s)
        if self._known.workloads[event.key] is not trial.workload or self._has_promised_more(trial):
            wait.is_due = True
            return
        if isinstance(event.found, Exception):
            raise event.found
        with self._claims_of(trial.ahead, trial.found):
            why = self._scheduler.rehearsed(event.found)
        if why:
            self._refuse(trial.workload, wait, why, now)
            return
        self._promises.make(event.key, trial.found)
        verb = "pod fits" if len(trial.found) == 1 else "pods fit"
        text = f"{len(trial.found)} {verb} into zones now"
        self._judge(trial.workload, READY, text, now)

    def _has_promised_more(self, trial: _WorkloadTrial) -> bool:
        left = {each.pod.uid for each in self._promises.left()}
        return not left <= {each.pod.uid for each in trial.ahead}

    def _claims_of(self, *rooms: Iterable[Promised]) -> AbstractContextManager[None]:
        """Meanwhile the claims that will be made for these pods are known."""
        claims = [claim for room in rooms for each in room for claim in each.claims]
        return self._scheduler.cluster.devices.imagine(claims)

    def _refuse(self, workload: Workload, wait: _Wait, why: str, now: float) -> None:
        """Its pods do not fit now: it waits for room, or gives its quota back."""
        if now >= wait.until:
            self._judge(workload, RETRY, why, now)
            return
        is_told = all(check.message == states.cut(why) for check in self._known.ours(workload))
        if not is_told and (wait.told_at is None or now - wait.told_at >= TELL_S):
            wait.told_at = now
            self._judge(workload, PENDING, why, now)

    def _judge(self, workload: Workload, state: str, text: str, now: float) -> None:
        ours = self._known.ours(workload)
        items = tuple(states.item(check, state, text, now) for check in ours)
        self._writing.add(workload.key)
        self._effects += [
            Judge(workload.key, workload.uid, workload.version, items),
            Said("debug", f"Workload {workload.key}: {state}: {text}"),
        ]

    def _written(self, event: Written, now: float) -> None:
        self._writing.discard(event.key)
        workload, wait = self._known.workloads.get(event.key), self._waiting.get(event.key)
        if event.done and workload is not None:
            found = {check.state for check in self._known.ours(workload)}
            self._effects += [Measured("kueue_checks", labels=(each,)) for each in sorted(found)]
        elif wait is not None:
            # Something has changed meanwhile, or the API server is away.
            wait.is_due, wait.not_before, wait.told_at = True, now + AGAIN_S, None
        self._look(event.key, now)

    def _measure(self) -> None:
        found = {"kueue_promised": len(self._promises), "kueue_waiting": len(self._waiting)}
        if found != self._measured:
            self._measured = found
            self._effects += [Measured(name, float(n), how="set") for name, n in found.items()]
