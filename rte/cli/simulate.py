"""``rte simulate``: where pods would go, what the kubelets would say, who would hold what."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import accounting, errors, placement
from rte.cli import inputs
from rte.cli.drawing import format_bytes
from rte.kubelet import config as kubelet_config
from rte.model import bits
from rte.placement.kubelet import releases
from rte.scheduler.framework.node import Report
from rte.scheduler.framework.objects import NodeInfo
from rte.sim import offline
from rte.sysfs import read_machine

if TYPE_CHECKING:
    import argparse

    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig, NodeState
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView

FIXTURES = Path("fixtures/sysfs")
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
    add(
        "--machine",
        action="append",
        default=[],
        metavar="DIR[*N]",
        help="add N nodes of this machine: a folder with sys/ and proc/, or a fixture's name",
    )
    add(
        "--kubelet-config-file",
        type=Path,
        metavar="F",
        help="configuration of these nodes' kubelets (default: static CPU manager, Static memory "
        "manager, one CPU and 512 MiB reserved)",
    )
    add(
        "--policy",
        default="single-numa-node",
        metavar="P",
        choices=("none", "best-effort", "restricted", "single-numa-node"),
        help="topology-manager policy of these nodes, without a file (default %(default)s)",
    )
    add("--scope", default="container", choices=("container", "pod"))
    add("--kubelet-version", default=releases.NEWEST, metavar="V", help="default %(default)s")
    add(
        "--score",
        default=offline.NEXT_FIT,
        choices=offline.STRATEGIES,
        help="how to decide (default %(default)s)",
    )
    add("--compare", action="store_true", help="run every way of deciding, side by side")
    add("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Simulate; 0 when every pod found a place under the chosen (or each exact) way, else 1."""
    if not args.files and not args.machine:
        raise errors.UsageError("give nodes and pods with -f, or machines with --machine")
    items = inputs.load_objects(args.files)
    strategies = offline.STRATEGIES if args.compare else (args.score,)
    machines = [_machine(text) for text in args.machine]
    worlds = [_prepare(items, machines, args) for _ in strategies]
    outcomes = [
        offline.simulate(cluster, pods, strategy)
        for strategy, (cluster, pods, _) in zip(strategies, worlds, strict=True)
    ]
    cluster, _, problems = worlds[-1]
    if args.output == "json":
        print(json.dumps(_document(outcomes, cluster, problems), indent=2))
    else:
        print("\n".join(_compare(outcomes) if args.compare else _report(outcomes[0], cluster)))
        for line in problems:
            print(f"note: {line}")
    judged = [each for each in outcomes if each.strategy in offline.EXACT] or outcomes
    return 1 if any(outcome.unplaced for outcome in judged) else 0


def _prepare(
    items: list[dict[str, Any]], machines: list[tuple[str, Machine, int]], args: argparse.Namespace
) -> tuple[Cluster, list[PodView], list[str]]:
    cluster, problems = inputs.build_cluster(
        item
        for item in items
        if item.get("kind") != "Pod" or (item.get("spec") or {}).get("nodeName")
    )
    for name, machine, count in machines:
        state = _state(machine, args)
        for number in range(count):
            _add_node(cluster, name if count == 1 else f"{name}-{number}", machine, state)
    if not any(entry.info for entry in cluster.nodes.values()):
        raise errors.UsageError("there is no node: give Node objects with -f, or --machine")
    waiting = []
    for item in inputs.pods_of(items):
        if not (item.get("spec") or {}).get("nodeName"):
            try:
                waiting.append(inputs.read_pod(cluster, item))
            except errors.ParseError as error:
                problems.append(f"a pod is left out: {error}")
    if not waiting:
        raise errors.UsageError("there is no pod to place: give Pods or workloads with -f")
    return cluster, offline.order_by_name(waiting), problems


def _machine(text: str) -> tuple[str, Machine, int]:
    where, star, count = text.partition("*")
    if star and not (count.isascii() and count.isdigit() and 0 < int(count) < 100_000):
        raise errors.UsageError(f"--machine {text}: what follows * is no number of nodes")
    folder = Path(where)
    if not folder.is_dir():
        folder = FIXTURES / where
    if not (folder / "sys").is_dir():
        raise errors.UsageError(f"--machine {text}: neither {where} nor {folder} has a sys/ folder")
    name = re.sub(r"[^a-z0-9-]+", "-", folder.name.lower())
    return name, read_machine(folder / "sys", folder / "proc"), int(count or 1)


