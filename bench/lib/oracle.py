"""Schedulers without latency that know the hardware: how fast a list of jobs could be done.

Each serves in arrival order: whenever something ends or arrives, every waiting job is tried.
The kubelet's own time is added to each job (``overhead_s``): on the test bed 1.3 s, 0.78 s from
creation to Running and up to a second from deletion to the release of CPUs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from rte import placement
from rte.accounting.topology import kubelet_topology
from rte.k8s import podspec
from rte.kubelet import config as kubelet_config
from rte.model import bits, quantity
from rte.model.node import DevicePool
from rte.placement import Verdict
from rte.sysfs import read_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.lib.jobs import Job
    from rte.model.node import NodeState
    from tests.cluster.api import Object
    from tests.cluster.node import Node

OVERHEAD_S = 1.3

#: Of that, from a pod's end to the release of what it held.
RELEASE_S = 0.5

State = TypeVar("State")


class Model(Protocol[State]):
    """What an oracle knows of one node; states are values."""

    initial: State

    def place(self, state: State, job: Job) -> State | None:
        """The state with the job on the node, None where it does not fit."""

    def release(self, state: State, job: Job) -> State:
        """The state after the job's end."""

    def free(self, state: State) -> float:
        """How much room is left, for best fit."""


@dataclass
class Zones:
    """Zone arithmetic for plain jobs: every container in one zone, best or first fit."""

    cpus: tuple[int, ...]
    memory: tuple[int, ...]
    best: bool

    @property
    def initial(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[object, ...]]:
        return self.cpus, self.memory, ()

    def place(self, state, job):  # type: ignore[no-untyped-def]
        cpus, memory, held = list(state[0]), list(state[1]), []
        for item in job.containers:
            want, size = int(item["cpu"]), int(item["memory"].removesuffix("Gi"))
            fits = [z for z in range(len(cpus)) if cpus[z] >= want and memory[z] >= size]
            if not fits:
                return None
            zone = min(fits, key=lambda z: cpus[z] - want) if self.best else fits[0]
            cpus[zone] -= want
            memory[zone] -= size
            held.append((zone, want, size))
        return tuple(cpus), tuple(memory), (*state[2], (job.number, tuple(held)))

    def release(self, state, job):  # type: ignore[no-untyped-def]
        cpus, memory = list(state[0]), list(state[1])
        for number, held in state[2]:
            if number == job.number:
                for zone, want, size in held:
                    cpus[zone] += want
                    memory[zone] += size
        return tuple(cpus), tuple(memory), tuple(h for h in state[2] if h[0] != job.number)

    def free(self, state):  # type: ignore[no-untyped-def]
        return sum(state[0])


@dataclass
class Kubelet:
    """The exact model: the kubelet's own admission, and node totals."""

    state: NodeState
    allocatable: Mapping[str, int]

    @classmethod
    def of(cls, node: Node) -> Kubelet:
        """The model of a test-bed node, before it has pods of ours."""
        machine = read_machine(node.machine / "sys", node.machine / "proc")
        config = kubelet_config.from_files(node.config_file, memory_bytes=machine.memory_bytes)
        status = node.cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
        state = placement.initial_state(
            kubelet_topology(machine),
            config,
            _pools(node),
            status["nodeInfo"]["kubeletVersion"],
        )
        allocatable = {
            name: quantity.parse_resource(name, amount)
            for name, amount in status["allocatable"].items()
        }
        return cls(state, allocatable)

    @property
    def initial(self) -> tuple[NodeState, tuple[tuple[str, Mapping[str, int]], ...]]:
        return self.state, ()

    def place(self, state, job):  # type: ignore[no-untyped-def]
        node, requests = state
        uid, pod = f"job-{job.number}", _parse(job)
        wanted = _requests(job)
        used = sum((Counter(dict(each)) for _, each in requests), Counter[str]())
        if any(
            used[name] + count > self.allocatable.get(name, 0) for name, count in wanted.items()
        ):
            return None
        answer = placement.admit(node, pod)
        if answer.verdict is not Verdict.ADMITTED:
            return None
        return placement.start(answer.state, pod), (*requests, (uid, wanted))

    def release(self, state, job):  # type: ignore[no-untyped-def]
        node, requests = state
        uid = f"job-{job.number}"
        left = tuple(each for each in requests if each[0] != uid)
        return placement.settle(node, frozenset(each[0] for each in left)), left

    def free(self, state):  # type: ignore[no-untyped-def]
        return (state[0].shared & ~state[0].reserved).bit_count()


