"""The scheduler as an extender of an unmodified kube-scheduler (1.34 or newer).

Verbs and JSON keys are those of ``k8s.io/kube-scheduler/extender/v1``; with ``nodeCacheCapable``
only node names travel. kube-scheduler checks everything but the zones; the zones, and whatever was
decided a moment ago, are checked here; ``bind`` goes through the same assume, bind and confirm path
as the scheduler's own decisions. kube-scheduler does not watch reports, so a pod that was refused
here is woken by an annotation when a place appears. Only the active replica answers.

Which of the nodes that we let through kube-scheduler takes, it says with the bind. For a pod of a
group that is too late (:mod:`rte.scheduler.front.picks`), so such a pod is given one node only,
and its place there is its own from then on.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from rte import errors
from rte.kube.resources import PODS
from rte.reader.json import as_table
from rte.scheduler.framework import objects
from rte.scheduler.framework.plugin import Candidate
from rte.scheduler.framework.status import Status
from rte.scheduler.front import extender_args
from rte.scheduler.front.picks import PICK_S, Picks, is_grouped
from rte.scheduler.front.wakeups import Wakeups
from rte.scheduler.loop.cycle import Decision
from rte.scheduler.loop.messages import Bound, Outcome, Seen
from rte.scheduler.loop.room.plans import plan_on
from rte.scheduler.plugins import default_preemption
from rte.telemetry import doors, health

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rte.kube.client import Client
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.shell.service import Scheduler

#: The highest priority that an extender may give (extender/v1 MaxExtenderPriority).
MOST = 10

#: A bind waits so long for the confirmation of a pod in front; kube-scheduler gives it 5 s.
CONFIRMED_WITHIN_S = 3.0


class Extender:
    """The four verbs, and the waking of pods that they have refused.

    Args:
        scheduler: whose cluster and binder are used.
        client: the API server.
        profiles: ``spec.schedulerName`` of the pods that it binds.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        client: Client,
        *,
        profiles: Sequence[str] = ("default-scheduler",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._client = client
        self._profiles = frozenset(profiles)
        self._clock = clock
        self._picks = Picks()
        self._wakeups = Wakeups(scheduler, client, self._fits)
        self._binding: dict[str, asyncio.Task[Bound]] = {}
        self._changed = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        """Routes of the verbs, as in ``manifests/extender/kube-scheduler.yaml``."""
        return [
            web.post("/filter", self._answer(self.filter)),
            web.post("/prioritize", self._answer(self.prioritize)),
            web.post("/preempt", self._answer(self.preempt)),
            web.post("/bind", self._bind_request),
        ]

    def filter(self, args: Json) -> JsonObject:
        """Node names that take the pod (a grouped one: the best one); the others and why not."""
        pod = self._pod(args)
        offered = extender_args.names(args)
        self._expire_picks()
        passing: dict[str, Candidate | None] = {}
        failed = {}
        for name in offered:
            found = self._check(name, pod)
            if found is None or not found[1].reason:
                passing[name] = found
            else:
                failed[name] = _text(found[1])
        if is_grouped(args["Pod"]) and pod.shape.may_need_zone:
            chosen = self._pick(pod, [found for found in passing.values() if found])
            if chosen:
                others = dict.fromkeys(
                    passing.keys() - {chosen}, "node(s) not chosen for the group"
                )
                failed |= others
                passing = {chosen: passing[chosen]}
        if passing:
            self._wakeups.passed(pod.uid)
        else:
            self._wakeups.refused(pod, offered)
        nodes = args.get("Nodes")
        if nodes is not None:
            kept = [item for name, item in extender_args.items(nodes) if name in passing]
            return {"Nodes": {**nodes, "items": kept}, "FailedNodes": failed, "Error": ""}
        return {"NodeNames": list(passing), "FailedNodes": failed, "Error": ""}

    def prioritize(self, args: Json) -> list[JsonObject]:
        """Scores from 0 to 10 for nodes that the filter let through."""
        pod = self._pod(args)
        candidates = []
        names = extender_args.names(args)
        for name in names:
            entry = self._scheduler.cluster.nodes.get(name)
            if entry is not None and entry.info is not None:
                candidates.append(Candidate(entry, self._alone(entry, pod)))
        given = self._scheduler.cycle.score(pod, candidates)
        scores = {each.node.name: score for each, score in zip(candidates, given, strict=True)}
        low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
        width = (high - low) or 1.0
        return [
            {"Host": name, "Score": round(MOST * (scores.get(name, low) - low) / width)}
            for name in names
        ]

    def preempt(self, args: Json) -> JsonObject:
        """Of kube-scheduler's proposals those after which the kubelet admits the pod.

        A proposal that frees the node's total but no zone is mended with further victims of lower
        priority, or dropped; so is one without victims, which kube-scheduler makes where its own
        filters pass, and which it takes back from nobody (preemption.go, callExtenders). While a
        pod in flight is not confirmed nothing is proposed there; the pod that waits is woken when
        it is.
        """
        pod = self._pod(args)
        kept = {}
        for name, (uids, violations) in extender_args.proposals(args).items():
            found = self._mend(pod, name, uids, violations)
            if found is not None and found[0]:
                kept[name] = {
                    "Pods": [{"UID": uid} for uid in found[0]],
                    "NumPDBViolations": found[1],
                }
        return {"NodeNameToMetaVictims": kept}

    async def bind(self, args: Json) -> JsonObject:
        """Bind through the scheduler's own path; the answer comes when the outcome is known."""
        uid, name = str(args.get("PodUID")), str(args.get("Node"))
        if uid not in self._scheduler.cluster.pods:
            path = PODS.path(str(args.get("PodName")), str(args.get("PodNamespace")))
            try:
                self._scheduler.feed(Seen("pods", await self._client.get(path)))
            except errors.RteError as error:
                return {"Error": str(error)}
        try:
            return {"Error": await self._bind(uid, name)}
        finally:
            self._end_pick(uid)

    async def _bind(self, uid: str, name: str) -> str:
        """Bind the pod; why it was not, empty when it was.

        A bind that is under way decides first: kube-scheduler tries again, maybe elsewhere, when it
        has waited for long.
        """
        cluster = self._scheduler.cluster
        gives_up = self._clock() + CONFIRMED_WITHIN_S
        while True:
            while uid in self._binding:
                await asyncio.wait([self._binding[uid]])
            pod, entry = cluster.pods.get(uid), cluster.nodes.get(name)
            if pod is None or entry is None:
                return f"unknown pod {uid} or node {name}"
            if pod.scheduler not in self._profiles:
                return (
                    f"pods of scheduler {pod.scheduler!r} are not bound here: --extender-profiles"
                )
            where = pod.node or cluster.assumed.get(uid)
            if where:
                return "" if where == name else f"the pod is bound to {where}"
            if pod.shape.malformed:
                return pod.shape.malformed
            promised = self._picks.node_of(uid) == name
            own = self._alone(entry, pod)
            check = own if promised else self._beside_picks(entry, pod, own)[1]
            if not check.reason:
                break
            left = gives_up - self._clock()
            if not (promised and check.waits and left > 0):
                self._wakeups.refused(pod, [name])
                return _text(check)
            await self._next_change(left)
        task = self._scheduler.place(pod, Decision(node=name, status=own))
        self._binding[uid] = task
        try:
            bound = await task
        finally:
            del self._binding[uid]
        if bound.outcome is not Outcome.BOUND:
            return f"{bound.outcome.value}: {bound.message}".rstrip(": ")
        return ""

    def wake_waiting(self) -> None:
        """Touch pods that were refused here and fit now; to be called when something changed."""
        self._changed.set()
        self._changed = asyncio.Event()
        for pod in self._picks.pods():
            if not self._wakeups.is_waiting(pod):
                self._end_pick(pod.uid)
        self._wakeups.look()

    async def _next_change(self, seconds: float) -> None:
        """Until the cluster has changed, or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    # What is promised to pods of groups

    def _pick(self, pod: PodView, candidates: list[Candidate]) -> str:
        """Promise the best of the candidates to the pod; its name, empty when there is none."""
        if not candidates:
            self._end_pick(pod.uid)
            return ""
        scores = self._scheduler.cycle.score(pod, candidates)
        best = max(range(len(candidates)), key=lambda index: (scores[index], -index))
        name, before = candidates[best].node.name, self._picks.node_of(pod.uid)
        self._picks.promise(pod, name, self._clock())
        if before != name:
            self._free([before])
        asyncio.get_running_loop().call_later(PICK_S, self._expire_picks)
        return name

    def _end_pick(self, uid: str) -> None:
        self._free([self._picks.end(uid)])

    def _expire_picks(self) -> None:
        self._free(self._picks.expire(self._clock()))

    def _free(self, names: list[str]) -> None:
        """Promises on these nodes are void: others may come."""
        cluster = self._scheduler.cluster
        for name in names:
            if name in cluster.nodes:
                cluster.touch(cluster.nodes[name])
                asyncio.get_running_loop().call_soon(self.wake_waiting)

    def _beside_picks(self, entry: NodeEntry, pod: PodView, check: Status) -> Candidate:
        """The node's answer while it is promised to others; they are expected to come first.

        A bind waits for the confirmation of those in front, so here they need not be confirmed.
        """
        promised = self._picks.on(entry.name, besides=pod.uid)
        if check.reason or not promised:
            return Candidate(entry, check)
        twin = entry.beside([*entry.ahead_of(pod), *promised])
        check = self._alone(twin, pod)
        outlook = twin.outlook()
        if check.waits and outlook is not None and not outlook.doubtful:
            check = Status(verdict=check.verdict)
        return Candidate(twin, check)

    # Answers

    def _mend(
        self, pod: PodView, name: str, uids: list[str], violations: int
    ) -> tuple[list[str], int] | None:
        """Victims on one node, and how many budgets they violate; None: nothing to propose."""
        entry = self._scheduler.cluster.nodes.get(name)
        if entry is None or entry.info is None:
            return uids, violations
        if not self._alone(entry.without(frozenset(uids)), pod).reason:
            if not uids:  # a place has appeared since the filter
                self._wakeups.wake(pod)
            return uids, violations
        if not default_preemption.is_settled(entry):
            self._wakeups.refused(pod, [name], unsettled=name)
            return None
        plan = plan_on(self._scheduler.cycle, self._scheduler.cluster, pod, entry)
        if plan is None:
            return None
        return sorted({*(p.uid for p in plan.victims), *plan.leaving}), plan.violations

    def _check(self, name: str, pod: PodView) -> Candidate | None:
        """The answer of a node; None for one that we do not know."""
        entry: NodeEntry | None = self._scheduler.cluster.nodes.get(name)
        if entry is None or entry.info is None:
            return None
        cycle = self._scheduler.cycle
        return self._beside_picks(entry, pod, cycle.check(entry, pod, cycle.alone(pod)))

    def _alone(self, entry: NodeEntry, pod: PodView) -> Status:
        """What the rules over this node alone say."""
        return self._scheduler.cycle.profile.check(pod.shape, entry)

    def _fits(self, name: str, pod: PodView) -> bool:
        found = self._check(name, pod)
        return found is not None and not found[1].reason

    def _pod(self, args: Json) -> PodView:
        pod = as_table(args.get("Pod"), "Pod")
        return objects.read_pod(pod, self._scheduler.cluster.shapes)

    def _answer(
        self, verb: Callable[[Json], Any]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            if not self._scheduler.is_active():
                return health.json_response({"Error": "this replica is standing by"}, status=503)
            try:
                return health.json_response(
                    verb(extender_args.parse(await doors.read_body(request)))
                )
            except errors.ParseError as error:
                return health.json_response({"Error": f"bad request: {error}"}, status=400)

        return handle

    async def _bind_request(self, request: web.Request) -> web.Response:
        if not self._scheduler.is_active():
            return health.json_response({"Error": "this replica is standing by"}, status=503)
        try:
            args = extender_args.parse(await doors.read_body(request))
        except errors.ParseError as error:
            return health.json_response({"Error": f"bad request: {error}"}, status=400)
        # A bind that has begun is carried through even when kube-scheduler hangs up.
        return health.json_response(await asyncio.shield(self.bind(args)))


def _text(check: Status) -> str:
    return f"{check.reason}: {check.message}".rstrip(": ")
