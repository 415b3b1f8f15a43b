"""Kubernetes' own CEL types: quantities, semantic versions, IP addresses and ranges, URLs.

To the CEL library they are bytes that are no text (and have no zeros, where it would cut them
off), equal where Kubernetes' values are equal, and of quantities and versions in their order. So
the library compares them itself. Functions raise ValueError where Kubernetes' evaluate to an error.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, TypeAlias
from urllib import parse as urls

from rte import errors
from rte.model import quantity
from rte.model.quantity import NANO

#: What the CEL library hands over and takes.
Value: TypeAlias = Any

#: From here on a quantity may be kept as a decimal, which Kubernetes refuses as an integer.
_MAX_INTEGER = 10**14
#: How the pre-release of a version, and each part of it, begins or ends.
_END, _NUMBER, _WORD, _RELEASE = b"\1", b"\2", b"\3", b"\xff"
#: Of a number of 64 bits.
_DIGITS = 16

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)


#: How a value of each type begins; no UTF-8 text does.
_TAGS = {name: b"\xff" + name[:1].encode() for name in ("Quantity", "Semver", "IP", "CIDR", "URL")}
#: Numbers are hexadecimal, of equal length. Quantities are moved, so that none is negative.
_QUANTITY_DIGITS = 128
_OFFSET = 1 << (4 * _QUANTITY_DIGITS - 1)


def wrap(kind: str, text: str) -> bytes:
    """A value of one of Kubernetes' types as the CEL library sees it."""
    return _TAGS[kind] + text.encode()


def unwrap(kind: str, value: Value) -> str:
    """The text of such a value.

    Raises:
        ValueError: a value of another type (no such overload).
    """
    return _content(kind, value).decode()


def is_kind(kind: str, value: Value) -> bool:
    """Whether it is a value of the type."""
    return isinstance(value, bytes | bytearray) and value.startswith(_TAGS[kind])


def _content(kind: str, value: Value) -> bytes:
    if is_kind(kind, value):
        return bytes(value[2:])  # the library hands bytearrays out
    raise ValueError(f"no such overload: expected {kind}")


def _hex(number: int, digits: int) -> bytes:
    text = f"{number:0{digits}x}"
    if number < 0 or len(text) > digits:
        raise ValueError("value out of range")
    return text.encode()


# --- quantities ----------------------------------------------------------------------------------


def quantity_of(text: str) -> bytes:
    """``quantity(text)``."""
    try:
        return of_nano(quantity.parse_nano(text))
    except errors.ParseError as error:
        raise ValueError(str(error)) from error


def of_nano(nano: int) -> bytes:
    """The quantity of an exact amount."""
    return _TAGS["Quantity"] + _hex(nano + _OFFSET, _QUANTITY_DIGITS)


def nano_of(value: Value) -> int:
    """The exact amount of a quantity."""
    return int(_content("Quantity", value), 16) - _OFFSET


def as_integer(value: Value) -> int:
    """``asInteger()``."""
    whole, rest = divmod(nano_of(value), NANO)
    if rest or abs(whole) >= _MAX_INTEGER:
        raise ValueError("cannot convert value to integer")
    return whole


def is_integer(value: Value) -> bool:
    """``isInteger()``."""
    whole, rest = divmod(nano_of(value), NANO)
    return not rest and abs(whole) < _MAX_INTEGER


# --- semantic versions ---------------------------------------------------------------------------


def semver_of(text: str, *, lenient: bool = False) -> bytes:
    """``semver(text)``; build metadata does not take part in comparisons.

    The bytes have the order of semver.org: a release comes after its pre-releases, numbers come
    before words, fewer parts before more.
    """
    match = _SEMVER.fullmatch(_normalized(text) if lenient else text)
    if match is None:
        raise ValueError("No Major.Minor.Patch elements found")
    numbers = b"".join(_hex(int(number), _DIGITS) for number in match.group(1, 2, 3))
    if not match.group(4):
        return _TAGS["Semver"] + numbers + _RELEASE
    parts = (
        _NUMBER + _hex(int(part), _DIGITS) if part.isdecimal() else _WORD + part.encode() + _END
        for part in match.group(4).split(".")
    )
    return _TAGS["Semver"] + numbers + b"".join(parts) + _END


def semver_text(value: Value) -> str:
    """The text of a version, without build metadata."""
    content = _content("Semver", value)
    text = ".".join(str(version_number(value, place)) for place in range(3))
    parts = []
    rest = content[3 * _DIGITS :]
    while rest not in (_RELEASE, _END):
        if rest.startswith(_NUMBER):
            parts.append(str(int(rest[1 : 1 + _DIGITS], 16)))
            rest = rest[1 + _DIGITS :]
        else:
            word, _, rest = rest[1:].partition(_END)
            parts.append(word.decode())
    return f"{text}-{'.'.join(parts)}" if parts else text


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


def version_number(value: Value, place: int) -> int:
    """``major()``, ``minor()``, ``patch()``."""
    return int(_content("Semver", value)[_DIGITS * place : _DIGITS * (place + 1)], 16)


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


def ip_of(value: Value) -> _Address:
    """The address that a value of type IP is."""
    return ipaddress.ip_address(unwrap("IP", value))


def cidr_of(value: Value) -> _Network:
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


def is_link_local_multicast(found: _Address) -> bool:
    """``netip.Addr.IsLinkLocalMulticast``."""
    if found.version == 4:
        return str(found).startswith("224.0.0.")
    return (int(found) >> 112) & 0xFF0F == 0xFF02


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

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:.*|/.*)", re.DOTALL)


def url_of(text: str) -> bytes:
    """``url(text)``: an absolute URL, or a path from the root."""
    if not _URL.fullmatch(text) or not text.isprintable():
        raise ValueError("URL parse error during conversion from string")
    split = urls.urlsplit(text)
    _ = split.port  # ValueError where it is not a number
    if any(letter in split.netloc for letter in ' "<>^`{|}\\'):
        raise ValueError("URL parse error during conversion from string: invalid host")
    return wrap("URL", text)


def url_part(value: Value) -> urls.SplitResult:
    """The parts of a URL."""
    return urls.urlsplit(unwrap("URL", value))


def url_hostname(value: Value) -> str:
    """The host without port and brackets, in the case in which it was written."""
    host = url_part(value).netloc.rpartition("@")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def query_of(text: str) -> dict[str, list[str]]:
    """The values of each key of a query; pairs that are none are left out (``url.ParseQuery``)."""
    found: dict[str, list[str]] = {}
    for pair in text.split("&"):
        key, _, value = pair.partition("=")
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            found.setdefault(urls.unquote_plus(key), []).append(urls.unquote_plus(value))
    return found
