"""``POST /fit``: how many of a pod, or whether a gang, fits now, in the words of ``rte fit``."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from aiohttp import web

from rte import errors
from rte.model.words import counted
from rte.scheduler.framework import objects
from rte.scheduler.front import turns
from rte.scheduler.loop.gangs.desk import FitDesk
from rte.telemetry import health

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.placement.joint.fit import Fit
    from rte.placement.joint.gang import Answer
    from rte.placement.joint.node import Member
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.shell.service import Scheduler

#: Pods that one question may be about.
MOST_PODS = 1024

#: Nodes, and pods of a question, that are read before others get a turn.
_PORTION, _PODS_READ = 50, 20


def copies_document(found: Fit) -> JsonObject:
    """What is answered about copies of one pod."""
    return {
        "pods": found.total,
        "exact": not found.unsure,
        "nodes": dict(found.copies),
        "totals": dict(found.totals),
        "unsure": sorted(found.unsure),
        "missing": asdict(found.missing) if found.missing else None,
    }


def gang_document(answer: Answer, total: int) -> JsonObject:
    """What is answered about pods that are placed together."""
    return {
        "verdict": str(answer.verdict),
        "pods": total,
        "places": dict(answer.places),
        "most": answer.most,
        "topology_value": answer.value,
        "level": answer.level,
        "blame": answer.blame and str(answer.blame),
        "shortages": [asdict(each) for each in answer.shortages],
    }


def routes(scheduler: Scheduler) -> list[web.RouteDef]:
    """``POST /fit`` with a Pod, or ``{"pods": [], "count": N, "minCount": M, "topologyKey": K}``.

    One pod without a count: how many copies fit. Several, or a count: whether they fit together.
    The long part of an answer is found beside the decisions.
    """
    asker = _Asker(scheduler.cluster, FitDesk(scheduler.cluster, scheduler.cycle))

    async def answer(request: web.Request) -> web.Response:
        try:
            body = await turns.read_json(request, "question")
            return health.json_response(await asker.answer(_question(body)))
        except errors.RteError as error:
            return health.json_response({"error": str(error)}, status=400)

    return [web.post("/fit", answer)]


class _Asker:
    """Asks the desk, a little at a time: others get a turn in between."""

    def __init__(self, cluster: Cluster, desk: FitDesk) -> None:
        self._cluster, self._desk = cluster, desk

    async def answer(self, question: Json) -> JsonObject:
        """Answer a question.

        Raises:
            errors.UsageError: it cannot be answered.
            errors.ParseError: a pod is malformed.
        """
        await caught_up(self._desk)
        pods = await self._pods(question)
        together = {"min_count": question["minCount"], "topology_key": question["topologyKey"]}
        if len(pods) == 1 and question["count"] is None and not any(together.values()):
            counting = self._desk.counting(self._desk.member(pods[0]))
            left_out = self._desk.left_out()
            document = copies_document(await turns.beside(counting))
            return {**document, "left_out": left_out}
        placing = self._desk.placing(await members_of(pods, self._desk.member), **together)
        left_out = self._desk.left_out()
        document = gang_document(await turns.beside(placing), len(pods))
        return {**document, "left_out": left_out}

    async def _pods(self, question: Json) -> list[PodView]:
        pods: dict[str, PodView] = {}
        for number, obj in enumerate(question["pods"]):
            pod = _pod(self._cluster, obj, number)
            if pod.uid in pods:
                raise errors.UsageError(f"two pods are named {pod.key}")
            pods[pod.uid] = pod
            if number % _PODS_READ == 0:
                await asyncio.sleep(0)
        if question["count"] is None:
            return list(pods.values())
        (pod,) = pods.values()
        return [replace(pod, uid=f"#{number + 1}") for number in range(question["count"])]


async def caught_up(desk: FitDesk) -> None:
    """When all nodes that have changed are read."""
    while desk.catch_up(_PORTION):  # noqa: ASYNC110 - others get a turn
        await asyncio.sleep(0)


async def members_of(pods: Sequence[PodView], member: Callable[[PodView], Member]) -> list[Member]:
    """The pods as the solver sees them; those of one shape may go to the same nodes."""
    known: dict[int, Member] = {}
    found = []
    for pod in pods:
        shape = id(pod.shape)
        if shape not in known:
            known[shape] = member(pod)
            await asyncio.sleep(0)
        found.append(replace(known[shape], pod=pod.shape.as_pod(pod.uid)))
    return found


def _question(body: object) -> JsonObject:
    """The question, with what it leaves out.

    Raises:
        errors.UsageError: it is none.
    """
    if not isinstance(body, dict):
        raise errors.UsageError("expected a Pod, or an object with pods")
    asked: Json = {"pods": [body]} if "spec" in body else body
    pods, key = asked.get("pods"), asked.get("topologyKey") or ""
    if not isinstance(pods, list) or not pods or not all(isinstance(each, dict) for each in pods):
        raise errors.UsageError("pods: expected a list of Pods")
    if not isinstance(key, str):
        raise errors.UsageError(f"topologyKey {key!r}: expected the name of a node label")
    numbers: JsonObject = {name: asked.get(name) for name in ("count", "minCount")}
    for name, number in numbers.items():
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MOST_PODS
        ):
            raise errors.UsageError(f"{name} {number!r}: expected a number from 1 to {MOST_PODS}")
    if len(pods) > MOST_PODS:
        raise errors.UsageError(f"{len(pods)} pods: {MOST_PODS} at most")
    if numbers["count"] and len(pods) > 1:
        raise errors.UsageError("count is for one pod")
    there = numbers["count"] or len(pods)
    if (numbers["minCount"] or 1) > there:
        raise errors.UsageError(f"minCount {numbers['minCount']}: of {counted(there, 'pod')}")
    return {"pods": pods, "topologyKey": key, **numbers}


def _pod(cluster: Cluster, obj: Json, number: int) -> PodView:
    metadata = obj.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    name = metadata.setdefault("name", f"pod-{number}")
    metadata["uid"] = f"{metadata.get('namespace') or 'default'}/{name}"
    return objects.read_pod({**obj, "metadata": metadata}, cluster.shapes)