def _state(machine: Machine, args: argparse.Namespace) -> NodeState:
    topology = accounting.kubelet_topology(machine)
    config: KubeletConfig
    if args.kubelet_config_file is not None:
        config = kubelet_config.from_files(
            args.kubelet_config_file, memory_bytes=machine.memory_bytes
        )
    else:
        zone = next((zone.id for zone in machine.zones if zone.memory_bytes), 0)
        config = kubelet_config.effective(
            {
                "topologyManagerPolicy": args.policy,
                "topologyManagerScope": args.scope,
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": str(topology.cpus[0].cpu),
                "memoryManagerPolicy": "Static",
                "systemReserved": {"memory": "412Mi"},
                "evictionHard": {"memory.available": "100Mi"},
                "reservedMemory": [{"numaNode": zone, "limits": {"memory": "512Mi"}}],
            },
            memory_bytes=machine.memory_bytes,
            where="rte simulate",
        )
    return placement.initial_state(topology, config, {}, args.kubelet_version)


def _add_node(cluster: Cluster, name: str, machine: Machine, state: NodeState) -> None:
    huge = {
        f"hugepages-{format_bytes(size).replace(' ', '').removesuffix('B')}": size * count
        for zone in machine.zones
        for size, count in zone.hugepages.items()
    }
    memory = sum(zone.memory_bytes for zone in machine.zones) - sum(huge.values())
    allocatable = {
        "cpu": 1000 * len(state.topology.cpus) - state.config.cpu_reservation_milli,
        "memory": memory - state.config.node_reserved.get("memory", 0),
        "pods": state.config.max_pods,
        "ephemeral-storage": 1 << 40,
    }
    cluster.set_node(
        NodeInfo(
            name=name,
            uid="",
            labels={"kubernetes.io/hostname": name},
            taints=(),
            unschedulable=False,
            allocatable=allocatable,
        )
    )
    cluster.set_report(name, Report(state=state), 0.0)


def _report(outcome: offline.Outcome, cluster: Cluster) -> list[str]:
    total = len(outcome.placed) + len(outcome.unplaced)
    lines = [f"{len(outcome.placed)} of {total} pods placed by {outcome.strategy}"]
    for placed in outcome.placed:
        where = " ".join(
            f"{container}@{'+'.join(f'node-{zone}' for zone in zones)}"
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
        lines.append(f"{count} rejections by a kubelet: {reason}")
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
        lines.append(f"  node-{zone:<3} {rows[0]}{text}")
        lines += [f"           {more}" for more in rows[1:]]
    legend = [f"{letters[uid]} {names.get(uid, uid)}" for uid in state.holdings]
    if legend:
        lines.append("  " + ", ".join(legend))
    return lines


def _compare(outcomes: list[offline.Outcome]) -> list[str]:
    lines = [f"{'decided by':<20} {'placed':>7} {'unplaced':>9} {'rejections':>11}"]
    lines.extend(
        f"{outcome.strategy:<20} {len(outcome.placed):>7} {len(outcome.unplaced):>9} "
        f"{outcome.rejections.total():>11}"
        for outcome in outcomes
    )
    return lines


def _plain(outcome: offline.Outcome) -> dict[str, Any]:
    return {
        "strategy": outcome.strategy,
        "placed": [asdict(placed) for placed in outcome.placed],
        "rejections": dict(outcome.rejections),
        "unplaced": {pod: dict(reasons) for pod, reasons in outcome.unplaced.items()},
    }


def _document(
    outcomes: list[offline.Outcome], cluster: Cluster, problems: list[str]
) -> dict[str, Any]:
    nodes = {
        name: {
            f"node-{zone}": {
                "cpus": bits.format_list(cpus),
                "free": bits.format_list(cpus & state.shared & ~state.reserved),
                "held": {
                    f"{uid}/{container}": bits.format_list(cpus & holding.cpus)
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
