"""``POST /fit``: how many of a pod, or whether a gang, fits now, in the words of ``rte fit``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rte import errors
from rte.scheduler.framework import objects
from rte.scheduler.loop.gangs.desk import FitDesk
from rte.telemetry import health

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.joint.fit import Fit
    from rte.placement.joint.gang import Answer
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.shell.service import Scheduler

#: Pods that one question may be about.
MOST_PODS = 1024


def copies_document(found: Fit) -> dict[str, Any]:
    """What is answered about copies of one pod."""
    return {
        "pods": found.total,
        "exact": not found.unsure,
        "nodes": dict(found.copies),
        "totals": dict(found.totals),
        "unsure": sorted(found.unsure),
        "missing": asdict(found.missing) if found.missing else None,
    }


def gang_document(answer: Answer, total: int) -> dict[str, Any]:
    """What is answered about pods that are placed together."""
    return {
        "verdict": str(answer.verdict),
        "pods": total,
        "places": dict(answer.places),
        "most": answer.most,
        "topology_value": answer.value,
        "blame": answer.blame and str(answer.blame),
        "shortages": [asdict(each) for each in answer.shortages],
    }


def routes(scheduler: Scheduler) -> list[web.RouteDef]:
    """``POST /fit`` with a Pod, or ``{"pods": [], "count": N, "minCount": M, "topologyKey": K}``.

    One pod without a count: how many copies fit. Several, or a count: whether they fit together.
    """
    desk = FitDesk(scheduler.cluster, scheduler.cycle)

    async def answer(request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await request.read())
            return health.json_response(_answer(desk, scheduler.cluster, body))
        except orjson.JSONDecodeError as error:
            return health.json_response({"error": f"not JSON: {error}"}, status=400)
        except errors.RteError as error:
            return health.json_response({"error": str(error)}, status=400)

    return [web.post("/fit", answer)]


def _answer(desk: FitDesk, cluster: Cluster, body: object) -> dict[str, Any]:
    question = _question(body)
    found = question["pods"]
    pods = [_pod(cluster, each, number) for number, each in enumerate(found)]
    together = {"min_count": question["minCount"], "topology_key": question["topologyKey"]}
    if question["count"] is not None:
        pods = [replace(pods[0], uid=f"#{number + 1}") for number in range(question["count"])]
    elif len(pods) == 1 and not any(together.values()):
        document = copies_document(desk.count(pods[0]))
        return {**document, "left_out": desk.left_out()}
    document = gang_document(desk.place(pods, **together), len(pods))
    return {**document, "left_out": desk.left_out()}


def _question(body: object) -> dict[str, Any]:
    """The question, with what it leaves out.

    Raises:
        errors.UsageError: it is none.
    """
    if not isinstance(body, dict):
        raise errors.UsageError("expected a Pod, or an object with pods")
    asked = {"pods": [body]} if "spec" in body else body
    pods, key = asked.get("pods"), asked.get("topologyKey") or ""
    if not isinstance(pods, list) or not pods or not all(isinstance(each, dict) for each in pods):
        raise errors.UsageError("pods: expected a list of Pods")
    if not isinstance(key, str):
        raise errors.UsageError(f"topologyKey {key!r}: expected the name of a node label")
    numbers = {name: asked.get(name) for name in ("count", "minCount")}
    for name, number in numbers.items():
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MOST_PODS
        ):
            raise errors.UsageError(f"{name} {number!r}: expected a number from 1 to {MOST_PODS}")
    if len(pods) > MOST_PODS:
        raise errors.UsageError(f"{len(pods)} pods: {MOST_PODS} at most")
    if numbers["count"] and len(pods) > 1:
        raise errors.UsageError("count is for one pod")
    return {"pods": pods, "topologyKey": key, **numbers}


def _pod(cluster: Cluster, obj: Mapping[str, Any], number: int) -> PodView:
    metadata = obj.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    name = metadata.setdefault("name", f"pod-{number}")
    metadata["uid"] = f"{metadata.get('namespace') or 'default'}/{name}"
    return objects.read_pod({**obj, "metadata": metadata}, cluster.shapes)
