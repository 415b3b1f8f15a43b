"""Pods bound per second, end to end: ``python -m bench.scheduler_pace [--nodes 5000]``.

A real API server; nodes are objects without a kubelet, of 8 or 16 CPUs in two zones, a third of
them tainted, each with its report. All pods are there before a scheduler starts, as an API server
stores them (default tolerations, five priorities, a fifth with inter-pod terms), and more than fit
where ``--pods`` is large. One after the other the real kube-scheduler of the same release
and ``rte scheduler`` place the same pods; beside both, a program plays all kubelets by the exact
model, refuses what it refuses, and publishes the reports. One JSON line for each:

* ``pods_per_s``: binds between the first and the one that completes nine tenths of them, by the
  watch of pods (the last ones wait for kubelets, or for room); ``to_the_last``: all of them;
* ``bound``, ``refused`` (by the kubelets), ``waiting`` (no bind for 10 s);
* ``cpu_s`` of the scheduler, ``ratio`` of pods/s to kube-scheduler's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psutil

from bench.lib import bed
from bench.lib.kubelets import static_config
from bench.scheduler_scale import machine, pod_object, stored, topology
from rte import nrt, placement
from rte.kube import credentials
from rte.kube.client import Client
from rte.kube.resources import NODES, NRTS, PODS
from rte.kube.watch import watch
from rte.model.node import NodeReading
from rte.scheduler.framework import objects
from rte.scheduler.framework.shape import Shapes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rte.model.node import NodeState
    from rte.scheduler.framework.objects import PodView
    from tests.cluster.cluster import Cluster

#: No further bind within this: the scheduler is done.
QUIET_S = 10.0

#: Requests under way at a time.
WIDTH = 32

SUBJECTS = ("kube-scheduler", "rte")


@dataclass
class Kubelets:
    """All kubelets, by the exact model, and what they have seen.

    Each goes its own way: what came while it was writing is told by its next report.
    """

    client: Client
    states: dict[str, NodeState]
    versions: dict[str, str] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=Shapes)
    bound: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    waiting: dict[str, list[PodView]] = field(default_factory=dict)
    busy: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    width: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WIDTH))

    async def follow(self) -> None:
        """Every kubelet meets what is bound to it."""
        events = watch(self.client, PODS.path())
        async with asyncio.TaskGroup() as group, contextlib.aclosing(events):
            async for event in events:
                if event.kind in ("ADDED", "MODIFIED"):
                    pod = objects.read_pod(event.object, self.shapes)
                    if pod.node and pod.uid not in self.bound:
                        self.bound[pod.uid] = time.monotonic()
                        self.waiting.setdefault(pod.node, []).append(pod)
                        group.create_task(self.serve(pod.node))

    async def serve(self, name: str) -> None:
        """One kubelet meets those that wait for it, and tells what it holds then."""
        async with self.busy[name], self.width:
            pods, self.waiting[name] = self.waiting[name], []
            before = self.states[name]
            for pod in pods:
                await self.meet(pod)
            if self.states[name] is not before:
                await self.publish(name)

    async def meet(self, pod: PodView) -> None:
        """A pod was bound: admit or refuse it."""
        after = placement.admit(self.states[pod.node], pod.shape.as_pod(pod.uid))
        if after.verdict == "admitted":
            admitted = after.state.admitted | {pod.uid}
            self.states[pod.node] = replace(after.state, admitted=admitted)
            return
        self.refused += 1
        status = {"phase": "Failed", "reason": after.reason, "message": after.message}
        path = PODS.path(pod.name, namespace=pod.namespace) + "/status"
        await self.client.patch(path, {"status": status})

    async def publish(self, name: str) -> None:
        """The agent's report of what the kubelet has now."""
        report = report_of(name, self.states[name])
        report["metadata"]["resourceVersion"] = self.versions[name]
        written = await self.client.update(NRTS.path(name), report)
        self.versions[name] = written["metadata"]["resourceVersion"]


def report_of(name: str, state: NodeState) -> dict[str, Any]:
    reading = NodeReading(node_name=name, machine=machine(state.topology), state=state)
    return nrt.encode(reading)


def kubelet_state(number: int) -> NodeState:
    shape = topology(2, 4 if number % 2 else 8)
    return placement.initial_state(shape, static_config(), {}, "v1.35.4")


