"""``rte fit``: how many of a pod, or whether all pods of a gang, fit now, and what is missing."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors
from rte.cli import inputs, live, machines
from rte.library import manifests
from rte.model.words import counted, share
from rte.placement.joint import fit, gang
from rte.placement.joint.node import Classes, kinds_of
from rte.placement.joint.wording import missing_words
from rte.reader import files
from rte.scheduler.front.fit import copies_document, gang_document
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs.ground import member_of, problem_of, snapshot

if TYPE_CHECKING:
    import argparse
    from collections.abc import Hashable, Sequence

    from rte.placement.joint.node import JointNode, Member
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster

#: Admissions by prediction that one question may cost: some seconds.
STEPS = 50_000
#: Nodes that are shown, unless --all.
MAX_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add(
        "-f",
        "--file",
        type=Path,
        required=True,
        metavar="F",
        help="the pod; or a gang: several pods, or a workload with replicas (`-`: standard input)",
    )
    add("--count", type=int, metavar="N", help="ask whether N copies of the pod fit together")
    add("--min-count", type=int, metavar="M", help="of a gang: how many must fit (default: all)")
    add("--topology-key", default="", metavar="KEY", help="of a gang: all in one value of KEY")
    add(
        "--prefer-topology",
        action="append",
        default=[],
        metavar="KEY",
        help="of a gang: all in one value of KEY if they fit there; several: the narrowest first",
    )
    add("--empty", action="store_true", help="per kind of node, as if no pod were there")
    add(
        "--after",
        action="append",
        default=[],
        metavar="NODE=WHAT",
        help="as it would be: NODE=empty (no pod there any more), NODE=gone (no such node), or "
        "NODE=NAMESPACE/POD,... (these pods have ended)",
    )
    add_sources(parser, "fit")
    add("--all", action="store_true", help="show every node")
    add("-o", "--output", choices=("text", "json"), default="text")


def add_sources(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments that say where the nodes are read from."""
    live.add_arguments(parser, command)
    machines.add_arguments(parser)


def is_applied(args: argparse.Namespace) -> bool:
    """Whether the plan of a command with ``--apply`` is to be carried out.

    Raises:
        errors.UsageError: the plan would be one for files or for machines.
    """
    if args.apply and (args.sources or args.machine):
        raise errors.UsageError("--apply is for a cluster")
    return bool(args.apply)


def read_sources(args: argparse.Namespace, *, images: bool = False) -> tuple[Cluster, list[str]]:
    """The cluster that the arguments name, and one line for each object that is malformed."""
    return build_sources(args, read_items(args), images=images)


def read_items(args: argparse.Namespace) -> list[JsonObject]:
    """The objects that the arguments name; none for machines alone."""
    if args.sources:
        return files.load_objects(args.sources)
    return [] if args.machine else asyncio.run(live.read_cluster(args))


def build_sources(
    args: argparse.Namespace, items: list[JsonObject], *, images: bool = False
) -> tuple[Cluster, list[str]]:
    """The cluster of these objects and the machines that the arguments name."""
    wanted = machines.read(args)
    cluster, problems = inputs.build_cluster(items, time.monotonic(), images=images)
    for each in wanted:
        each.add_to(cluster)
    if args.sources:
        inputs.require_node(cluster, args.sources)
    return cluster, problems


def run(args: argparse.Namespace) -> int:
    """Count; 0 when the pod (the gang, N copies) fits, 1 when it does not or cannot be told."""
    if args.count is not None and not 1 <= args.count <= manifests.MOST_REPLICAS:
        raise errors.UsageError(f"--count {args.count}: give 1 to {manifests.MOST_REPLICAS}")
    if args.empty and args.after:
        raise errors.UsageError("--empty looks at nodes without pods: leave --after out")
    manifest = manifests.read(args.file)
    cluster, problems = read_sources(args)
    for text in args.after:
        _apply(cluster, text)
    question = _Question.of(cluster, manifest, args)
    nodes, left_out = snapshot(cluster)
    if args.empty:
        return _show(question.count_empty(nodes), args, problems)
    problems += [f"{count} {why}: not counted" for why, count in Counter(left_out.values()).items()]
    answer = question.place(nodes) if question.is_gang else question.count(nodes)
    return _show(answer, args, problems)


