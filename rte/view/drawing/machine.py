"""A machine as SVG: sockets, zones, L3 groups, cores, threads, and who holds what."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.quantity import format_bytes, page_size
from rte.model.words import counted
from rte.view.drawing import blocks, devices, distances, paint, style, words
from rte.view.drawing.blocks import GAP, PAD, PictureBlock, escape, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.model.bits import CPUSet
    from rte.model.machine import CPU, Machine, Zone
    from rte.model.node import NodeReading
    from rte.view.drawing.paint import Paint

#: Holders that the legend names.
_NAMED = 40
#: Kinds of cores that are drawn apart from the others.
_SLOW = {"efficiency", "low-power"}


def draw(
    machine: Machine, reading: NodeReading | None = None, names: words.Names | None = None
) -> str:
    """The machine as one SVG document; with a reading that has a state, who holds what.

    Args:
        machine: what is drawn.
        reading: of its kubelet.
        names: of PCI devices, from :func:`rte.sysfs.pci_names.read_names`.
    """
    colours = paint.mix(machine, reading)
    parts = [
        _header(machine, reading),
        *_body(machine, colours, names or {}),
        _legend(machine, colours),
        *distances.draw(machine),
        *_warnings([*machine.warnings, *(reading.disagreements if reading else ())]),
    ]
    page = blocks.stack(parts, gap=1.5 * GAP)
    width, height = number(page.width + 4 * PAD), number(page.height + 4 * PAD)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(_name(machine, reading))}">'
        f'\n<style>{style.sheet()}</style>\n<rect class="page" width="{width}" height="{height}"/>'
        f"\n{blocks.at(2 * PAD, 2 * PAD, page.draw(page.width, page.height))}</svg>\n"
    )


def _name(machine: Machine, reading: NodeReading | None) -> str:
    return (reading.node_name if reading else "") or machine.model or "Machine"


def _header(machine: Machine, reading: NodeReading | None) -> PictureBlock:
    name = _name(machine, reading)
    lines = [words.summarize(machine)]
    if name != machine.model and machine.model:
        lines.insert(0, machine.model)
    lines += filter(None, [words.describe_sets(machine), words.describe_caches(machine)])
    if reading and reading.state:
        config = reading.state.config
        lines.append(
            f"topology manager {config.topology_policy} ({config.topology_scope}) · CPU manager "
            f"{config.cpu_policy} · memory manager {config.memory_policy}"
        )
    svg = blocks.text("h", 0, 20, name)
    svg += "".join(blocks.text("s", 0, 40 + 17 * i, line) for i, line in enumerate(lines))
    width = max(blocks.text_width(name, 21), *(blocks.text_width(line, 12) for line in lines))
    return blocks.solid(width, 28 + 17 * len(lines), svg)


def _body(machine: Machine, colours: Paint, names: words.Names) -> list[PictureBlock]:
    """Sockets around their zones; zones that several sockets share lie in one frame of them all."""
    cell = _cell_size(machine)
    frames: dict[frozenset[int], list[PictureBlock]] = {}
    for zone in machine.zones:
        owners = frozenset(c.socket for c in machine.cpus if c.online and c.zone == zone.id)
        block = _zone(machine, zone, colours, cell, names)
        frames.setdefault(owners, []).append(block)
    apart = frames.pop(frozenset(), [])
    sockets = []
    for ids, zones in frames.items():
        title = f"Socket{'s' if len(ids) > 1 else ''} {words.format_ids(ids)}"
        grid = blocks.flow(zones, 3.0 if len(zones) <= 2 else 1.5)
        sockets.append(blocks.frame("socket", title, "", [grid]))
    parts = [blocks.flow(sockets, 1.6)] if sockets else []
    if apart:
        room = max((part.width for part in parts), default=900.0)
        columns = max(1, int((room + GAP) / (max(block.width for block in apart) + GAP)))
        parts.append(blocks.grid(apart, columns, GAP, fill=True))
    parts += devices.elsewhere(machine, colours, names)
    for title, cpus in (
        ("CPUs of unknown zone", [c for c in machine.cpus if c.online and c.zone < 0]),
        ("Off-line CPUs", [c for c in machine.cpus if not c.online]),
    ):
        if cpus:
            grid = blocks.grid([_thread(cpu, colours, cell) for cpu in cpus], 16, 2)
            parts.append(blocks.frame("socket", title, "", [grid]))
    return parts


def _cell_size(machine: Machine) -> tuple[float, float]:
    count = len(machine.cpus)
    if count <= 32:
        return 44.0, 24.0
    return (34.0, 19.0) if count <= 128 else (26.0, 14.0)


def _zone(
    machine: Machine, zone: Zone, colours: Paint, cell: tuple[float, float], names: words.Names
) -> PictureBlock:
    cpus = [cpu for cpu in machine.cpus if cpu.online and cpu.zone == zone.id]
    groups: dict[int | None, list[CPU]] = {}
    for cpu in cpus:
        groups.setdefault(cpu.l3, []).append(cpu)
    caches = [_cache(machine, zone, l3, of, colours, cell) for l3, of in groups.items()]
    parts = [blocks.flow(caches, 1.9)] if caches else []
    parts.append(_memory(zone, colours))
    parts += devices.of_zone(machine, zone.id, colours, names)
    what = f"{words.count(len(cpus), 'CPU')} {blocks.shorten(bits.format_list(zone.cpus), 34)}"
    if not cpus:
        what = "memory only" if zone.memory_bytes else "no CPUs, no memory"
    return blocks.frame("zone", f"Zone {zone.id}", what, parts)


def _cache(
    machine: Machine,
    zone: Zone,
    l3: int | None,
    cpus: Sequence[CPU],
    colours: Paint,
    cell: tuple[float, float],
) -> PictureBlock:
    cores: dict[CPUSet, list[CPU]] = {}
    for cpu in cpus:
        cores.setdefault(cpu.siblings, []).append(cpu)
    drawn = [_core(threads, colours, cell) for threads in cores.values()]
    columns = len(drawn)
    if columns > 4:
        columns = min(16, max(4, math.ceil(math.sqrt(1.6 * columns))))
        # Full rows look calm: take the next divisor, if one is near.
        columns = next((c for c in range(columns, columns + 3) if not len(drawn) % c), columns)
    grid = blocks.grid(drawn, columns, 4, fill=True)
    if l3 is None:
        return grid
    title = words.name_l3(machine, l3)
    if others := {c.zone for c in machine.cpus if c.l3 == l3 and c.online} - {zone.id}:
        title += f" (also zone {words.format_ids(others)})"
    return blocks.frame("l3", "", title, [grid])


def _core(threads: Sequence[CPU], colours: Paint, cell: tuple[float, float]) -> PictureBlock:
    columns = 1 if len(threads) <= 2 else 2 if len(threads) <= 4 else 4
    grid = blocks.grid([_thread(cpu, colours, cell) for cpu in threads], columns, 1, fill=True)
    kind = " e" if threads[0].kind in _SLOW else ""
    height = grid.height + 4

    def draw(width: float) -> str:
        return (
            f'<rect class="core{kind}" width="{number(width)}" height="{number(height)}" '
            f'rx="3"/>{blocks.at(2, 2, grid.draw(width - 4, grid.height))}'
        )

    return blocks.stretched(grid.width + 4, height, draw)


def _thread(cpu: CPU, colours: Paint, cell: tuple[float, float]) -> PictureBlock:
    least, height = cell
    kind = colours.styles[cpu.id]
    ink = " ink" if kind.startswith("p") else ""

    def draw(width: float) -> str:
        x, y = number(width / 2), number(height / 2 + 3.2)
        return (
            f'<rect class="cpu {kind}" width="{number(width)}" height="{number(height)}" rx="2">'
            f"<title>{escape(colours.tips[cpu.id])}</title></rect>"
            f'<text class="n{ink}" x="{x}" y="{y}">{cpu.id}</text>'
        )

    return blocks.stretched(least, height, draw)


def _memory(zone: Zone, colours: Paint) -> PictureBlock:
    """One bar per kind of memory, as long as its share of the zone; held parts are filled."""
    pools = {size: size * count for size, count in sorted(zone.hugepages.items())}
    plain = max(0, zone.memory_bytes - sum(pools.values()))
    rows = [("memory", plain, f"memory {format_bytes(zone.memory_bytes)}")]
    none = []
    for size, total in pools.items():
        page = page_size(size)
        if total:
            label = f"hugepages {page}: {zone.hugepages[size]:,} = {format_bytes(total)}"
            rows.append((f"hugepages-{page}", total, label))
        else:
            none.append(page)
    if none:
        rows[0] = ("memory", plain, f"{rows[0][2]} · no {', '.join(none)} pages")
    table = colours.state.memory.get(zone.id) if colours.state else None
    amounts = dict(table.amounts) if table else {}
    labels = [
        f"{label} · {format_bytes(amounts[resource].free)} free" if resource in amounts else label
        for resource, _, label in rows
    ]

    def draw(width: float) -> str:
        svg = ""
        for i, (resource, total, _) in enumerate(rows):
            share = width * (total / zone.memory_bytes if zone.memory_bytes else 0)
            y = i * 22.0 + 13
            kind = "mem" if resource == "memory" else "pool"
            svg += blocks.text("c", 0, y - 4, labels[i])
            svg += _bar("bar", 0, y, width) + _bar(kind, 0, y, share)
            told = amounts.get(resource)
            if told and told.total:
                reserved = share * told.system_reserved / told.total
                tip = f"{labels[i]}, {format_bytes(told.reserved)} held"
                svg += _bar("res", 0, y, reserved)
                svg += _bar("held", reserved, y, share * told.reserved / told.total, tip)
        return svg

    width = max(190.0, *(blocks.text_width(label, 10) for label in labels))
    return blocks.stretched(width, 22.0 * len(rows), draw)


def _bar(kind: str, x: float, y: float, width: float, tip: str = "") -> str:
    if width <= 0:
        return ""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="5" '
        f'rx="2">{title}</rect>'
    )


def _legend(machine: Machine, colours: Paint) -> PictureBlock:
    shown = set(colours.styles.values())
    asked = "" if colours.state else " (no kubelet asked)"
    entries = [
        (f"cpu {kind}", label)
        for kind, label in (
            ("free", f"CPU{asked}"),
            ("shared", "shared pool"),
            ("reserved", "reserved"),
            ("off", "off-line"),
        )
        if kind in shown
    ]
    if slow := sorted({cpu.kind for cpu in machine.cpus} & _SLOW):
        entries.append(("core e", f"{' or '.join(slow)} core"))
    entries += [("mem", "memory, as its share of the zone")]
    if any(count for zone in machine.zones for count in zone.hugepages.values()):
        entries.append(("pool", "huge pages"))
    tables = colours.state.memory.values() if colours.state else ()
    amounts = [amount for table in tables for amount in table.amounts.values()]
    if any(amount.reserved for amount in amounts):
        entries.append(("held", "memory held"))
    if any(amount.system_reserved for amount in amounts):
        entries.append(("res", "memory reserved"))
    if any(not device.healthy for device in colours.devices.values()):
        entries.append(("dev sick", "device not healthy"))
    entries += [
        (f"cpu {holder.style}", f"{holder.name}: {blocks.shorten(holder.holds, 60)}")
        for holder in colours.holders[:_NAMED]
    ]
    swatches = [_swatch(kind, label) for kind, label in entries]
    if len(colours.holders) > _NAMED:
        label = f"and {counted(len(colours.holders) - _NAMED, 'more holder')}"
        swatches.append(
            blocks.solid(blocks.text_width(label, 11), 14, blocks.text("d", 0, 10.5, label))
        )
    return blocks.wrap(swatches, 900, 2 * GAP, 5)


def _swatch(kind: str, label: str) -> PictureBlock:
    y, height = ("4", "5") if kind in {"mem", "pool", "held", "res"} else ("0", "12")
    svg = f'<rect class="{kind}" y="{y}" width="14" height="{height}" rx="2"/>'
    return blocks.solid(
        26 + blocks.text_width(label, 11), 14, svg + blocks.text("d", 20, 10.5, label)
    )


def _warnings(lines: Sequence[str]) -> list[PictureBlock]:
    if not lines:
        return []
    shown = [blocks.shorten(line, 140) for line in lines[:12]]
    if len(lines) > 12:
        shown.append(f"and {len(lines) - 12} more")
    rows = [
        blocks.solid(blocks.text_width(line, 11), 15, blocks.text("d", 0, 11, line))
        for line in shown
    ]
    frame = blocks.frame("warn", "Read with reservations", "", [blocks.stack(rows, gap=0)])
    return [blocks.natural(frame)]
