"""Jobs through a scheduler on real kubelets: ``python -m bench.placement [--scheduler rte]``.

A seeded list of pinned jobs (60 by default) is run through every subject on the same nodes; a pod
that a kubelet refuses is created again, as its owner would. One JSON line per subject:

* ``done``, ``makespan_s``, ``rejections`` (ours, foreign, other scheduler's, by the kubelets'
  reasons);
* ``rejected``: each rejection; for a scheduler of ours (``rte``) whether it is ``excused``: the
  foreign pod that it could not have seen came between the last change that it knew and its bind;
* ``late`` (``--scheduler rte --late``): pods that were Pending for more than 200 ms although exact
  prediction on a second view of the cluster admitted them; ``idle``: how long of that the scheduler
  was neither running nor waiting for a CPU; ``named``: for a reason that it names (a reservation,
  a pod in flight, a node being read afresh); a ``fault`` is one without a name and 200 ms idle.
  The second view takes much of a core, so it is no run to take times from;
* ``faults``: their number, and that of rejections without excuse: any fails the run;
* ``oracle_s`` and ``over_oracle``: a scheduler without latency that knows the exact model and
  serves in arrival order (:mod:`bench.lib.oracle`), each job with the 1.3 s that an idle kubelet
  adds; ``over_bare_oracle``: without them; ``over_same_kubelets``: with the time from bind to
  Running that this run's kubelets took (they share the machine's cores with all else);
* ``efficiency``: share of all CPUs that ran jobs while some job waited;
* ``start_p50_s``, ``start_max_s``: from a job's first creation to Running;
* ``predictions``: of a scheduler of ours, by result (docs/metrics.md): all should be ``exact``, and
  one that came out otherwise fails the run (``--keep`` keeps its case, and the log);
* ``cpu_s``: of the scheduler's processes; ``over_baseline``: mean makespan to the baseline's.

The baseline is the default kube-scheduler. A subject is a command template: ``{kubeconfig}``,
``{name}`` (the scheduler name that its pods carry), ``{dir}`` (a folder of its own), ``{port}`` (a
free one), ``{python}``, ``{kube_scheduler}``; ``sh`` runs it, so it may be several programs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import shutil
import statistics
import sys
import threading
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.lib import bed, oracle, rejections, replay, witness
from bench.lib import jobs as job_lists
from bench.subjects import Subject as Exporter
from rte.model import quantity
from rte.placement.drift import Result
from tests.cluster import agents, builder, processes
from tests.cluster.processes import ClusterError, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from bench.lib.jobs import Job, Placer
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

    #: Makespan of a list, given what the kubelet adds to each job.
    Oracles: TypeAlias = Callable[[Sequence[Job], Callable[[Job], float]], float]

BASELINE = "default-scheduler"
OTHER = "other-scheduler"

#: Our scheduler, for ``--scheduler rte``.
OURS = (
    "exec {python} -m rte scheduler --kubeconfig {kubeconfig} --scheduler-name {name}"
    " --listen 127.0.0.1:{port} --log-level debug --log-format json --case-dir {dir}/cases"
)
#: Our extender, for ``--extender rte``.
OUR_EXTENDER = (
    "exec {python} -m rte scheduler --kubeconfig {kubeconfig} --scheduler-name unused"
    " --extender-profiles {name} --listen '' --extender-listen 127.0.0.1:{port}"
    " --log-level debug --log-format json"
)
EXTENDER_CONFIG = Path(__file__).parent.parent / "manifests/extender/kube-scheduler.yaml"

#: Nodes of ``--cluster mixed``: each policy and scope, 2 to 8 zones, a zone without CPUs, huge
#: pages, and devices of one zone, of two, and of none.
_GPUS = {"example.com/gpu": [[0], [0], [1], [1]]}
MIXED: tuple[dict[str, Any], ...] = (
    {
        "shape": "2x32,hugepages-2Mi=1024",
        "kubelet": {"policy": "single-numa-node"},
        "devices": _GPUS,
    },
    {
        "shape": "2x32",
        "kubelet": {"policy": "single-numa-node", "scope": "pod"},
        "devices": {"example.com/gpu": [[0], [0, 1], None, []]},
    },
    {
        "shape": "4x16,sockets=2,memory-zones=1",
        "kubelet": {"policy": "restricted", "cpu_options": {"full-pcpus-only": "true"}},
    },
    {
        "shape": "8x48,sockets=2,hugepages-2Mi=512",
        "kubelet": {
            "policy": "single-numa-node",
            "topology_options": {"prefer-closest-numa-nodes": "true"},
        },
        "devices": {"example.com/gpu": [[zone] for zone in range(8)]},
    },
    {"shape": "4x16,sockets=2", "kubelet": {"policy": "restricted", "scope": "pod"}},
    {"shape": "2x32", "kubelet": {"policy": "best-effort"}, "devices": _GPUS},
    {"shape": "2x16", "kubelet": {"policy": "none"}},
    {"shape": "2x32", "kubelet": {"policy": "best-effort", "scope": "pod"}},
)
_KINDS = {
    "memory": 0.15,
    "device": 0.15,
    "hugepages": 0.05,
    "shared": 0.1,
    "init": 0.05,
    "sidecar": 0.05,
}


@dataclass(frozen=True)
class Subject:
    """A named scheduler; no command: the default kube-scheduler.

    With ``extender`` the command serves the extender's verbs on ``{port}``, and a kube-scheduler
    that asks it is started as manifests/extender configures one. ``tells``: it logs its decisions
    as ours does, so its rejections can be judged.
    """

    name: str
    command: str = ""
    extender: bool = False
    tells: bool = False

    @classmethod
    def parse(cls, text: str) -> Subject:
        """``NAME=COMMAND``, or ``rte`` for our own."""
        if text == "rte":
            return cls("rte-scheduler", OURS, tells=True)
        name, equals, command = text.partition("=")
        if not equals or not command.strip():
            raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=COMMAND, or rte")
        return cls(name, command)

    @classmethod
    def parse_extender(cls, text: str) -> Subject:
        """``NAME=COMMAND`` of an extender, or ``rte`` for our own."""
        ours = cls("rte-extender", OUR_EXTENDER, tells=True)
        return replace(ours if text == "rte" else cls.parse(text), extender=True)

    @property
    def answers(self) -> bool:
        """Whether it also says why a pod waits."""
        return self.tells and not self.extender

    def log(self, cluster: Cluster) -> Path:
        """What it writes, in a folder of its own."""
        return cluster.dir / f"subject-{self.name}/log"

    def suspect(self, cluster: Cluster, port: int) -> witness.Suspect:
        """For a witness, while it runs."""
        return witness.Suspect(
            name=self.name,
            kubeconfig=cluster.kubeconfig,
            address=f"127.0.0.1:{port}",
            log=self.log(cluster),
            pid=next(processes.find(cluster.dir, self.role)).pid,
        )

    def predictions(self, port: int) -> dict[str, int] | None:
        """How its predictions came out, by result; None for a scheduler that makes none."""
        if not self.answers:
            return None
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "rte_scheduler_predictions_total":
                    found[sample.labels["result"]] += int(sample.value)
        return dict(found)

    def start(self, cluster: Cluster) -> int:
        """Start it and wait until it places pods; its port is returned (0: none)."""
        folder = self.log(cluster).parent
        folder.mkdir(exist_ok=True)
        port = 0
        if not self.command:
            cluster.start_scheduler(self.name, role="scheduler")
        else:
            port = processes.free_port()
            filled = self.command.format(
                kubeconfig=shlex.quote(str(cluster.kubeconfig)),
                name=self.name,
                dir=folder,
                port=port,
                python=shlex.quote(sys.executable),
                kube_scheduler=cluster.binaries.path("kube-scheduler"),
            )
            cluster.spawn(self.role, ["sh", "-c", filled], log=self.log(cluster))
            if self.extender:
                config = yaml.safe_load(EXTENDER_CONFIG.read_text())
                (extender,) = config["extenders"]
                extender["urlPrefix"] = f"http://127.0.0.1:{port}"
                del extender["enableHTTPS"], extender["tlsConfig"]
                role = f"{self.role}/kube-scheduler"
                log = folder / "kube-scheduler.log"
                cluster.start_scheduler(self.name, config=config, role=role, log=log)
        try:
            replay.wait_until_placed(cluster.api, self.name)
        except ClusterError as error:
            lines = processes.tail(self.log(cluster))
            raise ClusterError(f"{self.name} places no pod: {error}\n{lines}") from error
        return port

    def stop(self, cluster: Cluster) -> None:
        """End it."""
        cluster.stop_role(self.role)

    @property
    def role(self) -> str:
        """Role of its processes in the test bed."""
        return f"subject/{self.name}" if self.command else "scheduler"

    def cpu_seconds(self, cluster: Cluster) -> float:
        """CPU time of its processes so far."""
        total = 0.0
        for process in processes.find(cluster.dir, self.role):
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return total


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every subject."""
    args = _parser().parse_args(argv)
    subjects = [] if args.no_baseline else [Subject(BASELINE)]
    subjects += [*args.scheduler, *args.extender]
    return bed.run(
        "placement", lambda cluster: _measure_all(cluster, subjects, args), version=args.version
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.placement", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--scheduler", action="append", default=[], type=Subject.parse, metavar="NAME=COMMAND|rte")
    add(
        "--extender",
        action="append",
        default=[],
        type=Subject.parse_extender,
        metavar="NAME=COMMAND|rte",
        help="a kube-scheduler with this program as its extender, listening on {port}",
    )
    add("--no-baseline", action="store_true", help="leave the default kube-scheduler out")
    add("--agent", type=Exporter.parse, metavar="NAME=COMMAND",
        help="exporter on every node; default: `rte run` with the manifests' rights")  # fmt: skip
    add("--keep", type=Path, metavar="DIR", help="copy the logs and cases of each subject there")
    add("--no-agent", action="store_true", help="no exporter")
    add("--agent-restart", type=float, default=0.0, help="restart one agent every so many seconds")
    add("--seeds", type=_numbers, default=[1, 2, 3], metavar="1,2,3")
    add("--jobs", type=int, default=60)
    add("--owner", choices=("replicaset", "job"), default="replicaset",
        help="who creates a refused pod again: after 1 s, or after 10 s, doubling")  # fmt: skip
    add("--cluster", choices=("plain", "mixed"), default="plain",
        help="equal nodes (--nodes, --shape ...), or eight different ones")  # fmt: skip
    add("--nodes", type=int, default=4)
    add("--shape", default="2x32")
    add("--policy", default="single-numa-node")
    add("--scope", default="container")
    add("--reconcile", default="10s", help="cpuManagerReconcilePeriod")
    add("--mix", choices=("plain", "mixed"),
        help="pinned jobs only, or also bound by memory or devices, init, sidecar, Burstable; "
        "default: as --cluster")  # fmt: skip
    add("--sizes", type=_numbers, default=[2, 4, 6, 8, 12, 16, 20, 24], help="CPUs of a container")
    add("--memory", type=_numbers, default=[1, 2, 4, 8, 16], help="GiB of a container")
    add("--two", type=float, default=0.3, help="share of pods with two containers")
    add("--seconds", type=float, nargs=2, default=(6, 14), help="shortest and longest job")
    add("--foreign", type=float, default=0.0, help="share of pods created on a node, unscheduled")
    add("--other", type=float, default=0.0, help="share of pods of another (default) scheduler")
    add("--bursts", type=int, default=1, help="jobs arrive in so many groups")
    add("--gap", type=float, default=10.0, help="seconds between groups")
    add("--late", action="store_true", help="look for pods that wait although a place is there")
    add("--limit", type=float, default=300.0, help="give a list up after so many seconds")
    add("--version", default=builder.DEFAULT_VERSION, help="Kubernetes version")
    add("--kubelet", default="", metavar="VERSION", help="of the kubelets, if another")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(item) for item in text.split(",")]


