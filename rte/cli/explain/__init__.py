"""``rte explain``: where a pod fits, why not elsewhere, and what would have to be free."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rte import config, errors
from rte.cli import clusterfile, grouping, inputs, live
from rte.cli.explain import alignment, replays, restarts
from rte.cli.fit import add_sources, build_sources, read_items
from rte.kube import credentials
from rte.kube.client import Client
from rte.library import manifests
from rte.model import bits, words
from rte.model.quantity import format_bytes
from rte.model.words import counted, share
from rte.reader import files
from rte.scheduler.front.answers import explain_pod, parse_answer
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.plugins.registry import RuleOptions
from rte.scheduler.shell.policies import load_policies, load_scoring

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.front.answers import NodeAnswer, PodAnswer

#: Nodes that are shown in full, unless --all.
MAX_SHOWN = 20
#: Stands for the names of nodes that say the same.
_NAME = "\0"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("pod", nargs="?", metavar="POD", help="a pod of the cluster: NAME or NAMESPACE/NAME")
    add("-f", "--file", type=Path, metavar="F", help="explain all pods of this manifest instead")
    add("-n", "--namespace", default="default", metavar="NS", help="namespace of POD")
    add_sources(parser, "explain")
    add(
        "--scheduler",
        metavar="URL",
        help="ask a running rte scheduler (its --listen address, e.g. http://127.0.0.1:10260)",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="bearer token for that scheduler (kubectl create token)",
    )
    add(
        "--case",
        type=Path,
        metavar="FILE",
        help="replay a case of the drift alarm: what was predicted, what the kubelet did, and what "
        "this rte predicts; exit code 0 when the kubelet did what may come of it",
    )
    add(
        "--restart",
        nargs="?",
        const="",
        metavar="NODE",
        help="show instead what a restart of this node's kubelet would do to its pods (without "
        "NODE: of all nodes where it would do harm); exit code 0 when it does none",
    )
    add(
        "--wait",
        type=float,
        default=0.0,
        metavar="S",
        help="with --restart NODE: look again, for this many seconds, until it would do no harm",
    )
    add(
        "--all",
        action="store_true",
        help="show every node; without a pod: for every running pod with DRA devices, the zones of "
        "its CPUs, memory and devices (exit code 1 where one is spread over zones)",
    )
    add(
        "--groups-policy",
        type=Path,
        metavar="FILE",
        help="rules of processing groups, as the scheduler's flag of that name",
    )
    add(
        "--scores",
        type=Path,
        metavar="FILE",
        help="what pods prefer, as the scheduler's flag of that name",
    )
    add("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Explain; 0 when the pod fits somewhere (or runs), 1 when it fits nowhere."""
    if args.case:
        return replays.show(args.case, args.output)
    if args.all and not args.pod and not args.file:
        return alignment.show(_objects(args, alignment.COLLECTIONS), args.output)
    if args.restart is not None:
        if args.pod or args.file or args.scheduler:
            raise errors.UsageError("--restart takes a node, and no pod or --scheduler")
        return restarts.run(args)
    if args.wait:
        raise errors.UsageError("--wait goes with --restart NODE")
    if bool(args.pod) == bool(args.file):
        raise errors.UsageError("name a pod, or give its manifest with -f (one of the two)")
    manifest = manifests.read(args.file) if args.file else []
    if args.scheduler:
        return _show(asyncio.run(_ask(args, manifest)), [], args)
    items = read_items(args)
    saved = clusterfile.saved_settings(items)
    options = RuleOptions(
        policies=load_policies(args.groups_policy, saved.get("groupsPolicy")),
        scoring=load_scoring(args.scores, saved=saved.get("scores")),
    )
    cluster, problems = build_sources(args, items, images=options.reads_images)
    return _show(_explain(cluster, args, manifest, options), problems, args)


def _objects(
    args: argparse.Namespace, collections: Iterable[str] = inputs.KINDS
) -> list[JsonObject]:
    if args.sources:
        return files.load_objects(args.sources)
    return asyncio.run(live.read_cluster(args, collections))


def _show(answers: list[PodAnswer], problems: list[str], args: argparse.Namespace) -> int:
    if args.output == "json":
        documents = [{**answer.as_json(), "problems": problems} for answer in answers]
        print(json.dumps(documents if len(documents) > 1 else documents[0], indent=2))
    else:
        settings = config.load("explain", vars(args), os.environ).scheduler
        ours = (settings.scheduler_name, *settings.also_for)
        limit = None if args.all else MAX_SHOWN
        print("\n\n".join(render(answer, limit, ours) for answer in answers))
        for line in problems:
            print(f"note: {line}")
    placed = [answer.bound or any(node.fits for node in answer.nodes) for answer in answers]
    return 0 if all(placed) else 1


def _explain(
    cluster: Cluster, args: argparse.Namespace, manifest: list[JsonObject], options: RuleOptions
) -> list[PodAnswer]:
    if manifest:
        pods = [inputs.read_pod(cluster, item) for item in manifest]
    else:
        key = _key(args)
        pods = [each for each in cluster.pods.values() if each.key == key]
        if not pods:
            raise errors.UsageError(f"pod {key} not found among waiting and running pods")
    cycle = Cycle(cluster, options)
    return [explain_pod(cluster, cycle, pod) for pod in pods]


