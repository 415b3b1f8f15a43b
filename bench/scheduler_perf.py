"""Kubernetes' own scheduler benchmarks: ``python -m bench.scheduler_perf [--nodes 1000]``.

Reads the configurations of Kubernetes' scheduler_perf (they come with the module
k8s.io/kubernetes), one workload a case, scaled to ``--nodes``, and plays its steps on a real API
server, a fresh one for each: with the real kube-scheduler of the same release, then with
``rte scheduler``. Nodes are objects without a kubelet and without a report. One JSON line for each:

* ``pods_per_s``: pods that are measured, from the first chance to bind one to the last bind;
* ``p99_s``: of the time from there (or from the pod's creation, if later) to its bind;
* ``measured``, ``bound`` of these, ``cpu_s`` of the scheduler, ``ratio`` of pods/s to
  kube-scheduler's (and ``error`` where a step did not end within ``--patience``).

Workloads are played whose feature gates are as they are by default; with ``--gates`` all, with
their gates on in the API server and in kube-scheduler. What is not played is listed, with the
reason.
``--held`` stops the scheduler (SIGSTOP) while pods to be measured are created, so that the
schedulers decide and not the arrivals.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil

from bench.lib import bed
from bench.perf import suites
from bench.perf.play import Play, StuckError
from rte.kube import credentials
from rte.kube.client import Client
from tests.cluster import builder

if TYPE_CHECKING:
    from bench.perf.suites import Workload
    from tests.cluster.cluster import Cluster

SUBJECTS = ("kube-scheduler", "rte")

#: As scheduler_perf starts its API server (util.go).
_ADMISSION = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority"
#: Some of its claims and slices are of versions that are not served by default.
_SERVED = "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
#: What scheduler_perf runs of kube-controller-manager, as far as a workload needs it.
_CONTROLLERS = "resourceclaim-controller,persistentvolume-binder-controller,disruption-controller"
_STEPS = frozenset(name.removeprefix("step_") for name in dir(Play) if name.startswith("step_"))


def obstacle(work: Workload, defaults: dict[str, bool], *, gates: bool) -> str:
    """Why a workload is not played, "" if it is."""
    unknown = {step["opcode"] for step in work.steps} - _STEPS
    if unknown:
        return f"step {', '.join(sorted(unknown))} is not played"
    if work.scheduler_config:
        return "it configures kube-scheduler"
    other = suites.other_gates(work.gates, defaults)
    if other and not gates:
        return f"its gates are not the default ones: {', '.join(other)} (--gates)"
    return ""


def race(cluster: Cluster, work: Workload, subject: str, args: argparse.Namespace) -> Any:
    """One scheduler plays one workload; its line."""
    gates = gate_flags(work, args)
    cluster.stop_role("controller-manager")
    cluster.kubectl("apply", "-k", "manifests/crd")
    cluster.spawn(
        "controllers",
        [
            cluster.binaries.path("kube-controller-manager"), f"--kubeconfig={cluster.kubeconfig}",
            "--leader-elect=false", "--secure-port=0", f"--controllers={_CONTROLLERS}",
            "--kube-api-qps=5000", "--kube-api-burst=5000", *gates,
        ],
    )  # fmt: skip
    if subject == "rte":
        command = [
            sys.executable, "-m", "rte", "scheduler", f"--kubeconfig={cluster.kubeconfig}",
            "--scheduler-name=default-scheduler", "--no-leader-elect", "--listen=off",
        ]  # fmt: skip
        pid = cluster.spawn(subject, command)
    else:
        connection = {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000}
        settings = {"clientConnection": connection}
        pid = cluster.start_scheduler(config=settings, role=subject, flags=gates)
    scheduler = psutil.Process(pid)
    line = asyncio.run(played(cluster, work, scheduler, args))
    spent = sum(scheduler.cpu_times()[:2]) if scheduler.is_running() else 0.0
    return (
        {"subject": subject, "workload": work.title, "nodes": work.nodes}
        | line
        | {"cpu_s": round(spent, 1)}
    )


async def played(
    cluster: Cluster, work: Workload, scheduler: psutil.Process, args: argparse.Namespace
) -> dict[str, Any]:
    """Play the steps; what was measured."""
    async with Client(credentials.load(cluster.kubeconfig, {}), timeout_s=60.0) as client:

        def hold() -> contextlib.AbstractContextManager[None]:
            return stopped(scheduler) if args.held else contextlib.nullcontext()

        play = Play(client, work, hold, args.patience)
        told = {}
        try:
            await play.run()
        except* StuckError as stuck:
            told = {"error": str(stuck.exceptions[0])}
        return {**play.line(), **told}


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Any:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def gate_flags(work: Workload, args: argparse.Namespace) -> list[str]:
    if not args.gates or not work.gates:
        return []
    named = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(work.gates.items()))
    return [f"--feature-gates={named}"]


def compare(work: Workload, args: argparse.Namespace) -> None:
    """Print a line for each scheduler, until one fails."""
    flags = [_ADMISSION, *gate_flags(work, args)]
    served = "api/all=true" if args.gates and work.gates else _SERVED
    flags.append(f"--runtime-config={served}")
    rates: list[float] = []

    def show(cluster: Cluster, subject: str) -> int:
        line = race(cluster, work, subject, args)
        rates.append(line["pods_per_s"])
        ratio = round(rates[-1] / rates[0], 2) if rates[0] else None
        print(json.dumps({**line, "ratio": ratio}), flush=True)
        return 0

    for subject in SUBJECTS:
        one = functools.partial(show, subject=subject)
        if bed.run("scheduler_perf", one, version=args.version, api_flags=flags):
            print(json.dumps({"workload": work.title, "failed": subject}), flush=True)
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--nodes", type=int, default=1000, help="0: as the configurations have them")
    add("--only", default="", metavar="REGEX", help="workloads by suite/case/name")
    add("--gates", action="store_true", help="those too that need gates")
    add("--held", action="store_true", help="stop the scheduler while pods are created")
    add("--patience", type=float, default=300.0, help="seconds for one step")
    add("--version", default=builder.DEFAULT_VERSION)
    args = parser.parse_args()
    program = builder.build(args.version).path("kube-scheduler")
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    defaults = suites.default_gates(told.stdout + told.stderr)
    for work in suites.workloads(args.version, args.nodes, defaults):
        if not re.search(args.only, work.title):
            continue
        why = obstacle(work, defaults, gates=args.gates)
        if why:
            print(json.dumps({"workload": work.title, "not_played": why}), flush=True)
            continue
        compare(work, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