def _measure_all(cluster: Cluster, subjects: Sequence[Subject], args: argparse.Namespace) -> int:
    nodes = _add_nodes(cluster, args)
    mix = job_lists.Mix(
        jobs=args.jobs, sizes=args.sizes, memory=args.memory, two=args.two,
        seconds=tuple(args.seconds), foreign=args.foreign, other=args.other, bursts=args.bursts,
        gap=args.gap, kinds=_KINDS if (args.mix or args.cluster) == "mixed" else {},
    )  # fmt: skip
    models = {node.name: oracle.Kubelet.of(node) for node in nodes}

    def fits(job: Job, name: str) -> bool:
        return models[name].place(models[name].initial, job) is not None

    lists = {seed: job_lists.draw(mix, seed, list(models), fits) for seed in args.seeds}
    oracles = _oracles(models, args)
    if args.other:
        cluster.start_scheduler(OTHER, role="other")
        replay.wait_until_placed(cluster.api, OTHER)
    baseline: float | None = None
    met = True
    for subject in subjects:
        exported = subject.command and not args.no_agent
        if exported:
            _start_agents(nodes, args)
        port = subject.start(cluster)
        runs = []
        for seed, jobs in lists.items():
            with _restarting(nodes if exported else [], args):
                runs.append(_measure(cluster, subject, jobs, nodes, args, port, oracles))
            note(f"{subject.name} seed {seed}: {json.dumps(runs[-1])}")
        predictions = subject.predictions(port)
        subject.stop(cluster)
        if args.keep:
            folder = subject.log(cluster).parent
            shutil.copytree(folder, args.keep / folder.name, dirs_exist_ok=True)
        if exported:
            _stop_agents(nodes)
        line = {**_summary(subject, args, runs), "predictions": predictions}
        baseline = baseline or line["mean_makespan_s"]
        line["over_baseline"] = round(line["mean_makespan_s"] / baseline, 3)
        print(json.dumps(line), flush=True)
        met = met and all(run["done"] == args.jobs and not _faults(run) for run in runs)
        met = met and not any(Result(result).is_difference for result in predictions or ())
    return 0 if met else 1


