"""``rte simulate``: where pods would go, what the kubelets would say, who would hold what."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.cli import inputs, machines, sweeps
from rte.library import manifests
from rte.model import bits, words
from rte.model.quantity import format_bytes
from rte.model.words import counted
from rte.reader import files
from rte.sim import offline
from rte.view import page, still

if TYPE_CHECKING:
    import argparse

    from rte.model.node import NodeState
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView

OWNERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqstuvwxyz0123456789"
#: CPUs on one line of the drawing.
LINE = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add(
        "-f",
        "--file",
        dest="files",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="Nodes, NodeResourceTopologies and pods (or workloads) as YAML; `-`: standard input. "
        "Pods that are bound already stay where they are",
    )
    machines.add_arguments(parser)
    config.add_arguments(parser, "simulate")
    add(
        "--score",
        default=offline.NEXT_FIT,
        choices=offline.STRATEGIES,
        help="how to decide (default %(default)s)",
    )
    add("--compare", action="store_true", help="run every way of deciding, side by side")
    add(
        "--sweep",
        action="append",
        metavar="KEY=V,...",
        help="the same load under every combination of these values, as a table: policy, scope, "
        "score, machine (a mix: 2x32*8+4x16*2), kubelet-version, seed (orders of arrival: 1-5)",
    )
    add(
        "--trace",
        type=Path,
        metavar="F.csv",
        help="with --sweep: pods that come and go as in this GPU trace of Alibaba's "
        "(openb_pod_list_*.csv)",
    )
    add("--most-pods", type=int, metavar="N", help="of the trace, the first N pods")
    add("--jobs", type=int, default=0, metavar="N", help="processes of a sweep (default: all CPUs)")
    add(
        "-o",
        "--output",
        choices=("text", "json", "html", "svg"),
        default="text",
        help="html: the nodes as a page; svg: a sweep as a picture (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate; 0 when every pod found a place under the chosen (or each exact) way, else 1."""
    if args.sweep:
        if args.compare or args.output == "html":
            raise errors.UsageError("--sweep prints text, json or svg; to compare, --sweep score=")
        return sweeps.run(args)
    if args.trace or args.output == "svg":
        raise errors.UsageError("--trace and -o svg are for --sweep")
    if not args.files and not args.machine:
        raise errors.UsageError("give nodes and pods with -f, or machines with --machine")
    items = [(file, item) for file in args.files for item in files.load_objects([file])]
    strategies = offline.STRATEGIES if args.compare else (args.score,)
    wanted = machines.read(args)
    worlds = [_prepare(items, wanted) for _ in strategies]
    outcomes = [
        offline.simulate(cluster, pods, strategy)
        for strategy, (cluster, pods, _) in zip(strategies, worlds, strict=True)
    ]
    cluster, _, problems = worlds[-1]
    if args.output == "html":
        _write_page(cluster)
    elif args.output == "json":
        print(json.dumps(_document(outcomes, cluster, problems), indent=2))
    else:
        print("\n".join(_compare(outcomes) if args.compare else _report(outcomes[0], cluster)))
        for line in problems:
            print(f"note: {line}")
    judged = [each for each in outcomes if each.strategy in offline.EXACT] or outcomes
    return 1 if any(outcome.unplaced for outcome in judged) else 0


def _prepare(
    items: list[tuple[Path, JsonObject]], wanted: list[machines.Machines]
) -> tuple[Cluster, list[PodView], list[str]]:
    cluster, problems = inputs.build_cluster(
        item for _, item in items if item["kind"] != "Pod" or inputs.is_bound(item)
    )
    for each in wanted:
        each.add_to(cluster)
    if not any(entry.info for entry in cluster.nodes.values()):
        raise errors.UsageError("there is no node: give Node objects with -f, or --machine")
    waiting = [
        inputs.read_pod(cluster, manifests.checked(pod, file))
        for file, item in items
        for pod in manifests.pods_of([item], file)
        if not inputs.is_bound(pod)
    ]
    if not waiting:
        raise errors.UsageError("there is no pod to place: give Pods or workloads with -f")
    return cluster, offline.order_by_name(waiting), problems


def _write_page(cluster: Cluster) -> None:
    """The nodes after the last way of deciding, as one file for a browser."""
    sys.stdout.buffer.write(page.assemble(still.picture(cluster)))
    sys.stdout.buffer.flush()


