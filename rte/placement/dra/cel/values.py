"""Kubernetes' own CEL types: quantities, semantic versions, IP addresses and ranges, URLs.

To the CEL library they are maps with one entry, whose text is equal where Kubernetes' values are.
Functions raise ValueError where Kubernetes' evaluate to an error.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Any, NamedTuple
from urllib import parse as urls

from rte import errors
from rte.model import quantity
from rte.model.quantity import NANO

#: From here on a quantity may be kept as a decimal, which Kubernetes refuses as an integer.
_MAX_INTEGER = 10**14
_UINT64 = 2**64 - 1

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)


def wrap(kind: str, text: str) -> dict[str, str]:
    """A value of one of Kubernetes' types as the CEL library sees it."""
    return {f"kubernetes.{kind}": text}


def unwrap(kind: str, value: Any) -> str:
    """The text of such a value.

    Raises:
        ValueError: a value of another type (no such overload).
    """
    if isinstance(value, dict) and isinstance(text := value.get(f"kubernetes.{kind}"), str):
        return text
    raise ValueError(f"no such overload: expected {kind}")


def is_kind(kind: str, value: Any) -> bool:
    """Whether it is a value of the type."""
    return isinstance(value, dict) and f"kubernetes.{kind}" in value


# --- quantities ----------------------------------------------------------------------------------


def quantity_of(text: str) -> dict[str, str]:
    """``quantity(text)``."""
    try:
        return of_nano(quantity.parse_nano(text))
    except errors.ParseError as error:
        raise ValueError(str(error)) from error


def of_nano(nano: int) -> dict[str, str]:
    """The quantity of an exact amount."""
    return wrap("Quantity", str(int(nano)))


def nano_of(value: Any) -> int:
    """The exact amount of a quantity."""
    return int(unwrap("Quantity", value))


def as_integer(value: Any) -> int:
    """``asInteger()``."""
    whole, rest = divmod(nano_of(value), NANO)
    if rest or abs(whole) >= _MAX_INTEGER:
        raise ValueError("cannot convert value to integer")
    return whole


def is_integer(value: Any) -> bool:
    """``isInteger()``."""
    whole, rest = divmod(nano_of(value), NANO)
    return not rest and abs(whole) < _MAX_INTEGER


# --- semantic versions ---------------------------------------------------------------------------


class Version(NamedTuple):
    """A version; its order is that of semver.org."""

    numbers: tuple[int, int, int]
    prerelease: tuple[tuple[int, int, str], ...]


@lru_cache(maxsize=4096)
def parse_version(text: str) -> Version:
    """A version in its order: a release comes after its pre-releases, numbers before words."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError("No Major.Minor.Patch elements found")
    numbers = tuple(map(int, match.group(1, 2, 3)))
    if max(numbers) > _UINT64:
        raise ValueError("value out of range")
    parts = match.group(4).split(".") if match.group(4) else []
    ordered = [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts]
    return Version(numbers, tuple(ordered) or ((2, 0, ""),))  # type: ignore[arg-type]


def semver_of(text: str, *, lenient: bool = False) -> dict[str, str]:
    """``semver(text)``; build metadata does not take part in comparisons."""
    if lenient:
        text = _normalized(text)
    parse_version(text)
    return wrap("Semver", text.partition("+")[0])


def _normalized(text: str) -> str:
    """``semver(text, true)``: a leading v, leading zeros and missing parts are forgiven."""
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[place] = bare if bare[:1].isdigit() else "0" + bare
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join((*parts, "0", "0")[:3])


def version_of(value: Any) -> Version:
    """The comparable form of a version."""
    return parse_version(unwrap("Semver", value))


def version_number(value: Any, place: int) -> int:
    """``major()``, ``minor()``, ``patch()``."""
    version: Version = version_of(value)
    return version.numbers[place]


def order(one: Any, other: Any) -> int:
    """-1, 0 or 1: the order of two quantities or two versions."""
    key = nano_of if is_kind("Quantity", one) else version_of
    left: Any = key(one)
    right: Any = key(other)
    return bool(left > right) - bool(left < right)


# --- addresses -----------------------------------------------------------------------------------

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def address(text: str) -> _Address:
    """An address without zone, and not an IPv4 one in IPv6."""
    found = ipaddress.ip_address(text)
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found.ipv4_mapped):
        raise ValueError(f"IP address {text!r} is not allowed")
    return found


def network(text: str) -> _Network:
    """An address with the length of its network's prefix."""
    bare, slash, length = text.partition("/")
    if not slash or not re.fullmatch(r"0|[1-9]\d{0,2}", length, re.ASCII):
        raise ValueError(f"network address parse error: {text!r}")
    return ipaddress.ip_interface(f"{address(bare)}/{length}")


def ip_of(value: Any) -> _Address:
    """The address that a value of type IP is."""
    return ipaddress.ip_address(unwrap("IP", value))


def cidr_of(value: Any) -> _Network:
    """The range that a value of type CIDR is."""
    return ipaddress.ip_interface(unwrap("CIDR", value))


def is_global_unicast(found: _Address) -> bool:
    """``netip.Addr.IsGlobalUnicast``: private addresses are."""
    return not (
        str(found) == "255.255.255.255"
        or found.is_unspecified
        or found.is_loopback
        or found.is_multicast
        or found.is_link_local
    )


def contains(outer: _Network, inner: _Network | _Address) -> bool:
    """Whether an address or a whole range lies in a range."""
    if outer.version != inner.version:
        return False
    if isinstance(inner, ipaddress.IPv4Interface | ipaddress.IPv6Interface):
        if outer.network.prefixlen > inner.network.prefixlen:
            return False
        inner = inner.network.network_address
    return inner in outer.network


# --- URLs ----------------------------------------------------------------------------------------

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:.*|/.*)", re.DOTALL)


def url_of(text: str) -> dict[str, str]:
    """``url(text)``: an absolute URL, or a path from the root."""
    if not _URL.fullmatch(text) or not text.isprintable():
        raise ValueError("URL parse error during conversion from string")
    split = urls.urlsplit(text)
    _ = split.port  # ValueError where it is not a number
    if any(letter in split.netloc for letter in ' "<>^`{|}\\'):
        raise ValueError("URL parse error during conversion from string: invalid host")
    return wrap("URL", text)


def url_part(value: Any) -> urls.SplitResult:
    """The parts of a URL."""
    return urls.urlsplit(unwrap("URL", value))


def url_hostname(value: Any) -> str:
    """The host without port and brackets, in the case in which it was written."""
    host = url_part(value).netloc.rpartition("@")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
