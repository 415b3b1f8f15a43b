"""The scheduler as an extender of an unmodified kube-scheduler (1.34 or newer).

Verbs and JSON keys are those of ``k8s.io/kube-scheduler/extender/v1``; with ``nodeCacheCapable``
only node names travel. kube-scheduler checks everything but the zones; the zones, and whatever was
decided a moment ago, are checked here; ``bind`` goes through the same assume, bind and confirm path
as the scheduler's own decisions. kube-scheduler does not watch reports, so a pod that was refused
here is woken by an annotation when a place appears. Only the active replica answers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rte import errors
from rte.kube.resources import PODS
from rte.scheduler.framework import objects
from rte.scheduler.loop.cycle import Decision
from rte.scheduler.plugins import preemption, preferences
from rte.scheduler.shell import binder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rte.kube.client import Client
    from rte.scheduler.framework.node import Check, NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.shell.service import Scheduler

logger = logging.getLogger(__name__)

#: Touched to wake a pod that waits in kube-scheduler.
WAKE_ANNOTATION = "topology.rte.dev/place-appeared"

#: The highest priority that an extender may give (extender/v1 MaxExtenderPriority).
MOST = 10


class Extender:
    """The four verbs, and the waking of pods that they have refused.

    Args:
        scheduler: whose cluster and binder are used.
        client: the API server.
    """

    def __init__(self, scheduler: Scheduler, client: Client) -> None:
        self._scheduler = scheduler
        self._client = client
        self._refused: dict[str, int] = {}
        self._unsettled: dict[str, str] = {}
        self._number = 0

    def routes(self) -> list[web.RouteDef]:
        """Routes of the verbs, as in ``manifests/scheduler/kube-scheduler.yaml``."""
        return [
            web.post("/filter", self._answer(self.filter)),
            web.post("/prioritize", self._answer(self.prioritize)),
            web.post("/preempt", self._answer(self.preempt)),
            web.post("/bind", self._bind_request),
        ]

    def filter(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Node names that take the pod; the others with their reasons."""
        pod = self._pod(args)
        names, failed = [], {}
        for name in _names(args):
            check = self._check(name, pod)
            if check is None or not check.reason:
                names.append(name)
            else:
                failed[name] = f"{check.reason}: {check.message}".rstrip(": ")
        if names:
            self._refused.pop(pod.uid, None)
        else:
            self._refused[pod.uid] = self._scheduler.cluster.sequence
        result: dict[str, Any] = {"NodeNames": names, "FailedNodes": failed, "Error": ""}
        nodes = args.get("Nodes")
        if nodes is not None:
            kept = [item for name, item in _items(nodes) if name in set(names)]
            result = {"Nodes": {**nodes, "items": kept}, "FailedNodes": failed, "Error": ""}
        return result

    def prioritize(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Scores from 0 to 10 for nodes that the filter let through."""
        pod = self._pod(args)
        candidates = []
        names = _names(args)
        for name in names:
            entry = self._scheduler.cluster.nodes.get(name)
            if entry is not None and entry.info is not None:
                candidates.append((entry, entry.check(pod.shape)))
        scores = {
            entry.name: score
            for score, entry, _ in preferences.rank(
                pod, candidates, self._scheduler.cluster, self._scheduler.cycle.next_fit
            )
        }
        low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
        width = (high - low) or 1.0
        return [
            {"Host": name, "Score": round(MOST * (scores.get(name, low) - low) / width)}
            for name in names
        ]

    def preempt(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Of kube-scheduler's proposals those after which the kubelet admits the pod.

        A proposal that frees the node's total but no zone is mended with further victims of lower
        priority, or dropped. While a pod in flight is not confirmed nothing is proposed there; the
        pod that waits is woken when it is.
        """
        pod = self._pod(args)
        kept = {}
        for name, (uids, violations) in _proposals(args).items():
            victims = self._mend(pod, name, uids)
            if victims is not None:
                kept[name] = {
                    "Pods": [{"UID": uid} for uid in victims],
                    "NumPDBViolations": violations,
                }
        return {"NodeNameToMetaVictims": kept}

    async def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Bind through the scheduler's own path; the answer comes when the outcome is known."""
        uid, name = str(args.get("PodUID")), str(args.get("Node"))
        cluster = self._scheduler.cluster
        pod = cluster.pods.get(uid)
        if pod is None:
            path = PODS.path(str(args.get("PodName")), str(args.get("PodNamespace")))
            try:
                self._scheduler.feeds.set_pod(await self._client.get(path))
            except errors.RteError as error:
                return {"Error": str(error)}
            pod = cluster.pods.get(uid)
        entry = cluster.nodes.get(name)
        if pod is None or entry is None:
            return {"Error": f"unknown pod {uid} or node {name}"}
        if pod.shape.malformed:
            return {"Error": pod.shape.malformed}
        check = entry.check(pod.shape)
        if check.reason:
            self._refused[uid] = cluster.sequence
            return {"Error": f"{check.reason}: {check.message}".rstrip(": ")}
        bound = await self._scheduler.place(pod, Decision(node=name, check=check))
        if bound.outcome is not binder.Outcome.BOUND:
            return {"Error": f"{bound.outcome.value}: {bound.message}".rstrip(": ")}
        return {"Error": ""}

    def wake_waiting(self) -> None:
        """Touch pods that were refused here and fit now; to be called when something changed."""
        cluster = self._scheduler.cluster
        for uid, seen in list(self._refused.items()):
            pod = cluster.pods.get(uid)
            if pod is None or pod.node or uid in cluster.assumed:
                self._refused.pop(uid, None)
                self._unsettled.pop(uid, None)
                continue
            changed = cluster.changed_since(seen)
            self._refused[uid] = cluster.sequence
            due = self._unsettled.get(uid)
            if any(
                e.info is not None
                and (not e.check(pod.shape).reason or (e.name == due and preemption.is_settled(e)))
                for e in changed
            ):
                self._refused.pop(uid, None)
                self._unsettled.pop(uid, None)
                self._scheduler.spawn(self._touch(pod))

    async def _touch(self, pod: PodView) -> None:
        self._number += 1
        body = {"metadata": {"uid": pod.uid, "annotations": {WAKE_ANNOTATION: str(self._number)}}}
        try:
            await self._client.patch(PODS.path(pod.name, pod.namespace), body)
        except errors.KubeError as error:
            logger.debug("%s was not woken: %s", pod.key, error)

    def _mend(self, pod: PodView, name: str, uids: list[str]) -> list[str] | None:
        entry = self._scheduler.cluster.nodes.get(name)
        if entry is None or entry.info is None:
            return uids
        chosen = list(uids)
        if not entry.without(frozenset(chosen)).check(pod.shape).reason:
            return chosen
        if not preemption.is_settled(entry):
            self._refused[pod.uid] = self._scheduler.cluster.sequence
            self._unsettled[pod.uid] = name
            return None
        plan = self._scheduler.plan_on(pod, entry)
        return sorted({*(p.uid for p in plan.victims), *plan.leaving}) if plan else None

    def _check(self, name: str, pod: PodView) -> Check | None:
        entry: NodeEntry | None = self._scheduler.cluster.nodes.get(name)
        if entry is None or entry.info is None:
            return None
        return self._scheduler.cycle.check(entry, pod)

    def _pod(self, args: Mapping[str, Any]) -> PodView:
        return objects.read_pod(_object(args.get("Pod"), "Pod"), self._scheduler.cluster.shapes)

    def _answer(
        self, verb: Callable[[Mapping[str, Any]], Any]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            if not self._scheduler.is_active():
                return _json({"Error": "this replica is standing by"}, status=503)
            try:
                return _json(verb(await _arguments(request)))
            except errors.ParseError as error:
                return _json({"Error": f"bad request: {error}"}, status=400)

        return handle

    async def _bind_request(self, request: web.Request) -> web.Response:
        if not self._scheduler.is_active():
            return _json({"Error": "this replica is standing by"}, status=503)
        try:
            args = await _arguments(request)
        except errors.ParseError as error:
            return _json({"Error": f"bad request: {error}"}, status=400)
        # A bind that has begun is carried through even when kube-scheduler hangs up.
        return _json(await asyncio.shield(self.bind(args)))


async def _arguments(request: web.Request) -> Mapping[str, Any]:
    try:
        return _object(orjson.loads(await request.read()), "arguments")
    except orjson.JSONDecodeError as error:
        raise errors.ParseError("arguments", None, str(error)) from None


def _names(args: Mapping[str, Any]) -> list[str]:
    names = args.get("NodeNames")
    if names is not None:
        return [str(name) for name in _list(names, "NodeNames")]
    nodes = args.get("Nodes")
    return [] if nodes is None else [name for name, _ in _items(nodes)]


def _items(nodes: object) -> list[tuple[str, Mapping[str, Any]]]:
    """The Nodes of a NodeList, with their names."""
    found = []
    for item in _list(_object(nodes, "Nodes").get("items"), "Nodes.items"):
        metadata = _object(_object(item, "Node").get("metadata"), "Node.metadata")
        found.append((str(metadata.get("name")), item))
    return found


def _proposals(args: Mapping[str, Any]) -> dict[str, tuple[list[str], int]]:
    """Node name -> UIDs of kube-scheduler's victims, and how many budgets they violate."""
    short = _object(args.get("NodeNameToMetaVictims"), "NodeNameToMetaVictims")
    whole = _object(args.get("NodeNameToVictims"), "NodeNameToVictims")
    found = {}
    for name, victims in (short or whole).items():
        proposal = _object(victims, f"victims on {name}")
        uids = []
        for item in _list(proposal.get("Pods"), f"victims on {name}"):
            victim = _object(item, "victim")
            uid = (
                victim.get("UID") if short else _object(victim.get("metadata"), "victim").get("uid")
            )
            if not isinstance(uid, str):
                raise errors.ParseError("victim", uid, "expected a UID")
            uids.append(uid)
        violations = proposal.get("NumPDBViolations") or 0
        if not isinstance(violations, int):
            raise errors.ParseError("NumPDBViolations", violations, "expected a number")
        found[name] = (uids, violations)
    return found


def _object(value: object, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.ParseError(what, value, "expected an object")
    return value


def _list(value: object, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise errors.ParseError(what, value, "expected a list")
    return value


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
