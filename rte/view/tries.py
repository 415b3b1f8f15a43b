"""What-if: where pods that do not exist would go, and how many of them fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from rte import errors
from rte.model import workload
from rte.placement.joint import fit, gang
from rte.scheduler.framework import objects
from rte.scheduler.front import answers
from rte.scheduler.loop.gangs.ground import member_of, snapshot

if TYPE_CHECKING:
    from rte.view.source import Known

#: Pods of one question, and admissions that it may cost: a fraction of a second.
_MOST_PODS = 200
_STEPS = 5_000


def attempt(known: Known, text: str) -> dict[str, Any]:
    """Answer for the pods of a manifest: the first one node by node, all of them together.

    Raises:
        errors.RteError: the text is no manifest of pods.
    """
    pods = _pods(text)
    views = [objects.read_pod(pod, known.cluster.shapes) for pod in pods]
    first = views[0]
    nodes, left_out = snapshot(known.cluster)
    member = member_of(known.cluster, known.cycle, first)
    counted = fit.FitTable(nodes).count(member, steps=_STEPS)
    answer: dict[str, Any] = {
        "explain": answers.explain_pod(known.cluster, known.cycle, first).as_json(),
        "pods": len(views),
        "fit": {
            "total": counted.total,
            "exact": not counted.unsure,
            "copies": {name: number for name, number in counted.copies.items() if number},
            "left_out": len(left_out),
        },
    }
    if len(views) > 1:
        members = [member_of(known.cluster, known.cycle, view) for view in views]
        together = gang.place_together(nodes, members, steps=_STEPS)
        keys = {view.kubelet_uid: view.key for view in views}
        answer["together"] = {
            "verdict": str(together.verdict),
            "places": {keys.get(uid, uid): name for uid, name in together.places.items()},
        }
    return answer


def _pods(text: str) -> list[dict[str, Any]]:
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise errors.ParseError("manifest", text, " ".join(str(error).split())[:200]) from None
    out: list[dict[str, Any]] = []
    for document in documents:
        if not isinstance(document, dict):
            raise errors.ParseError("manifest", document, "expected Kubernetes objects")
        is_workload = workload.is_workload(document)
        out += workload.pods_of(document, _MOST_PODS) if is_workload else [document]
    if not out:
        raise errors.ParseError("manifest", text, "there is no pod in it")
    if len(out) > _MOST_PODS:
        raise errors.ParseError("manifest", len(out), f"{_MOST_PODS} pods at most")
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
