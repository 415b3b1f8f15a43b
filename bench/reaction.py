"""How fast an exporter tells of a change: ``python -m bench.reaction [--n 200] [--shape 2x32]``.

On a real API server and a real kubelet. For every subject one JSON line:

* ``admission``: from the last write of an admission (newest rename of the kubelet's state files) to
  the first NRT, at a watcher, that has the final state;
* ``ending``: from a pod's being gone or terminal in the API to the first NRT without its resources;
* ``first_change``: from the first write of an admission (``cpu_manager_state``) to the first NRT
  with any other number, final or half: what an exporter is fast at that waits for nothing more;
* ``floor``: as ``admission``, in the same run, of an ideal writer: it reads and computes nothing,
  but at the last rename sends the object of before at once, one field changed;
* ``inconsistent``: NRTs whose zones fit no state that the kubelet had on the way;
* ``idle_writes``: NRTs while nothing happened; ``bytes``: median size of an update's object.

A real runtime takes 100 ms and more to make a pod (``--sandbox 100``); one that takes none brings
the rest of the kubelet's work forward, into the time that is measured.

A file's time is that of the kernel's last tick: up to 4 ms early, never late, so a latency is at
worst too long. The ratio is to the first subject's p50. A subject is a command:
``--subject NAME=COMMAND``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

from bench.subjects import NRTS, OURS, Subject, one_node, quantile
from rte import nrt
from rte.model import bits
from tests.cluster import builder, pods
from tests.cluster.watcher import Watcher

if TYPE_CHECKING:
    from tests.cluster.node import Node
    from tests.cluster.watcher import Seen

_FILES = (
    "cpu_manager_state",
    "memory_manager_state",
    "allocated_pods_state",
    "device-plugins/kubelet_internal_checkpoint",
)

#: Zone name -> CPUs available.
Free = dict[str, int]


def main() -> None:
    """Measure every subject."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", action="append", type=Subject.parse, default=[])
    parser.add_argument("--n", type=int, default=200, help="changes, half of them endings")
    parser.add_argument("--shape", default="2x32")
    parser.add_argument("--policy", default="single-numa-node")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds")
    parser.add_argument("--pause", type=float, default=0.3, help="longest pause between changes")
    parser.add_argument(
        "--sandbox", type=int, default=0, help="milliseconds in which the runtime makes a pod"
    )
    parser.add_argument("--floor", type=int, default=20, help="admissions for the ideal writer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", default=builder.DEFAULT_VERSION, help="Kubernetes version")
    args = parser.parse_args()
    baseline: float | None = None
    kubelet = {"policy": args.policy}
    with one_node(version=args.version, shape=args.shape, kubelet=kubelet) as node:
        for subject in args.subject or [Subject.parse(OURS)]:
            result = measure(subject, node, args)
            p50 = result["admission"]["p50_ms"]
            baseline = baseline or p50
            result["ratio"] = round(p50 / baseline, 2) if p50 and baseline else None
            print(json.dumps(result), flush=True)