def usual_overhead(_job: Job) -> float:
    """What the kubelets of the test bed add to a job when nothing else keeps the machine busy."""
    return OVERHEAD_S


def makespan(
    jobs: Sequence[Job],
    models: Mapping[str, Model[State]],
    *,
    best: bool,
    overhead_s: Callable[[Job], float] = usual_overhead,
) -> float:
    """Seconds until the last job has ended.

    Args:
        overhead_s: what a kubelet adds to the time of a job.
        best: take the node that has least left among those where a job fits, else the first one.

    Raises:
        ValueError: a job fits on no node even when all are empty.
    """
    states = {name: model.initial for name, model in models.items()}
    waiting = sorted(jobs, key=lambda job: (job.at, job.number))
    running: list[tuple[float, int, str, Job]] = []
    now = 0.0
    while waiting or running:
        left = []
        for job in waiting:
            name = None if job.at > now else _choose(job, models, states, best=best)
            if name is None:
                left.append(job)
            else:
                heapq.heappush(
                    running, (now + job.seconds + overhead_s(job), job.number, name, job)
                )
        waiting = left
        arrival = min((job.at for job in waiting if job.at > now), default=None)
        if running and (arrival is None or running[0][0] <= arrival):
            now, _, name, job = heapq.heappop(running)
            states[name] = models[name].release(states[name], job)
        elif arrival is not None:
            now = arrival
        elif waiting:
            numbers = ", ".join(str(job.number) for job in waiting)
            raise ValueError(f"jobs {numbers} fit on no node of this cluster")
    return now


def best_makespan(
    jobs: Sequence[Job],
    build: Callable[[bool], Mapping[str, Model[State]]],
    overhead_s: Callable[[Job], float] = usual_overhead,
) -> float:
    """The better one of first fit and best fit; ``build`` makes the models for each."""
    return min(
        makespan(jobs, build(best), best=best, overhead_s=overhead_s) for best in (False, True)
    )


def _choose(
    job: Job, models: Mapping[str, Model[State]], states: dict[str, State], *, best: bool
) -> str | None:
    found: list[tuple[float, str, State]] = []
    for name, model in models.items():
        if job.node and job.node != name:
            continue
        after = model.place(states[name], job)
        if after is not None:
            found.append((model.free(states[name]), name, after))
            if not best:
                break
    if not found:
        return None
    _, name, after = min(found, key=lambda item: item[0])
    states[name] = after
    return name


def _parse(job: Job) -> podspec.Pod:
    return podspec.parse_pod(_with_uid(job.pod(0, "oracle"), f"job-{job.number}"))


def _with_uid(pod: Object, uid: str) -> Object:
    pod["metadata"]["uid"] = uid
    return pod


def _requests(job: Job) -> Mapping[str, int]:
    """What counts against node totals: running containers, or the largest init container."""
    total: Counter[str] = Counter()
    for item in (*job.containers, *job.sidecars):
        total.update({name: quantity.parse_resource(name, text) for name, text in item.items()})
    for item in job.init:
        for name, text in item.items():
            total[name] = max(total[name], quantity.parse_resource(name, text))
    return {**total, "pods": 1}


def _pools(node: Node) -> dict[str, DevicePool]:
    pools = {}
    for resource, devices in node.devices().items():
        ordered = sorted(devices, key=lambda item: item["id"])
        zones = [item.get("zones") for item in ordered]
        pools[resource] = DevicePool(
            ids=tuple(item["id"] for item in ordered),
            zones=tuple(None if zone is None else bits.of(zone) for zone in zones),
            healthy=bits.of(
                number for number, item in enumerate(ordered) if not item.get("unhealthy")
            ),
        )
    return pools


def plain_models(
    names: Sequence[str], cpus: tuple[int, ...], memory: tuple[int, ...]
) -> Callable[[bool], Mapping[str, Zones]]:
    """Equal nodes by zone arithmetic."""
    return lambda best: {name: Zones(cpus, memory, best) for name in names}
