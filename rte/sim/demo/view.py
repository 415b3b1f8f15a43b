"""Draws a snapshot for a terminal of any size, with rich."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rte.model import bits
from rte.model.words import counted
from rte.sim.demo.cluster import GPU

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from rte.model.bits import CPUSet
    from rte.model.node import CPUInfo
    from rte.sim.demo.snapshot import Beside, NodeView, Snapshot

_PALETTE = (
    "#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#b04fd0", "#42d4f4", "#f032e6",
    "#bfef45", "#fa9fb5", "#469990", "#dcbeff", "#b07a3f", "#fffac8", "#aaffc3", "#a0a000",
)  # fmt: skip
_SHARED, _RESERVED = "grey27", "grey66"
_WIDE = 120
#: On so many free lines events get a part.
_LINES_WITH_EVENTS = 12
_GIB = 1 << 30
#: Pods refused under plain rules that the summary names.
_NAMED = 10


def colour(uid: str) -> str:
    """A pod's colour; the same wherever it shows."""
    return _PALETTE[zlib.crc32(uid.encode()) % len(_PALETTE)]


def draw(
    snapshot: Snapshot, width: int, height: int, commands: Sequence[str], *, scroll: int = 0
) -> RenderableType:
    """The whole screen: exactly ``height`` lines or fewer.

    On a wide screen pods stand beside the nodes, else below them. ``scroll`` lines of nodes and
    pods are above the upper edge; :func:`most_scroll` says how many there can be.
    """
    head, foot, body = _parts(snapshot, width, commands)
    room = _room(head, foot, height)
    top = max(0, min(scroll, len(body) - room))
    shown = body[top : top + room]
    hidden = len(body) - top - len(shown)
    if top or hidden:
        head[-1] = Text(f"▲ {top} lines above, {hidden} below ▼   (↑ ↓ scroll)", style="dim")
    events = event_lines(snapshot, height - len(head) - len(foot) - len(shown) - 2, width)
    gap = [Text()] if events else []
    return Group(*_fit([*head, *shown, *gap, *events, *foot]))


def most_scroll(snapshot: Snapshot, width: int, height: int, commands: Sequence[str]) -> int:
    """How many lines can be above the upper edge."""
    head, foot, body = _parts(snapshot, width, commands)
    return max(0, len(body) - _room(head, foot, height))


