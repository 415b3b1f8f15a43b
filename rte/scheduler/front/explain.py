"""``/explain``: what the running scheduler would answer for a pod, by node and by zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from rte import errors
from rte.scheduler.framework import objects
from rte.scheduler.front import answers, turns
from rte.telemetry import health

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.shell.service import Scheduler


def routes(scheduler: Scheduler) -> list[web.RouteDef]:
    """``GET /explain?namespace=NS&name=POD`` and ``POST /explain`` with a Pod as JSON."""

    async def by_name(request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "default")
        name = request.query.get("name", "")
        found = next(
            (
                pod
                for pod in scheduler.cluster.pods.values()
                if pod.name == name and pod.namespace == namespace
            ),
            None,
        )
        if found is None:
            return health.json_response({"error": f"no such pod: {namespace}/{name}"}, status=404)
        return await _explained(scheduler, found)

    async def by_object(request: web.Request) -> web.Response:
        try:
            obj = await turns.read_json(request, "pod")
            obj.setdefault("metadata", {}).setdefault("uid", "")
            obj["metadata"].setdefault("name", "pod")
            view = objects.read_pod(obj, scheduler.cluster.shapes)
        except (AttributeError, errors.ParseError) as error:
            return health.json_response({"error": f"not a pod: {error}"}, status=400)
        return await _explained(scheduler, view)

    return [web.get("/explain", by_name), web.post("/explain", by_object)]


async def _explained(scheduler: Scheduler, pod: PodView) -> web.Response:
    answer = await turns.in_slices(answers.explain_steps(scheduler.cluster, scheduler.cycle, pod))
    return health.json_response(await turns.beside(answer.as_json))
