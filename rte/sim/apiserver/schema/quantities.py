"""Quantities as the API server writes them."""

from __future__ import annotations

import re
from functools import lru_cache

from rte import errors
from rte.model import quantity
from rte.sim.apiserver.status import DecodeError

MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


_QUANTITY = re.compile(
    r"[+-]?(?:\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([KMGTPE]i)|[numkMGTPE]?)", re.ASCII
)


_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """The text that ``resource.Quantity`` marshals to: ``1000m`` -> ``1``, ``1024Mi`` -> ``1Gi``.

    Raises:
        DecodeError: text outside the format.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise DecodeError(MALFORMED)
    exponent, binary = match.groups()
    try:
        nano = quantity.parse_nano(text)
    except errors.ParseError:  # more digits than anybody counts
        raise DecodeError(MALFORMED) from None
    minus, nano = "-" if nano < 0 else "", abs(nano)
    if nano == 0:
        return "0"
    if binary and nano >= 1024 * 10**9:
        whole = -(-nano // 10**9)
        power = 0
        while power < len(_BINARY) - 1 and whole % 1024 == 0:
            whole, power = whole // 1024, power + 1
        return f"{minus}{whole}{_BINARY[power]}"
    power = 0
    while (exponent or power < len(_DECIMAL) - 1) and nano % 1000 == 0:
        nano, power = nano // 1000, power + 1
    if exponent:
        return f"{minus}{nano}e{(power - 3) * 3}"
    return f"{minus}{nano}{_DECIMAL[power]}"


def amount(resource: str, text: object) -> int:
    """A canonical quantity as an integer (millicores for ``cpu``); 0 where it cannot be read."""
    try:
        return quantity.parse_resource(resource, str(text))
    except errors.ParseError:
        return 0
