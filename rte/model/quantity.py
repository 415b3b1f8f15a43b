"""Kubernetes quantities (apimachinery ``resource.Quantity``) as integers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, NewType

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Amounts by resource as Kubernetes counts them: millicores of ``cpu``, bytes of ``memory`` and
#: ``hugepages-<size>``, units of all else. What a zone has is of another type.
ResourceList = NewType("ResourceList", dict[str, int])

#: Amounts by resource as zones have them and pods need them there: CPUs in whole units (exclusive
#: ones only), bytes, devices.
ZoneAmounts = NewType("ZoneAmounts", dict[str, int])

_SUFFIX = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_FORM = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:[eE]([+-]?\d{1,3})|([a-zA-Z]{0,2}))", re.ASCII
)
#: What Kubernetes' 64-bit amounts end at.
MOST = 2**63 - 1
#: Units of :func:`parse_nano` in one.
NANO = 10**9


def parse(text: str | int, *, scale: int = 1) -> int:
    """Parse a quantity times ``scale``, rounded up (away from zero), as the API machinery does.

    ``parse("1.5", scale=1000) == 1500`` (millicores); values beyond int64 are capped.

    Raises:
        errors.ParseError: text outside the format.
    """
    try:
        return _parse(text, scale)
    except TypeError:  # a list or an object of somebody's JSON
        raise errors.ParseError("quantity", text) from None


@lru_cache(maxsize=4096)
def _parse(text: str | int, scale: int) -> int:
    value = _decimal(text) * scale
    whole = int(abs(value).to_integral_value(ROUND_CEILING)) if abs(value) < 1 << 70 else MOST
    return min(whole, MOST) if value >= 0 else -min(whole, MOST)


@lru_cache(maxsize=4096)
def parse_nano(text: str | int) -> int:
    """Parse a quantity exactly, in units of 1e-9.

    As in the API machinery, what is finer is rounded up (away from zero), and int64 is the cap of
    amounts with a binary suffix.

    Raises:
        errors.ParseError: text outside the format.
    """
    value = _decimal(text)
    if abs(value) > MOST and str(text).endswith("i"):
        return MOST * NANO if value > 0 else -MOST * NANO
    with localcontext() as exact:
        exact.prec = 1200
        whole = int(abs(value * NANO).to_integral_value(ROUND_CEILING))
    return whole if value >= 0 else -whole


def capped(amount: int) -> int:
    """A sum, a difference or a multiple of amounts, which ends at 64 bits as one amount does."""
    return max(-MOST, min(amount, MOST))


def add(amounts: dict[str, int], more: Mapping[str, int]) -> None:
    """Add amounts by name; a sum beyond int64 is capped, as one amount is."""
    for name, amount in more.items():
        amounts[name] = capped(amounts.get(name, 0) + amount)


def total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Amounts added up by name, as by :func:`add`."""
    amounts: dict[str, int] = {}
    for part in parts:
        add(amounts, part)
    return amounts


def format_nano(nano: int) -> str:
    """The shortest text without an exponent: 2_500_000_000 -> ``2500m``."""
    for unit, suffix in ((NANO, ""), (10**6, "m"), (10**3, "u")):
        if nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return f"{nano}n"


def _decimal(text: str | int) -> Decimal:
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise errors.ParseError("quantity", text)
    number, exponent, suffix = match.groups()
    if suffix and suffix not in _SUFFIX:
        raise errors.ParseError("quantity", text, "unknown suffix")
    with localcontext() as exact:
        exact.prec = 120
        value = Decimal(number)
        return value.scaleb(int(exponent)) if exponent else value * _SUFFIX[suffix or ""]


def parse_resource(resource: str, text: str | int) -> int:
    """Parse by resource: millicores for ``cpu``, base units for all others.

    Raises:
        errors.ParseError: text outside the format.
    """
    return parse(text, scale=1000 if resource == "cpu" else 1)


def parse_list(amounts: Mapping[str, str | int]) -> ResourceList:
    """Amounts as objects of the API write them.

    Raises:
        errors.ParseError: text outside the format.
    """
    return ResourceList(
        {str(name): parse_resource(str(name), amount) for name, amount in amounts.items()}
    )


def hugepage_resource(page_bytes: int) -> str:
    """The resource name of a page size: 2097152 -> ``hugepages-2Mi``."""
    return f"hugepages-{page_size(page_bytes)}"


def page_size(page_bytes: int) -> str:
    """A page size as Kubernetes writes it: 2097152 -> ``2Mi``."""
    for suffix, unit in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if page_bytes % unit == 0:
            return f"{page_bytes // unit}{suffix}"
    return str(page_bytes)


def format_bytes(size: int) -> str:
    """A size in the largest binary unit that keeps three digits or fewer before the point."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"
