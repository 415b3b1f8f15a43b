"""A leader is killed in a large cluster: ``python -m bench.scheduler_takeover [--pods 150000]``.

The embedded API server with 5,000 nodes, their reports, and pods that run there; two replicas of
``rte scheduler``. The one that leads is killed (SIGKILL) while pods are being created. Prints one
JSON line:

* ``decides_s``: from the end of the killed replica's Lease until the first bind of its successor;
* ``gap_s``: the longest time between two binds from then on, while pods keep coming;
* ``leaders``: holders of the Lease after the first, in the following 30 s: one, if it keeps it;
* ``rss_mib``: of each replica before, and of the successor at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.scheduler_load import running_pods
from bench.scheduler_scale import objects_of, pod_object
from rte.sim.apiserver import API, APIServer, Query
from rte.sim.demo.cluster import crd

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

#: The successor is watched for so long after its first bind.
AFTER_S = 30.0

#: The bar: a successor decides within so long, and keeps so much memory.
MOST_S, MOST_MIB = 5.0, 1536

_LEASE = "rte-scheduler"


def create_pod(api: API, obj: dict[str, Any]) -> None:
    """As a user creates it, whatever the bench's objects have of an API server."""
    metadata, spec = obj["metadata"], obj["spec"]
    for name in ("uid", "resourceVersion", "namespace"):
        metadata.pop(name, None)
    for name in ("priority", "preemptionPolicy"):
        spec.pop(name, None)
    for box in spec["containers"]:
        box["image"] = "i:1"
    api.create("pods", obj, "default")


def fill(api: API, nodes: int, pods: int, rng: random.Random) -> None:
    """Nodes with reports, and pods that run there."""
    api.create("customresourcedefinitions", crd())
    items, _ = objects_of(nodes, rng)
    names = []
    for info, report in items:
        names.append(info["metadata"]["name"])
        info["metadata"].pop("uid")
        api.create("nodes", info)
        api.create("noderesourcetopologies.topology.node.k8s.io", report)
    for obj in running_pods(names, pods):
        create_pod(api, obj)


@contextlib.asynccontextmanager
async def replica(kubeconfig: Path) -> AsyncIterator[Process]:
    """One more ``rte scheduler``; its log goes to stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rte", "scheduler", f"--kubeconfig={kubeconfig}", "--listen=off",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if process.stderr is None:
        raise SystemExit("no log")
    try:
        async for line in process.stderr:
            if b"in sync" in line:
                break
        reading = asyncio.create_task(process.stderr.read())
        yield process
        reading.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lead(api: API, after: str = "") -> dict[str, Any]:
    """The Lease, once somebody else than ``after`` holds it."""
    while True:
        stored = api.store.get("leases.coordination.k8s.io", ("kube-system", _LEASE))
        if stored and stored["spec"].get("holderIdentity") not in ("", None, after):
            return stored["spec"]
        await asyncio.sleep(0.01)


async def keep_coming(api: API) -> None:
    """Ten pods a second."""
    for number in range(10**6):
        create_pod(api, pod_object(number, [(1, 256)]))
        await asyncio.sleep(0.1)


async def note_binds(api: API, binds: list[float]) -> None:
    """When each pod that is created from now on was seen bound first."""
    seen = set[str]()
    async for _, obj in api.watch("pods", Query(version=str(api.store.revision))):
        name = obj["metadata"]["name"]
        if obj["spec"].get("nodeName") and name not in seen:
            seen.add(name)
            binds.append(time.time())


def mib(process: Process) -> int:
    return psutil.Process(process.pid).memory_info().rss >> 20


async def measure(nodes: int, pods: int, seed: int) -> dict[str, Any]:
    api = API(history=20_000)
    fill(api, nodes, pods, random.Random(seed))
    print(f"{nodes} nodes and {pods} pods are there", file=sys.stderr, flush=True)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(APIServer(api))
        server.write_kubeconfig(folder / "kubeconfig")
        first = await stack.enter_async_context(replica(folder / "kubeconfig"))
        holder = (await lead(api))["holderIdentity"]
        second = await stack.enter_async_context(replica(folder / "kubeconfig"))
        binds: list[float] = []
        helpers = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("pods", keep_coming(api)),
                ("binds", note_binds(api, binds)),
            )
        ]
        while len(binds) < 20:
            await asyncio.sleep(0.1)
        before = {"first": mib(first), "second": mib(second)}
        first.kill()
        lease = await lead(api)
        ended = datetime.fromisoformat(lease["renewTime"]).timestamp()
        ended += lease["leaseDurationSeconds"]
        await lead(api, holder)
        number = len(binds)
        while len(binds) <= number:
            await asyncio.sleep(0.01)
        leaders = set()
        until = time.monotonic() + AFTER_S
        while time.monotonic() < until:
            leaders.add((await lead(api))["holderIdentity"])
            await asyncio.sleep(0.2)
        moments = binds[number:]
        result = {
            "nodes": nodes,
            "pods": pods,
            "decides_s": round(moments[0] - ended, 2),
            "gap_s": round(max(b - a for a, b in itertools.pairwise(moments)), 2),
            "leaders": len(leaders),
            "rss_mib": {**before, "successor": mib(second)},
        }
        for task in helpers:
            task.cancel()
        await asyncio.wait(helpers)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    result = asyncio.run(measure(args.nodes, args.pods, args.seed))
    print(json.dumps(result))
    met = result["decides_s"] <= MOST_S and result["leaders"] == 1
    return 0 if met and max(result["rss_mib"].values()) <= MOST_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