def node_object(number: int, name: str, state: NodeState) -> dict[str, Any]:
    cpus = len(state.topology.cpus)
    amounts = {"cpu": str(cpus - 1), "memory": f"{4 * cpus - 1}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"zone": str(number % 9), "kubernetes.io/hostname": name},
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pods_of(count: int, rng: random.Random, scheduler: str) -> Iterable[dict[str, Any]]:
    for number in range(count):
        obj = stored(pod_object(number, [(rng.choice([1, 2, 3, 4]), 512)]), number)
        spec = obj["spec"]
        spec["schedulerName"] = scheduler
        spec["priorityClassName"] = f"p{spec.pop('priority')}"
        del spec["preemptionPolicy"], spec["volumes"]
        for box in spec["containers"]:
            box["image"] = "i:1"
        for rule in spec.get("topologySpreadConstraints") or ():
            rule["topologyKey"] = "zone"
        meta = {"name": f"p{number}", "labels": obj["metadata"]["labels"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def each(items: Iterable[Any], work: Callable[[Any], Awaitable[Any]]) -> None:
    """Do the work for all items, some at a time."""
    waiting = iter(items)

    async def some() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(WIDTH):
            group.create_task(some())


async def prepare(client: Client, states: dict[str, NodeState]) -> None:
    """Nodes that are ready to take pods, and PriorityClasses."""
    for value in range(5):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"p{value}"},
            "value": value,
            "preemptionPolicy": "Never",
        }
        await client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)

    async def add(item: tuple[int, str]) -> None:
        number, name = item
        await client.create(NODES.path(), node_object(number, name, states[name]))
        # A new Node has a taint until its kubelet is ready.
        taint = [{"key": "team", "value": "x", "effect": "NoSchedule"}] if number % 3 == 0 else []
        await client.patch(NODES.path(name), {"spec": {"taints": taint}})

    await each(enumerate(states), add)


async def race(cluster: Cluster, client: Client, subject: str, args: argparse.Namespace) -> Any:
    """One scheduler places the pods; its line."""
    states = {f"n{number:05}": kubelet_state(number) for number in range(args.nodes)}
    if subject == SUBJECTS[0]:
        await prepare(client, states)
    kubelets = Kubelets(client, states)

    async def report(name: str) -> None:
        with contextlib.suppress(Exception):
            await client.delete(NRTS.path(name))
        written = await client.create(NRTS.path(), report_of(name, states[name]))
        kubelets.versions[name] = written["metadata"]["resourceVersion"]

    await each(states, report)
    rng, pods = random.Random(args.seed), PODS.path(namespace="default")
    await each(pods_of(args.pods, rng, subject), lambda body: client.create(pods, body))
    following = asyncio.create_task(kubelets.follow(), name="kubelets")
    await asyncio.sleep(2.0)
    if subject == "rte":
        command = [
            sys.executable, "-m", "rte", "scheduler", f"--kubeconfig={cluster.kubeconfig}",
            "--scheduler-name=rte", "--no-leader-elect", "--listen=off",
        ]  # fmt: skip
        cluster.spawn(subject, command)
    else:
        connection = {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000}
        cluster.start_scheduler(subject, config={"clientConnection": connection}, role=subject)
    began = time.monotonic()
    while (
        len(kubelets.bound) < args.pods
        and time.monotonic() - max(kubelets.bound.values(), default=began + 50) < QUIET_S
    ):
        await asyncio.sleep(0.2)
        if following.done():
            following.result()
    moments = sorted(kubelets.bound.values())
    seen = len(moments)
    spent = sum(sum(p.cpu_times()[:2]) for p in map(psutil.Process, cluster.pids(subject)))
    cluster.stop_role(subject)
    following.cancel()
    await asyncio.wait([following])
    names = [item["metadata"]["name"] for item in (await client.get(pods))["items"]]
    grace = {"gracePeriodSeconds": 0}
    await each(names, lambda name: client.delete(PODS.path(name, namespace="default"), grace))
    return {
        "subject": subject,
        "nodes": args.nodes,
        "pods": args.pods,
        "pods_per_s": rate(moments[: max(2, 9 * seen // 10)]),
        "to_the_last": rate(moments),
        "bound": seen,
        "refused": kubelets.refused,
        "waiting": args.pods - seen,
        "cpu_s": round(spent, 1),
    }


def rate(moments: list[float]) -> float:
    """Events a second between the first and the last."""
    if len(moments) < 2:
        return 0.0
    return round((len(moments) - 1) / (moments[-1] - moments[0]), 1)


async def measure(cluster: Cluster, args: argparse.Namespace) -> int:
    cluster.kubectl("apply", "-k", "manifests/crd")
    # It would take nodes without a kubelet for dead.
    cluster.stop_role("controller-manager")
    rates = []
    async with Client(credentials.load(cluster.kubeconfig, {}), timeout_s=60.0) as client:
        for subject in SUBJECTS:
            line = await race(cluster, client, subject, args)
            rates.append(line["pods_per_s"])
            print(json.dumps({**line, "ratio": round(rates[-1] / rates[0], 2)}), flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", default="")
    args = parser.parse_args()
    options = {"version": args.version} if args.version else {}
    return bed.run("scheduler_pace", lambda cluster: asyncio.run(measure(cluster, args)), **options)


if __name__ == "__main__":
    sys.exit(main())