async def _ask(args: argparse.Namespace, manifest: list[JsonObject]) -> list[PodAnswer]:
    access = credentials.Credentials(server=_url(args.scheduler))
    if args.token_file:
        access.token = credentials.TokenFile(args.token_file)
    namespace, _, name = _key(args).rpartition("/")
    async with Client(access, timeout_s=30) as client:
        if manifest:
            return [parse_answer(await client.create("/explain", each)) for each in manifest]
        return [parse_answer(await client.get("/explain", namespace=namespace, name=name))]


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise errors.UsageError(f"--scheduler {text}: expected a URL, http://HOST:PORT")
    return text.rstrip("/")


def _key(args: argparse.Namespace) -> str:
    pod = str(args.pod or "")
    return pod if "/" in pod else f"{args.namespace}/{pod}"


def render(answer: PodAnswer, limit: int | None = None, ours: Sequence[str] = ()) -> str:
    """The answer as people read it; ``ours`` are the schedulerNames that rte is known to serve."""
    fitting = [node for node in answer.nodes if node.fits]
    lines = [_headline(answer, len(fitting))]
    for container, what in answer.held.items():
        lines.append(f"  {container or 'the whole pod'} is in {what}")
    if ours and answer.scheduler not in ("", *ours) and not answer.bound:
        lines.append(
            f"  its schedulerName is {answer.scheduler}: this holds where rte serves that name "
            "(--also-for); another scheduler may choose a node that refuses the pod"
        )
    if answer.problem:
        lines.append(f"  wherever it goes: {answer.problem}")
    if answer.nominated:
        lines.append(f"  room is being made on {answer.nominated}")
    shown = answer.nodes[:limit]
    for names, text in _folded(answer.chosen, shown).values():
        lines += ["", text[0].replace(_NAME, ", ".join(names)), *text[1:]]
    if len(shown) < len(answer.nodes):
        rest = counted(len(answer.nodes) - len(shown), "more node")
        lines += ["", f"... and {rest} (--all shows them)"]
    if shown:
        lines += ["", "* the best node, + fits, - does not fit"]
    return "\n".join(lines)


def _folded(
    chosen: str | None, nodes: Iterable[NodeAnswer]
) -> dict[tuple[str, ...], tuple[list[str], list[str]]]:
    """Names and lines of nodes that say the same."""
    folded: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}
    for node in nodes:
        text = _node_lines(replace(node, node=_NAME), best=node.node == chosen)
        folded.setdefault(tuple(text), ([], text))[0].append(node.node)
    return folded


def _headline(answer: PodAnswer, fitting: int) -> str:
    if answer.bound:
        state = (
            "admitted by its kubelet" if answer.confirmed else "not confirmed by its kubelet yet"
        )
        return f"{answer.pod} is bound to {answer.bound} ({state}); of a pod like it the nodes say:"
    nodes = share(fitting, len(answer.nodes), "node")
    return f"{answer.pod} fits {nodes}" + (f"; best: {answer.chosen}" if answer.chosen else "")


def _node_lines(node: NodeAnswer, *, best: bool) -> list[str]:
    mark = "*" if best else "+" if node.fits else "-"
    if node.fits:
        where = ", ".join(
            f"{name} in {words.zones(bits.of(zones))}"
            for name, zones in node.lands.items()
            if zones
        )
        lines = [f"{mark} {node.node}: fits" + (f" ({where})" if where else "")]
        if node.scores:
            told = ", ".join(f"{rule} {score:.0f}" for rule, score in node.scores.items())
            lines.append(f"    scores: {told}")
    else:
        waiting = " (wait: a pod in front is not confirmed yet)" if node.waits else ""
        lines = [f"{mark} {node.node}: {node.reason}{waiting}"]
        if node.message and node.message != node.reason:
            lines.append(f"    {node.message}")
    if any(zone.wanted for zone in node.zones) and not node.fits:
        whose = "the whole pod" if node.container == "*" else f"container {node.container}"
        lines.append(f"    zones, for {whose}:")
        lines += [f"      {text}" for text in _zone_lines(node)]
    if node.totals and not node.fits:
        lines.append(f"    node totals: {_total_text(node)}")
    if node.groups:
        lines += [f"    {line}" for line in grouping.lines(node.groups)]
    if node.rules:
        lines.append(f"    {node.rules}")
    if node.would_help and not node.fits:
        lines.append(f"    would fit without: {', '.join(node.would_help)}")
    lines += [f"    {line}" for line in node.advice]
    return lines


def _total_text(node: NodeAnswer) -> str:
    """What plain Kubernetes looks at: it differs from the zones where the two disagree."""
    parts = []
    for name, (wanted, free) in node.totals.items():
        scale = 1000 if name == "cpu" else 1
        told = [f"{n / scale:g}" if scale > 1 else _amount(name, n) for n in (free, wanted)]
        parts.append(f"{name} {told[0]} free of {told[1]} wanted")
    return "; ".join(parts)


def _zone_lines(node: NodeAnswer) -> list[str]:
    """What is free in each zone; zones that say the same are told once."""
    alike: dict[str, int] = {}
    for zone in node.zones:
        parts = []
        for name, amount in zone.wanted.items():
            text = f"{name} {_amount(name, zone.free[name])} free of {_amount(name, amount)} wanted"
            missing = zone.short.get(name)
            parts.append(text + (f" ({_amount(name, missing)} short)" if missing else ""))
        told = "; ".join(parts)
        alike[told] = alike.get(told, 0) | 1 << zone.zone
    return [f"{words.zones(members)}: {told}" for told, members in alike.items()]


def _amount(name: str, value: int) -> str:
    return format_bytes(value) if name == "memory" or name.startswith("hugepages-") else str(value)
