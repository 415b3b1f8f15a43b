"""Pods that come and go, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import DeleteOptions, StatusError
from rte.sim.demo.cluster import CLAIM_TEMPLATE, GPU

if TYPE_CHECKING:
    from rte.sim.apiserver import API

#: Ended pods are shown this long, then deleted.
_KEEP_SECONDS = 4.0
#: kind, weight, CPUs (text), memory (GiB)
_KINDS = (
    ("pinned", 5, ("2", "2", "4", "4", "6", "8"), (1, 2, 4)),
    ("gpu", 2, ("2", "4"), (2, 4)),
    ("dra", 1, ("2", "4"), (2, 4)),
    ("shared", 3, ("500m", "1500m"), (1, 2)),
    ("huge", 1, ("12", "14"), (8,)),
)


def draw(chooser: random.Random, number: int, *, claims: bool = False) -> dict[str, Any]:
    """One pod; ``claims``: it may be one with a GPU of DRA."""
    kinds = [kind for kind, *_ in _KINDS]
    weights = [weight if claims or kind != "dra" else 0 for kind, weight, *_ in _KINDS]
    kind, _, cpus, memory = _KINDS[kinds.index(chooser.choices(kinds, weights)[0])]
    amounts = {"cpu": chooser.choice(cpus), "memory": f"{chooser.choice(memory)}Gi"}
    if kind == "gpu":
        amounts[GPU] = "1"
    seconds = round(chooser.uniform(6, 22), 1)
    limits = {} if kind == "shared" else {"limits": amounts}
    made = pod(f"{kind}-{number}", {"requests": amounts, **limits}, seconds)
    return claiming(made) if kind == "dra" else made


def pod(name: str, resources: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A pod of one container that ends by itself."""
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "rte-demo"}},
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


def claiming(obj: dict[str, Any]) -> dict[str, Any]:
    """The pod with a claim for a GPU of DRA."""
    entry = {"name": "gpu", "resourceClaimTemplateName": CLAIM_TEMPLATE}
    obj["spec"]["resourceClaims"] = [entry]
    obj["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return obj


async def come_and_go(api: API, *, rate: float, seed: int) -> None:
    """Create ``rate`` pods a second until cancelled, and clear away those that have ended."""
    chooser = random.Random(seed)
    number = 0
    claims = bool(api.list("resourceslices").items)
    async with asyncio.TaskGroup() as group:
        group.create_task(_clear_away(api), name="clear away")
        while True:
            number += 1
            api.create("pods", draw(chooser, number, claims=claims), "default")
            await asyncio.sleep(chooser.expovariate(rate))


async def _clear_away(api: API) -> None:
    ended: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0.5)
        for obj in api.list("pods").items:
            metadata = obj["metadata"]
            ours = (metadata.get("labels") or {}).get("app.kubernetes.io/managed-by") == "rte-demo"
            if not ours or obj["status"].get("phase") not in ("Succeeded", "Failed"):
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
