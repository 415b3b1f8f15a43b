"""Comparisons as Kubernetes has them, of values that are bytes to the CEL library.

``==`` is an error where a value of Kubernetes' own is on the left and something else on the right:
its types say so themselves. ``!=`` does not ask them. What is looked for in a literal list is
hashed, which a version cannot be. A comparison is given as it was (``original``) and as it is now
that its arguments are rewritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.dra.cel._pb.checked_pb2 import Constant
from rte.placement.dra.cel.rewriting import repeatable

if TYPE_CHECKING:
    from rte.placement.dra.cel._pb.checked_pb2 import Expr, Type
    from rte.placement.dra.cel.rewriting import Rewriting

#: Literals that Kubernetes can hash.
_HASHED = frozenset(
    f"{name}_value" for name in ("null", "bool", "int64", "uint64", "double", "string")
)
_SUMS = ("add", "sub")
#: Member functions of quantities and versions -> the comparison of bytes that they are.
_ORDERS = {
    "isGreaterThan": ("_>_", "greater_bytes"),
    "isLessThan": ("_<_", "less_bytes"),
}
#: All that compare one with another.
MEMBERS = frozenset({*_ORDERS, "compareTo"})


def member(original: Expr, call: Expr, state: Rewriting) -> Expr:
    """``left.isGreaterThan(right)`` and the like: the order of bytes, of nothing but bytes.

    Where the type of one side is known, the other one is compared with it.
    """
    function, left, (right,) = call.call_expr.function, call.call_expr.target, call.call_expr.args
    repeatable(left, right)
    if function == "compareTo":
        compared = _order(left, right, state)
    else:
        compared = state.call(*_ORDERS[function], left, right)
    sides = (original.call_expr.target, *original.call_expr.args)
    if any(_kind(state.type_of(side)) != "dyn" for side in sides):
        return compared
    wrong = _fail(left, right, state)
    return state.call("_?_:_", "conditional", _is_own(left, state), compared, wrong)


def _order(left: Expr, right: Expr, state: Rewriting) -> Expr:
    """``left < right ? -1 : left > right ? 1 : 0``."""
    below, equal, above = (state.constant(Constant(int64_value=value)) for value in (-1, 0, 1))
    is_above = state.call("_>_", "greater_bytes", left, right)
    is_below = state.call("_<_", "less_bytes", left, right)
    rest = state.call("_?_:_", "conditional", is_above, above, equal)
    return state.call("_?_:_", "conditional", is_below, below, rest)


def equal(original: Expr, comparison: Expr, state: Rewriting) -> Expr:
    """An error where the left side is of a type of Kubernetes' own and the right side is not.

    A sum of quantities on the right counts as another type (as ``*Quantity`` of Go is).
    """
    left, right = comparison.call_expr.args
    if _is_sum(original.call_expr.args[1]):
        return _fail(left, right, state)
    kinds = [_kind(state.type_of(side)) for side in original.call_expr.args]
    own = [kind in ("dyn", "abstract_type") for kind in kinds]
    if not own[0] or kinds[1] in ("null", "abstract_type"):
        return comparison
    repeatable(left, right)
    wrong = _is_own(left, state)
    if own[1]:
        is_null = state.call("_==_", "equals", _type_call(right, state), state.ident("null_type"))
        known = state.call("_||_", "logical_or", _is_own(right, state), is_null)
        wrong = state.call("_&&_", "logical_and", wrong, state.call("!_", "logical_not", known))
    return state.call("_?_:_", "conditional", wrong, _fail(left, right, state), comparison)


def not_equal(original: Expr, comparison: Expr, state: Rewriting) -> Expr:
    """True where :func:`equal` is an error; the library says so of all but sums."""
    if not _is_sum(original.call_expr.args[1]):
        return comparison
    sides = (_type_call(side, state) for side in comparison.call_expr.args)
    return state.call("_==_", "equals", *sides)


def is_in(original: Expr, search: Expr, state: Rewriting) -> Expr:
    """What is looked for in an empty literal is not evaluated; else a version cannot be hashed."""
    wanted, within = original.call_expr.args
    if not within.HasField("list_expr"):
        return search
    elements = within.list_expr.elements
    if not elements:
        return state.constant(Constant(bool_value=False))
    kinds = {element.const_expr.WhichOneof("constant_kind") for element in elements}
    if _kind(state.type_of(wanted)) != "dyn" or not kinds <= _HASHED:
        return search
    left = search.call_expr.args[0]
    repeatable(left)
    wrong = _fail(left, state.constant(Constant(int64_value=0)), state)
    return state.call("_?_:_", "conditional", _is_own(left, state), wrong, search)


#: What becomes of each comparison.
COMPARISONS = {"_==_": equal, "_!=_": not_equal, "@in": is_in}


def _kind(found: Type) -> str:
    return str(found.WhichOneof("type_kind") or "")


def _is_sum(expr: Expr) -> bool:
    return expr.call_expr.function in _SUMS and expr.call_expr.HasField("target")


def _fail(left: Expr, right: Expr, state: Rewriting) -> Expr:
    """An error: there is no such order."""
    return state.call("_<_", "less_bytes", left, _type_call(right, state))


def _is_own(value: Expr, state: Rewriting) -> Expr:
    return state.call("_==_", "equals", _type_call(value, state), state.ident("bytes"))


def _type_call(value: Expr, state: Rewriting) -> Expr:
    return state.call("type", "type", value)
