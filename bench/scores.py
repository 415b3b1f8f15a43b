"""Which score packs best? ``python -m bench.scores [--seeds 20] [--arrivals all|stream]``.

Virtual time, exact predictions: a list of jobs (as in the placement benchmark) runs on simulated
nodes under each score; a job that fits nowhere waits, in arrival order, and any that fits may
overtake it.
Prints one JSON line per score and its ratio to the baseline LeastAllocated.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
from collections import Counter, deque
from dataclasses import dataclass

from rte import placement
from rte.model.node import CPUInfo, KubeletConfig, NodeState, Topology, ZoneInfo
from rte.model.pod import QOS, Container, Pod
from rte.placement import scores

GIB = 2**30
SIZES = (2, 4, 6, 8, 12, 16, 20, 24)
MEMORY = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Job:
    arrival: float
    seconds: float
    pod: Pod


def job_list(seed: int, count: int, *, stream: bool) -> list[Job]:
    rng = random.Random(seed)
    jobs = []
    clock = 0.0
    for number in range(count):
        containers = []
        for index in range(2 if rng.random() < 0.3 else 1):
            amounts = {"cpu": 1000 * rng.choice(SIZES), "memory": GIB * rng.choice(MEMORY)}
            containers.append(Container(name=f"c{index}", requests=amounts, limits=amounts))
        pod = Pod(uid=f"job-{number}", qos=QOS.GUARANTEED, containers=tuple(containers))
        jobs.append(Job(clock, rng.uniform(6, 14), pod))
        if stream:
            clock += rng.expovariate(1.2)
    return jobs


def fresh_node() -> NodeState:
    """2 sockets x 16 cores x 2 threads, 64 GiB each, one CPU and 512 MiB reserved."""
    cpus = []
    for cpu in range(64):
        core, zone = cpu % 32, cpu % 32 // 16
        cpus.append(CPUInfo(cpu, core, zone, zone, zone))
    zones = tuple(
        ZoneInfo(id=z, memory_bytes=64 * GIB, distances=(10, 21) if z == 0 else (21, 10))
        for z in (0, 1)
    )
    config = KubeletConfig(
        topology_policy="single-numa-node",
        cpu_policy="static",
        reserved_cpus=1,
        cpu_reservation_milli=1000,
        memory_policy="Static",
        reserved_memory={0: {"memory": 512 * 2**20}},
    )
    return placement.initial_state(
        Topology(cpus=tuple(cpus), zones=zones, sockets=2), config, {}, "v1.35.4"
    )


def run(jobs: list[Job], nodes: int, name: str) -> tuple[float, int, float]:
    """(makespan, jobs started by the time half of the work is done, mean wait)."""
    states = [fresh_node() for _ in range(nodes)]
    waiting: deque[Job] = deque()
    arrivals = deque(sorted(jobs, key=lambda job: job.arrival))
    running: list[tuple[float, int, int, Job]] = []
    recent: deque[Pod] = deque(maxlen=32)
    work = [sum(c.requests["cpu"] for c in job.pod.containers) * job.seconds for job in jobs]
    half = sum(work) / 2
    started: list[tuple[float, float]] = []
    done_work: list[tuple[float, float]] = []
    clock, waits = 0.0, []
    while arrivals or waiting or running:
        while arrivals and arrivals[0].arrival <= clock:
            job = arrivals.popleft()
            waiting.append(job)
            recent.append(job.pod)
        left: deque[Job] = deque()
        for job in waiting:
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
            started.append((clock, 0))
            waits.append(clock - job.arrival)
            heapq.heappush(running, (clock + job.seconds, len(started), best[1], job))
        waiting = left
        if running and (not arrivals or running[0][0] <= arrivals[0].arrival):
            clock, _, index, job = heapq.heappop(running)
            states[index] = placement.remove(states[index], job.pod.uid)
            amount = sum(c.requests["cpu"] for c in job.pod.containers) * job.seconds
            done_work.append((clock, amount))
        elif arrivals:
            clock = arrivals[0].arrival
    total = 0.0
    half_time = clock
    for moment, amount in done_work:
        total += amount
        if total >= half:
            half_time = moment
            break
    return clock, sum(1 for moment, _ in started if moment <= half_time), statistics.mean(waits)


def choose_score(name: str, recent: deque[Pod]) -> scores.Score:
    if name != "NextFit":
        return scores.CLASSIC[name]
    shapes: Counter[tuple] = Counter()
    example: dict[tuple, Pod] = {}
    for pod in recent:
        key = tuple(tuple(sorted(c.requests.items())) for c in pod.containers)
        shapes[key] += 1
        example[key] = pod
    return scores.NextFit(
        tuple((example[key], float(count)) for key, count in shapes.most_common(12))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--arrivals", choices=("all", "stream"), default="all")
    args = parser.parse_args()
    baseline = None
    for name in (
        "LeastAllocated",
        "MostAllocated",
        "BalancedAllocation",
        "LeastNUMANodes",
        "NextFit",
    ):
        results = [
            run(job_list(seed, args.jobs, stream=args.arrivals == "stream"), args.nodes, name)
            for seed in range(1, args.seeds + 1)
        ]
        makespan, placed, wait = (statistics.mean(column) for column in zip(*results, strict=True))
        baseline = baseline or makespan
        line = {
            "score": name,
            "seeds": args.seeds,
            "makespan_s": round(makespan, 2),
            "ratio": round(makespan / baseline, 4),
            "placed_at_half_work": round(placed, 2),
            "wait_mean_s": round(wait, 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