def _parts(
    snapshot: Snapshot, width: int, commands: Sequence[str]
) -> tuple[list[Text], list[Text], list[Text]]:
    head = [_summary(snapshot), *_beside_lines(snapshot), _legend(), Text()]
    foot = [Text(command, style="dim") for command in commands]
    if width < _WIDE:
        nodes = [line for node in snapshot.nodes for line in node_lines(node, width)]
        return head, foot, [*nodes, Text(), *pod_lines(snapshot)]
    side = max(60, width * 11 // 20)
    nodes = [line for node in snapshot.nodes for line in node_lines(node, side)]
    return head, foot, list(_side_by_side(nodes, pod_lines(snapshot), side, width))


def _room(head: Sequence[Text], foot: Sequence[Text], height: int) -> int:
    """Lines for nodes and pods; a third of the rest is kept for events where there is much room."""
    left = height - len(head) - len(foot) - 1
    return max(1, left - left // 4 if left >= _LINES_WITH_EVENTS else left)


def _fit(lines: Iterable[Text]) -> Iterable[Text]:
    for line in lines:
        line.no_wrap = True
        line.overflow = "ellipsis"
        yield line


def _side_by_side(
    left: Sequence[Text], right: Sequence[Text], side: int, width: int
) -> Iterable[Text]:
    for row in range(max(len(left), len(right))):
        line = left[row].copy() if row < len(left) else Text()
        line.truncate(side, overflow="ellipsis", pad=True)
        if row < len(right):
            line.append("  ")
            line.append_text(right[row])
            line.truncate(width, overflow="ellipsis")
        yield line


def _summary(snapshot: Snapshot) -> Text:
    refused = f"{snapshot.refused} refused by a kubelet"
    return Text.assemble(
        ("rte demo", "bold"),
        f"  {counted(len(snapshot.nodes), 'node')}  {counted(snapshot.created, 'pod')}: ",
        (f"{snapshot.count('Running')} running", "green"),
        ", ",
        (f"{snapshot.waiting} waiting", "yellow"),
        ", ",
        (refused, "bold red" if snapshot.refused else "green"),
    )


def _beside_lines(snapshot: Snapshot) -> list[Text]:
    beside = snapshot.beside
    if beside is None:
        return []
    refused = f"{beside.refused} refused by a kubelet"
    return [
        Text.assemble(
            ("plain Kubernetes", "bold"),
            f"  {counted(beside.created, 'pod')}: ",
            (f"{beside.running} running", "green"),
            ", ",
            (f"{beside.waiting} waiting", "yellow"),
            ", ",
            (refused, "bold red" if beside.refused else "green"),
        )
    ]


def summary_lines(snapshot: Snapshot) -> list[str]:
    """What has become of all pods, in words."""
    told = f"{snapshot.created} pods were created: {snapshot.bound} placed"
    told += f", {snapshot.waiting} still waiting"
    lines = [f"{told}, {snapshot.refused} refused by a kubelet."]
    beside = snapshot.beside
    if beside is not None:
        lines[0] = f"rte: {lines[0]}"
        lines.append(
            f"Plain Kubernetes, the same pods on the same machines: {beside.bound} of "
            f"{beside.created} placed; {beside.counts}."
        )
        lines += [
            f"  {pod}: refused by {node} ({reason})"
            for pod, (node, reason) in list(beside.refusals.items())[:_NAMED]
        ]
        if beside.refused > _NAMED:
            lines.append(f"  and {beside.refused - _NAMED} more")
        left_out = snapshot.created - beside.created
        if left_out:
            lines.append(f"Pods with claims or processing groups were left out there: {left_out}.")
    return lines


def remark(beside: Beside | None) -> str:
    """One line for the page."""
    if beside is None:
        return ""
    return f"Plain Kubernetes, with {beside.created} of these pods: {beside.counts}"


def _legend() -> Text:
    return Text.assemble(
        ("a cell is a core, one thread above the other: ", "dim"),
        ("▀", f"{_PALETTE[1]} on {_PALETTE[0]}"),
        (" a pod's  ", "dim"),
        ("▀", f"{_SHARED} on {_SHARED}"),
        (" shared  ", "dim"),
        ("▀", f"{_RESERVED} on {_RESERVED}"),
        (" reserved", "dim"),
    )


def node_lines(node: NodeView, width: int) -> list[Text]:
    """A heading and one line for each zone."""
    if node.topology is None:
        waiting = ("  waiting for its agent", "yellow")
        return [Text.assemble((node.name, "bold cyan"), f"  {node.shape}", waiting)]
    policy = f"{node.topology.policy}, scope {node.topology.scope}"
    lines = [Text.assemble((node.name, "bold cyan"), (f"  {node.shape}  {policy}", "dim"))]
    state = node.state
    if state is None:
        return [*lines, Text("  no state published yet", style="yellow")]
    most = max(
        len({info.core for info in state.topology.cpus if info.zone == zone.id})
        for zone in state.topology.zones
    )
    per_cell = max(1, -(-most // max(8, width - 52)))
    for zone in node.topology.zones:
        mine = [info for info in state.topology.cpus if info.zone == zone.id]
        line = Text(f"  zone {zone.id} ")
        line.append_text(_cells(mine, node.owners, state.reserved, per_cell))
        line.append(
            " "
            * max(
                0, -(-most // per_cell) - len(_cells(mine, node.owners, state.reserved, per_cell))
            )
        )
        cpu = zone.resources.get("cpu")
        memory = zone.resources.get("memory")
        if cpu is not None:
            line.append(f" cpu {cpu.available // 1000:>2}/{cpu.allocatable // 1000:<2} free ")
        if memory is not None:
            free, total = memory.available / _GIB, memory.allocatable / _GIB
            line.append("mem ")
            line.append_text(_bar(1 - free / total if total else 1.0, 8))
            line.append(f" {free:.0f}/{total:.0f} GiB ")
        gpus = zone.resources.get(GPU)
        if gpus is not None:
            used = gpus.allocatable - gpus.available
            line.append("gpu ")
            line.append("●" * used, style="magenta")
            line.append("○" * gpus.available, style="dim")
        lines.append(line)
    return lines


def _cells(
    infos: list[CPUInfo], owners: Mapping[int, str], reserved: CPUSet, per_cell: int
) -> Text:
    """Two threads of a core in one cell; of larger machines every so many cores are shown."""
    cores: dict[int, list[int]] = {}
    for info in infos:
        cores.setdefault(info.core, []).append(info.cpu)

    def shade(cpu: int) -> str:
        if cpu in owners:
            return colour(owners[cpu])
        return _RESERVED if reserved >> cpu & 1 else _SHARED

    text = Text()
    for number, cpus in enumerate(cores.values()):
        if number % per_cell == 0:
            text.append("▀", style=f"{shade(cpus[0])} on {shade(cpus[-1])}")
    return text


def _bar(share: float, width: int) -> Text:
    full = round(max(0.0, min(1.0, share)) * width)
    return Text.assemble(("━" * full, "blue"), ("━" * (width - full), "grey27"))


_HOLDS_NONE = {"Running": "shared pool", "Succeeded": "ended", "Failed": "failed"}
_PHASES = {"Running": "green", "Pending": "yellow", "Failed": "red", "Succeeded": "dim"}


def pod_lines(snapshot: Snapshot) -> list[Text]:
    """The pods: those that wait first, then those that run, each in the colour of its cells."""
    order = {"Pending": 0, "Failed": 1, "Running": 2, "Succeeded": 3}
    refusals = snapshot.beside.refusals if snapshot.beside else {}
    lines = [Text(f"  {'pod':<14}{'node':<9}{'zones':<6}exclusive CPUs", style="bold")]
    for pod in sorted(snapshot.pods, key=lambda p: (order.get(p.phase, 4), p.name)):
        what = pod.cpus or pod.reason or _HOLDS_NONE.get(pod.phase, "")
        what += f"  + {pod.devices}" if pod.devices else ""
        holds = bool(pod.cpus) and pod.phase == "Running"
        style = colour(pod.uid) if holds else _PHASES.get(pod.phase, "")
        mark = Text("■ " if holds else "  ", style=style)
        lines.append(mark.append(f"{pod.name:<14}{pod.node:<9}{pod.zones:<6}{what}"))
        if pod.name in refusals:
            node, reason = refusals[pod.name]
            lines.append(Text(f"    ✗ plain Kubernetes: {node} refused it, {reason}", style="red"))
    return lines


_REASONS = {"Scheduled": "cyan", "Started": "green", "FailedScheduling": "yellow"}


def event_lines(snapshot: Snapshot, room: int, width: int) -> list[Text]:
    """The newest events, oldest of them first."""
    if room <= 0:
        return []
    lines = []
    for event in snapshot.events[-room:]:
        style = _REASONS.get(event.reason, "red" if event.kind == "Warning" else "")
        line = Text.assemble(
            (event.time, "dim"),
            " ",
            (f"{event.reason:<17}", style),
            f" {event.pod:<12} ",
            event.text,
        )
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def zone_table(snapshot: Snapshot) -> Table:
    """Every NRT, zone by zone."""
    table = Table(
        title="NodeResourceTopology objects", title_justify="left", box=None, pad_edge=False
    )
    for name in ("NODE", "POLICY", "ZONE", "CPU free", "MEMORY free", "GPU free"):
        table.add_column(name, no_wrap=True)
    table.add_column("CPUS", overflow="fold")
    for node in snapshot.nodes:
        if node.topology is None:
            table.add_row(node.name, "-")
            continue
        for number, zone in enumerate(node.topology.zones):
            cpu, memory = zone.resources.get("cpu"), zone.resources.get("memory")
            gpu = zone.resources.get(GPU)
            mine = node.state.topology.zone_cpus.get(zone.id, 0) if node.state else 0
            table.add_row(
                node.name if number == 0 else "",
                node.topology.policy if number == 0 else "",
                str(zone.id),
                f"{cpu.available // 1000}/{cpu.allocatable // 1000}" if cpu else "-",
                f"{memory.available / _GIB:.1f}/{memory.allocatable / _GIB:.1f} GiB"
                if memory
                else "-",
                f"{gpu.available}/{gpu.allocatable}" if gpu else "-",
                bits.format_list(mine),
            )
    return table
