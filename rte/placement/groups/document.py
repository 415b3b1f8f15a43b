"""One value of a document and where it stands, so that every fault has a code and a path.

And the other way round: the value at a path such as ``groups[0].cpus.workers[1]``.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, cast

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

MAX_GBPS = 10_000


class RequestError(errors.RteError):
    """The request cannot be honoured on any node; ``str(error)`` is ``<path>: <message>``.

    Attributes:
        code: ``syntax``, ``version``, ``missing``, ``type``, ``value``, ``unknown-field``,
            ``duplicate``, ``reference``, ``empty``, ``limit``, ``length`` or ``mismatch``.
        path: the place in the document, e.g. ``groups[0].nics[1].kind``; ``""`` = all of it.
        message: what is wrong there.
    """

    def __init__(self, code: str, path: str, message: str) -> None:
        self.code, self.path, self.message = code, path, message
        super().__init__(f"{path}: {message}" if path else message)


@dataclass(slots=True)
class DocumentValue:
    """A value and its path from the root. Its methods read it, or say what is wrong with it."""

    path: str
    value: Any

    def fail(self, code: str, message: str) -> NoReturn:
        """Refuse the document for this value."""
        raise RequestError(code, self.path, message)

    def require(self, holds: object, code: str, message: str) -> None:
        """Refuse the document for this value unless something holds."""
        if not holds:
            self.fail(code, message)

    def at(self, key: str) -> Self:
        """The value of a field, None where it is not there; this is known to be an object."""
        path = f"{self.path}.{key}" if self.path else key
        return type(self)(path, self.value.get(key))

    def members(self) -> list[Self]:
        """The members of a list."""
        self.require(isinstance(self.value, list | tuple), "type", "must be a list")
        return [type(self)(f"{self.path}[{i}]", value) for i, value in enumerate(self.value)]

    def text(self) -> str:
        """A text."""
        self.require(isinstance(self.value, str), "type", "must be a text")
        return str(self.value)

    def truth(self) -> bool:
        """A truth value."""
        self.require(isinstance(self.value, bool), "type", "must be true or false")
        return bool(self.value)

    def whole(self, low: int | None = None, high: int | None = None) -> int:
        """A whole number between bounds."""
        is_whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        self.require(is_whole, "type", "must be a whole number")
        within = low is None or high is None or low <= self.value <= high
        self.require(within, "value", f"must be {low} to {high}")
        return int(self.value)

    def one_of(self, names: tuple[str, ...]) -> str:
        """One of these texts."""
        text = self.text()
        self.require(text in names, "value", f"must be one of {', '.join(names)}")
        return text

    def mbps(self) -> int:
        """A rate in Gb/s with at most three decimals as whole Mb/s."""
        is_number = isinstance(self.value, int | Decimal) and not isinstance(self.value, bool)
        self.require(is_number, "type", "must be a number")
        rate = _exact_mbps(Decimal(self.value))
        if rate is None:
            self.fail("value", f"must be 0 to {MAX_GBPS} Gb/s with at most three decimals")
        return rate


def _exact_mbps(gbps: Decimal) -> int | None:
    """Whole Mb/s; None for what is out of range or no whole number of them."""
    if not gbps.is_finite() or not 0 <= gbps <= MAX_GBPS:
        return None
    _, digits, exponent = gbps.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    shift = cast("int", exponent) + len(digits) - len(significant) + 3
    if not significant:
        return 0
    return int(significant) * int(10**shift) if shift >= 0 else None


_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d{1,6})\]|\[\"([^\"]+)\"\]", re.ASCII)


class PathError(LookupError):
    """A path leads nowhere, or is none.

    Attributes:
        at: how far it leads; empty where it is no path.
    """

    def __init__(self, path: str, at: str = "") -> None:
        self.path, self.at = path, at
        super().__init__(f"{path!r} is not there" if at else f"{path!r} is no path")


def follow(document: Any, path: str, below: Callable[[Any, Any], Any] = operator.getitem) -> Any:
    """The value at a path from the root.

    Args:
        document: dicts and lists.
        path: names behind dots, indexes and quoted names in brackets.
        below: what is below a value under a name or an index.

    Raises:
        PathError: it leads nowhere, or is no path.
    """
    place = document
    end = 0
    for step in _STEP.finditer(path):
        if step.start() != end:
            break
        end = step.end()
        name, index, quoted = step.groups()
        try:
            place = below(place, int(index) if index else name or quoted)
        except (KeyError, IndexError, TypeError) as error:
            raise PathError(path, path[:end]) from error
    if not end or end != len(path):
        raise PathError(path)
    return place
