"""A thousand simulated nodes in one process: ``python -m bench.sim_scale [--nodes 1000]``.

Kubelets, their Nodes, Leases and NRTs in the embedded API, without sockets and files. Prints one
JSON line: seconds to start, resident memory, then pods admitted and NRTs written per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from rte.sim import machines
from rte.sim.apiserver import API
from rte.sim.demo.cluster import crd
from rte.sim.fleet import SimulatedFleet

NRTS = "noderesourcetopologies.topology.node.k8s.io"


def pod(name: str, node: str) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "1Gi"}
    container = {"name": "c", "image": "i:1", "resources": {"limits": amounts}}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}


async def measure(nodes: int, shape: str, pods_per_node: int) -> dict[str, Any]:
    process = psutil.Process()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        machine = machines.make(shape, Path(folder) / "machine")
    api = API(history=20_000)
    api.create("customresourcedefinitions", crd())
    async with SimulatedFleet(api, {f"n{number:04}": machine for number in range(nodes)}) as fleet:
        started = time.monotonic() - begin
        assert api.store.count(NRTS) == nodes
        resident = process.memory_info().rss
        begin, revision = time.monotonic(), api.store.revision
        total = nodes * pods_per_node
        for number in range(total):
            api.create("pods", pod(f"p{number}", f"n{number % nodes:04}"), "default")
            if number % 50 == 0:
                await asyncio.sleep(0)
        while True:
            await asyncio.sleep(0.05)
            running = sum(o["status"]["phase"] == "Running" for _, o in api.store.items("pods"))
            if running == total and fleet.is_settled:
                break
        seconds = time.monotonic() - begin
        refused = sum(len(kubelet.refusals) for kubelet in fleet.kubelets.values())
        return {
            "nodes": nodes,
            "shape": shape,
            "start_s": round(started, 1),
            "start_rss_mib": resident >> 20,
            "pods": total,
            "refused": refused,
            "pods_per_s": round(total / seconds),
            "writes": api.store.revision - revision,
            "rss_mib": process.memory_info().rss >> 20,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--shape", default="2x32")
    parser.add_argument("--pods-per-node", type=int, default=4)
    args = parser.parse_args()
    result = asyncio.run(measure(args.nodes, args.shape, args.pods_per_node))
    print(json.dumps(result))
    met = result["start_s"] <= 60 and result["rss_mib"] <= 2048
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
