"""The program: feeds tell the cluster, the loop decides, binds are carried out, users are told."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from rte import errors
from rte.kube.resources import PODS
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import Options
from rte.scheduler.loop import reservation
from rte.scheduler.loop.cycle import Cycle, Decision
from rte.scheduler.plugins import preemption
from rte.scheduler.queue.queue import Group, Queue
from rte.scheduler.report import events
from rte.scheduler.report.kubelets import Kubelets
from rte.scheduler.report.metrics import SchedulerMetrics
from rte.scheduler.report.predictions import Predictions
from rte.scheduler.settings import AGENT_LEASE_LABELS
from rte.scheduler.shell import binder, storage
from rte.scheduler.shell.feeds import Feeds, Listener
from rte.scheduler.shell.leader import Always, Leader
from rte.telemetry.cases import CaseBook
from rte.telemetry.health import Readiness

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from rte.kube.client import Client
    from rte.scheduler.cache.volumes import Binding
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.report.predictions import Judged
    from rte.scheduler.settings import SchedulerSettings

logger = logging.getLogger(__name__)

#: The loop lets watches have a turn after so much deciding.
_TURN_S = 0.002

#: After a kubelet's refusal nothing that needs a zone goes to the node for so long (doubling).
_HOLD_OFF_S, _MOST_HOLD_OFF_S = 1.0, 60.0

#: An eviction without an answer is sent again; one that failed is planned afresh after a time.
_EVICT_TRIES, _EVICT_PAUSE_S, _EVICT_AGAIN_S = 3, 0.1, 1.0

#: A verdict is told to users when it has stood for so long: what is placed at once needs no event.
_TELL_AFTER_S = 0.3


class Scheduler:
    """One scheduler; :meth:`run` works until cancelled.

    Args:
        client: the API server; opened and closed by the caller.
        settings: see :class:`SchedulerSettings`.
        clock: seconds of a monotonic clock.

    Attributes:
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
        self.settings = settings
        self.metrics = SchedulerMetrics()
        self.readiness = Readiness(listed="not all collections were listed yet")
        self.answering = Readiness(active="this replica is standing by")
        self.followers: list[Callable[[], None]] = []
        self.cluster = Cluster(
            Options(shared_limit=settings.shared_limit, resource_status=settings.resource_status)
        )
        self.cycle = Cycle(self.cluster)
        self.queue = Queue()
        self._predictions = Predictions()
        self._cases = CaseBook(settings.case_dir)
        self._kubelets = Kubelets(self.metrics, clock)
        self._clock = clock
        self._wake = asyncio.Event()
        self._active = False
        self._seen = -1
        self._labels_count = False
        self._since: dict[str, float] = {}
        self._tried: dict[str, int] = {}
        self._decided: dict[str, dict[str, float]] = {}
        self._untold: dict[str, float] = {}
        self._distrusted: dict[str, tuple[float, float]] = {}
        self._crowded_out: dict[str, None] = {}
        self._crowded = asyncio.Event()
        self._room_coming: dict[str, set[str]] = {}
        self._evict_after: dict[str, float] = {}
        self._kept: dict[str, str] = {}
        self._client = client
        self._tasks: asyncio.TaskGroup | None = None
        self.feeds = Feeds(
            client,
            self.cluster,
            Listener(pod=self._on_pod, report=self._on_report, woken=self._wake.set),
            self.metrics,
            clock,
            (settings.agent_namespace, AGENT_LEASE_LABELS),
        )
        self.reporter = events.Reporter(client, settings.scheduler_name, clock)
        self.leader: Leader | Always = Always()
        if settings.leader_elect:
            self.leader = Leader(
                client,
                name=settings.lease_name,
                namespace=settings.lease_namespace,
                lease_s=settings.lease_seconds,
                renew_s=settings.renew_seconds,
                clock=clock,
                changed=self._on_leadership,
                renewed=self._wake.set,
            )
        self._storage_binder = storage.StorageBinder(client, self.cluster.storage, clock)
        self._binder = binder.Binder(
            client, may_bind=self.leader.may_bind, timeout_s=settings.bind_timeout
        )

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            self.feeds.start(group)
            await self.feeds.wait_synced()
            self.feeds.judge_leases()
            gc.freeze()  # what is known by now mostly stays; collections need not look at it
            self.readiness.met("listed")
            logger.info(
                "in sync",
                extra={"nodes": len(self.cluster.nodes), "pods": len(self.cluster.pods)},
            )
            if isinstance(self.leader, Leader):
                group.create_task(self.leader.run(), name="leader election")
            else:
                self._on_leadership(active=True)
            group.create_task(self._tick(), name="tick")
            group.create_task(self._tell(), name="tell")
            group.create_task(self._preempt(), name="preempt")
            await self._loop()

    def is_active(self) -> bool:
        """Whether this replica decides and binds."""
        return self._active and self.leader.may_bind()

    # --- the loop ---

    async def _loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for follow in self.followers:
                follow()
            if not self.is_active():
                continue
            turn_ends = time.perf_counter() + _TURN_S
            self._look_again()
            while (group := self.queue.pop()) is not None:
                self._try(group)
                if time.perf_counter() > turn_ends:
                    await asyncio.sleep(0)
                    if not self.is_active():
                        self.queue.again(group)
                        break
                    self._look_again()
                    turn_ends = time.perf_counter() + _TURN_S

    def _look_again(self) -> None:
        """When anything changed, those who sleep get a look at what did."""
        if bool(self.cluster.matches.refusing) != self._labels_count:
            self._labels_count = not self._labels_count
            for pod in list(self.cluster.pending(self.settings.scheduler_name)):
                if pod.uid in self.queue:
                    self.queue.push(pod, self._key(pod))
        if self._news() != self._seen:
            self._seen = self._news()
            self.queue.wake()

    def _news(self) -> int:
        return self.cluster.sequence + self.cluster.pod_sequence

    def _try(self, group: Group) -> None:
        pod = group.head()
        if pod is None:
            return
        sequence, pod_sequence = self.cluster.sequence, self.cluster.pod_sequence
        started = time.perf_counter()
        decision = self.cycle.decide(pod, group)
        took = time.perf_counter() - started
        self._tried[pod.uid] = self._tried.get(pod.uid, 0) + 1
        result = "scheduled" if decision.node else "unschedulable"
        profile = self.settings.scheduler_name
        self.metrics.attempts.labels(result, profile).inc()
        self.metrics.attempt_seconds.labels(result, profile).observe(took)
        if decision.node is None:
            group.seen, group.pod_seen = sequence, pod_sequence
            self.queue.sleep(group)
            if self.settings.preemption and not decision.waits and pod.preempts:
                self._crowded_out[pod.uid] = None
                self._crowded.set()
            for uid in group.pods:
                self._untold.setdefault(uid, self._clock())
            return
        self.place(pod, decision)
        self.queue.again(group)

    def place(self, pod: PodView, decision: Decision) -> asyncio.Task[binder.Bound]:
        """Put a decision in force and carry it out; the task ends when its outcome is known."""
        node = decision.node
        if node is None or self._tasks is None:
            raise RuntimeError("no decision, or not running")
        self.queue.remove(pod.uid, forget=False)
        self._untold.pop(pod.uid, None)
        before = self._news()
        self._predictions.expect(self.cluster.entry(node), pod, decision.check)
        self.cluster.assume(pod.uid, node, decision.check.resource_status)
        if self._seen == before:
            # What a decision changes is no news to those who sleep: it takes, and gives nothing.
            self._seen = self._news()
        logger.debug(
            "decided",
            extra={
                "pod": pod.key,
                "uid": pod.uid,
                "node": node,
                "pods_seen": self.feeds.pods_seen,
            },
        )
        self.cycle.placed(pod)
        self._decided.setdefault(node, {})[pod.kubelet_uid] = self._clock()
        annotations = {}
        if decision.check.resource_status:
            annotations = {objects.RESOURCE_STATUS: decision.check.resource_status}
        carrying = self._carry_out(pod, node, annotations)
        return self._tasks.create_task(carrying, name=f"bind {pod.key}")

    async def _carry_out(
        self, pod: PodView, node: str, annotations: Mapping[str, str]
    ) -> binder.Bound:
        started = self._clock()
        bindings = await self._volumes_for(pod, node)
        if bindings is None:
            bound = binder.Bound(outcome=binder.Outcome.REFUSED, message="volumes were not bound")
        else:
            bound = await self._binder.bind(pod, node, annotations)
            self.cluster.storage.withdraw(bindings)
        self.metrics.binds.labels(bound.outcome.value).inc()
        if bound.pod is not None and pod.uid in self.cluster.pods:
            with suppress(errors.ParseError):
                self.feeds.set_pod(bound.pod)
        if bound.outcome is binder.Outcome.BOUND:
            now = self._clock()
            self.metrics.bind_seconds.observe(now - started)
            attempts = str(min(16, self._tried.pop(pod.uid, 1)))
            since = self._since.pop(pod.uid, started)
            self.metrics.sli_seconds.labels(attempts).observe(now - since)
            self.queue.remove(pod.uid)
            self._wake.set()
            self.spawn(self.reporter.scheduled(pod, node))
            return bound
        self._decided.get(node, {}).pop(pod.kubelet_uid, None)
        self._predictions.forget(node, pod.kubelet_uid)
        if bound.outcome is binder.Outcome.GONE and bound.pod is None:
            self.cluster.remove_pod(pod.uid, self._clock())
        self.cluster.forget(pod.uid)
        waiting = self.cluster.pods.get(pod.uid)
        if waiting is not None and self._is_ours(waiting):
            self.queue.back_off(waiting, self._key(waiting), self._clock())
        self._wake.set()
        if bound.outcome is binder.Outcome.REFUSED:
            self.spawn(
                self.reporter.event(pod, "Warning", "FailedBinding", bound.message, "Binding")
            )
        return bound

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something beside the decisions (it must not raise)."""
        if self._tasks is not None:
            self._tasks.create_task(work)

    async def _volumes_for(self, pod: PodView, node: str) -> list[Binding] | None:
        """Bind what the pod needs on the node; None when that fails or takes too long."""
        entry = self.cluster.nodes.get(node)
        if not pod.shape.claims:
            return []
        if entry is None or entry.info is None or self.cluster.storage.problem(pod):
            return None
        found = self.cluster.storage.on_node(pod, entry.info)
        if isinstance(found, str):
            return None
        self.cluster.storage.promise(found)
        done = await self._storage_binder.bind(found, node)
        if not done:
            self.cluster.storage.withdraw(found)
        return found if done else None

    # --- making room ---

    async def _preempt(self) -> None:
        """Evict lower priorities for pods that fit nowhere, one pod after the other."""
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            for uid in list(self._crowded_out):
                self._crowded_out.pop(uid, None)
                pod = self.cluster.pods.get(uid)
                if pod is None or not self._may_preempt(pod):
                    continue
                self.metrics.preemption_attempts.inc()
                best = None
                news = self._news()
                budgets = list(self.cluster.budgets.values())
                for plan in preemption.search(pod, self.cluster, self.cycle, budgets):
                    if best is None or plan.cost < best.cost:
                        best = plan
                    await asyncio.sleep(0)
                if best is not None and (news == self._news() or self._stands(uid, best)):
                    await self._evict(pod, best)

    def _may_preempt(self, pod: PodView) -> bool:
        """One preemption is in force for a pod at a time: until every victim of it has gone."""
        coming = self._room_coming.get(pod.uid, ())
        if any(victim in self.cluster.pods for victim in coming):
            return False
        self._room_coming.pop(pod.uid, None)
        return (
            self._active
            and self._is_ours(pod)
            and pod.uid not in self._evict_after
            and self.cluster.has_lower(pod.priority)
            and preemption.may_preempt(pod, self.cluster)
        )

    def _stands(self, uid: str, plan: preemption.Plan) -> bool:
        """Whether a plan still holds after changes; if not, the changes wake the pod anyway."""
        pod, entry = self.cluster.pods.get(uid), self.cluster.nodes.get(plan.node)
        if pod is None or entry is None or not self._may_preempt(pod):
            return False
        decision = self.cycle.decide(pod, self.queue.group_of(uid))
        if decision.node is not None or decision.waits:
            return False
        if self.plan_on(pod, entry) == plan:
            return True
        self._crowded_out[uid] = None
        self._crowded.set()
        return False

    def plan_on(self, pod: PodView, entry: NodeEntry) -> preemption.Plan | None:
        """Whom to evict on one node for the pod."""
        return preemption.plan_for(pod, entry, list(self.cluster.budgets.values()))

    def _is_waiting(self, uid: str) -> bool:
        pod = self.cluster.pods.get(uid)
        return pod is not None and self._is_ours(pod)

    async def _evict(self, pod: PodView, plan: preemption.Plan) -> None:
        """Carry out a plan: victims first, then users are told, as kube-scheduler does."""
        coming = {victim.uid for victim in plan.victims} | plan.leaving
        self._room_coming[pod.uid] = coming
        self.cluster.nominate(pod.uid, plan.node)
        if plan.victims:
            self.metrics.preemption_victims.observe(len(plan.victims))
        for victim in plan.victims:
            if not self.leader.may_bind() or not self._is_waiting(pod.uid):
                break
            if await self._delete(victim):
                logger.info("evicted %s from %s for %s", victim.key, plan.node, pod.key)
                text = f"Preempted by pod {pod.uid} on node {plan.node}"
                self.spawn(self.reporter.event(victim, "Normal", "Preempted", text, "Preempting"))
                continue
            # The rest would be evicted in vain.
            self._room_coming.pop(pod.uid, None)
            self._evict_after[pod.uid] = self._clock() + _EVICT_AGAIN_S
            self.cluster.unnominate(pod.uid)
            self._wake.set()
            return
        if self._is_waiting(pod.uid):
            await self.reporter.nominate(pod, plan.node)

    async def _delete(self, victim: PodView) -> bool:
        """Whether the pod is gone or going; sent again while that is not known."""
        options = {"preconditions": {"uid": victim.uid}}
        for _ in range(_EVICT_TRIES):
            try:
                await self._client.delete(PODS.path(victim.name, victim.namespace), options)
            except errors.KubeError as error:
                if error.status in (404, 409):
                    return True
                logger.warning("%s cannot be evicted: %s", victim.key, error)
                if 400 <= error.status < 500 and error.status != 429:
                    return False
                await asyncio.sleep(_EVICT_PAUSE_S)
            else:
                return True
        return False

    def _evict_again(self) -> None:
        """Evictions that failed are planned afresh after a time."""
        for uid, due in list(self._evict_after.items()):
            if due <= self._clock():
                del self._evict_after[uid]
                self._crowded_out[uid] = None
                self._crowded.set()

    def _keep_nodes(self) -> None:
        """Reserve nodes for those who have waited too long; give up reservations that are void."""
        for uid, name in list(self._kept.items()):
            pod, entry = self.cluster.pods.get(uid), self.cluster.nodes.get(name)
            if pod is None or self.cluster.nominations.get(uid) != name:
                del self._kept[uid]
            elif entry is None or not reservation.is_possible(pod, entry):
                del self._kept[uid]
                self.cluster.unnominate(uid)
        if not (self._active and self.settings.reserve_after):
            return
        waiting = [
            (pod, self._since.get(pod.uid, self._clock()))
            for group in sorted(self.queue.asleep(), key=Group.order)
            if (pod := group.head()) is not None
        ]
        oldest = self._clock() - self.settings.reserve_after
        for pod, entry in reservation.choose(waiting, self.cluster, self._kept, oldest):
            logger.info("node %s is kept for %s, which has waited long", entry.name, pod.key)
            self._kept[pod.uid] = entry.name
            self.cluster.nominate(pod.uid, entry.name)
        self.metrics.reservations.set(len(self._kept))

    # --- what the feeds tell ---

    def _on_pod(self, before: PodView | None, now: PodView | None) -> None:
        pod = now or before
        if pod is None:
            return
        if now is not None and self._is_ours(now):
            if now.uid not in self.queue:
                self._since.setdefault(now.uid, self._clock())
            self.queue.push(now, self._key(now))
            return
        self.queue.remove(pod.uid, forget=pod.uid not in self.cluster.assumed)
        self._untold.pop(pod.uid, None)
        self._room_coming.pop(pod.uid, None)
        self._evict_after.pop(pod.uid, None)
        if now is None or now.terminal:
            self._since.pop(pod.uid, None)
            self._tried.pop(pod.uid, None)
            self.reporter.forget(pod.uid)
            self._decided.get(pod.node, {}).pop(pod.kubelet_uid, None)
            self._predictions.ended(pod)
        if now is not None and now.rejected and before is not None:
            self._on_rejection(now)

    def _is_ours(self, pod: PodView) -> bool:
        return (
            pod.scheduler == self.settings.scheduler_name
            and not pod.node
            and not pod.terminal
            and not pod.deleting
            and not pod.gated
            and pod.uid not in self.cluster.assumed
        )

    def _key(self, pod: PodView) -> bytes:
        """Pods with equal keys share their fate."""
        key = pod.shape.key + (b"" if pod.preempts else b"!")
        if self.cluster.matches.refusing and not pod.shape.labels:
            key += repr(sorted(pod.labels.items())).encode()
        return key

    def _on_rejection(self, pod: PodView) -> None:
        """A kubelet refused a pod: count it, and read that node afresh before going on there."""
        ours = self._predictions.refused(pod) or pod.scheduler == self.settings.scheduler_name
        self.metrics.rejections.labels(pod.reason, "ours" if ours else "foreign").inc()
        if not ours or self._tasks is None:
            return
        logger.warning(
            "the kubelet of %s refused %s: %s: %s", pod.node, pod.key, pod.reason, pod.message
        )
        until, last = self._distrusted.get(pod.node, (0.0, _HOLD_OFF_S / 2))
        wait = min(_MOST_HOLD_OFF_S, last * 2) if self._clock() - until < 60 else _HOLD_OFF_S
        self._distrusted[pod.node] = (self._clock() + wait, wait)
        self.cluster.hold_off(pod.node, "node(s) being read afresh after a rejection")
        self._tasks.create_task(self._resync(pod.node, wait), name=f"resync {pod.node}")

    async def _resync(self, name: str, wait: float) -> None:
        await asyncio.sleep(wait)
        while True:
            try:
                await self.feeds.resync_node(name)
                break
            except errors.KubeError as error:
                logger.warning("node %s cannot be read afresh: %s", name, error)
                await asyncio.sleep(_HOLD_OFF_S)
        self._judge(name, self._predictions.judge_refusals(self.cluster.entry(name)))
        if self._distrusted.get(name, (0.0, 0.0))[0] <= self._clock():
            self.cluster.hold_off(name, "")
        self._wake.set()

    def _judge(self, node: str, judged: list[Judged]) -> None:
        """The drift alarm: count how predictions came out, and tell of the first differences."""
        for item in judged:
            kubelet = item.case.prediction.before.kubelet_version
            self.metrics.predictions.labels(item.case.result, kubelet).inc()
            line = self._cases.tell(item.case, node) if item.case.result.is_difference else ""
            if line:
                self.spawn(self.reporter.event(item.pod, "Warning", "UnpredictedAdmission", line))

    def _on_report(self, name: str) -> None:
        waiting = self._decided.get(name)
        entry = self.cluster.nodes.get(name)
        if entry is not None:
            self._judge(name, self._predictions.reported(entry))
        reported = entry.report.state if entry and entry.report else None
        if not waiting or reported is None:
            return
        for uid in waiting.keys() & reported.admitted:
            self.metrics.confirm_seconds.observe(self._clock() - waiting.pop(uid))

    def _on_leadership(self, active: bool) -> None:
        self.metrics.leader.labels(self.settings.lease_name).set(int(active))
        if not active:
            self._active = False
            self.answering.fails("active", "this replica is standing by")
        elif self._tasks is not None:
            self._tasks.create_task(self._take_over(), name="take over")

    async def _take_over(self) -> None:
        """Take in every bind of the replica before us, then begin."""
        while self.leader.may_bind():
            try:
                await self.feeds.relist_pods()
            except errors.KubeError as error:
                logger.warning("cannot list pods before beginning: %s", error)
                await asyncio.sleep(0.2)
            else:
                self._active = True
                self.answering.met("active")
                self._wake.set()
                return

    # --- housekeeping ---

    async def _tick(self) -> None:
        """Each tenth of a second: waiting times; each second: agents, gauges; each minute: tidy."""
        number = 0
        while True:
            await asyncio.sleep(0.1)
            number += 1
            before = self.queue.sizes()["backoff"]
            self.queue.release(self._clock())
            if before != self.queue.sizes()["backoff"]:
                self._wake.set()
            if number % 10 == 0:
                sequence = self.cluster.sequence
                self.feeds.judge_leases()
                self._keep_nodes()
                self._evict_again()
                if self.cluster.sequence != sequence:
                    self._wake.set()
                self._gauge()
            if number % 600 == 0:
                self.cluster.collect()

    def _gauge(self) -> None:
        for name, size in self.queue.sizes().items():
            self.metrics.pending.labels(name).set(size)
        known = Counter(e.knowledge() for e in self.cluster.nodes.values() if e.info is not None)
        for kind in ("exact", "zones", "none", "distrusted"):
            self.metrics.nodes.labels(kind).set(known[kind])
        self._kubelets.look(self.cluster.nodes.values())

    async def _tell(self) -> None:
        """Write a condition and an event for pods that have been waiting for some time."""
        while True:
            await asyncio.sleep(_TELL_AFTER_S / 2)
            if not self._active:
                continue
            ripe = self._clock() - _TELL_AFTER_S
            told: dict[bytes, str] = {}
            for uid in [uid for uid, since in self._untold.items() if since <= ripe]:
                self._untold.pop(uid, None)
                pod = self.cluster.pods.get(uid)
                if pod is None or not self._is_ours(pod):
                    continue
                key = self._key(pod)
                if key not in told:
                    told[key] = self.explain(pod)
                await self.reporter.unschedulable(pod, told[key])

    def explain(self, pod: PodView) -> str:
        """Why the pod waits, in one line."""
        counts = self.cycle.reasons(pod)
        if counts.pop("", 0):
            return "a node has just become available"
        for reason, number in counts.items():
            self.metrics.refusals.labels(reason).inc(number)
        refusing = (
            entry
            for entry in self.cluster.nodes.values()
            if entry.info is not None and entry.check(pod.shape).verdict is not None
        )
        return events.summary(counts, events.zone_summary(pod.shape, refusing))
