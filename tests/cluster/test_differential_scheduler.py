"""Our scheduler lets pods go where the real kube-scheduler lets them, and evicts no more for them.

Random clusters (``random_worlds.py``) are shown to both. kube-scheduler tells an extender which
nodes its filters let through and whom it would evict; the extender refuses all of it, so that
nothing is bound or evicted and each pod meets the same cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.cli import inputs, live
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.front.answers import explain_pod
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.room.plans import plan_on, plans
from rte.scheduler.plugins.default_preemption import EvictionPlan, could_make_room
from rte.scheduler.settings import SchedulerSettings
from rte.scheduler.shell.service import Scheduler
from tests import random_worlds
from tests.cluster import agents, builder, processes
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.scheduler.cache.cluster import Cluster as Knowledge
    from tests.cluster.api import Api, Object

pytestmark = pytest.mark.cluster

SEEDS = [int(text) for text in os.environ.get("RTE_SEEDS", "1,2").split(",")]
WAITING = int(os.environ.get("RTE_PODS", "150"))


@dataclass(frozen=True)
class Victims:
    """Of one node: how many of them budgets protect, and their UIDs."""

    violations: int
    pods: frozenset[str]


@dataclass
class Answer:
    """What a scheduler says of a pod.

    Attributes:
        nodes: that take it.
        why: node -> why not.
        rooms: node -> whom it would evict there; only where no node takes the pod.
    """

    nodes: frozenset[str] = frozenset()
    why: Mapping[str, str] = field(default_factory=dict)
    rooms: dict[str, Victims] = field(default_factory=dict)


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


@pytest.fixture
def bed() -> Iterator[Cluster]:
    """A control plane of its own: no controller changes what the pods depend on."""
    running = Cluster.start(version=os.environ.get("RTE_KUBERNETES") or builder.DEFAULT_VERSION)
    yield running
    running.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_nodes_take_a_pod_and_no_more_is_evicted_for_it(bed: Cluster, seed: int) -> None:
    agents.install(bed)
    world = random_worlds.draw(random.Random(seed), waiting=WAITING)
    pods = _create(bed, world)
    theirs = _theirs(bed, pods)
    ours = asyncio.run(_ours(bed, pods))
    drawn = {_key(pod): json.dumps(pod) for pod in world.waiting}
    items = {item["metadata"]["uid"]: item for item in bed.api.get("/api/v1/pods")["items"]}
    priorities = {uid: item["spec"].get("priority", 0) for uid, item in items.items()}
    leaving = {uid for uid, item in items.items() if "deletionTimestamp" in item["metadata"]}
    wrong = []
    for key in pods:
        for name in theirs[key].nodes ^ ours[key].nodes:
            wrong.append(f"{key} on {name}: {ours[key].why.get(name, 'fits')} {drawn[key]}")
        for name, victims in theirs[key].rooms.items():
            if victims.pods & leaving and "topologySpreadConstraints" in pods[key]["spec"]:
                # kube-scheduler does not count who is leaving, but counts his end
                # (podtopologyspread/filtering.go, updateWithPod): the room may be none.
                continue
            if not _is_no_worse(ours[key].rooms.get(name), victims, priorities):
                wrong.append(
                    f"room for {key} on {name}: {ours[key].rooms.get(name)}, not {victims}; "
                    f"{ours[key].why[name]} {drawn[key]}"
                )
    assert not wrong, "\n".join(wrong)
    refused = [key for key in pods if not theirs[key].nodes]
    assert len(pods) > 0.8 * WAITING
    assert 0.2 * len(pods) < len(refused) < 0.8 * len(pods)
    assert any(theirs[key].rooms for key in pods)


def _is_no_worse(ours: Victims | None, theirs: Victims, priorities: Mapping[str, int]) -> bool:
    def cost(victims: Victims) -> tuple[int, int]:
        return victims.violations, max(priorities[uid] for uid in victims.pods)

    return ours is not None and (not ours.pods or cost(ours) <= cost(theirs))


def _create(bed: Cluster, world: random_worlds.World) -> dict[str, Object]:
    """Make the world; the pods that wait, as the API server has stored them."""
    api = bed.api
    for path, item in world.namespaces:
        api.create(path, item)
    for name in random_worlds.NAMESPACES:
        api.wait(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda a: a is not None)
    bed.stop_role("controller-manager")
    for path, item in world.objects:
        if _accepted(api, path, item) and path.endswith("/nodes"):
            # Without a node controller nobody takes away the taint of a node that is new.
            taints = {"spec": {"taints": item["spec"]["taints"]}}
            api.patch(f"{path}/{item['metadata']['name']}", taints)
    for path, status in world.statuses:
        if api.find(path):
            api.patch(f"{path}/status", {"status": status})
    for path in world.leaving:
        api.delete(path, grace=3600)
    out = {}
    for pod in world.waiting:
        made = _accepted(api, f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        if made is not None:
            out[_key(made)] = made
    return out


def _accepted(api: Api, path: str, item: Object) -> Object | None:
    """The object as it was stored; None where its parts do not go together, or are too new."""
    try:
        return api.create(path, item)
    except errors.KubeError as error:
        if error.status != 422 or not path.endswith(("/pods", "/resourceclaims")):
            raise
        return None


# --- kube-scheduler


def _theirs(bed: Cluster, pods: Mapping[str, Object]) -> dict[str, Answer]:
    answers = {key: Answer() for key in pods}

    class Extender(BaseHTTPRequestHandler):
        """Takes note of what it is offered, and refuses it."""

        def do_POST(self) -> None:
            args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = answers[_key(args["Pod"])]
            if self.path == "/filter":
                found.nodes = frozenset(args["NodeNames"])
                answer = {"NodeNames": [], "FailedNodes": {}}
            else:
                offered = args["NodeNameToMetaVictims"]
                found.rooms = {name: _victims(meta) for name, meta in offered.items()}
                answer = {"NodeNameToMetaVictims": {}}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Extender) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        bed.start_scheduler(config=_configuration(server.server_address[1]))
        processes.wait_until(lambda: _are_judged(bed, pods), 120, "kube-scheduler's answers")
        bed.stop_role("scheduler")
        server.shutdown()
    for answer in answers.values():
        if answer.nodes:
            answer.rooms = {}
    return answers


def _configuration(port: int) -> Object:
    every = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "DefaultPreemptionArgs",
        "minCandidateNodesPercentage": 100,
        "minCandidateNodesAbsolute": 100,
    }
    profile = {
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": "DefaultPreemption", "args": every}],
    }
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "nodeCacheCapable": True,
    }
    return {"percentageOfNodesToScore": 100, "extenders": [extender], "profiles": [profile]}


def _victims(meta: Object) -> Victims:
    uids = frozenset(pod["UID"] for pod in meta["Pods"])
    return Victims(meta.get("NumPDBViolations", 0), uids)


def _are_judged(bed: Cluster, pods: Mapping[str, Object]) -> bool:
    refused = {
        _key(pod)
        for pod in bed.api.get("/api/v1/pods")["items"]
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }
    return refused >= pods.keys()


# --- rte


async def _ours(bed: Cluster, pods: Mapping[str, Object]) -> dict[str, Answer]:
    settings = SchedulerSettings(scheduler_name="nobody")
    async with Client(credentials.load(bed.kubeconfig, {})) as client:
        scheduler = Scheduler(client, settings)
        running = asyncio.create_task(scheduler.run())
        try:
            deadline = time.monotonic() + 30
            while scheduler.readiness.reasons:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            cluster, problems = inputs.build_cluster(await live.read_objects(client))
            assert not problems
            uids = [made["metadata"]["uid"] for made in pods.values()]
            by_watches = [_answer(scheduler.cluster, scheduler.cycle, uid) for uid in uids]
            # What ``rte explain`` reads once tells it the same.
            assert [_answer(cluster, Cycle(cluster), uid) for uid in uids] == by_watches
            return dict(zip(pods, by_watches, strict=True))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _answer(cluster: Knowledge, cycle: Cycle, uid: str) -> Answer:
    pod = cluster.pods[uid]
    told = explain_pod(cluster, cycle, pod)
    answer = Answer(
        nodes=frozenset(node.node for node in told.nodes if node.fits),
        why={node.node: node.reason for node in told.nodes if not node.fits},
    )
    assert told.chosen in answer.nodes if answer.nodes else told.chosen is None, told
    if pod.preempts and not answer.nodes and not told.problem:
        offered = [each for each in plans(cycle, cluster, pod) if isinstance(each, EvictionPlan)]
        # Plans end where no other node could do with less: every node is asked beside them.
        around = cycle.around(pod)
        every = [
            plan
            for entry in cluster.nodes.values()
            if entry.info is not None
            and could_make_room(pod, entry, cycle.check(entry, pod, around))
            if (plan := plan_on(cycle, cluster, pod, entry, around=around)) is not None
        ]
        costs = [min((plan.cost for plan in some), default=None) for some in (offered, every)]
        assert costs[0] == costs[1], pod.name
        for plan in every:
            uids = frozenset(each.uid for each in plan.victims)
            answer.rooms[plan.node] = Victims(plan.violations, uids)
    return answer