def measure(subject: Subject, node: Node, args: argparse.Namespace) -> dict[str, Any]:
    """All changes on one subject."""
    rng = random.Random(args.seed)
    bench = Bench(subject, node, args.sandbox)
    try:
        bench.begin()
        time.sleep(2)
        before = len(bench.reports.events)
        time.sleep(args.idle)
        idle_writes = len(bench.reports.events) - before
        for number in range(args.n // 2):
            bench.admission(number, rng)
            time.sleep(rng.uniform(0.05, args.pause))
            bench.ending()
            time.sleep(rng.uniform(0.05, args.pause))
        updates = len(bench.reports.events) - before
        if args.floor:
            node.stop("subject")
            for number in range(args.floor):
                bench.ideal(args.n + number, rng)
                time.sleep(rng.uniform(0.05, args.pause))
                bench.remove()
                time.sleep(rng.uniform(0.05, args.pause))
    finally:
        subject.stop(node)
    return {
        "subject": subject.name,
        "shape": args.shape,
        "policy": args.policy,
        "sandbox_ms": args.sandbox,
        "admission": _summary(bench.admissions, bench.missed_admissions),
        "first_change": _summary(bench.first_changes, bench.missed_admissions),
        "floor": _summary(bench.floors, 0),
        "ending": _summary(bench.endings, bench.missed_endings),
        "inconsistent": bench.inconsistent,
        "idle_writes": idle_writes,
        "idle_s": args.idle,
        "updates": updates,
        "bytes": statistics.median(seen.size for seen in bench.reports.events),
    }


class Bench:
    """One subject on one node; a pod at a time comes and goes."""

    def __init__(self, subject: Subject, node: Node, sandbox_ms: int) -> None:
        self.subject, self.node = subject, node
        self._slow = {"testbed.rte.dev/sandbox-delay": f"{sandbox_ms}ms"}
        name = f"metadata.name={node.name}"
        self.reports = Watcher(node.cluster, NRTS, name)
        self.pods = Watcher(node.cluster, "/api/v1/pods", f"spec.nodeName={node.name}")
        self.admissions: list[float] = []
        self.endings: list[float] = []
        self.first_changes: list[float] = []
        self.floors: list[float] = []
        self.missed_admissions = self.missed_endings = self.inconsistent = 0
        self._zones = {
            f"node-{path.name.removeprefix('node')}": bits.parse_list(
                (path / "cpulist").read_text()
            )
            for path in (node.machine / "sys/devices/system/node").glob("node[0-9]*")
        }
        self._pod: dict[str, Any] = {}
        self._all: Free = {}

    def begin(self) -> None:
        """Start the subject and wait for its first report."""
        self.reports.start()
        self.pods.start()
        self.node.force_admission()
        self.subject.start(self.node)
        first = self.reports.wait(0, lambda seen: bool(_free(seen)), 60)
        if first is None:
            raise SystemExit(f"{self.subject.name} publishes nothing:\n{self.node.log('subject')}")
        self._all = _free(first)

    def admission(self, number: int, rng: random.Random) -> None:
        """One pod is admitted."""
        since = len(self.reports.events)
        before = _numbers(self.reports.events[-1])
        uid = self._admit(number, rng)
        written = max(self._renamed())
        begun = (self.node.root / _FILES[0]).stat().st_mtime_ns / 1e9
        wanted = self._expected()
        seen = self.reports.wait(
            since, lambda seen: _free(seen) == wanted and _admits(seen, uid), 70
        )
        if seen is None:
            self.missed_admissions += 1
            return
        self.admissions.append(seen.at - written)
        first = next(other for other in self.reports.events[since:] if _numbers(other) != before)
        self.first_changes.append(first.at - begun)
        held = self._held(uid)
        for other in self.reports.events[since:]:
            if not self._plausible(_free(other), held):
                self.inconsistent += 1

    def _admit(self, number: int, rng: random.Random) -> str:
        """Create a pod and wait for the last write of its admission; its UID."""
        count = rng.choice([1, 1, 2])
        containers = [pods.container(rng.choice([2, 4]), "1Gi") for _ in range(count)]
        name = f"r{number}"
        pod = pods.pod(*containers, node=self.node.name, name=name, annotations=self._slow)
        self._pod = self.node.cluster.create_pod(pod)
        uid = self._pod["metadata"]["uid"]
        deadline = time.monotonic() + 20
        path, known = self.node.root / "allocated_pods_state", (0, 0)
        while True:
            # Each millisecond, beside those that are measured: it must cost next to nothing.
            status = path.stat()
            if (now := (status.st_ino, status.st_mtime_ns)) != known:
                known = now
                if uid in self.node.state_file(path.name).get("data", ""):
                    return uid
            if time.monotonic() > deadline:
                raise SystemExit(f"pod {pod['metadata']['name']} was not admitted")
            time.sleep(0.001)

    def ideal(self, number: int, rng: random.Random) -> None:
        """One pod is admitted, and somebody writes at once who needs not know what has changed."""
        obj = self.reports.events[-1].object
        since = len(self.reports.events)
        path = f"{NRTS}/{self.node.name}"
        self._admit(number, rng)
        written = max(self._renamed())
        self.node.cluster.api.replace(path, {**obj, "topologyPolicies": [f"floor-{number}"]})
        seen = self.reports.wait(since, lambda _: True, 70)
        if seen is not None:
            self.floors.append(seen.at - written)

    def remove(self) -> None:
        """The pod of the ideal writer goes."""
        self.node.cluster.api.delete(pods.path(self._pod), grace=0)
        self.node.cluster.wait_pod(self._pod, lambda obj: obj is None)

    def ending(self) -> None:
        """The pod ends."""
        uid, name = self._pod["metadata"]["uid"], self._pod["metadata"]["name"]
        since, pods_since = len(self.reports.events), len(self.pods.events)
        held = self._held(uid)
        self.node.cluster.api.delete(pods.path(self._pod), grace=0)
        ended = self.pods.wait(
            pods_since, lambda seen: seen.object["metadata"]["name"] == name and _over(seen), 20
        )
        if ended is None:
            raise SystemExit(f"pod {name} does not end")
        seen = self.reports.wait(since, lambda seen: _free(seen) == self._all, 70)
        if seen is None:
            self.missed_endings += 1
            return
        self.endings.append(seen.at - ended.at)
        for other in self.reports.events[since:]:
            if not self._plausible(_free(other), held):
                self.inconsistent += 1
        # The next admission must not begin while the kubelet still tidies up.
        self.node.cluster.wait_pod(self._pod, lambda obj: obj is None)

    def _renamed(self) -> list[float]:
        """When each of the kubelet's state files got its name: a rename changes nothing else."""
        paths = [self.node.root / name for name in _FILES]
        return [path.stat().st_ctime_ns / 1e9 for path in paths if path.exists()]

    def _held(self, uid: str) -> list[int]:
        entries = self.node.state_file("cpu_manager_state").get("entries", {}).get(uid, {})
        return [bits.parse_list(cpus) for cpus in entries.values()]

    def _expected(self) -> Free:
        """Nothing but our pod holds CPUs: what it holds is missing."""
        entries = self.node.state_file("cpu_manager_state").get("entries", {})
        active = entries.get(self._pod["metadata"]["uid"], {})
        return self._without([bits.parse_list(cpus) for cpus in active.values()])

    def _without(self, held: list[int]) -> Free:
        taken = 0
        for cpus in held:
            taken |= cpus
        return {
            zone: free - (taken & self._zones[zone]).bit_count() for zone, free in self._all.items()
        }

    def _plausible(self, free: Free, held: list[int]) -> bool:
        """With none, some or all of the pod's containers in place."""
        subsets = [[]]
        for cpus in held:
            subsets += [[*subset, cpus] for subset in subsets]
        return any(free == self._without(subset) for subset in subsets)


def _numbers(seen: Seen) -> dict[tuple[str, str], str]:
    """What is available, by zone and resource."""
    return {
        (zone["name"], resource["name"]): resource["available"]
        for zone in seen.object.get("zones") or []
        for resource in zone.get("resources") or []
        if seen.kind != "DELETED"
    }


def _free(seen: Seen) -> Free:
    return {
        zone: int(available)
        for (zone, resource), available in _numbers(seen).items()
        if resource == "cpu"
    }


def _admits(seen: Seen, uid: str) -> bool:
    """Whether the report, if it is one of ours, names the pod as admitted."""
    state = nrt.decode(seen.object).state
    return state is None or uid in state.admitted


def _over(seen: Seen) -> bool:
    phase = seen.object.get("status", {}).get("phase")
    return seen.kind == "DELETED" or phase in ("Succeeded", "Failed")


def _summary(latencies: list[float], missed: int) -> dict[str, Any]:
    return {
        "n": len(latencies),
        "missed": missed,
        "p50_ms": quantile(latencies, 0.5),
        "p99_ms": quantile(latencies, 0.99),
        "max_ms": quantile(latencies, 1.0),
    }


if __name__ == "__main__":
    main()
