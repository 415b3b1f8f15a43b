"""A table of numbers as bars: one row for each name, one column for each quantity."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rte.view.drawing import style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROW, _BAR, _COLUMN, _GAP, _MARGIN = 20, 12, 200, 60, 16
#: Width of a character of a label.
_CHARACTER = 6.6


def draw(names: Sequence[str], columns: Mapping[str, Sequence[float]]) -> str:
    """An SVG; the longest bar of each column is its greatest number."""
    left = _MARGIN + _CHARACTER * max((len(name) for name in names), default=0) + _MARGIN
    width = left + len(columns) * (_COLUMN + _GAP)
    height = 3 * _MARGIN + _ROW * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}">',
        f"<style>{style.sheet()}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height}"/>',
    ]
    first = 2 * _MARGIN + _ROW / 2
    for place, name in enumerate(names):
        parts.append(_text(_MARGIN, first + place * _ROW, "s", name))
    for number, (title, values) in enumerate(columns.items()):
        x = left + number * (_COLUMN + _GAP)
        parts.append(_text(x, _MARGIN, "t", title))
        most = max(values, default=0.0) or 1.0
        for place, value in enumerate(values):
            y = first + place * _ROW
            long = _COLUMN * value / most
            parts.append(
                f'<rect class="p{number % len(style.HOLDERS)}" x="{x:.1f}" '
                f'y="{y - _BAR + 2:.1f}" width="{long:.1f}" height="{_BAR}"/>'
            )
            parts.append(_text(x + long + 4, y, "s", f"{value:.4g}"))
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, kind: str, words: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
