"""Comparisons as Kubernetes has them, of values that are bytes to the CEL library.

``==`` is an error where a value of Kubernetes' own is on the left and something else on the right:
its types say so themselves. ``!=`` does not ask them. What is looked for in a literal list is
hashed, which a version cannot be. Arguments are given as they were (``originals``) and as they are
now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.dra.cel import wire
from rte.placement.dra.cel.rewriting import (
    CALL,
    CONST,
    DYN,
    LIST,
    TYPE_ABSTRACT,
    TYPE_NULL,
    kind_of,
    repeatable,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from rte.placement.dra.cel.rewriting import Rewriting

#: Field numbers of Constant whose values Kubernetes can hash: null, bool, int, uint, double, text.
_HASHED = frozenset(range(1, 7))
_SUMS = ("add", "sub")
#: Member functions of quantities and versions -> the comparison of bytes that they are.
_ORDERS = {
    "isGreaterThan": ("_>_", "greater_bytes"),
    "isLessThan": ("_<_", "less_bytes"),
}
#: All that compare one with another.
MEMBERS = frozenset({*_ORDERS, "compareTo"})


def member(
    function: str, kinds: Collection[bytes], left: bytes, right: bytes, state: Rewriting
) -> bytes:
    """``left.isGreaterThan(right)`` and the like: the order of bytes, of nothing but bytes.

    ``kinds`` are the types of both; where one of them is known, the other one is compared with it.
    """
    repeatable(left, right)
    if function == "compareTo":
        compared = _order(left, right, state)
    else:
        compared = state.call(*_ORDERS[function], left, right)
    if any(kind != DYN for kind in kinds):
        return compared
    wrong = _fail(left, right, state)
    return state.call("_?_:_", "conditional", _is_own(left, state), compared, wrong)


def _order(left: bytes, right: bytes, state: Rewriting) -> bytes:
    """``left < right ? -1 : left > right ? 1 : 0``."""
    above = state.call("_>_", "greater_bytes", left, right)
    below = state.call("_<_", "less_bytes", left, right)
    rest = state.call("_?_:_", "conditional", above, state.number(1), state.number(0))
    return state.call("_?_:_", "conditional", below, state.number(-1), rest)


def equal(
    comparison: bytes, originals: list[bytes], arguments: list[bytes], state: Rewriting
) -> bytes:
    """An error where the left side is of a type of Kubernetes' own and the right side is not.

    A sum of quantities on the right counts as another type (as ``*Quantity`` of Go is).
    """
    left, right = arguments
    if _is_sum(originals[1]):
        return _fail(left, right, state)
    kinds = [state.type_of(original) for original in originals]
    own = [kind == DYN or kind_of(kind) == TYPE_ABSTRACT for kind in kinds]
    if not own[0] or kind_of(kinds[1]) in (TYPE_NULL, TYPE_ABSTRACT):
        return comparison
    repeatable(left, right)
    wrong = _is_own(left, state)
    if own[1]:
        known = state.call("_||_", "logical_or", _is_own(right, state), _is_null(right, state))
        wrong = state.call("_&&_", "logical_and", wrong, state.call("!_", "logical_not", known))
    return state.call("_?_:_", "conditional", wrong, _fail(left, right, state), comparison)


def not_equal(
    comparison: bytes, originals: list[bytes], arguments: list[bytes], state: Rewriting
) -> bytes:
    """True where :func:`equal` is an error; the library says so of all but sums."""
    if not _is_sum(originals[1]):
        return comparison
    return state.call("_==_", "equals", *(_type_call(one, state) for one in arguments))


def is_in(search: bytes, originals: list[bytes], arguments: list[bytes], state: Rewriting) -> bytes:
    """What is looked for in an empty literal is not evaluated; else a version cannot be hashed."""
    literal = wire.first(wire.read(originals[1]), LIST)
    elements = [wire.content(value) for _, _, value in wire.each(wire.read(literal), 1)]
    if not elements:
        is_literal = any(True for _ in wire.each(wire.read(originals[1]), LIST))
        return state.boolean(value=False) if is_literal else search
    kinds = {kind_of(wire.first(wire.read(element), CONST)) for element in elements}
    if state.type_of(originals[0]) != DYN or not kinds <= _HASHED:
        return search
    left = arguments[0]
    repeatable(left)
    wrong = _fail(left, state.number(0), state)
    return state.call("_?_:_", "conditional", _is_own(left, state), wrong, search)


def _is_sum(expr: bytes) -> bool:
    call = wire.read(wire.first(wire.read(expr), CALL))
    return wire.first(call, 2).decode() in _SUMS and bool(wire.first(call, 1))


def _fail(left: bytes, right: bytes, state: Rewriting) -> bytes:
    """An error: there is no such order."""
    wrong = state.call("type", "type", right)
    return state.call("_<_", "less_bytes", left, wrong)


def _is_own(value: bytes, state: Rewriting) -> bytes:
    return state.call("_==_", "equals", _type_call(value, state), state.ident("bytes"))


def _is_null(value: bytes, state: Rewriting) -> bytes:
    return state.call("_==_", "equals", _type_call(value, state), state.ident("null_type"))


def _type_call(value: bytes, state: Rewriting) -> bytes:
    return state.call("type", "type", value)
