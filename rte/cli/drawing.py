"""A machine as SVG: sockets, zones, L3 groups, cores, threads, and who holds what.

Every part is a block with a size that is drawn at the origin; parents place their children with
``translate``. So no part knows where it ends up, and sizes add up from the threads outwards.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.quantity import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.machine import CPU, Machine, PCIDevice, Zone
    from rte.model.node import NodeReading, NodeState

GAP = 8.0
PAD = 10.0
TITLE = 20.0
#: Advance of one character at one pixel of font size, of the usual sans-serif fonts.
ADVANCE = 0.58
#: Fills for holders, told apart by most eyes, dark text readable on each.
HOLDERS = (
    "#f4a259",
    "#8cb369",
    "#bc96e6",
    "#5bc0de",
    "#f28ca8",
    "#e3c94b",
    "#7fc8a9",
    "#c9a27e",
    "#9fb4ff",
    "#d0d65c",
)
FREE = "#dcebfa"
SHARED = "#b9d8f5"
RESERVED = "#c3c7cd"
OFFLINE = "#ffffff"

STYLE = """
text{font-family:Inter,"DejaVu Sans","Helvetica Neue",Arial,sans-serif;fill:#1d2733}
.h{font-size:20px;font-weight:600}.s{font-size:12px;fill:#51606f}
.t{font-size:12px;font-weight:600}.d{font-size:11px;fill:#51606f}.c{font-size:10px}
.n{font-size:9px;text-anchor:middle}
.page{fill:#fbfcfd}.socket{fill:#eef2f6;stroke:#8d9aa8}.zone{fill:#fff;stroke:#4c7fb3;stroke-width:1.5}
.l3{fill:#f6f8fa;stroke:#c2ccd6}.core{fill:#fff;stroke:#9fb0c0}.cpu{stroke:#7d8fa1;stroke-width:.6}
.off{stroke-dasharray:2 2}.e{stroke:#3d8a5f}.bar{fill:#e8edf2}.mem{fill:#b9d8f5}.pool{fill:#f3d9a4}
.held{fill:#e07a3f}.res{fill:#a9b0b8}.switch{fill:#fdf6e7;stroke:#d8b25c}.dev{fill:#fff;stroke:#b08a35}
.warn{fill:#fff4f2;stroke:#d9806b}
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the picture, drawn at the origin."""

    width: float
    height: float
    svg: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds exclusive CPUs: a container of a pod."""

    name: str
    cpus: CPUSet
    fill: str


@dataclass(frozen=True)
class Paint:
    """The colour and the tooltip of every CPU."""

    fills: Mapping[int, str]
    tips: Mapping[int, str]
    holders: tuple[Holder, ...]
    state: NodeState | None


def draw(machine: Machine, reading: NodeReading | None = None) -> str:
    """The machine as one SVG document; with a reading that has a state, who holds what."""
    paint = _paint(machine, reading)
    parts = [_header(machine, reading), _body(machine, paint), _legend(machine, paint)]
    parts += _distances(machine)
    parts += _warnings([*machine.warnings, *(reading.disagreements if reading else ())])
    page = _stack([part for part in parts if part.svg], gap=2 * GAP)
    width, height = page.width + 4 * PAD, page.height + 4 * PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}">\n<style>{STYLE}</style>\n'
        f'<rect class="page" width="{_n(width)}" height="{_n(height)}"/>\n'
        f"{_at(2 * PAD, 2 * PAD, page)}</svg>\n"
    )


def format_page(size: int) -> str:
    """A page size as Kubernetes writes it: ``2Mi``."""
    for shift, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size >> shift and not size & ((1 << shift) - 1):
            return f"{size >> shift}{unit}"
    return str(size)


def summarize(machine: Machine) -> str:
    """One line: CPUs, cores, threads, sockets, zones, memory."""
    online = [cpu for cpu in machine.cpus if cpu.online]
    cores = {cpu.siblings for cpu in online}
    sockets = {cpu.socket for cpu in online}
    words = [_count(len(online), "CPU"), _count(len(cores), "core")]
    words += [_count(len(sockets), "socket"), _count(len(machine.zones), "NUMA zone")]
    words.append(format_bytes(machine.memory_bytes))
    if len(online) < len(machine.cpus):
        words.append(f"{len(machine.cpus) - len(online)} CPUs off-line")
    return " · ".join(words)


def switch_of(device: PCIDevice) -> str:
    """The upstream port of the switch above a device, ``""`` if there is none.

    A path of two bridges or more runs through a switch: root port, upstream port, downstream port.
    """
    return device.path[1] if len(device.path) >= 2 else ""


def describe_device(device: PCIDevice) -> str:
    """What a device is, in few words."""
    details = device.details
    words = [device.kind.upper() if device.kind != "nvme" else "NVMe"]
    words.append(details.get("interface") or details.get("controller") or "")
    words.append(":".join(filter(None, (device.vendor[2:], device.device[2:]))))
    if speed := details.get("speed_mbps"):
        words.append(f"{int(speed) / 1000:g} Gb/s")
    words += [details.get("link", ""), details.get("model", "")]
    words += (f"bond {it.bond}" for it in device.interfaces[:1] if it.bond)
    if device.kind == "gpu" and details.get("health") == "excluded":
        words.append("excluded by its driver")
    if "pf" in details:
        words.append(f"VF of {details['pf']}")
    elif details.get("vfs"):
        words.append(_count(details["vfs"].count(",") + 1, "VF"))
    return " ".join(word for word in words if word)


def _paint(machine: Machine, reading: NodeReading | None) -> Paint:
    state = reading.state if reading else None
    fills = {cpu.id: FREE if cpu.online else OFFLINE for cpu in machine.cpus}
    tips = {cpu.id: _tip(cpu) for cpu in machine.cpus}
    if reading is None or state is None:
        return Paint(fills=fills, tips=tips, holders=(), state=None)
    for cpu in bits.members(state.shared):
        fills[cpu] = SHARED
        tips[cpu] = f"{tips.get(cpu, '')} · shared pool"
    for cpu in bits.members(state.reserved):
        fills[cpu] = RESERVED
        tips[cpu] = f"{tips.get(cpu, '')} · reserved"
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in reading.pods}
    holders: list[Holder] = []
    for uid in sorted(state.holdings, key=lambda uid: names.get(uid, uid)):
        for container, holding in sorted(state.holdings[uid].items()):
            if not holding.cpus:
                continue
            name = f"{names.get(uid, uid)} {container}"
            fill = HOLDERS[len(holders) % len(HOLDERS)]
            holders.append(Holder(name, holding.cpus, fill))
            for cpu in bits.members(holding.cpus):
                fills[cpu] = fill
                tips[cpu] = f"{tips.get(cpu, '')} · {name}"
    return Paint(fills=fills, tips=tips, holders=tuple(holders), state=state)


def _tip(cpu: CPU) -> str:
    if not cpu.online:
        return f"CPU {cpu.id}, off-line"
    kind = f", {cpu.kind}" if cpu.kind else ""
    return f"CPU {cpu.id} · core {cpu.core}, socket {cpu.socket}{kind}"


def _header(machine: Machine, reading: NodeReading | None) -> Block:
    name = (reading.node_name if reading else "") or machine.model or "Machine"
    lines = [summarize(machine)]
    if name != machine.model and machine.model:
        lines.insert(0, machine.model)
    if reading and reading.state:
        config = reading.state.config
        lines.append(
            f"topology manager {config.topology_policy} ({config.topology_scope}) · CPU manager "
            f"{config.cpu_policy} · memory manager {config.memory_policy}"
        )
    svg = _text("h", 0, 20, name)
    svg += "".join(_text("s", 0, 40 + 17 * i, line) for i, line in enumerate(lines))
    width = max(_width(name, 21), *(_width(line, 12) for line in lines))
    return Block(width, 28 + 17 * len(lines), svg)


def _body(machine: Machine, paint: Paint) -> Block:
    """Sockets around their zones; zones that several sockets share lie in one frame of them all."""
    cell = _cell_size(machine)
    zone_sockets = {
        zone.id: frozenset(c.socket for c in machine.cpus if c.online and c.zone == zone.id)
        for zone in machine.zones
    }
    frames: dict[frozenset[int], list[Block]] = {}
    for zone in machine.zones:
        block = _zone(machine, zone, paint, cell)
        frames.setdefault(zone_sockets[zone.id], []).append(block)
    blocks = []
    for sockets, zones in frames.items():
        if not sockets:
            blocks += zones
            continue
        title = f"Socket{'s' if len(sockets) > 1 else ''} {_list(sockets)}"
        blocks.append(_frame("socket", title, "", [_flow(zones, _ratio(len(zones)))]))
    elsewhere = [device for device in machine.pci if device.zone is None]
    if elsewhere:
        blocks.append(_frame("socket", "Devices without a known zone", "", [_devices(elsewhere)]))
    for title, cpus in (
        ("CPUs of unknown zone", [c for c in machine.cpus if c.online and c.zone < 0]),
        ("Off-line CPUs", [c for c in machine.cpus if not c.online]),
    ):
        if cpus:
            grid = _grid([_thread(cpu, paint, cell) for cpu in cpus], 16, 2)
            blocks.append(_frame("socket", title, "", [grid]))
    return _flow(blocks, 1.6)


def _ratio(count: int) -> float:
    return 3.0 if count <= 2 else 1.5


def _cell_size(machine: Machine) -> tuple[float, float]:
    count = len(machine.cpus)
    if count <= 32:
        return 44.0, 24.0
    return (34.0, 19.0) if count <= 128 else (26.0, 14.0)


def _zone(machine: Machine, zone: Zone, paint: Paint, cell: tuple[float, float]) -> Block:
    cpus = [cpu for cpu in machine.cpus if cpu.online and cpu.zone == zone.id]
    groups: dict[int | None, list[CPU]] = {}
    for cpu in cpus:
        groups.setdefault(cpu.l3, []).append(cpu)
    caches = []
    for l3, members in groups.items():
        others = {c.zone for c in machine.cpus if c.l3 == l3 and c.online} - {zone.id}
        title = "" if l3 is None else f"L3 {l3}"
        if l3 is not None and others:
            title += f" (also zone {_list(others)})"
        caches.append(_cache(title, members, paint, cell))
    parts = [_flow(caches, 1.9)] if caches else []
    width = max([part.width for part in parts] + [190.0])
    parts.append(_memory(zone, paint, width))
    devices = [device for device in machine.pci if device.zone == zone.id]
    if devices:
        parts.append(_devices(devices))
    what = f"{_count(len(cpus), 'CPU')} {_shorten(bits.format_list(zone.cpus), 34)}"
    if not cpus:
        what = "memory only" if zone.memory_bytes else "no CPUs, no memory"
    return _frame("zone", f"Zone {zone.id}", what, parts)


def _cache(title: str, cpus: Sequence[CPU], paint: Paint, cell: tuple[float, float]) -> Block:
    cores: dict[CPUSet, list[CPU]] = {}
    for cpu in cpus:
        cores.setdefault(cpu.siblings, []).append(cpu)
    blocks = [_core(threads, paint, cell) for threads in cores.values()]
    columns = len(blocks)
    if columns > 4:
        columns = min(16, max(4, math.ceil(math.sqrt(1.6 * columns))))
        # Full rows look calm: take the next divisor, if one is near.
        columns = next((c for c in range(columns, columns + 3) if not len(blocks) % c), columns)
    grid = _grid(blocks, columns, 4)
    return _frame("l3", "", title, [grid]) if title else grid


def _core(threads: Sequence[CPU], paint: Paint, cell: tuple[float, float]) -> Block:
    columns = 1 if len(threads) <= 2 else 2 if len(threads) <= 4 else 4
    grid = _grid([_thread(cpu, paint, cell) for cpu in threads], columns, 1)
    kind = " e" if threads[0].kind == "efficiency" else ""
    svg = (
        f'<rect class="core{kind}" width="{_n(grid.width + 4)}" height="{_n(grid.height + 4)}" '
        f'rx="3"/>{_at(2, 2, grid)}'
    )
    return Block(grid.width + 4, grid.height + 4, svg)


def _thread(cpu: CPU, paint: Paint, cell: tuple[float, float]) -> Block:
    width, height = cell
    off = "" if cpu.online else " off"
    svg = (
        f'<rect class="cpu{off}" width="{_n(width)}" height="{_n(height)}" rx="2" '
        f'fill="{paint.fills[cpu.id]}"><title>{_escape(paint.tips[cpu.id])}</title></rect>'
        f'<text class="n" x="{_n(width / 2)}" y="{_n(height / 2 + 3.2)}">{cpu.id}</text>'
    )
    return Block(width, height, svg)


def _memory(zone: Zone, paint: Paint, width: float) -> Block:
    """One bar per kind of memory, as long as its share of the zone; held parts are filled."""
    pools = {size: size * count for size, count in sorted(zone.hugepages.items())}
    plain = max(0, zone.memory_bytes - sum(pools.values()))
    rows = [("memory", plain, f"memory {format_bytes(zone.memory_bytes)}")]
    rows += [
        (
            f"hugepages-{format_page(size)}",
            total,
            f"hugepages {format_page(size)}: {zone.hugepages[size]:,} = {format_bytes(total)}",
        )
        for size, total in pools.items()
        if total
    ]
    none = [format_page(size) for size, total in pools.items() if not total]
    if none:
        rows[0] = ("memory", plain, f"{rows[0][2]} · no {', '.join(none)} pages")
    table = paint.state.memory.get(zone.id) if paint.state else None
    svg = ""
    for i, (resource, total, label) in enumerate(rows):
        share = width * (total / zone.memory_bytes if zone.memory_bytes else 0)
        y = i * 22.0
        amounts = table.amounts.get(resource) if table else None
        kind = "mem" if resource == "memory" else "pool"
        svg += _bar("bar", 0, y + 13, width) + _bar(kind, 0, y + 13, share)
        if amounts and amounts.total:
            reserved = share * amounts.system_reserved / amounts.total
            held = share * amounts.reserved / amounts.total
            svg += _bar("res", 0, y + 13, reserved) + _bar("held", reserved, y + 13, held)
        words = f"{label} · {format_bytes(amounts.free)} free" if amounts else label
        svg += _text("c", 0, y + 9, words)
        width = max(width, _width(words, 10))
    return Block(width, 22.0 * len(rows), svg)


def _bar(kind: str, x: float, y: float, width: float) -> str:
    if width <= 0:
        return ""
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="5" rx="2"/>'


def _devices(devices: Sequence[PCIDevice]) -> Block:
    """Devices in the frame of the switch that they share."""
    switches: dict[str, list[PCIDevice]] = {}
    for device in devices:
        switches.setdefault(switch_of(device), []).append(device)
    blocks = []
    for switch, members in switches.items():
        chips = _stack([_chip(device) for device in members], gap=3)
        blocks.append(_frame("switch", "", f"PCIe switch {switch}", [chips]) if switch else chips)
    return _flow(blocks, 2.2)


def _chip(device: PCIDevice) -> Block:
    label = f"{device.address}  {describe_device(device)}"
    width = _width(label, 10) + 10
    svg = f'<rect class="dev" width="{_n(width)}" height="16" rx="3"/>{_text("c", 5, 11.5, label)}'
    return Block(width, 16, svg)


def _legend(machine: Machine, paint: Paint) -> Block:
    entries: list[tuple[str, str]] = []
    if paint.state:
        entries += [(SHARED, "shared pool"), (RESERVED, "reserved")]
        entries += [
            (holder.fill, f"{holder.name}: {_shorten(bits.format_list(holder.cpus), 24)}")
            for holder in paint.holders[:40]
        ]
        if len(paint.holders) > 40:
            entries.append((OFFLINE, f"and {len(paint.holders) - 40} more holders"))
    else:
        entries.append((FREE, "on-line CPU (no kubelet asked)"))
    if any(not cpu.online for cpu in machine.cpus):
        entries.append((OFFLINE, "off-line"))
    blocks = []
    for fill, label in entries:
        svg = (
            f'<rect class="cpu" width="14" height="12" rx="2" fill="{fill}"/>'
            f"{_text('d', 20, 10.5, label)}"
        )
        blocks.append(Block(26 + _width(label, 11), 14, svg))
    if any(cpu.kind == "efficiency" for cpu in machine.cpus):
        svg = '<rect class="core e" width="14" height="12" rx="2"/>' + _text(
            "d", 20, 10.5, "efficiency core"
        )
        blocks.append(Block(130, 14, svg))
    return _wrap(blocks, 900)


def _distances(machine: Machine) -> list[Block]:
    """The distance table of up to 16 zones, darker where it is farther."""
    zones = machine.zones
    if not 1 < len(zones) <= 16:
        return []
    top = max(max(zone.distances.values(), default=10) for zone in zones)
    side_x, side_y = 34.0, 18.0
    svg = ""
    for i, zone in enumerate(zones):
        y = _n((i + 1) * side_y + 12)
        svg += f'<text class="n" x="{_n((i + 1.5) * side_x)}" y="12">{zone.id}</text>'
        svg += f'<text class="n" x="{_n(side_x / 2)}" y="{y}">{zone.id}</text>'
        for j, other in enumerate(zones):
            distance = zone.distances.get(other.id)
            far = 0.0 if distance is None else (distance - 10) / max(1, top - 10)
            svg += (
                f'<rect x="{_n((j + 1) * side_x)}" y="{_n((i + 1) * side_y)}" fill="#4c7fb3" '
                f'fill-opacity="{0.06 + 0.5 * far:.2f}" width="{_n(side_x - 1)}" '
                f'height="{_n(side_y - 1)}"/><text class="n" x="{_n((j + 1.5) * side_x)}" '
                f'y="{y}">{"?" if distance is None else distance}</text>'
            )
    count = len(zones) + 1
    table = Block(count * side_x, count * side_y, svg)
    return [_frame("socket", "Distances between zones", "", [table])]


def _warnings(lines: Sequence[str]) -> list[Block]:
    if not lines:
        return []
    shown = [_shorten(line, 140) for line in lines[:12]]
    if len(lines) > 12:
        shown.append(f"and {len(lines) - 12} more")
    rows = [Block(_width(line, 11), 15, _text("d", 0, 11, line)) for line in shown]
    return [_frame("warn", "Read with reservations", "", [_stack(rows, gap=0)])]


def _frame(kind: str, title: str, subtitle: str, parts: Sequence[Block]) -> Block:
    """A titled frame around parts, one below the other."""
    inner = _stack(parts, gap=GAP)
    pad = PAD if kind in {"socket", "zone", "warn"} else 5.0
    head = (TITLE if title else 15.0) if title or subtitle else 0.0
    title_width = _width(title, 13)
    label_width = title_width + (10 if title else 0) + _width(subtitle, 10.5)
    width = max(inner.width, label_width) + 2 * pad
    height = inner.height + head + 2 * pad
    svg = f'<rect class="{kind}" width="{_n(width)}" height="{_n(height)}" rx="6"/>'
    if title:
        svg += _text("t", pad, pad + 12, title)
    if subtitle:
        svg += _text(
            "c", pad + (title_width + 10 if title else 0), pad + (12 if title else 9), subtitle
        )
    return Block(width, height, svg + _at(pad, pad + head, inner))


def _stack(blocks: Sequence[Block], gap: float) -> Block:
    svg, y = [], 0.0
    for block in blocks:
        svg.append(_at(0, y, block))
        y += block.height + gap
    width = max((block.width for block in blocks), default=0.0)
    return Block(width, max(0.0, y - gap), "".join(svg))


def _grid(blocks: Sequence[Block], columns: int, gap: float) -> Block:
    rows = [_row(blocks[i : i + columns], gap) for i in range(0, len(blocks), columns)]
    return _stack(rows, gap)


def _row(blocks: Sequence[Block], gap: float) -> Block:
    svg, x = [], 0.0
    for block in blocks:
        svg.append(_at(x, 0, block))
        x += block.width + gap
    height = max((block.height for block in blocks), default=0.0)
    return Block(max(0.0, x - gap), height, "".join(svg))


def _wrap(blocks: Sequence[Block], width: float) -> Block:
    rows: list[list[Block]] = [[]]
    used = 0.0
    for block in blocks:
        if rows[-1] and used + block.width > width:
            rows.append([])
            used = 0.0
        rows[-1].append(block)
        used += block.width + 2 * GAP
    return _stack([_row(row, 2 * GAP) for row in rows], 5)


def _flow(blocks: Sequence[Block], ratio: float) -> Block:
    """Blocks in a grid of full rows, if possible, whose shape comes near to width / height."""

    def strangeness(columns: int) -> float:
        grid = _grid(blocks, columns, GAP)
        rows = -(-len(blocks) // columns)
        empty = 1 - len(blocks) / (rows * columns)
        return abs(math.log(max(grid.width, 1) / max(grid.height, 1) / ratio)) + 2 * empty

    return _grid(blocks, min(range(1, min(len(blocks), 16) + 1), key=strangeness), GAP)


def _at(x: float, y: float, block: Block) -> str:
    if not (x or y):
        return block.svg
    return f'<g transform="translate({_n(x)} {_n(y)})">{block.svg}</g>\n'


def _text(kind: str, x: float, y: float, words: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{_escape(words)}</text>'


def _width(words: str, size: float) -> float:
    return len(words) * size * ADVANCE


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _escape(words: str) -> str:
    return html.escape("".join(c if c.isprintable() else "�" for c in words))


def _list(members: Iterable[int]) -> str:
    return bits.format_list(bits.of(member for member in members if member >= 0)) or "unknown"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _shorten(words: str, limit: int) -> str:
    return words if len(words) <= limit else words[: limit - 1] + "…"
