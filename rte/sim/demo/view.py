"""Draws a snapshot for a terminal of any size, with rich."""

from __future__ import annotations

import string
import textwrap
import zlib
from dataclasses import dataclass
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
    from rte.model.node import NodeState
    from rte.sim.demo.snapshot import Beside, DemoSnapshot, NodeView

_PALETTE = (
    "#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#b04fd0", "#42d4f4", "#f032e6",
    "#bfef45", "#fa9fb5", "#469990", "#dcbeff", "#b07a3f", "#fffac8", "#aaffc3", "#a0a000",
)  # fmt: skip
_SHARED, _RESERVED = "grey27", "grey66"
_WIDE = 120
#: A screen lower than this has no headings of nodes, and only so many of the commands.
_LOW, _LOW_COMMANDS = 30, 2
#: On so many free lines events get a part.
_LINES_WITH_EVENTS = 12
_GIB = 1 << 30
#: Pods refused under plain rules that the summary names.
_NAMED = 10


def colour(uid: str) -> str:
    """A pod's colour; the same wherever it shows."""
    return _PALETTE[zlib.crc32(uid.encode()) % len(_PALETTE)]


def letter(uid: str) -> str:
    """What stands for a pod where there are no colours."""
    return string.ascii_letters[zlib.crc32(uid.encode()) % len(string.ascii_letters)]


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Where it is drawn.

    Attributes:
        width, height: in characters and lines.
        plain: without colours, so that signs tell pods apart.
    """

    width: int
    height: int
    plain: bool = False

    @property
    def is_low(self) -> bool:
        """Too low for headings of nodes, and for hints."""
        return self.height < _LOW

    @property
    def node_width(self) -> int:
        """Of the part for nodes; on a wide screen pods stand beside them, else below."""
        return self.width if self.width < _WIDE else max(60, self.width * 11 // 20)

    @property
    def pod_width(self) -> int:
        """Of the part for pods."""
        return self.width if self.width < _WIDE else self.width - self.node_width - 2


def draw(
    snapshot: DemoSnapshot, screen: Screen, commands: Sequence[str], *, scroll: int = 0
) -> tuple[RenderableType, int]:
    """The whole screen, its height in lines or fewer; and how many lines can be above its edge.

    Nodes and pods have a part each; ``scroll`` lines of both are above the upper edge, as far as a
    part has so many.
    """
    head, foot = _frame(snapshot, screen, commands)
    pods = pod_lines(snapshot, plain=screen.plain, width=screen.pod_width)
    rooms = _rooms(snapshot, screen, len(pods), screen.height - len(head) - len(foot) - 1)
    height = sum(_height(node, screen) for node in snapshot.nodes)
    most = max(0, height - rooms[0], len(pods) - rooms[1])
    top = max(0, min(scroll, most))
    if most:
        head[-1] = Text(
            f"▲ {counted(top, 'line')} above, {most - top} below ▼   (↑ ↓ scroll, q ends)",
            style="dim",
        )
    nodes = _window(snapshot.nodes, screen, top, rooms[0])
    first = max(0, min(top, len(pods) - rooms[1]))
    shown = pods[first : first + rooms[1]]
    if screen.width < _WIDE:
        body = [*nodes, *shown]
    else:
        body = list(_side_by_side(nodes, shown, screen.node_width, screen.width))
    left = screen.height - len(head) - len(foot) - len(body) - 2
    events = event_lines(snapshot, left, screen.width)
    gap = [Text()] if events else []
    return Group(*_fit([*head, *body, *gap, *events, *foot])), most


def _frame(
    snapshot: DemoSnapshot, screen: Screen, commands: Sequence[str]
) -> tuple[list[Text], list[Text]]:
    head = [_summary(snapshot), *_beside_lines(snapshot), _legend(plain=screen.plain), Text()]
    kept = commands[:_LOW_COMMANDS] if screen.is_low else commands
    return head, [Text(command, style="dim") for command in kept]


def _rooms(snapshot: DemoSnapshot, screen: Screen, pods: int, left: int) -> tuple[int, int]:
    """Lines for nodes and for pods; where there is much room, a quarter of it is for events."""
    room = max(2, left - left // 4 if left >= _LINES_WITH_EVENTS else left)
    if screen.width >= _WIDE:
        return room, room
    nodes = sum(_height(node, screen) for node in snapshot.nodes)
    for_nodes = min(nodes, max(room // 2, room - pods))
    return for_nodes, room - for_nodes


def _height(node: NodeView, screen: Screen) -> int:
    zones = len(node.topology.zones) if node.topology and node.state else 0
    return max(1, zones) if screen.is_low else 1 + max(zones, node.topology is not None)


def _window(nodes: Sequence[NodeView], screen: Screen, top: int, room: int) -> list[Text]:
    """The lines of nodes that are seen: of many nodes, only these are drawn."""
    total = sum(_height(node, screen) for node in nodes)
    top = max(0, min(top, total - room))
    lines: list[Text] = []
    for node in nodes:
        height = _height(node, screen)
        if top >= height:
            top -= height
            continue
        lines += node_lines(node, screen)[top:]
        top = 0
        if len(lines) >= room:
            break
    return lines[:room]


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


def _summary(snapshot: DemoSnapshot) -> Text:
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


def _beside_lines(snapshot: DemoSnapshot) -> list[Text]:
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


def summary_lines(snapshot: DemoSnapshot) -> list[str]:
    """What has become of all pods, in words."""
    told = f"{counted(snapshot.created, 'pod')} created: {snapshot.bound} placed"
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


def _legend(*, plain: bool) -> Text:
    if plain:
        return Text("a cell is a core: a pod's letter, . shared, # reserved, % two of these")
    return Text.assemble(
        ("a cell is a core, one thread above the other: ", "dim"),
        ("▀", f"{_PALETTE[1]} on {_PALETTE[0]}"),
        (" a pod's  ", "dim"),
        ("▀", f"{_SHARED} on {_SHARED}"),
        (" shared  ", "dim"),
        ("▀", f"{_RESERVED} on {_RESERVED}"),
        (" reserved", "dim"),
    )


def node_lines(node: NodeView, screen: Screen) -> list[Text]:
    """A heading and one line for each zone; on a low screen the first zone is beside the name."""
    title = Text(node.name, style="bold cyan")
    if node.topology is None:
        return [title.append(f"  {node.shape}  waiting for its agent", style="yellow")]
    state = node.state
    if state is None:
        told = Text("  no state published yet", style="yellow")
        return [title.append_text(told)] if screen.is_low else [title, told]
    zones = node.topology.zones
    cores = {zone.id: _cores(state, zone.id) for zone in zones}
    most = max(map(len, cores.values()))
    margin = len(node.name) + 2 if screen.is_low else 2
    per_cell = max(1, -(-most // max(8, screen.node_width - margin - 51)))
    lines = []
    for zone in zones:
        line = Text(" " * margin + f"zone {zone.id} ")
        cells = _cells(cores[zone.id][::per_cell], node.owners, state.reserved, plain=screen.plain)
        line.append_text(cells)
        line.append(" " * (-(-most // per_cell) - len(cells)))
        memory, gpus = zone.resources.get("memory"), zone.resources.get(GPU)
        line.append(f" cpu {node.cpus_of(zone.id):>5} free ")
        if memory is not None:
            free, total = memory.available / _GIB, memory.allocatable / _GIB
            line.append("mem ")
            line.append_text(_bar(1 - free / total if total else 1.0, 8))
            line.append(f" {free:.0f}/{total:.0f} GiB ")
        if gpus is not None:
            used = gpus.allocatable - gpus.available
            line.append("gpu ")
            line.append("●" * used, style="magenta")
            line.append("○" * gpus.available, style="dim")
        lines.append(line)
    if not screen.is_low:
        policy = f"  {node.shape}  {node.topology.policy}, scope {node.topology.scope}"
        return [title.append(policy, style="dim"), *lines]
    lines[0] = title.append_text(lines[0][len(node.name) :])
    return lines


def _cores(state: NodeState, zone: int) -> list[list[int]]:
    """The CPUs of each core of a zone."""
    cores: dict[int, list[int]] = {}
    for info in state.topology.cpus:
        if info.zone == zone:
            cores.setdefault(info.core, []).append(info.cpu)
    return list(cores.values())


def _cells(
    cores: Sequence[Sequence[int]], owners: Mapping[int, str], reserved: CPUSet, *, plain: bool
) -> Text:
    """Two threads of a core in one cell; of larger machines every so many cores are shown."""

    def shade(cpu: int) -> str:
        if cpu in owners:
            return letter(owners[cpu]) if plain else colour(owners[cpu])
        if reserved >> cpu & 1:
            return "#" if plain else _RESERVED
        return "." if plain else _SHARED

    text = Text()
    for cpus in cores:
        first, last = shade(cpus[0]), shade(cpus[-1])
        if plain:
            text.append(first if first == last else "%")
        else:
            text.append("▀", style=f"{first} on {last}")
    return text


def _bar(share: float, width: int) -> Text:
    full = round(max(0.0, min(1.0, share)) * width)
    return Text.assemble(("━" * full, "blue"), ("╌" * (width - full), "grey50"))


_HOLDS_NONE = {"Running": "shared pool", "Succeeded": "ended", "Failed": "failed"}
_PHASES = {"Running": "green", "Pending": "yellow", "Failed": "red", "Succeeded": "dim"}


def pod_lines(snapshot: DemoSnapshot, *, plain: bool = False, width: int = 0) -> list[Text]:
    """The pods: those that wait first, then those that run, each in the colour of its cells.

    Why a pod waits goes on in further lines where ``width`` is too small for it; 0: it is not.
    """
    order = {"Pending": 0, "Failed": 1, "Running": 2, "Succeeded": 3}
    refusals = snapshot.beside.refusals if snapshot.beside else {}
    lines = [Text(f"  {'pod':<14}{'node':<9}{'zones':<6}exclusive CPUs", style="bold")]
    for pod in sorted(snapshot.pods, key=lambda p: (order.get(p.phase, 4), p.name)):
        holds = bool(pod.cpus) and pod.phase == "Running"
        style = colour(pod.uid) if holds else _PHASES.get(pod.phase, "")
        sign = letter(pod.uid) if plain else "■"
        head = f"{sign if holds else ' '} {pod.name:<14}"
        if pod.phase == "Pending" and pod.reason:
            lines += _wrapped(f"{head}{pod.reason}", style, width)
        else:
            what = pod.cpus or pod.reason or _HOLDS_NONE.get(pod.phase, "")
            what += f"  + {pod.devices}" if pod.devices else ""
            lines.append(Text(f"{head}{pod.node:<9}{pod.zones:<6}{what}", style=style))
        if pod.name in refusals:
            node, reason = refusals[pod.name]
            lines.append(Text(f"    ✗ plain Kubernetes: {node} refused it, {reason}", style="red"))
    return lines


def _wrapped(text: str, style: str, width: int) -> list[Text]:
    parts = textwrap.wrap(text, width - 1, subsequent_indent=" " * 6) if width else [text]
    return [Text(part, style=style) for part in parts]


_REASONS = {"Scheduled": "cyan", "Started": "green", "FailedScheduling": "yellow"}


def event_lines(snapshot: DemoSnapshot, room: int, width: int) -> list[Text]:
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


def zone_table(snapshot: DemoSnapshot) -> Table:
    """Every node zone by zone: its NRT, less what processing groups have."""
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
            memory, gpu = zone.resources.get("memory"), zone.resources.get(GPU)
            mine = node.state.topology.zone_cpus.get(zone.id, 0) if node.state else 0
            table.add_row(
                node.name if number == 0 else "",
                node.topology.policy if number == 0 else "",
                str(zone.id),
                node.cpus_of(zone.id),
                f"{memory.available / _GIB:.1f}/{memory.allocatable / _GIB:.1f} GiB"
                if memory
                else "-",
                f"{gpu.available}/{gpu.allocatable}" if gpu else "-",
                bits.format_list(mine),
            )
    return table
