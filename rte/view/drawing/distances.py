"""The distance table: numbers where they can be read, a map of colours for many zones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rte.model import bits
from rte.view.drawing import blocks
from rte.view.drawing.blocks import PictureBlock, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine

#: Zones up to which each distance is written out.
WRITTEN = 16
#: Pixels that a map of more zones may take.
_MAP = 640


def draw(machine: Machine) -> list[PictureBlock]:
    """The table of all zones, darker where it is farther; nothing for a single zone."""
    if len(machine.zones) < 2:
        return []
    known = sorted({d for zone in machine.zones for d in zone.distances.values()})
    shades = _shades(known)
    table = _table(machine, shades) if len(machine.zones) <= WRITTEN else _map(machine, shades)
    return [blocks.natural(blocks.frame("socket", "Distances between zones", "", table))]


def _shades(known: list[int]) -> Mapping[int | None, str]:
    """Distance -> opacity of its colour."""
    top = max(known, default=10)
    return {d: f"{0.06 + 0.64 * max(0, d - 10) / max(1, top - 10):.2f}" for d in known}


def _table(machine: Machine, shades: Mapping[int | None, str]) -> list[PictureBlock]:
    zones = machine.zones
    wide, high = 34.0, 18.0
    svg = ""
    for i, zone in enumerate(zones):
        y = number((i + 1) * high + 12)
        svg += f'<text class="n" x="{number((i + 1.5) * wide)}" y="12">{zone.id}</text>'
        svg += f'<text class="n" x="{number(wide / 2)}" y="{y}">{zone.id}</text>'
        for j, other in enumerate(zones):
            distance = zone.distances.get(other.id)
            svg += (
                f'<rect class="far" x="{number((j + 1) * wide)}" y="{number((i + 1) * high)}" '
                f'fill-opacity="{shades.get(distance, "0")}" width="{number(wide - 1)}" '
                f'height="{number(high - 1)}"/><text class="n" x="{number((j + 1.5) * wide)}" '
                f'y="{y}">{"?" if distance is None else distance}</text>'
            )
    side = len(zones) + 1
    return [blocks.solid(side * wide, side * high, svg)]


def _map(machine: Machine, shades: Mapping[int | None, str]) -> list[PictureBlock]:
    """A cell for each pair, equal ones beside each other as one; and what the shades mean."""
    ids = [zone.id for zone in machine.zones]
    side = max(2, min(10, _MAP // len(ids)))
    edge = 26
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n * side >= 22)
    svg = ""
    for i, zone in enumerate(machine.zones):
        top = 13 + i * side
        if not i % step:
            x, y = number(edge + (i + 0.5) * side), number(top + side / 2 + 3)
            svg += f'<text class="n" x="{x}" y="9">{zone.id}</text>'
            svg += f'<text class="n" x="{number(edge / 2 - 2)}" y="{y}">{zone.id}</text>'
        row = [(zone.distances.get(to), j, to) for j, to in enumerate(ids)]
        for distance, members in itertools.groupby(row, lambda cell: cell[0]):
            group = [(j, to) for _, j, to in members]
            to = bits.format_list(bits.of(other for _, other in group))
            svg += (
                f'<rect class="far" x="{number(edge + group[0][0] * side)}" y="{number(top)}" '
                f'width="{number(len(group) * side)}" height="{number(side)}" '
                f'fill-opacity="{shades.get(distance, "0")}"><title>zone {zone.id} to {to}: '
                f"{'not told' if distance is None else distance}</title></rect>\n"
            )
    svg = f'<g shape-rendering="crispEdges">{svg}</g>'
    table = blocks.solid(edge + len(ids) * side, 13 + len(ids) * side, svg)
    return [table, _key(machine, shades, table.width)]


def _key(machine: Machine, shades: Mapping[int | None, str], width: float) -> PictureBlock:
    """What each shade means, and how many zones are so far from the first one."""
    first = machine.zones[0]
    entries = []
    for distance, shade in itertools.islice(shades.items(), 40):
        there = bits.of(to for to, d in first.distances.items() if d == distance)
        words = f"{distance}"
        if there:
            words += f" (from {first.id}: {blocks.shorten(bits.format_list(there), 32)})"
        svg = (
            f'<rect class="far" width="14" height="12" fill-opacity="{shade}"/>'
            f"{blocks.text('d', 20, 10.5, words)}"
        )
        entries.append(blocks.solid(26 + blocks.text_width(words, 11), 14, svg))
    return blocks.wrap(entries, max(width, 300), 2 * blocks.GAP, 5)
