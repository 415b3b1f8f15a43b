"""Layout: every part of a picture is a block that is drawn at the origin.

Parents place their children with ``translate`` and may give them more room than they need: frames
fill it, so what stands below each other ends on one line. Sizes add up from the threads outwards.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GAP = 8.0
PAD = 10.0
TITLE = 20.0
#: Advance of one character at one pixel of font size, of the usual sans-serif fonts; of bold ones.
ADVANCE, BOLD = 0.58, 0.66
#: Kinds of frames with a wide margin; the others are small ones inside of them.
_LARGE = frozenset({"socket", "zone", "warn"})


@dataclass(frozen=True, slots=True)
class PictureBlock:
    """A part of the picture: its least size, and how it is drawn with a size that it is given."""

    width: float
    height: float
    draw: Callable[[float, float], str]


def solid(width: float, height: float, svg: str) -> PictureBlock:
    """A part that does not change with the room it has."""
    return PictureBlock(width, height, lambda _width, _height: svg)


def stretched(width: float, height: float, draw: Callable[[float], str]) -> PictureBlock:
    """A part that is drawn for the width that it has."""
    return PictureBlock(width, height, lambda room, _height: draw(room))


def natural(block: PictureBlock) -> PictureBlock:
    """The block with its least size, whatever room there is."""
    return solid(block.width, block.height, block.draw(block.width, block.height))


def frame(kind: str, title: str, subtitle: str, parts: Sequence[PictureBlock]) -> PictureBlock:
    """A titled frame around parts, one below the other."""
    inner = stack(parts, gap=GAP)
    pad = PAD if kind in _LARGE else 5.0
    head = (TITLE if title else 15.0) if title or subtitle else 0.0
    title_width = text_width(title, 12, BOLD)
    label_width = title_width + (10 if title else 0) + text_width(subtitle, 10.5)

    def draw(width: float, height: float) -> str:
        svg = f'<rect class="{kind}" width="{number(width)}" height="{number(height)}" rx="6"/>'
        if title:
            svg += text("t", pad, pad + 12, title)
        if subtitle:
            x = pad + (title_width + 10 if title else 0)
            svg += text("c", x, pad + (12 if title else 9), subtitle)
        # The zones of sockets beside each other end on one line; what is in a zone stays together.
        room = height - head - 2 * pad if kind == "socket" else inner.height
        inside = inner.draw(width - 2 * pad, room)
        return svg + at(pad, pad + head, inside)

    width = max(inner.width, label_width) + 2 * pad
    return PictureBlock(width, inner.height + head + 2 * pad, draw)


def stack(blocks: Sequence[PictureBlock], gap: float) -> PictureBlock:
    """Blocks one below the other, each as wide as the widest; the last one has the room left."""
    least = max(0.0, sum(block.height + gap for block in blocks) - gap)

    def draw(width: float, height: float) -> str:
        svg, y = [], 0.0
        for i, block in enumerate(blocks):
            more = height - least if i == len(blocks) - 1 else 0.0
            svg.append(at(0, y, block.draw(width, block.height + more)))
            y += block.height + gap
        return "".join(svg)

    return PictureBlock(max((block.width for block in blocks), default=0.0), least, draw)


def grid(
    blocks: Sequence[PictureBlock], columns: int, gap: float, *, fill: bool = False
) -> PictureBlock:
    """Blocks in rows of equal columns; with ``fill`` they share the room that is left."""
    rows = [blocks[i : i + columns] for i in range(0, len(blocks), columns)]
    columns = min(columns, len(blocks))
    widest = max((block.width for block in blocks), default=0.0)
    heights = [max(block.height for block in row) for row in rows]
    least = max(0.0, sum(heights) + gap * (len(rows) - 1))

    def draw(width: float, height: float) -> str:
        column = (width + gap) / columns - gap if fill else widest
        svg, y = [], 0.0
        for row, own in zip(rows, heights, strict=True):
            high = own + ((height - least) / len(rows) if fill else 0.0)
            drawn = (block.draw(column, high) for block in row)
            svg += [at(i * (column + gap), y, part) for i, part in enumerate(drawn)]
            y += high + gap
        return "".join(svg)

    return PictureBlock(max(0.0, columns * (widest + gap) - gap), least, draw)


def flow(blocks: Sequence[PictureBlock], ratio: float) -> PictureBlock:
    """Blocks in a grid of full rows, if possible, whose shape comes near to width / height."""

    def strangeness(columns: int) -> float:
        tried = grid(blocks, columns, GAP)
        rows = -(-len(blocks) // columns)
        empty = 1 - len(blocks) / (rows * columns)
        return abs(math.log(max(tried.width, 1) / max(tried.height, 1) / ratio)) + 4 * empty

    columns = min(range(1, min(len(blocks), 16) + 1), key=strangeness)
    return grid(blocks, columns, GAP, fill=True)


def wrap(blocks: Sequence[PictureBlock], width: float, gap: float, leading: float) -> PictureBlock:
    """Blocks beside each other as words are, in lines of at most ``width``."""
    lines: list[list[tuple[float, PictureBlock]]] = [[]]
    used = 0.0
    for block in blocks:
        if lines[-1] and used + block.width > width:
            lines.append([])
            used = 0.0
        lines[-1].append((used, block))
        used += block.width + gap
    rows = [
        solid(
            max((x + block.width for x, block in line), default=0.0),
            max((block.height for _, block in line), default=0.0),
            "".join(at(x, 0, block.draw(block.width, block.height)) for x, block in line),
        )
        for line in lines
    ]
    return stack(rows, leading)


def at(x: float, y: float, svg: str) -> str:
    """A drawing moved to a place."""
    if not (x or y):
        return svg
    return f'<g transform="translate({number(x)} {number(y)})">{svg}</g>\n'


def text(kind: str, x: float, y: float, words: str) -> str:
    """One line of text in a style, from its left end on the base line."""
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{escape(words)}</text>'


def text_width(words: str, size: float, advance: float = ADVANCE) -> float:
    """About how wide a line is in a font of so many pixels."""
    return len(words) * size * advance


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def escape(words: str) -> str:
    """Text as XML writes it, without what cannot be shown."""
    return html.escape("".join(c if c.isprintable() else "�" for c in words))


def shorten(words: str, limit: int) -> str:
    """At most so many characters."""
    return words if len(words) <= limit else words[: limit - 1] + "…"
