"""Pods that come and go, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import orjson

from rte.placement.groups import request
from rte.sim.apiserver import DeleteOptions, Query, StatusError
from rte.sim.controllers.controller import has_ended
from rte.sim.demo import plain
from rte.sim.demo.cluster import CLAIM_TEMPLATE, GPU, GROUPS_TAINT, NAMESPACE

if TYPE_CHECKING:
    from rte.sim.apiserver import API

#: Ended pods are shown this long, then deleted.
_KEEP_SECONDS = 4.0
#: Where rules are compared: how much longer pods run, and how many may wait.
_LASTING, _MOST_WAITING = 1.5, 20
_GANG_SIZE = 3
#: kind, weight (by itself, and where rules are compared), CPUs (text), memory (GiB)
_KINDS = (
    ("pinned", (5, 4), ("2", "2", "4", "4", "6", "8"), (1, 2, 4)),
    ("gpu", (2, 1), ("2", "4"), (2, 4)),
    ("dra", (1, 0), ("2", "4"), (2, 4)),
    ("gang", (1, 1), ("2", "3"), (1, 2)),
    ("groups", (1, 0), ("0",), (1,)),
    ("shared", (3, 1), ("500m", "1500m"), (1, 2)),
    ("huge", (1, 6), ("12", "14"), (8,)),
)


def draw(
    chooser: random.Random,
    number: int,
    *,
    claims: bool = False,
    groups: bool = False,
    compared: bool = False,
) -> list[dict[str, Any]]:
    """What comes next: a pod, or a PodGroup and its pods.

    Args:
        chooser: source of chance.
        number: of the pod, for its name.
        claims: it may be one with a GPU of DRA.
        groups: it may be one with processing groups.
        compared: rules are compared: it is larger, and lasts longer.
    """
    kinds = [kind for kind, *_ in _KINDS]
    possible = {"dra": claims, "groups": groups}
    weights = [both[compared] * possible.get(kind, True) for kind, both, *_ in _KINDS]
    kind, _, cpus, memory = _KINDS[kinds.index(chooser.choices(kinds, weights)[0])]
    amounts = {"cpu": chooser.choice(cpus), "memory": f"{chooser.choice(memory)}Gi"}
    if kind == "gpu":
        amounts[GPU] = "1"
    seconds = round(chooser.uniform(6, 22) * (_LASTING if compared else 1), 1)
    limits = {} if kind == "shared" else {"limits": amounts}
    if kind == "groups":
        return [with_groups(pod(f"{kind}-{number}", {}, seconds), chooser.choice((2, 3, 4)))]
    if kind == "gang":
        return gang(f"{kind}-{number}", {"requests": amounts, **limits}, seconds)
    made = pod(f"{kind}-{number}", {"requests": amounts, **limits}, seconds)
    return [claiming(made) if kind == "dra" else made]


def pod(name: str, resources: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A pod of one container that ends by itself."""
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "rte-scheduler",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": "demo:1",
                    "command": ["sleep", f"{seconds:g}"],
                    "resources": resources,
                }
            ],
        },
    }


def gang(name: str, resources: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """A PodGroup and its pods: all of them are placed, or none."""
    described = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": _GANG_SIZE}}},
    }
    pods = [pod(f"{name}-{number}", resources, seconds) for number in range(_GANG_SIZE)]
    for one in pods:
        one["spec"]["schedulingGroup"] = {"podGroupName": name}
    return [described, *pods]


def with_groups(obj: dict[str, Any], workers: int) -> dict[str, Any]:
    """The pod with two processing groups, each in one zone; the scheduler chooses their CPUs."""
    wanted = {
        "version": 1,
        "misc": {"count": 1},
        "groups": [{"name": "radio", "workers": workers}, {"name": "core", "workers": 2}],
    }
    obj["metadata"]["annotations"] = {request.ANNOTATION: orjson.dumps(wanted).decode()}
    obj["spec"]["tolerations"] = [{"key": GROUPS_TAINT, "operator": "Exists"}]
    return obj


def make(api: API, obj: dict[str, Any], beside: API | None = None) -> None:
    """Create a pod or PodGroup, and what stands for it in a cluster with plain rules."""
    twin = plain.counterpart(obj) if beside else None
    api.create("podgroups" if obj.get("kind") == "PodGroup" else "pods", obj, NAMESPACE)
    if beside and twin:
        beside.create("pods", twin, NAMESPACE)


def claiming(obj: dict[str, Any]) -> dict[str, Any]:
    """The pod with a claim for a GPU of DRA."""
    entry = {"name": "gpu", "resourceClaimTemplateName": CLAIM_TEMPLATE}
    obj["spec"]["resourceClaims"] = [entry]
    obj["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return obj


async def come_and_go(
    api: API, *, rate: float, seed: int, groups: bool = False, beside: API | None = None
) -> None:
    """Create ``rate`` pods a second until cancelled, and clear away those that have ended.

    Args:
        api: where.
        rate: pods a second.
        seed: of the random pods.
        groups: a node serves processing groups.
        beside: the same pods are created here as well.
    """
    chooser = random.Random(seed)
    number = 0
    claims = bool(api.list("resourceslices").items)
    async with asyncio.TaskGroup() as group:
        for one in (api, beside):
            if one is not None:
                group.create_task(_clear_away(one), name="clear away")
        while True:
            # Where rules are compared the machines are full, and those that wait are some few.
            if not beside or _waiting(api) < _MOST_WAITING:
                number += 1
                for obj in draw(
                    chooser, number, claims=claims, groups=groups, compared=bool(beside)
                ):
                    make(api, obj, beside)
            await asyncio.sleep(chooser.expovariate(rate))


def _waiting(api: API) -> int:
    pods = api.list("pods", Query(namespace=NAMESPACE)).items
    return sum(not obj["spec"].get("nodeName") for obj in pods)


async def _clear_away(api: API) -> None:
    ended: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0.5)
        pods = api.list("pods", Query(namespace=NAMESPACE)).items
        _clear_groups(api, pods)
        for obj in pods:
            metadata = obj["metadata"]
            if not has_ended(obj):
                continue
            since = ended.setdefault(metadata["uid"], loop.time())
            if loop.time() - since > _KEEP_SECONDS:
                del ended[metadata["uid"]]
                try:
                    options = DeleteOptions(grace=0, uid=metadata["uid"])
                    api.delete("pods", metadata["name"], metadata["namespace"], options)
                except StatusError as error:
                    if error.status not in (404, 409):  # its kubelet was faster
                        raise


def _clear_groups(api: API, pods: list[dict[str, Any]]) -> None:
    """PodGroups whose pods are gone."""
    used = {(obj["spec"].get("schedulingGroup") or {}).get("podGroupName") for obj in pods}
    for group in api.list("podgroups", Query(namespace=NAMESPACE)).items:
        name = group["metadata"]["name"]
        if name not in used:
            api.delete("podgroups", name, NAMESPACE)
