"""Gangs through a scheduler on real kubelets: ``python -m bench.gangs [--seeds 1,2]``.

A seeded list of 30 gangs of 2 to 8 pods is created at once, pods in random order, each gang with a
PodGroup of Kubernetes 1.37 that needs all of its pods. A pod that a kubelet refuses is created
again after a second, as its owner would. One JSON line per scheduler and seed: ours (with agents),
and kube-scheduler with its own gang scheduling (gate ``GenericWorkload``) and no reports:

* ``done``: gangs of which all pods ran to their end; ``makespan_s``; ``rejections`` of kubelets;
* ``partial``: gangs that were in part at any moment: a pod of it ran while another one had no node
  yet, or was refused, in the order in which the API server tells it and without any tolerance;
  ``in_part_s``: the longest such time (a refused pod counts until its next one is bound).
  Kubernetes binds pod by pod: between the first and the last bind of a gang (``spread_s``, the
  longest) a fast kubelet may start a pod, and that counts here too;
* ``over_oracle``: makespan to that of a scheduler without latency that knows the exact model and
  serves the gangs in order of arrival, whenever one ends (``OVERHEAD_S`` of the kubelet added);
* ``over_same_kubelets``: the same, with the time that the kubelets of this run took for each pod
  (they share the machine's cores with all else) in place of ``OVERHEAD_S``; null where not all ran.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.lib import bed, oracle, replay
from bench.placement import OURS, Subject
from rte import errors, placement
from rte.k8s import podspec
from rte.model import quantity
from rte.model.totals import totals_of
from rte.placement.joint.gang import GangVerdict, place_together
from rte.placement.joint.node import JointNode, Member
from tests.cluster import agents, pods
from tests.cluster.processes import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rte.model.pod import Pod
    from tests.cluster.api import Api, Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node as RealNode

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
#: An owner creates a refused pod again after this.
AGAIN_S = 1.0
SIZES = (2, 4, 6, 8, 12, 16)


@dataclass
class Gang:
    """A gang, and what became of its pods: name -> seconds since the start.

    ``run`` begins its name: the PodGroups of a run go only after their pods.
    """

    number: int
    cpus: tuple[int, ...]
    seconds: int
    run: str = ""
    bound: dict[str, float] = field(default_factory=dict)
    ran: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.run}g{self.number}"

    def pod(self, index: int, attempt: int, scheduler: str) -> Object:
        box = pods.container(
            self.cpus[index], "1Gi", command=["sleep", str(self.seconds), "exit", "0"]
        )
        made = pods.pod(
            box,
            name=f"{self.name}-{index}-{attempt}",
            scheduler=scheduler,
            labels={"gang": self.name},
        )
        made["spec"]["schedulingGroup"] = {"podGroupName": self.name}
        return made

    def group(self) -> Object:
        return {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": self.name},
            "spec": {"schedulingPolicy": {"gang": {"minCount": len(self.cpus)}}},
        }

    def is_partial(self) -> bool:
        """Whether some pod ran while another had no node, or was refused."""
        return bool(self.ran) and (
            bool(self.refused) or len(self.bound) < len(self.cpus) or self.in_part() > 0
        )

    def overhead_s(self, index: int) -> float:
        """Of a pod that ended: from its bind to its end, less the time for which it ran."""
        name = f"{self.name}-{index}"
        return self.ended[name] - self.bound[name] - self.seconds

    def in_part(self) -> float:
        """Seconds from the first pod that ran to the last bind."""
        if not self.ran or not self.bound:
            return 0.0
        return max(0.0, max(self.bound.values()) - min(self.ran.values()))


def draw(seed: int, count: int, nodes: Sequence[JointNode]) -> list[Gang]:
    """Gangs that have a place on the empty cluster."""
    rng = random.Random(seed)
    found: list[Gang] = []
    while len(found) < count:
        size = rng.randint(2, 8)
        one = rng.choice(SIZES)
        same = rng.random() < 0.6
        cpus = tuple(one if same else rng.choice(SIZES) for _ in range(size))
        gang = Gang(len(found), cpus, rng.randint(6, 14))
        if place_together(nodes, members(gang)).verdict is GangVerdict.FITS:
            found.append(gang)
    return found


def members(gang: Gang) -> list[Member]:
    made = [gang.pod(index, 0, "") for index in range(len(gang.cpus))]
    return [
        Member(pod=replace(podspec.parse_pod(pod), uid=pod["metadata"]["name"])) for pod in made
    ]


def best_makespan(
    gangs: Sequence[Gang], nodes: Sequence[JointNode], overhead_s: Callable[[Gang, int], float]
) -> float:
    """Of a scheduler without latency that serves in order of arrival.

    ``overhead_s``: what the kubelet adds to the time of a gang's pod.
    """
    state = {node.name: node for node in nodes}
    waiting = list(gangs)
    running: list[tuple[float, int, int, str, Pod]] = []
    now = 0.0
    while waiting or running:
        for gang in list(waiting):
            wanted = members(gang)
            answer = place_together(list(state.values()), wanted)
            if answer.verdict is not GangVerdict.FITS:
                continue
            waiting.remove(gang)
            for index, member in enumerate(wanted):
                name = answer.places[member.pod.uid]
                state[name] = _changed(state[name], member.pod, 1)
                end = now + gang.seconds + overhead_s(gang, index)
                heapq.heappush(running, (end, gang.number, index, name, member.pod))
        if not running:
            raise ValueError("a gang fits nowhere")
        now = running[0][0]
        while running and running[0][0] == now:
            _, _, _, name, pod = heapq.heappop(running)
            state[name] = _changed(state[name], pod, -1)
    return now


def _changed(node: JointNode, pod: Pod, by: int) -> JointNode:
    before = node.state
    after = placement.execute(before, pod).state if by > 0 else placement.remove(before, pod.uid)
    used = dict(node.used)
    for name, amount in totals_of(pod).items():
        used[name] = used.get(name, 0) + by * amount
    return replace(node, state=after, used=used)


def snapshot(cluster: Cluster, nodes: Sequence[RealNode]) -> list[JointNode]:
    found = []
    for node in nodes:
        obj = cluster.api.get(f"/api/v1/nodes/{node.name}")
        allocatable = {
            name: quantity.parse_resource(name, amount)
            for name, amount in obj["status"]["allocatable"].items()
        }
        state = oracle.Kubelet.of(node).state
        found.append(JointNode(name=node.name, state=state, allocatable=allocatable))
    return found


class Run:
    """One list through one scheduler."""

    def __init__(self, api: Api, gangs: Sequence[Gang], scheduler: str) -> None:
        self._api, self._gangs, self._scheduler = api, gangs, scheduler
        self._by_name = {gang.name: gang for gang in gangs}
        self._attempts: dict[str, int] = {}
        self._start = 0.0
        self._over = threading.Event()

    def run(self, seed: int, limit: float) -> float:
        version = str(self._api.get(replay.PODS)["metadata"]["resourceVersion"])
        watcher = threading.Thread(target=self._watch, args=(version,), daemon=True)
        self._start = time.monotonic()
        watcher.start()
        for gang in self._gangs:
            self._api.create(GROUPS, gang.group())
        made = [
            gang.pod(index, 0, self._scheduler)
            for gang in self._gangs
            for index in range(len(gang.cpus))
        ]
        random.Random(seed).shuffle(made)
        self._start = time.monotonic()
        for pod in made:
            self._api.create(replay.PODS, pod)
        while self._now() < limit and not all(_is_done(gang) for gang in self._gangs):
            time.sleep(0.2)
        took = max((at for gang in self._gangs for at in gang.ended.values()), default=limit)
        self._over.set()
        self._api.delete(replay.PODS, grace=0)
        self._api.delete(GROUPS)
        watcher.join(timeout=10)
        return took if all(_is_done(gang) for gang in self._gangs) else limit

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _watch(self, version: str) -> None:
        while not self._over.is_set():
            try:
                for kind, pod in self._api.watch(
                    replay.PODS, resource_version=version, seconds=600, labelSelector="gang"
                ):
                    version = pod["metadata"]["resourceVersion"]
                    if kind in ("ADDED", "MODIFIED"):
                        self._seen(pod)
                    if self._over.is_set():
                        return
            except errors.KubeError:
                time.sleep(0.2)

    def _seen(self, pod: Object) -> None:
        gang = self._by_name.get((pod["metadata"].get("labels") or {}).get("gang", ""))
        if gang is None or self._over.is_set():
            return
        name, now = pod["metadata"]["name"], self._now()
        member = name.rsplit("-", 1)[0]
        phase = pod["status"].get("phase")
        if pod["spec"].get("nodeName"):
            gang.bound.setdefault(member, now)
        if phase == "Running":
            gang.ran.setdefault(member, now)
        elif phase == "Succeeded":
            gang.ran.setdefault(member, now)
            gang.ended.setdefault(member, now)
        elif phase == "Failed" and name not in gang.refused:
            gang.refused[name] = now
            gang.bound.pop(member, None)
            attempt = self._attempts[member] = self._attempts.get(member, 0) + 1
            index = int(member.rsplit("-", 1)[1])
            again = gang.pod(index, attempt, self._scheduler)
            threading.Timer(AGAIN_S, self._api.create, (replay.PODS, again)).start()


def _is_done(gang: Gang) -> bool:
    return len(gang.ended) == len(gang.cpus)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gangs", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--seeds", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2])
    add("--gangs", type=int, default=30)
    add("--nodes", type=int, default=4)
    add("--shape", default="2x32")
    add("--limit", type=float, default=240.0, help="give a list up after so many seconds")
    add("--no-baseline", action="store_true", help="leave kube-scheduler out")
    args = parser.parse_args(argv)
    return bed.run("gangs", lambda cluster: measure(cluster, args), gangs=True)


def measure(cluster: Cluster, args: argparse.Namespace) -> int:
    kubelet = {"policy": "single-numa-node", "scope": "container"}
    nodes = bed.add_nodes(cluster, [{"shape": args.shape, "kubelet": kubelet}] * args.nodes)
    empty = snapshot(cluster, nodes)
    subjects = [] if args.no_baseline else [Subject("default-scheduler")]
    met = True
    for subject in [Subject("rte-scheduler", OURS, tells=True), *subjects]:
        if subject.command:
            for node in nodes:
                agents.install(cluster)
                agents.start(node)
            for node in nodes:
                agents.wait_published(node)
        subject.start(cluster)
        for seed in args.seeds:
            line = one_run(cluster, subject, draw(seed, args.gangs, empty), empty, seed, args)
            print(json.dumps(line), flush=True)
            bad = line["partial"] or line["rejections"] or line["done"] < args.gangs
            met = met and not (subject.command and bad)
        subject.stop(cluster)
        if subject.command:
            for node in nodes:
                node.stop("agent")
                cluster.api.delete(f"{agents.NRT}/{node.name}")
    return 0 if met else 1


def one_run(
    cluster: Cluster,
    subject: Subject,
    gangs: Sequence[Gang],
    empty: Sequence[JointNode],
    seed: int,
    args: argparse.Namespace,
) -> dict[str, Any]:
    bound = best_makespan(gangs, empty, lambda *_: oracle.OVERHEAD_S)
    gangs = [replace(gang, run=f"{subject.name[:3]}-{seed}-") for gang in gangs]
    took = Run(cluster.api, gangs, subject.name).run(seed, args.limit)
    note(f"{subject.name} seed {seed}: {took:.1f} s")
    whole = all(_is_done(gang) for gang in gangs)
    same = best_makespan(gangs, empty, Gang.overhead_s) if whole else None
    return {
        "scheduler": subject.name,
        "seed": seed,
        "gangs": len(gangs),
        "pods": sum(len(gang.cpus) for gang in gangs),
        "done": sum(_is_done(gang) for gang in gangs),
        "rejections": sum(len(gang.refused) for gang in gangs),
        "partial": sum(gang.is_partial() for gang in gangs),
        "in_part_s": round(max((gang.in_part() for gang in gangs), default=0.0), 2),
        "spread_s": round(max(_spreads(gangs), default=0.0), 2),
        "makespan_s": round(took, 1),
        "oracle_s": round(bound, 1),
        "over_oracle": round(took / bound, 3),
        "over_same_kubelets": round(took / same, 3) if same else None,
    }


def _spreads(gangs: Sequence[Gang]) -> Iterator[float]:
    for gang in gangs:
        if gang.bound:
            yield max(gang.bound.values()) - min(gang.bound.values())


if __name__ == "__main__":
    sys.exit(main())
