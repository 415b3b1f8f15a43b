"""``/explain``: what the running scheduler would answer for a pod, by node and by zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rte import errors
from rte.scheduler import objects, surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.scheduler.node import NodeEntry
    from rte.scheduler.objects import PodView
    from rte.scheduler.service import Scheduler


def explain(scheduler: Scheduler, pod: PodView) -> dict[str, Any]:
    """Per node: fits or not, the reason, and what its zones can still give.

    ``cpus`` and ``memory`` of a zone are whole CPUs and bytes that are free for exclusive use, None
    where the kubelet's managers do not count them.
    """
    cluster, cycle = scheduler.cluster, scheduler.cycle
    around = None
    if surroundings.needed(pod, cluster):
        around = surroundings.Surroundings(pod, cluster)
    problem = cycle.problem(pod)
    nodes = []
    for name in sorted(cluster.nodes):
        entry = cluster.nodes[name]
        if entry.info is None:
            continue
        check = cycle.check(entry, pod, around)
        reason = problem or check.reason
        nodes.append(
            {
                "node": name,
                "fits": not reason,
                "reason": reason,
                "message": check.message,
                "waits": check.waits,
                "report": report_of(entry),
                "zones": _zones(entry),
            }
        )
    bound = cluster.assumed.get(pod.uid) or pod.node
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "node": bound,
        "confirmed": bool(bound) and cluster.entry(bound).is_confirmed(pod),
        "nominated": cluster.nominations.get(pod.uid, ""),
        "queued": pod.uid in scheduler.queue,
        "nodes": nodes,
        "summary": "" if bound else scheduler.explain(pod),
    }


def report_of(entry: NodeEntry) -> str:
    """How the node's zones are known: ``exact``, ``zones``, ``none``, or why not."""
    if entry.report is None:
        return "none"
    return entry.distrust() or ("exact" if entry.report.state is not None else "zones")


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
            return _json({"error": f"no such pod: {namespace}/{name}"}, status=404)
        return _json(explain(scheduler, found))

    async def by_object(request: web.Request) -> web.Response:
        try:
            obj = orjson.loads(await request.read())
            obj.setdefault("metadata", {}).setdefault("uid", "")
            obj["metadata"].setdefault("name", "pod")
            view = objects.read_pod(obj, scheduler.cluster.shapes)
        except (orjson.JSONDecodeError, AttributeError, errors.ParseError) as error:
            return _json({"error": f"not a pod: {error}"}, status=400)
        return _json(explain(scheduler, view))

    return [web.get("/explain", by_name), web.post("/explain", by_object)]


def _zones(entry: NodeEntry) -> list[dict[str, int | None]]:
    return [
        {
            "zone": zone,
            "cpus": cpus if cpus < 1 << 40 else None,
            "memory": memory if memory < 1 << 60 else None,
        }
        for zone, cpus, memory in entry.free_by_zone() or ()
    ]


def _json(body: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
