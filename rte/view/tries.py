"""What-if: where pods that do not exist would go, and how many of them fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rte import placement
from rte.model import bits
from rte.scheduler.framework import objects
from rte.scheduler.front import answers, turns
from rte.scheduler.front import fit as fits
from rte.scheduler.front.groups import books_of
from rte.scheduler.loop.gangs.ground import member_of
from rte.view import manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.node import NodeState
    from rte.reader.json import JsonObject
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.gangs.desk import FitDesk
    from rte.view.source import ViewKnown

#: Admissions that a question may cost: a fraction of a second. So it ends by itself, and a thread
#: will do; a process, which could be ended, would need the whole cluster.
_STEPS = 5_000


async def attempt(known: ViewKnown, desk: FitDesk, body: bytes) -> JsonObject:
    """Answer for the pods of a manifest: the first one node by node, all of them together.

    Args:
        known: the cluster.
        desk: of the same cluster.
        body: the manifest.

    Raises:
        errors.RteError: the text is no manifest of pods.
    """
    owned = (field for plugin in known.cycle.profile.plugins for field in plugin.owns)
    fields = frozenset(field.partition(".")[0] for field in owned)
    pods = await turns.beside(lambda: manifest.read_pods(body, fields))
    views = []
    for pod in pods:
        views.append(objects.read_pod(pod, known.cluster.shapes))
        await asyncio.sleep(0)
    first = views[0]
    explained = await turns.in_slices(answers.explain_steps(known.cluster, known.cycle, first))
    await fits.caught_up(desk)
    members = await fits.members_of(views, partial(member_of, known.cluster, known.cycle))
    counting, left_out = desk.counting(members[0], steps=_STEPS), desk.left_out()
    counted = await turns.beside(counting)
    answer: JsonObject = {
        "explain": await turns.beside(explained.as_json),
        "pods": len(views),
        "fit": {
            "total": counted.total,
            "exact": not counted.unsure,
            "copies": {name: number for name, number in counted.copies.items() if number},
            "left_out": left_out,
        },
    }
    places = {first.uid: explained.chosen} if explained.chosen else {}
    if len(views) > 1:
        together = await turns.beside(desk.placing(members, steps=_STEPS))
        keys = {view.uid: view.key for view in views}
        places = dict(together.places)
        answer["together"] = {
            "verdict": str(together.verdict),
            "places": {keys.get(uid, uid): name for uid, name in together.places.items()},
        }
    answer["takes"] = await _takes(known, views, places)
    return answer


async def _takes(
    known: ViewKnown, views: Sequence[PodView], places: Mapping[str, str | None]
) -> dict[str, str]:
    """Node -> CPUs of its own that the pods would get there, one after the other."""
    states: dict[str, NodeState] = {}
    taken: dict[str, int] = {}
    for view in views:
        await asyncio.sleep(0)
        name = places.get(view.uid) or ""
        entry = known.cluster.nodes.get(name)
        outlook = entry.outlook() if entry else None
        if entry is None or outlook is None:
            continue
        state = states.get(name, outlook.predicted)
        admission = placement.execute(state, replace(view.shape.pod, uid=view.kubelet_uid))
        if not admission.admitted:
            continue
        states[name] = admission.state
        taken[name] = taken.get(name, 0) | admission.state.held_cpus(view.kubelet_uid)
        wish, ground = books_of(known.cycle).valid(view.shape), books_of(known.cycle).on(entry)
        if wish is not None and ground is not None and len(views) == 1:
            given = books_of(known.cycle).answers.place(wish, ground.ground).allocation
            taken[name] |= given.cpu_mask() if given else 0
    return {name: bits.format_list(cpus) for name, cpus in taken.items() if cpus}
