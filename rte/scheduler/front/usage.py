"""``GET /groups``: how full nodes are for processing groups, and what pods hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web

from rte.placement.groups import explain, holdings
from rte.placement.groups.explain import amounts
from rte.placement.groups.inventory import NICUse
from rte.scheduler.front import turns
from rte.scheduler.front.groups import books_of
from rte.telemetry import health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.plugins.groups.books import Books, OnNode
    from rte.scheduler.shell.service import Scheduler


def routes(scheduler: Scheduler) -> list[web.RouteDef]:
    """``GET /groups`` and, for one node, ``GET /groups?node=NAME``."""
    books = books_of(scheduler.cycle)

    async def answer(request: web.Request) -> web.Response:
        name = request.query.get("node", "")
        found = await turns.gathered(documents(scheduler.cluster, books, name))
        if name and not found:
            return health.json_response({"error": f"node {name} has no inventory for groups"}, 404)
        return health.json_response(found[0] if name else found)

    return [web.get("/groups", answer)]


def documents(cluster: Cluster, books: Books, node: str = "") -> Iterator[JsonObject]:
    """Every node with an inventory, by name; or only the one of this name."""
    for name, entry in sorted(cluster.nodes.items()):
        known = books.on(entry) if node in ("", name) else None
        if known is not None:
            yield {"node": name, **_document(entry, known, books)}


def _document(entry: NodeEntry, known: OnNode, books: Books) -> JsonObject:
    ground = known.ground
    allocations = known.held.allocations
    return {
        "cordoned": known.facts.cordoned,
        "maintenance": known.facts.maintenance,
        "nodeGroups": known.facts.groups,
        "amounts": amounts(ground.inventory, ground.used),
        "free": [asdict(zone) for zone in explain.free(books.answers.supply(ground))],
        "nics": [
            {
                "address": nic.address,
                "name": nic.name,
                "mbps": nic.mbps,
                **asdict(ground.used.nics.get(nic.address, NICUse())),
            }
            for nic in ground.inventory.nics
        ],
        "pods": {
            entry.pods[uid].key: allocation.document()
            for uid, allocation in sorted(allocations.items())
            if uid in entry.pods
        },
        "conflicts": [line for line, _ in holdings.conflicts(allocations)],
        "unreadable": {
            entry.pods[uid].key: why
            for uid, why in sorted(known.held.unreadable.items())
            if uid in entry.pods
        },
    }