def _report(outcome: offline.SimulationOutcome, cluster: Cluster) -> list[str]:
    total = len(outcome.placed) + len(outcome.unplaced)
    share = words.share(len(outcome.placed), total, "pod")
    lines = [f"{share} placed by {outcome.strategy}"]
    for placed in outcome.placed:
        where = ", ".join(
            f"{container} in {words.zones(bits.of(zones))}"
            for container, zones in placed.zones.items()
            if zones
        )
        late = f"  (rejected {placed.attempts - 1} times before)" if placed.attempts > 1 else ""
        lines.append(f"  {placed.pod} -> {placed.node}  {where}{late}")
    for name, reasons in outcome.unplaced.items():
        why = (
            ", ".join(f"{count}x {reason}" for reason, count in reasons.most_common()) or "no node"
        )
        lines.append(f"  {name} -> nowhere: {why}")
    for reason, count in outcome.rejections.most_common():
        lines.append(f"{counted(count, 'rejection')} by a kubelet: {reason}")
    names = {pod.kubelet_uid: pod.key for pod in cluster.pods.values()}
    for node, state in offline.occupancy(cluster).items():
        lines += ["", *draw(node, state, names)]
    return lines


def draw(node: str, state: NodeState, names: dict[str, str]) -> list[str]:
    """A node's zones, one character per CPU: a letter per holder, ``.`` free, ``r`` reserved."""
    letters = {uid: OWNERS[place % len(OWNERS)] for place, uid in enumerate(state.holdings)}
    owner = {
        cpu: letters[uid] for uid in state.holdings for cpu in bits.members(state.held_cpus(uid))
    }
    lines = [f"{node} ({state.config.topology_policy}, {state.config.topology_scope} scope)"]
    for zone, cpus in state.topology.zone_cpus.items():
        cells = "".join(
            owner.get(cpu) or ("r" if state.reserved >> cpu & 1 else ".")
            for cpu in bits.members(cpus)
        )
        row = state.memory.get(zone)
        memory = row.amounts.get("memory") if row else None
        text = f"  {cells.count('.')}/{len(cells)} CPUs free"
        if memory:
            text += f", {format_bytes(memory.free)} of {format_bytes(memory.allocatable)} free"
        rows = [cells[start : start + LINE] for start in range(0, len(cells), LINE)] or [""]
        lines.append(f"  zone {zone:<3} {rows[0]}{text}")
        lines += [f"           {more}" for more in rows[1:]]
    legend = [f"{letters[uid]} {names.get(uid, uid)}" for uid in state.holdings]
    if legend:
        lines.append("  " + ", ".join(legend))
    return lines


def _compare(outcomes: list[offline.SimulationOutcome]) -> list[str]:
    lines = [f"{'decided by':<20} {'placed':>7} {'unplaced':>9} {'rejections':>11}"]
    lines.extend(
        f"{outcome.strategy:<20} {len(outcome.placed):>7} {len(outcome.unplaced):>9} "
        f"{outcome.rejections.total():>11}"
        for outcome in outcomes
    )
    return lines


def _plain(outcome: offline.SimulationOutcome) -> JsonObject:
    return {
        "strategy": outcome.strategy,
        "placed": [asdict(placed) for placed in outcome.placed],
        "rejections": dict(outcome.rejections),
        "unplaced": {pod: dict(reasons) for pod, reasons in outcome.unplaced.items()},
    }


def _document(
    outcomes: list[offline.SimulationOutcome], cluster: Cluster, problems: list[str]
) -> JsonObject:
    names = {pod.kubelet_uid: pod.key for pod in cluster.pods.values()}
    nodes = {
        name: {
            f"node-{zone}": {
                "cpus": bits.format_list(cpus),
                "free": bits.format_list(cpus & state.shared & ~state.reserved),
                "held": {
                    f"{names.get(uid, uid)}/{container}": bits.format_list(cpus & holding.cpus)
                    for uid, containers in state.holdings.items()
                    for container, holding in containers.items()
                    if cpus & holding.cpus
                },
            }
            for zone, cpus in state.topology.zone_cpus.items()
        }
        for name, state in offline.occupancy(cluster).items()
    }
    return {"outcomes": [_plain(each) for each in outcomes], "nodes": nodes, "problems": problems}
