"""Questions that nobody expects, to every door of a scheduler: the handlers, without a socket."""

# ruff: noqa: E501 - documents read best in one line

from __future__ import annotations

import asyncio
import json
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from rte import errors
from rte.scheduler.front import explain, fit, usage
from rte.scheduler.front.extender import Extender
from rte.scheduler.loop.messages import Bound, Outcome
from rte.view import routes as page
from rte.view.source import ViewSource
from tests.fuzz import memory, objects, scheduler
from tests.fuzz.scheduler import Finding
from tests.fuzz.values import DEEP, ODD, TEXTS, damaged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.scheduler.loop.cycle import Decision
    from tests.unit.scheduler.desk import Desk

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Of one question, in seconds of CPU: what is asked costs its asker, who waits for a turn.
CPU_S = 1.0

#: A cluster, with so many objects that nobody expects, is asked so many questions.
OBJECTS, BATCH = 5, 20

#: A few lines of YAML that stand for very many.
_BOMB = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


class _Client:
    """An API server that has no objects but pods that are asked for by name, and takes binds."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}

    async def get(self, path: str) -> Any:
        found = self.pods.get(path.rpartition("/")[2])
        if found is None:
            raise errors.KubeError(f"{path}: not found", status=404)
        return found


def run(cases: int, seed: int, most: int = 1) -> list[Finding]:
    """Ask so many questions; the first findings."""
    found: list[Finding] = []
    for first in range(0, cases, BATCH):
        found += asyncio.run(_batch(seed, first, min(BATCH, cases - first)))
        if len(found) >= most:
            break
    return found


async def _batch(seed: int, first: int, count: int) -> list[Finding]:
    desk = scheduler.cluster()
    rng = random.Random(seed * 1_000_003 + first)
    for number in range(OBJECTS):
        desk.put(*scheduler.draw(rng, first + number))
    handlers = _handlers(desk)
    for case in range(first, first + count):
        rng = random.Random(seed * 1_000_003 + case)
        path = rng.choice(sorted(handlers))
        subject = path, _query(rng, desk), _body(rng, path, desk)
        began = time.process_time()
        try:
            with memory.bounded():
                status = await _ask(handlers[path], *subject)
        except Exception as error:  # noqa: BLE001 - whatever is raised is what is looked for
            return [Finding(seed, case, repr(error), subject)]
        cpu = time.process_time() - began
        if status >= 500 or cpu > CPU_S:
            return [Finding(seed, case, f"status {status}, {cpu * 1000:.0f} ms of CPU", subject)]
    return []


def _handlers(desk: Desk) -> dict[str, Handler]:
    client: Any = _Client()
    for number in range(BATCH):
        pod = objects.pod(random.Random(number), number)
        pod["spec"].pop("nodeName", None)
        client.pods[f"odd-{number}"] = pod

    def place(pod: Any, decision: Decision) -> asyncio.Task[Bound]:
        desk._carry_out(desk.machine.place(pod, decision, desk.now))
        return asyncio.ensure_future(_known(Bound(pod.uid, Outcome.BOUND)))

    known: Any = SimpleNamespace(
        cluster=desk.machine.cluster,
        cycle=desk.machine.cycle,
        machine=desk.machine,
        is_active=lambda: True,
        spawn=lambda work: work.close(),
        feed=lambda event: desk.put("pods", event.obj["metadata"]["uid"], event.obj),
        place=place,
    )
    turns: Any = SimpleNamespace(protect=list)
    source = ViewSource(known)
    offered = [
        *explain.routes(known),
        *fit.routes(known),
        *usage.routes(known),
        *Extender(known, client, profiles=("rte-scheduler", "default-scheduler")).routes(),
        *page.routes(source, turns),
    ]
    return {
        f"{route.method} {route.path}": route.handler  # type: ignore[misc]
        for route in offered
        if route.path not in ("/view", "/view/events")
    }


async def _known(bound: Bound) -> Bound:
    return bound


async def _ask(handler: Handler, path: str, query: str, body: bytes) -> int:
    method, _, where = path.partition(" ")
    loop = asyncio.get_running_loop()
    payload = StreamReader(BaseProtocol(loop), 1 << 24, loop=loop)
    payload.feed_data(body)
    payload.feed_eof()
    request = make_mocked_request(method, f"{where}?{query}", payload=payload)
    try:
        return (await handler(request)).status
    except web.HTTPException as refused:
        return refused.status


def _query(rng: random.Random, desk: Desk) -> str:
    names = [
        "a",
        "b",
        "missing",
        "",
        "%00",
        "x" * 300,
        *(pod.name for pod in desk.machine.cluster.pods.values()),
    ]
    key = rng.choice(("name", "pod", "node", "t", "namespace"))
    value = rng.choice([*names, "nan", "1e400", "9" * 400, "default/x", *desk.machine.cluster.pods])
    return f"{key}={value}"


def _body(rng: random.Random, path: str, desk: Desk) -> bytes:
    mood = rng.random()
    if mood < 0.15:
        return rng.choice((*TEXTS, *DEEP, _BOMB)).encode()
    pod = objects.pod(rng, rng.randrange(1000))
    del pod["spec"]["schedulerName"]
    asked: Any = pod
    if path in ("POST /filter", "POST /prioritize", "POST /preempt"):
        victims = {
            "Pods": [{"UID": uid} for uid in (*desk.machine.cluster.pods, "u")],
            "NumPDBViolations": 0,
        }
        asked = {
            "Pod": pod,
            "NodeNames": ["a", "b", "missing"],
            "NodeNameToMetaVictims": {"a": victims},
        }
        if rng.random() < 0.3:
            asked |= {"NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "a"}}]}}
    elif path == "POST /bind":
        # One that the cluster has, one that is read first, and one that is not what it was.
        number = rng.randrange(BATCH)
        uids = [f"uid-odd-{number}", *desk.machine.cluster.pods]
        asked = {"PodName": f"odd-{number}", "PodNamespace": "default", "PodUID": rng.choice(uids),
                 "Node": rng.choice(("a", "b", "ordinary", "missing"))}  # fmt: skip
    elif rng.random() < 0.5:
        asked = {"pods": [pod], "count": rng.choice((None, 1, 3, 1024, 2**40)), "minCount": rng.choice((None, 1, 2)),
                 "topologyKey": rng.choice(("", "zone", "kubernetes.io/hostname"))}  # fmt: skip
        if path == "POST /view/try":
            template = {"metadata": pod["metadata"], "spec": pod["spec"]}
            asked = {
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": {"template": template, "parallelism": rng.choice((*ODD, 1, 3, 200))},
            }
    if rng.random() < 0.7:
        asked = damaged(rng, {"v": asked}).get("v")
    return json.dumps(asked).encode()
