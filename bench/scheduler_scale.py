"""Decisions per second over many nodes, in process: ``python -m bench.scheduler_scale``.

Nodes of mixed shapes (2 to 8 zones, 64 to 192 CPUs, each policy and scope), a third of them partly
full. *Repeated*: pods of eight shapes, one after the other, each placed. *New*: each pod asks for
something nobody has asked for before. A kubelet confirms a pod 50 decisions after its own; no
kubelet refuses one, or the run fails. Start-up is the reading of all objects until the first
decision; objects are encoded as the API server would send them.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bench.lib.kubelets import GIB, static_config
from rte import nrt, placement
from rte.model.machine import CPU, Machine, Zone
from rte.model.node import CPUInfo, NodeReading, Topology, ZoneInfo
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import node, objects
from rte.scheduler.loop.cycle import Cycle

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView

SHAPES = [(2, 32), (2, 64), (4, 16), (4, 32), (8, 16), (8, 24)]
POLICIES = ["single-numa-node", "single-numa-node", "single-numa-node", "restricted", "best-effort"]


def topology(zones: int, cpus: int) -> Topology:
    return Topology(
        cpus=tuple(
            CPUInfo(cpu=cpu, core=cpu - cpu % 2, socket=zone, zone=zone, uncore=zone)
            for zone in range(zones)
            for cpu in range(zone * cpus, (zone + 1) * cpus)
        ),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=cpus * 4 * GIB,
                distances=tuple(10 if other == zone else 20 for other in range(zones)),
            )
            for zone in range(zones)
        ),
        sockets=zones,
    )


def machine(shape: Topology) -> Machine:
    return Machine(
        cpus=tuple(
            CPU(id=c.cpu, core=c.core, die=0, socket=c.socket, zone=c.zone) for c in shape.cpus
        ),
        zones=tuple(
            Zone(id=z.id, cpus=shape.zone_cpus[z.id], memory_bytes=z.memory_bytes)
            for z in shape.zones
        ),
    )


def pod_object(number: int, boxes: list[tuple[int, int]], node_name: str = "") -> dict[str, Any]:
    containers = []
    for index, (cpu, mem) in enumerate(boxes):
        asked = {"cpu": str(cpu), "memory": f"{mem}Mi"}
        containers.append({"name": f"c{index}", "resources": {"requests": asked, "limits": asked}})
    spec: dict[str, Any] = {"schedulerName": "rte-scheduler", "containers": containers}
    if node_name:
        spec["nodeName"] = node_name
    return {
        "metadata": {
            "name": f"p{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "resourceVersion": str(number + 1),
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def stored(obj: dict[str, Any], number: int) -> dict[str, Any]:
    """The pod as an API server stores it; a fifth of them have inter-pod terms or spread."""
    spec = {
        **obj["spec"],
        "priority": number % 5,
        "preemptionPolicy": "PreemptLowerPriority",
        "serviceAccountName": "default",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
             "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": "kube-api-access", "projected": {"sources": [{"configMap": {}}]}}],
    }  # fmt: skip
    labels = {"app": f"a{number % 40}"}
    selector = {"matchLabels": labels}
    if number % 10 == 0:
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        hard = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {"podAntiAffinity": {hard: [term]}}
    elif number % 10 == 5:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 5, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": selector}
        ]  # fmt: skip
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "spec": spec}


def objects_of(
    count: int, rng: random.Random, *, full: bool = False
) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], list[dict[str, Any]]]:
    """(Node, NodeResourceTopology) of each node, and the pods that run there.

    A third of the nodes has some pods. ``full``: most zones of all nodes are taken.
    """
    out, running = [], []
    for number in range(count):
        zones, cpus = SHAPES[number % len(SHAPES)]
        shape = topology(zones, cpus)
        config = static_config(
            topology_policy=POLICIES[number % len(POLICIES)],
            topology_scope="pod" if number % 7 == 0 else "container",
        )
        state = placement.initial_state(shape, config, {}, "v1.35.4")
        name = f"n{number:05}"
        sizes = [rng.choice([2, 4, 8]) for _ in range(rng.randint(1, 4))] if number % 3 == 0 else []
        if full:
            sizes = [cpus - rng.choice([0, 0, 0, 0, 0, 0, 2, 4]) for _ in range(zones)]
            sizes[-1] -= 1
        for index, size in enumerate(sizes):
            obj = pod_object(10**6 + number * 10 + index, [(size, 1024)], name)
            held = objects.read_pod(obj, Cluster().shapes)
            after = placement.admit(state, held.shape.as_pod(held.uid))
            if after.verdict == "admitted":
                state = replace(after.state, admitted=after.state.admitted | {held.uid})
                running.append(obj)
        total = {"cpu": f"{zones * cpus - 1}", "memory": f"{zones * cpus * 4 - 1}Gi"}
        info = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": {"zone": str(number % 9), "kubernetes.io/hostname": name},
            },
            "status": {"allocatable": {**total, "pods": "250"}},
        }
        reading = NodeReading(node_name=name, machine=machine(shape), state=state)
        out.append((info, nrt.encode(reading)))
    return out, running


def load(
    items: list[tuple[dict[str, Any], dict[str, Any]]], running: list[dict[str, Any]]
) -> tuple[Cluster, Cycle]:
    cluster = Cluster()
    for info, report in items:
        cluster.set_node(objects.read_node(info))
        cluster.set_report(info["metadata"]["name"], node.read_report(report), 0.0)
    for obj in running:
        cluster.set_pod(objects.read_pod(obj, cluster.shapes), 0.0)
    return cluster, Cycle(cluster)


def confirm(cluster: Cluster, pod: PodView) -> None:
    """The node's next report: what a kubelet answers to the pod."""
    entry = cluster.nodes[cluster.assumed[pod.uid]]
    if entry.report is None or entry.report.state is None:
        raise SystemExit("a node has lost its report")
    reported = entry.report.state
    state = placement.settle(reported, frozenset(reported.admitted - entry.gone.keys()))
    after = placement.admit(state, pod.shape.as_pod(pod.kubelet_uid))
    if after.verdict != "admitted":
        raise SystemExit(f"the kubelet of {entry.name} refuses {pod.key}: {after.message}")
    admitted = after.state.admitted | {pod.kubelet_uid}
    cluster.set_report(entry.name, node.Report(state=replace(after.state, admitted=admitted)), 0.0)