def _apply(cluster: Cluster, text: str) -> None:
    """Change the cluster as ``--after`` says."""
    name, _, what = text.partition("=")
    entry = cluster.nodes.get(name)
    if not what or entry is None or entry.info is None:
        raise errors.UsageError(f"--after {text}: node {name!r} not found, or no =WHAT follows")
    if what == "gone":
        cluster.remove_node(name)
        return
    there = {pod.key: pod for pod in entry.pods.values()}
    ended = list(there) if what == "empty" else what.split(",")
    for key in ended:
        if key not in there:
            raise errors.UsageError(f"--after {text}: pod {key} not found on {name}")
        cluster.remove_pod(there[key].uid, time.monotonic())


@dataclass(frozen=True)
class _FitAnswer:
    """What is printed, and the exit code."""

    lines: list[str]
    document: JsonObject
    fits: bool


@dataclass(frozen=True)
class _Question:
    """The pods that are asked about; the first stands for its copies."""

    name: str
    members: Sequence[Member]
    args: argparse.Namespace

    @classmethod
    def of(
        cls, cluster: Cluster, manifest: list[JsonObject], args: argparse.Namespace
    ) -> _Question:
        if args.count is not None and len(manifest) > 1:
            raise errors.UsageError(f"--count is for one pod, and {args.file} holds several")
        cycle = Cycle(cluster)
        members: list[Member] = []
        known: dict[int, Member] = {}
        names: set[str] = set()
        key = ""
        for item in manifest:
            pod = inputs.read_pod(cluster, item)
            problem = problem_of(cycle, pod)
            if problem:
                raise errors.UsageError(f"{pod.key} cannot be placed anywhere: {problem}")
            key = key or pod.key
            if pod.key in names:
                raise errors.UsageError(f"{args.file}: two pods are named {pod.key}")
            names.add(pod.key)
            # Pods of one shape may go to the same nodes.
            if id(pod.shape) not in known:
                known[id(pod.shape)] = member_of(cluster, cycle, pod)
            first = known[id(pod.shape)]
            named = replace(first.pod, uid=pod.key, name=pod.name, namespace=pod.namespace)
            members.append(replace(first, pod=named))
        if args.count:
            pod0 = members[0].pod
            members = [
                replace(members[0], pod=replace(pod0, uid=f"{key} #{number + 1}"))
                for number in range(args.count)
            ]
        if args.min_count is not None and not 0 < args.min_count <= len(members):
            raise errors.UsageError(
                f"--min-count {args.min_count}: give 1 to {len(members)}, the number of pods"
            )
        name = key if len(manifest) == 1 else f"{key} and {len(manifest) - 1} more"
        return cls(name, members, args)

    @property
    def is_gang(self) -> bool:
        """Whether the pods are placed together."""
        return len(self.members) > 1 or bool(self.args.topology_key) or bool(self.args.count)

    def count(self, nodes: list[JointNode]) -> _FitAnswer:
        """How many copies fit, node by node."""
        found = fit.FitTable(nodes).count(self.members[0], steps=STEPS)
        hosts = sorted(found.copies.items(), key=lambda item: (-item[1], item[0]))
        hosts = [item for item in hosts if item[1] or item[0] in found.unsure]
        at_least = "at least " if found.unsure else ""
        where = share(len(hosts), len(nodes), "node")
        lines = [f"{self.name}: {at_least}{found.total} fit, on {where}"]
        shown = hosts if self.args.all else hosts[:MAX_SHOWN]
        for name, count in shown:
            more = " or more" if name in found.unsure else ""
            lines.append(f"  {name}: {count}{more} (node totals allow {found.totals[name]})")
        if len(shown) < len(hosts):
            lines.append(
                f"  ... and {counted(len(hosts) - len(shown), 'more node')} (--all shows them)"
            )
        if found.missing:
            lines.append(f"one more: {missing_words(found.missing)}")
        return _FitAnswer(lines, copies_document(found), found.total > 0)

    def count_empty(self, nodes: list[JointNode]) -> _FitAnswer:
        """How many copies an empty node of each kind takes."""
        kinds = kinds_of(self.members[:1])
        classes = Classes()
        groups: dict[Hashable, list[JointNode]] = {}
        for node in map(fit.emptied, nodes):
            groups.setdefault(classes.key(node, kinds), []).append(node)
        lines = [f"{self.name}: on empty nodes"]
        kinds_of_nodes: list[JsonObject] = []
        for group in groups.values():
            found = fit.FitTable(group[:1]).count(self.members[0], steps=STEPS)
            example = group[0].name
            count = found.copies.get(example, 0)
            config = group[0].state.config
            kubelet = f"{config.topology_policy}, {config.topology_scope} scope"
            where = (
                f"each of {counted(len(group), 'node')} like {example}" if group[1:] else example
            )
            lines.append(f"  {count or 'none'} on {where} ({kubelet})")
            kinds_of_nodes.append(
                {
                    "nodes": [node.name for node in group],
                    "pods": count,
                    "totals": found.totals.get(example, 0),
                    "exact": not found.unsure,
                    "missing": asdict(found.missing) if found.missing else None,
                }
            )
            if not count and found.missing:
                lines.append(f"    {missing_words(found.missing)}")
        best = max((each["pods"] for each in kinds_of_nodes), default=0)
        return _FitAnswer(lines, {"empty": kinds_of_nodes}, best > 0)

    def place(self, nodes: list[JointNode]) -> _FitAnswer:
        """Whether the pods fit together, and where."""
        answer = gang.place_together(
            nodes,
            self.members,
            min_count=self.args.min_count,
            topology_key=self.args.topology_key,
            preferred=self.args.prefer_topology,
            steps=STEPS,
        )
        total = len(self.members)
        verdict = {
            gang.GangVerdict.FITS: "fit together",
            gang.GangVerdict.DOES_NOT_FIT: "do not fit together",
            gang.GangVerdict.CUT_OFF: "may or may not fit together (the search was cut off)",
        }[answer.verdict]
        need = self.args.min_count or total
        asked = counted(total, "pod") if need == total else f"{need} of {counted(total, 'pod')}"
        lines = [f"{self.name}: {asked} {verdict}; places for {len(answer.places)}"]
        if answer.value:
            lines[0] += f", with {self.args.topology_key}={answer.value}"
        if answer.level:
            lines[0] += f", in one {answer.level}"
        by_node: dict[str, list[str]] = {}
        for uid, name in sorted(answer.places.items()):
            by_node.setdefault(name, []).append(uid)
        lines += [f"  {name}: {', '.join(pods)}" for name, pods in sorted(by_node.items())]
        if answer.blame:
            lines.append(f"to blame: {answer.blame}")
        lines.extend(
            f"{counted(len(each.pods), 'pod')} like {each.pods[0]}: "
            f"{each.places} find a place, without others"
            for each in answer.shortages
        )
        document = gang_document(answer, total)
        return _FitAnswer(lines, document, answer.verdict is gang.GangVerdict.FITS)


def _show(answer: _FitAnswer, args: argparse.Namespace, problems: list[str]) -> int:
    if args.output == "json":
        print(json.dumps({**answer.document, "problems": problems}, indent=2))
    else:
        print("\n".join([*answer.lines, *(f"note: {line}" for line in problems)]))
    return 0 if answer.fits else 1
