"""What an exporter costs: ``python -m bench.footprint [--changes 10000]``.

On the simulated kubelet and the embedded API server, both in this process; the subject is a process
of its own. For every subject one JSON line: seconds from its start to the first publish, resident
memory after the start and after the changes (MiB), CPU milliseconds per change. The ratio is to the
first subject's memory after the start.

``--modules`` tells instead what of our own agent costs what: a JSON line for each of its libraries,
in the order in which it loads them (MiB resident, and modules), and one for what is left once the
code is let go that only the start has needed. As in the image only with byte code at hand
(``PYTHONPYCACHEPREFIX``, second run).

A subject is a command, ``--subject NAME=COMMAND``, with ``{node}``, ``{kubeconfig}``, ``{state}``
(the kubelet's directory), ``{socket}``, ``{config}``, ``{sysfs}`` and ``{procfs}`` filled in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from rte.sim.apiserver import APIServer, StatusError
from rte.sim.kubelet import Kubelet, kubelet_document
from rte.sysfs import read_machine

ROOT = Path(__file__).parent.parent
NRTS = "noderesourcetopologies"
NODE = "n0"
OURS = (
    f"rte={sys.executable} -m rte run --node-name {{node}} --kubeconfig {{kubeconfig}}"
    " --sysfs-root {sysfs} --procfs-root {procfs} --kubelet-state-dir {state}"
    " --podresources-socket {socket} --kubelet-config-file {config}"
    " --metrics-listen 127.0.0.1:0 --lease-namespace kube-node-lease"
)


#: What the agent is made of, in the order in which it is loaded.
PARTS = (
    "asyncio",
    "orjson msgspec",
    "tenacity",
    "aiohttp",
    "aiohttp.web",
    "prometheus_client",
    "grpc.aio",
    "google.protobuf.message",
    "rte.kubelet.podresources",
    "rte.agent.settings",
    "rte.agent.daemon",
)
_LOAD = """
import json, sys
from rte.agent import memory

def mib():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096 / 2**20

def tell(part, before, modules):
    told = {"part": part, "mib": round(mib() - before, 2), "modules": len(sys.modules) - modules}
    print(json.dumps(told), flush=True)

memory.begin()
tell("python", 0.0, 0)
for part in sys.argv[1:]:
    before, modules = mib(), len(sys.modules)
    for name in part.split():
        memory.import_http_client() if name == "aiohttp" else __import__(name)
    tell(part, before, modules)
memory.let_go_of_code()
tell("all, once started", 0.0, 0)
"""


def main() -> None:
    """Measure every subject."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--subject", action="append", default=[])
    parser.add_argument("--changes", type=int, default=10000)
    parser.add_argument(
        "--pods", type=int, default=0, help="with a CPU each that stay all the time"
    )
    parser.add_argument("--machine", default="64-2s", help="name of a machine of fixtures/sysfs")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds after the first publish")
    args = parser.parse_args()
    if args.modules:
        subprocess.run([sys.executable, "-c", _LOAD, *PARTS], check=True)
        return
    baseline = 0.0
    for text in args.subject or [OURS]:
        name, _, template = text.partition("=")
        result = asyncio.run(measure(name, template, args))
        baseline = baseline or result["rss_mib"]
        result["ratio"] = round(result["rss_mib"] / baseline, 2)
        print(json.dumps(result), flush=True)


async def measure(name: str, template: str, args: argparse.Namespace) -> dict[str, Any]:
    """One subject on a fresh kubelet and API server."""
    tree = ROOT / "fixtures/sysfs" / args.machine
    machine = read_machine(tree / "sys", tree / "proc")
    document = kubelet_document(machine)
    crd = yaml.safe_load((ROOT / "manifests/crd/noderesourcetopologies.yaml").read_text())
    with tempfile.TemporaryDirectory(prefix="rte-fp-", dir="/tmp") as folder:
        async with APIServer() as server:
            server.api.create("customresourcedefinitions", crd)
            base = Path(folder)
            state = base / "kubelet"
            state.mkdir()
            server.write_kubeconfig(base / "kubeconfig")
            kinds = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
            (base / "config.yaml").write_text(yaml.safe_dump({**kinds, **document}))
            async with Kubelet(server.api, NODE, machine, document, root=state) as kubelet:
                argv = shlex.split(
                    template.format(
                        node=NODE, kubeconfig=base / "kubeconfig", state=state,
                        socket=kubelet.socket, config=base / "config.yaml",
                        sysfs=tree / "sys", procfs=tree / "proc",
                    )
                )  # fmt: skip
                began = time.monotonic()
                process = await asyncio.create_subprocess_exec(*argv)
                try:
                    return {"subject": name, **await _run(server, process.pid, began, args)}
                finally:
                    process.terminate()
                    await process.wait()


async def _run(
    server: APIServer, pid: int, began: float, args: argparse.Namespace
) -> dict[str, Any]:
    await _shows(server, None, 60)
    first, idle = time.monotonic() - began, _free_cpus(server)
    for number in range(args.pods):
        _create(server, number, 1)
        await _shows(server, idle - number - 1, 60)
    process = psutil.Process(pid)
    await asyncio.sleep(args.settle)
    start, cpu = process.memory_info().rss, sum(process.cpu_times()[:2])
    missed, idle = 0, _free_cpus(server)
    for number in range(args.pods, args.pods + args.changes // 2):
        cpus = 1 + number % 8
        _create(server, number, cpus)
        missed += not await _shows(server, idle - cpus, 5)
        _delete(server, number)
        missed += not await _shows(server, idle, 5)
    spent = sum(process.cpu_times()[:2]) - cpu
    await asyncio.sleep(1)
    end = process.memory_info().rss
    return {
        "first_publish_s": round(first, 2),
        "rss_mib": round(start / 2**20, 1),
        "changes": args.changes,
        "missed": missed,
        "rss_after_mib": round(end / 2**20, 1),
        "growth_mib": round((end - start) / 2**20, 2),
        "cpu_ms_per_change": round(1000 * spent / max(1, args.changes), 2),
    }


def _create(server: APIServer, number: int, cpus: int) -> None:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {
        "name": "c", "image": "pause", "resources": {"requests": amounts, "limits": amounts},
    }  # fmt: skip
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}"},
        "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0},
    }
    server.api.create("pods", body, "default")


def _delete(server: APIServer, number: int) -> None:
    server.api.delete("pods", f"p{number}", "default")


def _free_cpus(server: APIServer) -> int:
    """CPUs available on the node; -1 where nothing is published."""
    try:
        zones = server.api.get(NRTS, NODE).get("zones") or []
    except StatusError:
        return -1
    return sum(
        int(resource["available"])
        for zone in zones
        for resource in zone.get("resources") or []
        if resource["name"] == "cpu"
    )


async def _shows(server: APIServer, cpus: int | None, seconds: float) -> bool:
    """Whether ``cpus`` are free before ``seconds`` have passed; None: any number, if published.

    To wait for any change would not do: a subject that is one report behind would do as well.
    """
    deadline = time.monotonic() + seconds
    while (free := _free_cpus(server)) != cpus and (cpus is not None or free < 0):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.002)
    return True


if __name__ == "__main__":
    main()
