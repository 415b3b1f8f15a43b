"""Jobs with GPUs and NICs of DRA on real kubelets: ``python -m bench.dra [--seeds 1,2,3,4,5]``.

A seeded list of jobs of exclusive CPUs with 1 to 4 GPUs, half of them with a NIC on the PCIe root
of one of the GPUs, runs through the default kube-scheduler and through ours, on the same nodes with
the test bed's drivers. Half of the jobs require alignment, half prefer it (kube-scheduler knows
neither). When a job runs, the CPUs that its kubelet has written into its file and the devices of
its claim are compared: that needs nothing of rte. One JSON line per subject:

* ``done``, ``makespan_s``, ``rejections`` as in :mod:`bench.placement`;
* ``required``, ``preferred``: aligned jobs and all of them, by what they ask for;
* ``across``: the jobs that are not, with their zones;
* ``start_p50_s``, ``start_max_s``: from a job's creation to Running;
* ``over_baseline``: mean makespan to kube-scheduler's.

A kubelet gives a pod the lowest zone that holds its CPUs, so the devices of a higher zone can be
aligned only while the lower ones lack CPUs. Under a load that wants every GPU (``--every 0``),
alignment and a short makespan exclude each other: pods that prefer it go across zones after
``--align-patience``.

Fails when ours has a rejection, leaves a job undone, a ``required`` job across zones, or less than
98 % of the ``preferred`` ones aligned.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.lib import bed, rejections, replay
from bench.lib import jobs as job_lists
from bench.placement import BASELINE, Subject
from rte import sysfs
from rte.model import bits
from tests.cluster import agents, builder
from tests.cluster.dra.running import start_driver
from tests.cluster.processes import ClusterError, note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

API = "/apis/resource.k8s.io/v1"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
ALIGNMENT = "topology.rte.dev/device-alignment"
PREFERRED_SHARE = 0.98


@dataclass(frozen=True, kw_only=True)
class DeviceJob(job_lists.Job):
    """A job with a claim; ``wish`` is what it asks of alignment."""

    gpus: int
    nic: bool
    wish: str

    @property
    def template(self) -> str:
        """Of its claim."""
        return f"gpus-{self.gpus}" + ("-nic" if self.nic else "")

    def pod(self, attempt: int, scheduler: str) -> Object:
        """The pod of the job's n-th attempt."""
        made = super().pod(attempt, scheduler)
        made["metadata"]["annotations"] = {ALIGNMENT: self.wish}
        made["spec"]["resourceClaims"] = [
            {"name": "devices", "resourceClaimTemplateName": self.template}
        ]
        for box in made["spec"]["containers"]:
            box["resources"]["claims"] = [{"name": "devices"}]
        return made


def draw(
    seed: int, count: int, seconds: tuple[float, float], every: float = 0.0
) -> list[DeviceJob]:
    """The list of a seed; a job comes ``every`` so many seconds (0: all at once)."""
    chooser = random.Random(seed)
    return [
        DeviceJob(
            number=number,
            at=number * every,
            containers=({"cpu": str(chooser.randint(2, 16)), "memory": "1Gi"},),
            seconds=chooser.uniform(*seconds),
            gpus=chooser.randint(1, 4),
            nic=chooser.random() < 0.5,
            wish=chooser.choice(("required", "preferred")),
        )
        for number in range(count)
    ]


def template(gpus: int, *, nic: bool) -> Object:
    """Claims for so many GPUs; a NIC is on the PCIe root of the first."""

    def asks(name: str, kind: str, count: int) -> Object:
        return {"name": name, "exactly": {"deviceClassName": kind, "count": count}}

    devices: Object = {"requests": [asks("gpu", "gpu", 1)]}
    if nic:
        devices["requests"].append(asks("nic", "nic", 1))
        devices["constraints"] = [{"requests": ["gpu", "nic"], "matchAttribute": ROOT}]
    if gpus > 1:
        devices["requests"].append(asks("more", "gpu", gpus - 1))
    name = f"gpus-{gpus}" + ("-nic" if nic else "")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }


@dataclass
class Observer:
    """Compares the zones of running jobs' CPUs and devices.

    Attributes:
        found: wish -> (aligned, all).
        across: what is not aligned.
    """

    cluster: Cluster
    zone_cpus: Mapping[str, Mapping[int, int]]
    devices: Mapping[tuple[str, str, str], int]
    found: dict[str, list[int]] = field(
        default_factory=lambda: {"required": [0, 0], "preferred": [0, 0]}
    )
    across: list[Mapping[str, Any]] = field(default_factory=list)

    def look(self, job: job_lists.Job, pod: Object) -> None:
        """A job's pod runs."""
        assert isinstance(job, DeviceJob)
        zones = {"cpus": self._cpus(pod), "devices": self._devices(pod)}
        aligned = len(zones["cpus"]) == 1 and zones["devices"] <= zones["cpus"]
        counts = self.found[job.wish]
        counts[0] += aligned
        counts[1] += 1
        if not aligned:
            told = {name: sorted(some) for name, some in zones.items()}
            self.across.append({"job": job.number, "wish": job.wish, **told})

    def _cpus(self, pod: Object) -> set[int]:
        name = pod["spec"]["nodeName"]
        state = self.cluster.node(name).state_file("cpu_manager_state")
        held = state.get("entries", {}).get(pod["metadata"]["uid"])
        cpus = bits.parse_list(",".join((held or {}).values()))
        return {zone for zone, own in self.zone_cpus[name].items() if cpus & own}

    def _devices(self, pod: Object) -> set[int]:
        (told,) = pod["status"]["resourceClaimStatuses"]
        claim = self.cluster.api.get(f"{CLAIMS}/{told['resourceClaimName']}")
        results = claim["status"]["allocation"]["devices"]["results"]
        return {self.devices[one["driver"], one["pool"], one["device"]] for one in results}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both schedulers."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.dra", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--seeds", type=lambda text: [*map(int, text.split(","))], default=[1, 2, 3, 4, 5])
    add("--jobs", type=int, default=60)
    add("--nodes", type=int, default=4)
    add("--shape", default="2x32,gpus=4,nics=2")
    add("--seconds", type=float, nargs=2, default=(6, 14), help="shortest and longest job")
    add(
        "--every",
        type=float,
        default=2.0,
        help="seconds between jobs (0: all at once); 2 keeps half of the GPUs busy",
    )
    add("--limit", type=float, default=300.0, help="give a list up after so many seconds")
    add("--align-patience", type=float, help="of our scheduler, in seconds (its default)")
    add("--no-baseline", action="store_true", help="leave kube-scheduler out")
    add("--version", default=builder.DEFAULT_VERSION, help="Kubernetes version")
    args = parser.parse_args(argv)
    return bed.run("dra", lambda cluster: _measure_all(cluster, args), version=args.version)


