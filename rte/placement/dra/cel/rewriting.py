"""What becomes of a CEL expression while it is rewritten, and the parts that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rte.placement.dra.cel import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

# Field numbers of Expr.
ID, CONST, IDENT, SELECT, CALL, LIST, STRUCT, COMPREHENSION = 2, 3, 4, 5, 6, 7, 8, 9
#: Field numbers of Type.
TYPE_NULL, TYPE_ABSTRACT = 2, 14
DYN = b"\x0a\x00"
#: Ids of expressions that are added begin here; those of the library count from 1.
_FIRST_ID = 1_000_000
#: Bytes of an expression that is written several times. Such expressions within each other would
#: grow without bounds.
_MAX_REPEATED = 4096


class NotInKubernetesError(Exception):
    """The expression compiles here, but not in Kubernetes, or cannot be rewritten."""


@dataclass
class Rewriting:
    """What is known of an expression, and what has become of it.

    ``references`` are names (of variables) and overloads (of calls) that are new, by id; ``texts``
    may name a domain, ``checked`` are functions with texts that they have to understand; within
    ``mixed`` calls literals may have elements of several types; ``loops`` are around what is being
    rewritten; ``patterns`` is what regular expressions cost so far.
    """

    types: dict[int, bytes]
    references: dict[int, tuple[str, str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    checked: set[tuple[str, str]] = field(default_factory=set)
    mixed: int = 0
    loops: int = 0
    patterns: int = 0
    ids: Iterator[int] = field(default_factory=lambda: count(_FIRST_ID))

    def call(self, function: str, overload: str, *arguments: bytes) -> bytes:
        """A new call."""
        id_ = next(self.ids)
        self.references[id_] = "", overload
        call = wire.write([(2, 2, function.encode()), *((3, 2, one) for one in arguments)])
        return wire.write([(ID, 0, id_), (CALL, 2, call)])

    def number(self, value: int) -> bytes:
        """A new literal."""
        return wire.write(
            [(ID, 0, next(self.ids)), (CONST, 2, wire.write([(3, 0, value & wire.MASK)]))]
        )

    def boolean(self, *, value: bool) -> bytes:
        """A new literal."""
        return wire.write([(ID, 0, next(self.ids)), (CONST, 2, wire.write([(2, 0, value)]))])

    def ident(self, name: str) -> bytes:
        """A new name."""
        id_ = next(self.ids)
        self.references[id_] = name, ""
        return wire.write([(ID, 0, id_), (IDENT, 2, wire.write([(1, 2, name.encode())]))])

    def type_of(self, expr: bytes) -> bytes:
        """The type that the library has found for an expression."""
        return self.types.get(wire.integer(wire.read(expr), ID), DYN)


def repeatable(*expressions: bytes) -> None:
    """Expressions are about to be written several times.

    Raises:
        NotInKubernetesError: they are too long for that.
    """
    if any(len(expr) > _MAX_REPEATED for expr in expressions):
        raise NotInKubernetesError("too long for one side of a comparison")


def kind_of(message: bytes) -> int:
    """Which of its alternatives a Constant or a Type is, by field number."""
    fields = wire.read(message)
    return fields[0][0] if fields else 0
