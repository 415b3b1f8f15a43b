"""The program: watches feed the machine, its turns are taken, its effects are carried out."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rte import errors
from rte.placement.joint.defrag import plan_moves
from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.loop.messages import Bound, Outcome
from rte.scheduler.plugins.registry import RuleOptions
from rte.scheduler.report import shapes
from rte.scheduler.report.metrics import SchedulerMetrics
from rte.scheduler.report.reporter import Reporter
from rte.scheduler.settings import AGENT_LEASE_LABELS
from rte.scheduler.shell.binder import WIDTH, Binder
from rte.scheduler.shell.evictor import Evictor
from rte.scheduler.shell.feeds import KOORDINATOR_DEVICES, Feeds
from rte.scheduler.shell.kueue import COLLECTIONS as KUEUE
from rte.scheduler.shell.kueue import KueueDriver
from rte.scheduler.shell.leader import Always, Leader
from rte.scheduler.shell.looks import Looks
from rte.scheduler.shell.policies import load_policies, load_scoring
from rte.scheduler.shell.questions import find_out
from rte.scheduler.shell.together import Together
from rte.scheduler.shell.writer import RequiredWriter
from rte.telemetry.cases import CaseBook
from rte.telemetry.effects import Measured, Readiness, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from rte.kube.client import Client
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Decision
    from rte.scheduler.loop.messages import (
        Bind,
        Effect,
        Event,
        Evict,
        EvictPod,
        Gone,
        Listed,
        NoteDrift,
        PlanMoves,
        ReleaseGang,
        Restored,
        Seen,
        Solve,
        TakeBack,
        Telling,
    )
    from rte.scheduler.settings import SchedulerSettings
    from rte.telemetry.quarantine import Bulkhead

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: The loop lets watches have a turn after so much deciding.
_TURN_S = 0.002

#: After a decision that took longer than this, it rests for a part of that time.
_LONG_S, _REST = 0.02, 0.1

#: Outcomes after which the writes of a decision are taken back. A pod that somebody else has bound
#: may use what was written; a replica that is not active writes nothing.
_UNDONE = frozenset({Outcome.REFUSED, Outcome.FAILED, Outcome.GONE})

#: A node that cannot be read afresh is asked again after this.
_REREAD_S = 1.0

#: Pods that cannot be listed before this replica begins are listed again after this.
_RELIST_S = 0.2


class Scheduler:
    """One scheduler; :meth:`run` works until cancelled.

    Args:
        client: the API server; opened and closed by the caller.
        settings: see :class:`SchedulerSettings`.
        clock: seconds of a monotonic clock.

    Attributes:
        client: the API server.
        machine: what decides.
        followers: called after each change of the cluster, before the next decision.
        readiness: whether all collections were listed (active or standing by).
        answering: whether this replica is the active one.
    """

    def __init__(
        self,
        client: Client,
        settings: SchedulerSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.settings = settings
        self.metrics = SchedulerMetrics()
        self.readiness = Readiness(listed="not all collections were listed yet")
        self.answering = Readiness(active="this replica is standing by")
        self.followers: list[Callable[[], None]] = []
        self.machine = SchedulerMachine(
            settings.scheduler_name,
            RuleOptions(
                shared_limit=settings.shared_limit,
                resource_status=settings.resource_status,
                device_share=settings.device_share,
                policies=load_policies(settings.groups_policy),
                pool=settings.nodes,
                scoring=load_scoring(settings.scores, settings.profiles),
            ),
            preempts=settings.preemption,
            reserve_after=settings.reserve_after,
            patience=settings.align_patience,
            gang_timeout=settings.gang_timeout,
            move_every=settings.move_every,
            also=settings.also_for,
        )
        self.cluster, self.cycle = self.machine.cluster, self.machine.cycle
        self.queue = self.machine.queue
        self._shapes = shapes.read_shapes(settings.fit_shapes) if settings.fit_shapes else []
        self._cases = CaseBook(settings.case_dir)
        self._clock = clock
        self._wake = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._armed: tuple[float, asyncio.TimerHandle] | None = None
        self._binds: dict[str, asyncio.Task[Bound]] = {}
        self._together = Together()
        #: When a decision of several steps began.
        self._began = 0.0
        self.feeds = Feeds(
            client,
            self._told,
            (settings.agent_namespace, AGENT_LEASE_LABELS),
            {
                **({"koordinator-devices": KOORDINATOR_DEVICES} if settings.device_share else {}),
                **(KUEUE if settings.kueue_controller_name else {}),
            },
            bulkhead=self._bulkhead,
        )
        self.reporter = Reporter(
            client, settings.scheduler_name, clock, self._together.over, self._bulkhead
        )
        self.leader: Leader | Always = Always()
        if settings.leader_elect:
            self.leader = Leader(
                client.apart(1),
                name=settings.lease,
                namespace=settings.lease_namespace,
                lease_s=settings.lease_seconds,
                renew_s=settings.renew_seconds,
                clock=clock,
                changed=self._on_leadership,
                renewed=self._wake.set,
            )
        self._kueue: KueueDriver | None = None
        if settings.kueue_controller_name:
            self._kueue = KueueDriver(
                client,
                settings.kueue_controller_name,
                self.machine,
                hold_s=settings.kueue_hold,
                may_write=self.is_active,
                spawn=self.spawn,
                metrics=self.metrics,
            )
        timeout_s, slots = settings.bind_timeout, asyncio.Semaphore(WIDTH)
        self._binder = Binder(client, left_s=self.leader.left_s, timeout_s=timeout_s, slots=slots)
        self._writer = RequiredWriter(
            client, left_s=self.leader.left_s, timeout_s=timeout_s, clock=clock, slots=slots
        )
        self._evictor = Evictor(client, self.reporter, self.leader.may_bind, self._may_evict)

    async def run(self) -> None:
        """Schedule until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = group
                if self._kueue is not None:
                    group.create_task(self._kueue.run(), name="kueue")
                self.feeds.start(group)
                await self.feeds.wait_synced()
                gc.freeze()  # what is known by now mostly stays; collections need not look at it
                self.readiness.met("listed")
                known = {"nodes": len(self.cluster.nodes), "pods": len(self.cluster.pods)}
                logger.info("in sync", extra=known)
                group.create_task(self.reporter.run(), name="reporter")
                looks = Looks(self.metrics, self.cluster, self.cycle, self._clock, self._bulkhead)
                kubelets = looks.at_kubelets(
                    self.is_active, self._tell_across, self.reporter.placed
                )
                group.create_task(kubelets, name="kubelets")
                if self._shapes:
                    counts = looks.at_shapes(self._shapes, self._in_thread)
                    group.create_task(counts, name="shapes")
                if isinstance(self.leader, Leader):
                    group.create_task(self.leader.run(), name="leader election")
                else:
                    self._on_leadership(active=True)
                await self._loop()
        finally:
            if self._armed is not None:
                self._armed[1].cancel()

    def is_active(self) -> bool:
        """Whether this replica decides and binds."""
        return self.machine.active and self.leader.may_bind()

    def feed(self, event: Event) -> None:
        """Give the machine an event, and see to what it wants done."""
        if self._kueue is not None and isinstance(event, messages.Leading):
            self._kueue.feed(event)
        self._writer.told(event)
        self._carry_out(self.machine.handle(event, self._clock()))
        self._wake.set()

    def _told(self, event: Seen | Gone | Listed | Restored) -> None:
        """What a watch tells goes to the machine that it concerns."""
        if self._kueue is None or event.collection not in KUEUE:
            self.feed(event)
        elif not isinstance(event, messages.Restored):  # nothing there goes by versions
            self._kueue.feed(event)

    def place(self, pod: PodView, decision: Decision) -> asyncio.Task[Bound]:
        """Put a decision in force and carry it out; the task ends when its outcome is known."""
        self._carry_out(self.machine.place(pod, decision, self._clock()))
        running = self._binds.get(pod.uid)
        if running is None:
            refused = Bound(
                pod.uid, Outcome.REFUSED, message="the node cannot hold what the pod needs"
            )
            running = self._start(_known(refused))
        return running

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something beside the decisions."""
        if self._tasks is not None:
            self._tasks.create_task(self._aside(work))

    async def _aside(
        self, work: Coroutine[None, None, None], otherwise: Event | None = None
    ) -> None:
        """The work, behind a bulkhead; the machine is told ``otherwise`` where it raises."""
        with self._bulkhead("tasks", getattr(work, "__qualname__", "")) as bulkhead:
            await work
        if bulkhead.fault is not None and otherwise is not None:
            self.feed(otherwise)

    def _bulkhead(self, kind: str, key: str) -> Bulkhead:
        return self.machine.quarantine.guard(kind, key, self._clock())

    def _begin(self, work: Coroutine[None, None, None], otherwise: Event) -> None:
        if self._tasks is not None:
            self._tasks.create_task(self._aside(work, otherwise))

    # --- the loop ---

    async def _loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for follow in self.followers:
                with self._bulkhead("followers", getattr(follow, "__qualname__", "")):
                    follow()
            turn_ends = time.perf_counter() + _TURN_S
            while self.is_active() and self.machine.has_work():
                if self._together.under_way:
                    await self._together.over()
                    continue
                began = time.perf_counter()
                self._turn()
                now = time.perf_counter()
                if now > turn_ends:
                    # Requests take many steps of the loop: after a long one they get more than one.
                    await asyncio.sleep((now - began) * _REST if now - began > _LONG_S else 0)
                    turn_ends = time.perf_counter() + _TURN_S

    def _turn(self) -> None:
        """Decide about one more pod, or go on with a decision that was begun."""
        began = self._began if self.machine.turns.is_in_the_middle else time.perf_counter()
        self._step(messages.Turn(), began)

    async def _solve(self, effect: Solve, began: float) -> None:
        """What a decision that began then has asked is found out in a thread."""
        found = await find_out(self._in_thread, effect.question)
        self._step(messages.Solved(effect.number, found), began)
        self._wake.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """What takes long, beside the loop, once no gang is being bound."""
        await self._together.over()
        return await asyncio.to_thread(work)

    def _step(self, event: Event, began: float) -> None:
        """A step of a decision that began then."""
        effects = self.machine.handle(event, self._clock())
        took = time.perf_counter() - began
        if self.machine.turns.went_on:
            self._began = began
        for effect in effects:
            match effect:
                case Measured(metric="attempts"):
                    self.metrics.attempt_seconds.labels(*effect.labels).observe(took)
                case messages.Solve():
                    self.spawn(self._solve(effect, began))
        self._carry_out(effects)

    def _arm(self) -> None:
        """The machine is told when its next deadline is due."""
        due = self.machine.deadline()
        if self._armed is not None:
            if self._armed[0] == due:
                return
            self._armed[1].cancel()
        if due is not None:
            wait = max(0.0, due - self._clock())
            handle = asyncio.get_running_loop().call_later(wait, self._tick)
            self._armed = (due, handle)

    def _tick(self) -> None:
        self._armed = None
        self.feed(messages.Tick())

    # --- effects ---

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        binds = []
        for effect in effects:
            match effect:
                case messages.Bind():
                    self.reporter.bound(effect.pod)
                    task = self._binds[effect.pod.uid] = self._start(self._bind(effect))
                    binds.append(task)
                case messages.TakeBack():
                    self._begin(self._take_back(effect), messages.TakenBack(effect.pod.uid))
                case messages.Evict():
                    failed = messages.Evicted(effect.pod.uid, (), complete=False)
                    self._begin(self._evict(effect), failed)
                case messages.EvictPod():
                    self._begin(self._evict(effect), messages.Moved(effect.uid, done=False))
                case messages.ReleaseGang():
                    self.spawn(self._evict(effect))
                case messages.PlanMoves():
                    self._begin(self._plan_moves(effect), messages.Planned(effect.uid, None))
                case messages.Read():
                    self._begin(self._reread(effect.node), messages.Reread(effect.node))
                case messages.Solve():
                    pass  # see _step
                case _:
                    with self._bulkhead("effects", type(effect).__name__):
                        self._tell(effect)
        self._together.add(binds)
        self._arm()

    def _tell(self, effect: Telling | NoteDrift) -> None:
        match effect:
            case messages.NoteDrift():
                self._compare(effect)
            case messages.Nominate():
                self.reporter.nominate(effect.pod, effect.node)
            case messages.Unschedulable():
                self.reporter.unschedulable(effect.pod, effect.message, effect.reason)
            case messages.Post():
                self.reporter.event(
                    effect.pod, effect.kind, effect.reason, effect.note, effect.action
                )
            case messages.GroupCondition():
                self.reporter.group(
                    effect.gang, effect.kind, effect.status, effect.reason, effect.message
                )
            case Said():
                effect.say(logger)
            case Measured():
                effect.note(self.metrics)

    def _start(self, work: Coroutine[None, None, Bound]) -> asyncio.Task[Bound]:
        if self._tasks is None:
            raise RuntimeError("not running")
        return self._tasks.create_task(work)

    async def _bind(self, effect: Bind) -> Bound:
        # Where that raises, nobody knows what became of it: the watch tells, it is tried again.
        bound = Bound(effect.pod.uid, Outcome.ABANDONED)
        with self._bulkhead("tasks", effect.pod.key):
            bound = await self._write_and_bind(effect)
        if self._binds.get(effect.pod.uid) is asyncio.current_task():
            del self._binds[effect.pod.uid]
        self.feed(bound)
        return bound

    async def _write_and_bind(self, effect: Bind) -> Bound:
        pod = effect.pod
        if not effect.writes:
            return await self._binder.bind(pod, effect.node, effect.annotations)
        carried = await self._writer.carry_out(effect.writes)
        if carried.why:
            outcome = Outcome.ABANDONED if carried.abandoned else Outcome.REFUSED
            bound = Bound(pod.uid, outcome, message=carried.why)
        else:
            bound = await self._binder.bind(pod, effect.node, effect.annotations)
        if bound.outcome not in _UNDONE:
            return replace(bound, written=carried.written)
        # The next decision begins with what the API has then.
        return replace(bound, written=await self._writer.undo(effect.writes))

    async def _take_back(self, effect: TakeBack) -> None:
        written = await self._writer.undo(effect.writes)
        self.feed(messages.TakenBack(effect.pod.uid, written))

    def _compare(self, effect: NoteDrift) -> None:
        """The drift alarm: count how predictions came out, and tell of the first differences."""
        for item in effect.judged:
            kubelet = item.case.prediction.before.kubelet_version
            self.metrics.predictions.labels(item.case.result, kubelet).inc()
            differs = item.case.result.is_difference
            line = self._cases.tell(item.case, effect.node) if differs else ""
            if line:
                self.reporter.event(item.pod, "Warning", "UnpredictedAdmission", line)

    def _tell_across(self, pod: PodView, why: str) -> None:
        self.reporter.event(pod, "Warning", "DevicesAcrossZones", why)

    async def _evict(self, effect: Evict | EvictPod | ReleaseGang) -> None:
        match effect:
            case messages.ReleaseGang():
                await self._evictor.release(effect)
            case messages.EvictPod():
                self.feed(await self._evictor.move(effect))
            case _:
                self.feed(await self._evictor.evict(effect))

    async def _plan_moves(self, effect: PlanMoves) -> None:
        plan = await self._in_thread(
            partial(
                plan_moves,
                effect.nodes,
                [effect.member],
                effect.movable,
                budgets=effect.budgets,
                steps=effect.steps,
            )
        )
        self.feed(messages.Planned(effect.uid, plan))

    async def _reread(self, name: str) -> None:
        while True:
            try:
                await self.feeds.resync_node(name)
            except errors.KubeError as error:
                logger.warning("node %s cannot be read afresh: %s", name, error)
                await asyncio.sleep(_REREAD_S)
            else:
                self.feed(messages.Reread(name))
                return

    def _may_evict(self, uid: str) -> bool:
        pod = self.cluster.pods.get(uid)
        return self.leader.may_bind() and pod is not None and self.machine.is_ours(pod)

    # --- leadership ---

    def _on_leadership(self, active: bool) -> None:
        self.metrics.leader.labels(self.settings.lease).set(int(active))
        if not active:
            self.feed(messages.Leading(active=False))
            self.answering.fails("active", "this replica is standing by")
        else:
            self.spawn(self._take_over())

    async def _take_over(self) -> None:
        """Take in every bind of the replica before us, then begin."""
        while self.leader.may_bind():
            listed = False
            with self._bulkhead("tasks", "take over"):
                try:
                    await self.feeds.relist()
                    listed = True
                except errors.KubeError as error:
                    logger.warning("cannot list pods before beginning: %s", error)
            if listed:
                self.answering.met("active")
                self.feed(messages.Leading(active=True))
                return
            await asyncio.sleep(_RELIST_S)


async def _known(bound: Bound) -> Bound:
    return bound