def _measure_all(cluster: Cluster, args: argparse.Namespace) -> int:
    kubelet = {"policy": "single-numa-node"}
    nodes = bed.add_nodes(cluster, [{"shape": args.shape, "kubelet": kubelet}] * args.nodes)
    for node in nodes:
        start_driver(cluster, node)
    for gpus in range(1, 5):
        for nic in (False, True):
            cluster.api.create(TEMPLATES, template(gpus, nic=nic))
    devices = _device_zones(cluster)
    agents.install(cluster)
    for node in nodes:
        agents.start(node)
    for node in nodes:
        agents.wait_published(node)
    met, baseline = True, None
    subjects = [] if args.no_baseline else [Subject(BASELINE)]
    for subject in [*subjects, _ours(args.align_patience)]:
        subject.start(cluster)
        runs = []
        for seed in args.seeds:
            jobs = draw(seed, args.jobs, tuple(args.seconds), args.every)
            runs.append(_measure(cluster, subject, jobs, nodes, devices, args.limit))
            note(f"{subject.name} seed {seed}: {json.dumps(runs[-1])}")
        subject.stop(cluster)
        line: dict[str, Any] = {"subject": subject.name, "seeds": args.seeds}
        line |= {key: [run[key] for run in runs] for key in runs[0]}
        makespan = statistics.mean(line["makespan_s"])
        baseline = baseline or makespan
        line["over_baseline"] = round(makespan / baseline, 3)
        for wish in ("required", "preferred"):
            aligned, total = (sum(run[wish][n] for run in runs) for n in (0, 1))
            line[f"{wish}_share"] = round(aligned / total, 4) if total else None
        print(json.dumps(line), flush=True)
        if subject.tells:
            met = (
                all(run["done"] == args.jobs and not run["rejected"] for run in runs)
                and line["required_share"] in (None, 1.0)
                and (line["preferred_share"] or 1.0) >= PREFERRED_SHARE
            )
    return 0 if met else 1


def _ours(patience: float | None) -> Subject:
    subject = Subject.parse("rte")
    if patience is None:
        return subject
    return replace(subject, command=f"{subject.command} --align-patience {patience}")


def _measure(
    cluster: Cluster,
    subject: Subject,
    jobs: Sequence[DeviceJob],
    nodes: Sequence[Node],
    devices: Mapping[tuple[str, str, str], int],
    limit: float,
) -> dict[str, Any]:
    zone_cpus = {}
    for node in nodes:
        machine = sysfs.read_machine(node.machine / "sys", node.machine / "proc")
        zone_cpus[node.name] = {zone.id: zone.cpus for zone in machine.zones}
    observer = Observer(cluster, zone_cpus, devices)
    placed_by = {"subject": subject.name}
    outcome = replay.Replay(cluster.api, jobs, placed_by, "replicaset", observer.look).run(limit)  # type: ignore[arg-type]
    findings = rejections.judge(outcome.rejections, outcome.arrivals, None)
    waits = outcome.waits()
    for node in nodes:
        node.force_admission()  # the next list begins on kubelets that hold nothing
    _wait_for_claims(cluster)
    return {
        "done": outcome.done(),
        "makespan_s": round(outcome.seconds, 1),
        "rejections": rejections.counts(findings),
        "rejected": [each.as_json() for each in findings],
        "start_p50_s": round(statistics.median(waits), 2) if waits else None,
        "start_max_s": round(waits[-1], 2) if waits else None,
        **observer.found,
        "across": observer.across,
    }


def _wait_for_claims(cluster: Cluster) -> None:
    """The controller has taken back the claims of pods that are gone."""
    until = time.monotonic() + 60
    while cluster.api.get(CLAIMS)["items"]:
        if time.monotonic() > until:
            raise ClusterError("claims of ended jobs are not deleted")
        time.sleep(0.1)


def _device_zones(cluster: Cluster) -> dict[tuple[str, str, str], int]:
    """(driver, pool, device) -> zone, as the drivers publish it."""
    found = {}
    for one in cluster.api.get(f"{API}/resourceslices")["items"]:
        spec = one["spec"]
        for device in spec["devices"]:
            key = spec["driver"], spec["pool"]["name"], device["name"]
            found[key] = device["attributes"][NUMA]["int"]
    return found


if __name__ == "__main__":
    sys.exit(main())
