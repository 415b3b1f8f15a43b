"""Columns of numbers as text: ``0-31,0-31`` counts up twice, ``0x16,1x16`` repeats."""

from __future__ import annotations

import re
from functools import lru_cache

from rte import errors
from rte.model import bits

_RUN = re.compile(r"(-?\d{1,9})(?:-(\d{1,9})|x(\d{1,9}))?", re.ASCII)


@lru_cache(maxsize=1024)
def encode(values: tuple[int, ...]) -> str:
    """The shortest runs."""
    parts: list[str] = []
    ends = (*values[1:], None, None)
    first = 0
    while first < len(values):
        value = values[first]
        last = first
        if ends[first] == value:
            while ends[last] == value:
                last += 1
            parts.append(f"{value}x{last - first + 1}")
        else:
            # Up to the number before one that repeats.
            while value >= 0 and ends[last] == values[last] + 1 != ends[last + 1]:
                last += 1
            parts.append(str(value) if last == first else f"{value}-{values[last]}")
        first = last + 1
    return ",".join(parts)


@lru_cache(maxsize=1024)
def decode(text: str, most: int = bits.MAX_ID + 1) -> tuple[int, ...]:
    """The numbers, ``most`` at most.

    Raises:
        errors.ParseError: no runs, or too many numbers.
    """
    values: list[int] = []
    for part in text.split(",") if text else ():
        match = _RUN.fullmatch(part)
        if match is None:
            raise errors.ParseError("node-state runs", text)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        count = int(match[3]) if match[3] else 1
        if last < first or max(last - first + 1, count) > most - len(values):
            raise errors.ParseError("node-state runs", text, "too many values, or a bad run")
        values += [first] * count if match[3] else range(first, last + 1)
    return tuple(values)
