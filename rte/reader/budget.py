"""How much one document may be: bytes, nesting, members, numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.reader.json import JsonValue

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
