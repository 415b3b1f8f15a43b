"""Sets of small integers as integer bit masks: CPU sets, NUMA-zone sets, device sets.

Bit *i* stands for the member whose **id** is *i*, so ids may have holes. ``&``, ``|``,
``& ~`` and ``int.bit_count`` are the set operations; what is missing is here.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import Meta

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Mask: TypeAlias = int
CPUSet: TypeAlias = int
ZoneSet: TypeAlias = int

#: Largest id that a list may name; a guard against ``0-4000000000`` in a damaged file.
MAX_ID = 65535
#: An id of somebody's document.
Id: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_ID)]

#: Binary digits to their values.
_DIGITS = bytes.maketrans(b"01", b"\0\1")


def of(members: Iterable[int]) -> Mask:
    """The set of the given members."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def of_ascending(members: Sequence[int]) -> Mask:
    """The set of members in ascending order: fast for thousands of them."""
    if len(members) < 64:
        return of(members)
    digits = bytearray(b"0") * (members[-1] + 1)
    for member in members:
        digits[~member] = 49
    return int(digits, 2)


def first(mask: Mask, count: int) -> Mask:
    """The lowest ``count`` members; all where there are no more."""
    if mask.bit_count() <= count:
        return mask
    # As many as are below the end that is looked for.
    end = bisect_left(
        range(mask.bit_length()), count, key=lambda end: (mask & ((1 << end) - 1)).bit_count()
    )
    return mask & ((1 << end) - 1)


def members(mask: Mask) -> Iterator[int]:
    """The members in ascending order."""
    count = mask.bit_count()
    if count > 7 and count * 8 > mask.bit_length():
        # Digit by digit, lowest first: without arithmetic on long numbers for every member.
        return itertools.compress(itertools.count(), bin(mask)[:1:-1].encode().translate(_DIGITS))
    return _bit_by_bit(mask)


def _bit_by_bit(mask: Mask) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: Mask) -> int:
    """The smallest member, -1 for the empty set."""
    return (mask & -mask).bit_length() - 1


def parse_list(text: str, what: str = "CPU list") -> Mask:
    """Parse the kernel's list format (``0-3,8,16-31:2/4``, cpuset(7)); blank text is the empty set.

    Raises:
        errors.ParseError: text outside the format, reversed ranges, or ids above :data:`MAX_ID`.
    """
    text = text.strip(" \t\r\n\0")
    mask = 0
    if not text:
        return mask
    for item in text.split(","):
        if item.isdigit() and item.isascii() and len(item) <= 4:
            mask |= 1 << int(item)
            continue
        first, _, last = item.partition("-")
        if first.isdigit() and last.isdigit() and item.isascii() and len(item) <= 8:
            low, high = int(first), int(last)
            if low <= high <= MAX_ID:
                mask |= (2 << high) - (1 << low)
                continue
        mask |= _parse_item(item, text, what)
    return mask


def _parse_item(item: str, text: str, what: str) -> Mask:
    """Whatever else an item may be: blanks around it, a stride, or nonsense."""
    span, _, stride = item.strip().partition(":")
    first, dash, last = span.partition("-")
    used, slash, group = stride.partition("/")
    numbers = [first, *([last] if dash else []), *([used, group] if stride or slash else [])]
    if not all(number.isascii() and number.isdigit() and len(number) <= 6 for number in numbers):
        raise errors.ParseError(what, text)
    low, high = int(first), int(last) if dash else int(first)
    if low > high:
        raise errors.ParseError(what, text, "range runs backwards")
    if high > MAX_ID:
        raise errors.ParseError(what, text, f"id above {MAX_ID}")
    if not stride:
        return ((1 << (high - low + 1)) - 1) << low
    take, step = int(used), int(group)
    if not 0 < take <= step:
        raise errors.ParseError(what, text, "bad stride")
    mask = 0
    for start in range(low, high + 1, step):
        mask |= of(range(start, min(start + take, high + 1)))
    return mask


def parse_hex(text: str, what: str = "CPU map") -> Mask:
    """Parse the kernel's map format: comma-separated 32-bit hexadecimal words, highest first.

    Raises:
        errors.ParseError: text outside the format.
    """
    words = text.strip(" \t\r\n\0").split(",")
    mask = 0
    for word in words:
        if not 1 <= len(word) <= 8 or not all(c in "0123456789abcdefABCDEF" for c in word):
            raise errors.ParseError(what, text)
        mask = mask << 32 | int(word, 16)
    if mask.bit_length() > MAX_ID + 1:
        raise errors.ParseError(what, text, f"id above {MAX_ID}")
    return mask


@lru_cache(maxsize=1024)
def format_list(mask: Mask) -> str:
    """The kernel's list format, adjacent members merged: ``0-3,8``; the empty set is ``""``."""
    runs: list[str] = []
    while mask:
        low = mask & -mask
        # The carry clears the lowest run and sets the bit after it.
        carried = mask + low
        first = low.bit_length() - 1
        last = (carried & -carried).bit_length() - 2
        runs.append(str(first) if first == last else f"{first}-{last}")
        mask &= carried
    return ",".join(runs)
