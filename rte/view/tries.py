"""What-if: where pods that do not exist would go, and how many of them fit."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import workload
from rte.reader import budget, yamltext
from rte.scheduler.framework import objects
from rte.scheduler.front import answers, turns
from rte.scheduler.front import fit as fits
from rte.scheduler.loop.gangs.ground import member_of

if TYPE_CHECKING:
    from rte.reader.json import JsonObject
    from rte.scheduler.loop.gangs.desk import FitDesk
    from rte.view.source import ViewKnown

#: Pods of one question, and admissions that it may cost: a fraction of a second. So it ends by
#: itself, and a thread will do; a process, which could be ended, would need the whole cluster.
_MOST_PODS = 200
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
    pods = await turns.beside(lambda: _pods(body))
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
    if len(views) > 1:
        together = await turns.beside(desk.placing(members, steps=_STEPS))
        keys = {view.uid: view.key for view in views}
        answer["together"] = {
            "verdict": str(together.verdict),
            "places": {keys.get(uid, uid): name for uid, name in together.places.items()},
        }
    return answer


def _pods(text: bytes) -> list[JsonObject]:
    found = yamltext.load_all(text, "manifest", budget.ANNOTATION, aliases=False)
    documents = [each for each in found if each is not None]
    out: list[JsonObject] = []
    for document in documents:
        if not isinstance(document, dict):
            raise errors.ParseError("manifest", document, "expected Kubernetes objects")
        is_workload = workload.is_workload(document)
        out += workload.pods_of(document, _MOST_PODS) if is_workload else [document]
    if not out:
        raise errors.ParseError("manifest", text, "there is no pod in it")
    if len(out) > _MOST_PODS:
        raise errors.ParseError("manifest", len(out), f"{_MOST_PODS} pods at most")
    # A workload stands for what its pods are, written out.
    budget.ANNOTATION.check(out, "manifest")
    for number, pod in enumerate(out):
        metadata = pod.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise errors.ParseError("metadata", metadata, "expected an object")
        metadata.setdefault("name", "pod")
        # None of the cluster's: the question is about pods that are not there.
        metadata["uid"] = f"what-if-{number}"
        if not isinstance(pod.get("spec"), dict):
            raise errors.ParseError("spec", pod.get("spec"), "expected an object")
        pod["spec"].pop("nodeName", None)
    return out
