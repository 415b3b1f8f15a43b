"""Devices of DRA in a large cluster: ``python -m bench.dra_lib [--nodes 5000] [--seconds 5]``.

Nodes with 8 GPUs each in slices of their own; pods with claims of repeated shapes come and go. One
JSON line per subject, with the bar (on a quiet machine) and the ratio to a baseline of the same
run: every node asked anew for every pod, as an allocator without memory has to.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from typing import TYPE_CHECKING

import psutil

from rte.placement.dra import ClaimNode, ClaimVerdict, allocate, decode
from rte.placement.dra.fleet import DeviceFleet

if TYPE_CHECKING:
    from rte.placement.dra.objects import AllocationResult, ResourceClaim, ResourceSlice

GPUS = 8
DRIVER = "gpu.example.com"


def gpu_slice(node: int, model: str) -> ResourceSlice:
    name = f"n{node:05d}"
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "model": {"string": model},
                "uuid": {"string": f"GPU-{node:08x}-{number}"},
                "index": {"int": number},
                "driverVersion": {"version": "580.105.8"},
                "resource.kubernetes.io/numaNode": {"int": number // 4},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{16 * number + 1:02x}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(GPUS)
    ]
    return decode.resource_slice(
        {
            "metadata": {"name": f"{name}-gpus"},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
    )


def claim(number: int, count: int) -> ResourceClaim:
    wanted = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": wanted}}],
    }
    constraint = {"matchAttribute": "resource.kubernetes.io/numaNode"}
    return decode.resource_claim(
        {
            "metadata": {"name": f"c{number}", "namespace": "default"},
            "spec": {
                "devices": {
                    "requests": [{"name": "gpus", "exactly": exactly}],
                    "constraints": [constraint],
                }
            },
        }
    )


class Cluster:
    def __init__(self, nodes: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.fleet = DeviceFleet()
        self.nodes = [ClaimNode(name=f"n{number:05d}") for number in range(nodes)]
        for number, node in enumerate(self.nodes):
            self.fleet.put_node(node)
            self.fleet.put_slice(gpu_slice(number, "H100" if number % 2 else "A100"))
        expression = f'device.driver == "{DRIVER}"'
        self.fleet.put_class(
            decode.device_class(
                {
                    "metadata": {"name": "gpu"},
                    "spec": {"selectors": [{"cel": {"expression": expression}}]},
                }
            )
        )
        self.by_name = {node.name: node for node in self.nodes}
        self.running: list[AllocationResult] = []
        self.number = 0

    def pod(self) -> ResourceClaim:
        self.number += 1
        return claim(self.number, self.random.choice((1, 2, 4)))

    def decide(self) -> None:
        """Place a pod; from a load of 60 % on, one ends for each that comes."""
        wanted = self.pod()
        fitting = self.fleet.fitting([wanted])
        node = self.by_name[next(iter(fitting))]
        self.bind(allocate(node, [wanted], self.fleet.supply(node)))
        if len(self.running) > len(self.nodes) * GPUS * 0.6 / 2.3:
            place = self.random.randrange(len(self.running))
            self.running[place], self.running[-1] = self.running[-1], self.running[place]
            self.fleet.remove(self.running.pop())

    def bind(self, verdict: ClaimVerdict) -> None:
        (allocation,) = verdict.allocations.values()
        self.fleet.add(allocation)
        self.running.append(allocation)


def report(subject: str, **figures: object) -> None:
    print(json.dumps({"subject": subject, **figures}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    process = psutil.Process()
    before = process.memory_info().rss
    start = time.perf_counter()
    cluster = Cluster(options.nodes, options.seed)
    report("load", nodes=options.nodes, seconds=round(time.perf_counter() - start, 2))

    start = time.perf_counter()
    for count in (1, 2, 4):
        cluster.fleet.fitting([claim(0, count)])
    first = (time.perf_counter() - start) / 3
    report("first of a shape", ms=round(1000 * first, 1))

    times: list[float] = []
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        cluster.decide()
        times.append(time.perf_counter() - start)
    rate = len(times) / sum(times)

    naive: list[float] = []
    for _ in range(3):
        wanted = cluster.pod()
        start = time.perf_counter()
        fitting = [
            node
            for node in cluster.nodes
            if allocate(node, [wanted], cluster.fleet.supply(node)).fits
        ]
        naive.append(time.perf_counter() - start)
        assert fitting
    baseline = 1 / statistics.median(naive)
    report(
        "decisions of a repeated shape",
        per_second=round(rate),
        bar=100,
        p99_ms=round(1000 * sorted(times)[int(len(times) * 0.99)], 2),
        baseline_per_second=round(baseline, 2),
        ratio=round(rate / baseline),
    )

    changes: list[float] = []
    for number in range(200):
        node = cluster.random.randrange(options.nodes)
        changed = gpu_slice(node, f"H{number}")
        start = time.perf_counter()
        cluster.fleet.put_slice(changed)
        for count in (1, 2, 4):
            cluster.fleet.fitting([claim(0, count)])
        changes.append(time.perf_counter() - start)
    report(
        "a slice changes, three shapes asked again",
        ms=round(1000 * statistics.median(changes), 2),
        max_ms=round(1000 * max(changes), 2),
        bar=5,
        ratio=round(first * 3 / statistics.median(changes)),
    )
    used = process.memory_info().rss
    report("memory", mib=round(used / 2**20), of_it_ours=round((used - before) / 2**20), bar=1536)


if __name__ == "__main__":
    main()