@dataclass(frozen=True)
class Measured:
    """So many decisions a second, and the share of them that were refusals."""

    per_s: float
    refused: float

    def __str__(self) -> str:
        refused = f" ({100 * self.refused:.0f} % refused)" if self.refused else ""
        return f"{self.per_s:7.0f}/s{refused}"


def decide(cluster: Cluster, cycle: Cycle, pods: list[dict[str, Any]], most_s: float) -> Measured:
    """Each pod that fits is placed, so that the next one meets another cluster."""
    begin, done, placed = time.process_time(), 0, 0
    unconfirmed: deque[tuple[int, PodView]] = deque()
    for obj in pods:
        if unconfirmed and done - unconfirmed[0][0] >= 50:
            confirm(cluster, unconfirmed.popleft()[1])
        view = objects.read_pod(obj, cluster.shapes)
        cluster.set_pod(view, 0.0)
        decision = cycle.decide(view)
        done += 1
        if decision.node:
            placed += 1
            cluster.assume(view.uid, decision.node)
            cycle.zone_room.placed(view.shape)
            unconfirmed.append((done, view))
        if time.process_time() - begin > most_s:
            break
    spent = time.process_time() - begin
    for _, view in unconfirmed:
        confirm(cluster, view)
    return Measured(done / spent, 1 - placed / done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 5000, 20000])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--stored",
        action="store_true",
        help="pods as an API server stores them, a third of the nodes tainted",
    )
    parser.add_argument("--full", action="store_true", help="nodes that are almost full")
    parser.add_argument(
        "--apart", action="store_true", help="all pods have required hostname anti-affinity"
    )
    args = parser.parse_args()
    for count in args.nodes:
        measure(count, args)


def measure(count: int, args: argparse.Namespace) -> None:
    rng = random.Random(args.seed)
    items, running = objects_of(count, rng, full=args.full)
    if args.stored:
        for info, _ in items[::3]:
            info["spec"] = {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}

    def form(number: int, boxes: list[tuple[int, int]]) -> dict[str, Any]:
        obj = pod_object(number, boxes)
        if not args.stored:
            return obj
        return stored(obj, number * 10 if args.apart else number)

    begin = time.process_time()
    cluster, cycle = load(items, running)
    common = [[(rng.choice([1, 2, 4, 8]), rng.choice([512, 1024]))] for _ in range(8)]
    decide(cluster, cycle, [form(0, common[0])], 60)
    started = time.process_time() - begin
    repeated = decide(
        cluster, cycle, [form(n, common[n % 8]) for n in range(1, 20_000)], args.seconds
    )
    asked = (
        [(rng.randint(1, 12), 512 + n % 4096) for _ in range(rng.choice([1, 1, 2]))]
        for n in range(20_000)
    )
    new = decide(
        cluster, cycle, [form(20_000 + n, boxes) for n, boxes in enumerate(asked)], args.seconds
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{count:6} nodes: repeated {repeated}, new {new}, start-up {started:.1f} s, "
        f"peak {peak} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
