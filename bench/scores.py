"""Which score packs best? ``python -m bench.scores [--seeds 20] [--jobs 160] [--rate 0]``.

Virtual time, exact predictions: a list of jobs runs on six simulated nodes of mixed shapes under
each score. A job that fits nowhere waits, in arrival order; later ones may overtake a few of them,
not more, so that none starves. Prints one JSON line per score: mean makespan and its ratio to the
baseline LeastAllocated, and how many jobs were placed by the time at which the baseline had done
half of the work.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
from collections import Counter, deque
from dataclasses import dataclass

from bench.lib.kubelets import GIB, static_config
from rte import placement
from rte.model.node import CPUInfo, DevicePool, NodeState, Topology, ZoneInfo
from rte.model.pod import QOS, Container, Pod
from rte.placement.fleet import scores


@dataclass(frozen=True)
class Job:
    arrival: float
    seconds: float
    pod: Pod


def job_list(seed: int, count: int, rate: float) -> list[Job]:
    """A mix that pulls in different directions: GPUs, whole zones, much memory, two containers,
    and small ones. ``rate`` arrivals a second; 0: all at once.
    """
    rng = random.Random(seed)
    jobs = []
    clock = 0.0
    for number in range(count):
        containers = []
        for index, (cpus, memory, gpus) in enumerate(_kind(rng)):
            amounts = {"cpu": 1000 * cpus, "memory": GIB * memory}
            if gpus:
                amounts["example.com/gpu"] = gpus
            containers.append(Container(name=f"c{index}", requests=amounts, limits=amounts))
        pod = Pod(uid=f"job-{number}", qos=QOS.GUARANTEED, containers=tuple(containers))
        jobs.append(Job(clock, rng.uniform(6, 14), pod))
        if rate:
            clock += rng.expovariate(rate)
    return jobs


def _kind(rng: random.Random) -> list[tuple[int, int, int]]:
    draw = rng.random()
    if draw < 0.25:
        return [(rng.choice((2, 4, 6, 8)), rng.choice((4, 8, 16)), rng.choice((1, 1, 2, 2, 4)))]
    if draw < 0.45:
        return [(rng.choice((16, 20, 24, 28)), rng.choice((16, 32, 48)), 0)]
    if draw < 0.6:
        return [(rng.choice((2, 4, 8)), rng.choice((24, 40, 56)), 0)]
    if draw < 0.75:
        return [(rng.choice((4, 8, 12)), rng.choice((4, 8)), 0) for _ in range(2)]
    return [(rng.choice((2, 4, 6, 8)), rng.choice((1, 2, 4)), 0)]


def cluster() -> list[NodeState]:
    """Six nodes: zones x cores (two threads each), GiB and GPUs of each zone."""
    return [
        fresh_node(2, 16, 64),
        fresh_node(2, 16, 64, (4, 4)),
        fresh_node(4, 8, 32, (2, 2, 0, 0)),
        fresh_node(2, 24, 192),
        fresh_node(4, 12, 64),
        fresh_node(2, 16, 64, (4, 0)),
    ]


def fresh_node(zones: int, cores: int, gib: int, gpus: tuple[int, ...] = ()) -> NodeState:
    total = zones * cores
    cpus = []
    for cpu in range(2 * total):
        zone = cpu % total // cores
        cpus.append(CPUInfo(cpu, cpu % total, zone // max(1, zones // 2), zone, zone))
    infos = tuple(
        ZoneInfo(
            id=zone,
            memory_bytes=gib * GIB,
            distances=tuple(10 if zone == other else 21 for other in range(zones)),
        )
        for zone in range(zones)
    )
    config = static_config(reserved_memory={0: {"memory": GIB // 2}}, node_reserved={})
    owners = [zone for zone, count in enumerate(gpus) for _ in range(count)]
    pool = DevicePool(
        ids=tuple(f"gpu-{number:02}" for number in range(len(owners))),
        zones=tuple(1 << zone for zone in owners),
        healthy=(1 << len(owners)) - 1,
    )
    devices = {"example.com/gpu": pool} if owners else {}
    topology = Topology(cpus=tuple(cpus), zones=infos, sockets=min(2, zones))
    return placement.initial_state(topology, config, devices, "v1.35.4")


@dataclass(frozen=True)
class Run:
    """One list under one score: its makespan, and when each job began, waited, and ended."""

    makespan: float
    starts: list[float]
    waits: list[float]
    ends: list[tuple[float, float]]

    def half_done(self) -> float:
        """When half of the CPU seconds were done."""
        half, done = sum(work for _, work in self.ends) / 2, 0.0
        for moment, work in self.ends:
            done += work
            if done >= half:
                return moment
        return self.makespan


def run(jobs: list[Job], name: str, overtake: int) -> Run:
    states = cluster()
    waiting: deque[Job] = deque()
    arrivals = deque(sorted(jobs, key=lambda job: job.arrival))
    running: list[tuple[float, int, int, Job]] = []
    recent: deque[Pod] = deque(maxlen=32)
    starts: list[float] = []
    ends: list[tuple[float, float]] = []
    clock, waits = 0.0, []
    while arrivals or waiting or running:
        while arrivals and arrivals[0].arrival <= clock:
            waiting.append(arrivals.popleft())
        left: deque[Job] = deque()
        for job in waiting:
            if len(left) >= overtake:
                left.append(job)
                continue
            score = choose_score(name, recent)
            best = None
            for index, state in enumerate(states):
                admission = placement.admit(state, job.pod)
                if admission.admitted:
                    value = score(job.pod, state, admission.state)
                    if best is None or value > best[0]:
                        best = (value, index, admission.state)
            if best is None:
                left.append(job)
                continue
            states[best[1]] = best[2]
            starts.append(clock)
            recent.append(job.pod)
            waits.append(clock - job.arrival)
            heapq.heappush(running, (clock + job.seconds, len(starts), best[1], job))
        waiting = left
        if running and (not arrivals or running[0][0] <= arrivals[0].arrival):
            clock, _, index, job = heapq.heappop(running)
            states[index] = placement.remove(states[index], job.pod.uid)
            amount = sum(c.requests["cpu"] for c in job.pod.containers) * job.seconds
            ends.append((clock, amount))
        elif arrivals:
            clock = arrivals[0].arrival
    return Run(clock, starts, waits, ends)


def choose_score(name: str, recent: deque[Pod]) -> scores.Score:
    if name != "NextFit":
        return scores.CLASSIC[name]
    shapes: Counter[tuple] = Counter()
    example: dict[tuple, Pod] = {}
    for pod in recent:
        key = tuple(tuple(sorted(c.requests.items())) for c in pod.containers)
        shapes[key] += 1
        example[key] = pod
    return scores.NextFit(tuple((example[key], float(count)) for key, count in shapes.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=160)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="arrivals per second; 0: all at once"
    )
    parser.add_argument(
        "--overtake", type=int, default=4, help="waiting jobs that others may overtake at most"
    )
    args = parser.parse_args()
    lists = [job_list(seed, args.jobs, args.rate) for seed in range(1, args.seeds + 1)]
    baseline = [run(jobs, "LeastAllocated", args.overtake) for jobs in lists]
    for name in (*scores.CLASSIC, "NextFit"):
        runs = (
            baseline
            if name == "LeastAllocated"
            else [run(jobs, name, args.overtake) for jobs in lists]
        )
        makespan = statistics.mean(each.makespan for each in runs)
        placed = statistics.mean(
            sum(start <= first.half_done() for start in each.starts)
            for each, first in zip(runs, baseline, strict=True)
        )
        line = {
            "score": name,
            "seeds": args.seeds,
            "makespan_s": round(makespan, 2),
            "ratio": round(makespan / statistics.mean(each.makespan for each in baseline), 4),
            "placed_at_half_work": round(placed, 2),
            "half_work_s": round(statistics.mean(each.half_done() for each in runs), 2),
            "wait_mean_s": round(statistics.mean(statistics.mean(each.waits) for each in runs), 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
