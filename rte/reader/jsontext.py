"""JSON of somebody else, and how much one document may be: bytes, nesting, members, numbers.

What the parsers themselves bound: orjson takes 1,024 levels and no infinite number, without
recursion; msgspec and Python's ``json`` stop at the interpreter's recursion limit. None of the
three ends the process, and all their ways of refusing a text become one error here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias, TypeVar

import msgspec
import orjson

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rte.reader.json import JsonValue

_T = TypeVar("_T")

#: What a parser raises for a text that it does not take.
_NOT_READ = (ValueError, TypeError, RecursionError)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]|-?[0-9][0-9.eE+-]*', re.DOTALL)
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_MOST_DIGITS = 40

#: The range of Kubernetes' own numbers.
LEAST_INT, MOST_INT = -(1 << 63), (1 << 63) - 1

#: A number of a document with a schema.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=LEAST_INT, le=MOST_INT)]

#: Nesting of any document. Kubernetes' own objects have some twenty levels.
MOST_DEPTH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadBudget:
    """Bounds of one document: its text, and its values (YAML: with every alias written out)."""

    size: int
    items: int

    def check_size(self, text: str | bytes, what: str) -> None:
        """Refuse a text that is too long.

        Raises:
            errors.MalformedError: it is.
        """
        if len(text) > self.size:
            limit = f"{self.size} bytes"
            raise errors.MalformedError(what, text, f"more than {limit}", limit=limit)

    def check(self, value: object, what: str, *, depth: int = MOST_DEPTH) -> None:
        """Refuse a value that nests too deep, has too many members, or numbers beyond 64 bits.

        Raises:
            errors.MalformedError: it does; ``where`` says which.
        """
        items = 0
        todo: list[_Place] = [(value, 0, None, "$")]
        while todo:
            place = todo.pop()
            inner: JsonValue = place[0]
            if isinstance(inner, dict):
                members: Iterable[tuple[object, object]] = inner.items()
            elif isinstance(inner, list | tuple):
                members = enumerate(inner)
            else:
                members = ()
                if isinstance(inner, int) and not LEAST_INT <= inner <= MOST_INT:
                    raise _beyond(what, place, "64 bits")
            items += len(inner) if members else 1
            if items > self.items:
                raise _beyond(what, place, f"{self.items} values")
            if members and place[1] >= depth:
                raise _beyond(what, place, f"{depth} levels")
            todo += [
                (member, place[1] + 1, place, key)
                for key, member in members
                if isinstance(member, dict | list | tuple)
                or (isinstance(member, int) and not LEAST_INT <= member <= MOST_INT)
            ]


#: A value, its depth, the place it is in, its key there.
_Place: TypeAlias = "tuple[object, int, _Place | None, object]"

#: An annotation: the API server takes 256 KiB of them for one object.
ANNOTATION = ReadBudget(size=1 << 18, items=1 << 16)
#: A request to one of our doors, whose own bound on bytes comes first.
BODY = ReadBudget(size=1 << 28, items=1 << 22)
#: A file of the node.
FILE = ReadBudget(size=1 << 26, items=1 << 21)
#: A cluster in a file, decompressed: some 5,000 nodes with 100,000 pods. It may come from anybody.
ARCHIVE = ReadBudget(size=1 << 30, items=1 << 26)
#: What a user names on the command line, as ``kubectl get -A`` prints a whole cluster.
OWN = ReadBudget(size=1 << 31, items=1 << 27)


def _beyond(what: str, place: _Place, limit: str) -> errors.MalformedError:
    where = "".join(reversed(list(_path(place))))
    shown = where if len(where) <= 60 else f"{where[:57]}..."
    return errors.MalformedError(
        what, shown, f"more than {limit} at {shown}", where=where[:1000], limit=limit
    )


def _path(place: _Place | None) -> Iterator[str]:
    while place is not None:
        key = place[3]
        yield "$" if place[2] is None else f"[{key}]" if isinstance(key, int) else f".{key}"
        place = place[2]


def load(text: str | bytes, what: str, bounds: ReadBudget = ANNOTATION) -> JsonValue:
    """The value of a text without a schema.

    Raises:
        errors.MalformedError: no JSON, or beyond the budget.
    """
    bounds.check_size(text, what)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _malformed(what, text, error) from None
    bounds.check(value, what)
    return value


def decode(text: str | bytes, kind: type[_T], what: str, bounds: ReadBudget = ANNOTATION) -> _T:
    """The value of a text by its schema; what the schema does not name is passed over.

    Raises:
        errors.MalformedError: no JSON, of another schema, or beyond the budget.
    """
    bounds.check_size(text, what)
    try:
        return msgspec.json.decode(text, type=kind)
    except _NOT_READ as error:
        raise _malformed(what, text, error) from None


def exact(
    text: str,
    what: str,
    pairs: Callable[[list[tuple[str, JsonValue]]], object],
    bounds: ReadBudget = ANNOTATION,
) -> JsonValue:
    """The value with fractions as Decimals, objects made by ``pairs`` of all their members.

    Whole numbers are cut off at 64 bits, fractions out of every range are infinite, so that who
    reads them can name their place.

    Raises:
        errors.MalformedError: no JSON, or beyond the budget.
    """
    bounds.check_size(text, what)
    try:
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=_whole,
            parse_float=_fraction,
            parse_constant=_refuse_constant,
        )
    except _NOT_READ as error:
        raise _malformed(what, text, error) from None
    bounds.check(value, what)
    return value


def answer(data: bytes, what: str) -> JsonValue:
    """Objects as the API server or kube-scheduler sends them, whose size it bounds itself.

    Parts that it keeps as text (``opaque.parameters`` of a claim) may hold what orjson refuses.
    They are read as Go reads them, or as null, so that one object does not hide all others.

    Raises:
        errors.MalformedError: no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(b"".join(_mended(data)))
    except orjson.JSONDecodeError as error:
        raise _malformed(what, data, error) from None


def _mended(data: bytes) -> Iterator[bytes]:
    """The text with null for what nests too deep or is infinite, and no half of a surrogate."""
    depth = start = 0
    for token in _TOKEN.finditer(data):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            if depth == MOST_DEPTH + 1:
                yield data[start : token.start()] + b"null"
        elif first in b"]}":
            depth -= 1
            if depth == MOST_DEPTH:
                start = token.end()
        elif depth <= MOST_DEPTH:
            text = token[0]
            if first == b'"':
                mended = _SURROGATES.sub(_whole_surrogate, text)
                mended = mended.decode(errors="replace").encode()
            else:
                mended = text if _is_finite(text) else b"null"
            if mended != text:
                yield data[start : token.start()] + mended
                start = token.end()
    if depth <= MOST_DEPTH:
        yield data[start:]


def _whole_surrogate(match: re.Match[bytes]) -> bytes:
    return match[0] if len(match[0]) in (2, 12) else rb"\ufffd"


def _is_finite(text: bytes) -> bool:
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return True  # no number: the parser says so


def _whole(text: str) -> int:
    return max(LEAST_INT, min(int(text), MOST_INT))


def _fraction(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return Decimal("Infinity")
    return number if not number or number.adjusted() <= _MOST_DIGITS else Decimal("Infinity")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _malformed(what: str, text: str | bytes, error: Exception) -> errors.MalformedError:
    if isinstance(error, RecursionError):
        limit = f"{MOST_DEPTH} levels"
        return errors.MalformedError(what, text, f"more than {limit}", limit=limit)
    return errors.MalformedError(what, text, str(error))
