"""What is known of a CEL expression while it is rewritten, and the parts that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rte.placement.dra.cel._pb.checked_pb2 import Constant, Expr, Nothing, Reference, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DYN = Type(dyn=Nothing())
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

    ``types`` are those that the library has found, by id; ``references`` of names and calls are
    new; ``texts`` may name a domain, ``checked`` are functions with texts that they have to
    understand; within ``mixed`` calls literals may have elements of several types; ``loops`` are
    around what is being rewritten; ``patterns`` is what regular expressions cost so far.
    """

    types: Mapping[int, Type]
    references: dict[int, Reference] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    checked: set[tuple[str, str]] = field(default_factory=set)
    mixed: int = 0
    loops: int = 0
    patterns: int = 0
    ids: Iterator[int] = field(default_factory=lambda: count(_FIRST_ID))

    def call(self, function: str, overload: str, *arguments: Expr) -> Expr:
        """A new call."""
        made = Expr(id=next(self.ids), call_expr=Expr.Call(function=function, args=arguments))
        self.references[made.id] = Reference(overload_id=[overload])
        return made

    def constant(self, value: Constant) -> Expr:
        """A new literal."""
        return Expr(id=next(self.ids), const_expr=value)

    def ident(self, name: str) -> Expr:
        """A new name."""
        made = Expr(id=next(self.ids), ident_expr=Expr.Ident(name=name))
        self.references[made.id] = Reference(name=name)
        return made

    def type_of(self, expr: Expr) -> Type:
        """The type that the library has found for an expression."""
        return self.types.get(expr.id, DYN)


def repeatable(*expressions: Expr) -> None:
    """Expressions are about to be written several times.

    Raises:
        NotInKubernetesError: they are too long for that.
    """
    if any(expr.ByteSize() > _MAX_REPEATED for expr in expressions):
        raise NotInKubernetesError("too long for one side of a comparison")
