"""Colours, by class: light, and dark where the reader's system is."""

from __future__ import annotations

#: Fills of holders, told apart by most eyes; dark text is readable on each, in both modes.
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
#: class -> (property, light, dark).
_COLOURS = {
    "text": ("fill", "#1d2733", "#dfe7ef"),
    ".s,.d,.u": ("fill", "#51606f", "#9fb0bf"),
    ".page": ("fill", "#fbfcfd", "#13181d"),
    ".socket": ("fill", "#eef2f6", "#1b222a"),
    ".socket,.l3,.core": ("stroke", "#9aa8b5", "#46545f"),
    ".zone": ("fill", "#fff", "#151b21"),
    ".zone,.free,.shared": ("stroke", "#4c7fb3", "#5a8fc4"),
    ".l3": ("fill", "#f4f7fa", "#1d252d"),
    ".core": ("fill", "#fff", "#10151a"),
    ".free": ("fill", "#dcebfa", "#22364a"),
    ".shared": ("fill", "#b9d8f5", "#2f5a83"),
    ".reserved": ("fill", "#c3c7cd", "#5c646d"),
    ".off": ("fill", "#fff", "#13181d"),
    ".cpu": ("stroke", "#7d8fa1", "#5f7182"),
    ".e": ("stroke", "#2f8a55", "#59b984"),
    ".bar": ("fill", "#e3e9ee", "#2a333c"),
    ".mem": ("fill", "#b9d8f5", "#2f5a83"),
    ".pool": ("fill", "#f3d9a4", "#7d6530"),
    ".held": ("fill", "#e07a3f", "#e07a3f"),
    ".res": ("fill", "#8f979f", "#8b949c"),
    ".switch": ("fill", "#fdf6e7", "#221e14"),
    ".switch,.dev": ("stroke", "#c2a05a", "#80693a"),
    ".dev": ("fill", "#fffdf8", "#191712"),
    ".warn": ("fill", "#fff4f2", "#2a1a18"),
    ".warn,.sick": ("stroke", "#c8533a", "#e08a74"),
    ".far": ("fill", "#4c7fb3", "#6fa5d9"),
    ".ink": ("fill", "#1d2733", "#14191e"),
}
_FONTS = (
    'text{font-family:Inter,"DejaVu Sans","Helvetica Neue",Arial,sans-serif}'
    ".h{font-size:20px;font-weight:600}.s{font-size:12px}.t{font-size:12px;font-weight:600}"
    ".d{font-size:11px}.c,.u{font-size:10px}.b{font-size:10px;font-weight:600}"
    ".n{font-size:9px;text-anchor:middle}.cpu{stroke-width:.6}.zone{stroke-width:1.5}"
    ".off,.sick{stroke-dasharray:2 2}"
)


def sheet() -> str:
    """The style sheet of a picture."""
    light = "".join(f"{k}{{{what}:{colour}}}" for k, (what, colour, _) in _COLOURS.items())
    dark = "".join(f"{k}{{{what}:{colour}}}" for k, (what, _, colour) in _COLOURS.items())
    holders = "".join(f".p{i}{{fill:{colour}}}" for i, colour in enumerate(HOLDERS))
    return f"{_FONTS}\n{light}{holders}\n@media(prefers-color-scheme:dark){{{dark}{holders}}}"