def _faults(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a scheduler of ours is to blame for."""
    refused = [each for each in run["rejected"] if each.get("excused") is False]
    return refused + [each for each in run["late"] or () if each["fault"]]


def _add_nodes(cluster: Cluster, args: argparse.Namespace) -> list[Node]:
    plain = {"policy": args.policy, "scope": args.scope}
    plans = (
        MIXED if args.cluster == "mixed" else [{"shape": args.shape, "kubelet": plain}] * args.nodes
    )
    reconcile = {"reconcile": args.reconcile}
    plans = [
        {**plan, "kubelet": {**plan["kubelet"], **reconcile}, "version": args.kubelet}
        for plan in plans
    ]
    return bed.add_nodes(cluster, plans)


def _start_agents(nodes: Sequence[Node], args: argparse.Namespace) -> None:
    for node in nodes:
        agents.install(node.cluster)
        agents.start(node, argv=args.agent.argv(node) if args.agent else ())
    for node in nodes:
        try:
            agents.wait_published(node)
        except ClusterError as error:
            raise ClusterError(f"no report of {node.name}: {node.log('agent')[-800:]}") from error


@contextmanager
def _restarting(nodes: Sequence[Node], args: argparse.Namespace) -> Iterator[None]:
    """Kill and start one node's agent after another while the block runs, if that is asked for."""
    over = threading.Event()

    def restart() -> None:
        for node in itertools.cycle(nodes):
            if over.wait(args.agent_restart):
                return
            node.stop("agent", grace=0)
            agents.start(node, argv=args.agent.argv(node) if args.agent else ())

    worker = threading.Thread(target=restart)
    if nodes and args.agent_restart:
        worker.start()
    try:
        yield
    finally:
        over.set()
        if worker.ident:
            worker.join()


def _stop_agents(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.stop("agent")
        node.cluster.api.delete(f"{agents.NRT}/{node.name}")


def _oracles(models: Mapping[str, oracle.Kubelet], args: argparse.Namespace) -> Oracles:
    """Of this cluster: zone arithmetic where that is the exact model."""
    plain = (
        args.cluster == "plain"
        and (args.mix or "plain") == "plain"
        and (args.policy, args.scope) == ("single-numa-node", "container")
        and not args.foreign
    )
    build: Callable[[bool], Mapping[str, Any]] = lambda _: models  # noqa: E731
    if plain:
        state = next(iter(models.values())).state
        cpus = tuple(
            (mask & ~state.reserved).bit_count() for mask in state.topology.zone_cpus.values()
        )
        memory = tuple(row.amounts["memory"].free >> 30 for row in state.memory.values())
        build = oracle.plain_models(list(models), cpus, memory)
    return lambda jobs, overhead_s: oracle.best_makespan(jobs, build, overhead_s)


def _measure(
    cluster: Cluster,
    subject: Subject,
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    args: argparse.Namespace,
    port: int,
    oracles: Oracles,
) -> dict[str, Any]:
    schedulers: dict[Placer, str] = {"subject": subject.name, "other": OTHER}
    before = subject.cpu_seconds(cluster)
    with ExitStack() as stack:
        seer = None
        if args.late and subject.answers:
            seer = witness.Witness(subject.suspect(cluster, port))
        if seer is not None:
            stack.enter_context(seer.watching())
        outcome = replay.Replay(cluster.api, jobs, schedulers, args.owner).run(args.limit)
    spent = subject.cpu_seconds(cluster) - before
    seen = None
    if subject.tells:
        with subject.log(cluster).open() as lines:
            seen = {each.uid: each.seen for each in rejections.decisions(lines)}
    findings = rejections.judge(outcome.rejections, outcome.arrivals, seen)
    for node in nodes:
        node.force_admission()  # the next list begins on kubelets that hold nothing
    capacity = 0.0
    for node in nodes:
        status = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
        capacity += quantity.parse_resource("cpu", status["allocatable"]["cpu"]) / 1000
    waits, took = outcome.waits(), outcome.starting_s()
    bounds = [
        oracles(jobs, overhead_s)
        for overhead_s in (
            oracle.usual_overhead,
            lambda _: 0.0,
            lambda job: took.get(job.number, oracle.OVERHEAD_S) + oracle.RELEASE_S,
        )
    ]
    over = [round(outcome.seconds / bound, 3) for bound in bounds]
    efficiency = outcome.saturated_efficiency(capacity)
    return {
        "done": outcome.done(),
        "makespan_s": round(outcome.seconds, 1),
        "oracle_s": round(bounds[0], 1),
        "over_oracle": over[0],
        "over_bare_oracle": over[1],
        "over_same_kubelets": over[2],
        "rejections": rejections.counts(findings),
        "rejected": [each.as_json() for each in findings],
        "late": None if seer is None else [each.as_json() for each in seer.late],
        "efficiency": None if efficiency is None else round(efficiency, 3),
        "start_p50_s": round(statistics.median(waits), 2) if waits else None,
        "start_max_s": round(waits[-1], 2) if waits else None,
        "cpu_s": round(spent, 2),
    }


def _summary(
    subject: Subject,
    args: argparse.Namespace,
    runs: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    totals = [sum(run["rejections"].get("ours", {}).values()) for run in runs]
    line: dict[str, Any] = {
        "subject": subject.name,
        "seeds": args.seeds,
        "jobs": args.jobs,
        "rejected_ours": totals,
        "faults": sum(len(_faults(run)) for run in runs),
    }
    for key in ("makespan_s", "over_oracle", "over_bare_oracle", "over_same_kubelets"):
        line[f"mean_{key}"] = round(statistics.mean(run[key] for run in runs), 3)
    for key in runs[0]:
        line[key] = [run[key] for run in runs]
    return line


if __name__ == "__main__":
    sys.exit(main())
