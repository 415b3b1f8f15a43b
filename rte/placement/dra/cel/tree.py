"""Checked CEL expressions as trees: what Kubernetes forbids on top, and where it looks differently.

The CEL library hands a checked expression out (``cel.expr.CheckedExpr`` of cel-spec) and takes one
in. In between two things are done to it here:

* What Kubernetes refuses is found: literals of lists and maps with elements of several types, wrong
  texts of durations, timestamps and regular expressions.
* What Kubernetes does otherwise is said in the library's own terms. Looking up a domain of
  ``device.attributes`` or ``device.capacity`` is led to a map of its own, because there, and only
  there, a domain that does not exist is an empty map. Quantities and versions are compared as the
  bytes that they are, and their literals are made once.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from rte.placement.dra.cel import values
from rte.placement.dra.cel._pb.checked_pb2 import CheckedExpr, Constant, Expr, Reference
from rte.placement.dra.cel.comparisons import COMPARISONS, MEMBERS, member
from rte.placement.dra.cel.functions import BETWEEN
from rte.placement.dra.cel.library import LOOKED_UP, NOT_IN_KUBERNETES
from rte.placement.dra.cel.rewriting import NotInKubernetesError, Rewriting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.placement.dra.cel._pb.checked_pb2 import Type

_LOOK_UPS = ("_[_]", "_[?_]", "_?._")
_LITERALS = {"quantity": values.quantity_of, "semver": values.semver_of}
#: Functions whose literal arguments Kubernetes checks when it compiles.
_CHECKED = ("duration", "timestamp", "matches")
#: Overloads whose results may be twice as large as what they are given. Kubernetes allows any
#: number (it puts lists together without copying them); the library would fill all memory.
_GROWING = frozenset({"add_list", "string_format"})
_MAX_GROWING = 10
#: Regular expressions are compiled each time that they are asked, and ``x{1000}`` is a thousand x:
#: their lengths written out, in all, and how often a loop may ask.
_MAX_PATTERNS, _MAX_TIMES, _ROUNDS = 200_000, 1000, 1000
_TIMES = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}", re.ASCII)
#: Whose literal arguments may have elements of several types.
_MIXED = "format"


class Rewritten(NamedTuple):
    """An expression for the evaluating environment.

    Attributes:
        data: its bytes.
        texts: all in it that may name a domain.
        checked: functions (``duration``, ``timestamp``, ``matches``) and texts that they are given.
    """

    data: bytes
    texts: frozenset[str]
    checked: frozenset[tuple[str, str]]


def rewrite(checked: bytes) -> Rewritten:
    """The expression for the evaluating environment.

    Raises:
        NotInKubernetesError: Kubernetes would not compile it.
    """
    try:
        outer = Any.FromString(checked)
        message = CheckedExpr.FromString(outer.value)
    except DecodeError as error:
        raise NotInKubernetesError("nested too deep") from error
    growing = 0
    for reference in message.reference_map.values():
        overloads = reference.overload_id
        if not NOT_IN_KUBERNETES.isdisjoint(overloads):
            raise NotInKubernetesError(f"no such function: {overloads[0]}")
        growing += not _GROWING.isdisjoint(overloads)
    if growing > _MAX_GROWING:
        raise NotInKubernetesError(f"more than {_MAX_GROWING} lists or texts are put together")
    state = Rewriting(dict(message.type_map))
    _expr(message.expr, state)
    for id_, reference in state.references.items():
        message.reference_map[id_].CopyFrom(reference)
    outer.value = message.SerializeToString()
    return Rewritten(outer.SerializeToString(), frozenset(state.texts), frozenset(state.checked))


def _expr(expr: Expr, state: Rewriting) -> None:
    """Rewrite an expression where it stands."""
    match expr.WhichOneof("expr_kind"):
        case "const_expr":
            if (text := _text(expr)) is not None:
                state.texts.add(text)
        case "select_expr":
            state.texts.add(expr.select_expr.field)
            _operand(expr.select_expr.operand, state)
        case "call_expr":
            _call(expr, state)
        case "list_expr":
            _list(expr.list_expr, state)
        case "struct_expr":
            _struct(expr.struct_expr, state)
        case "comprehension_expr":
            loop = expr.comprehension_expr
            parts = (loop.iter_range, loop.accu_init, loop.loop_condition, loop.loop_step)
            state.loops += 1
            for part in (*parts, loop.result):
                _expr(part, state)
            state.loops -= 1


def _operand(expr: Expr, state: Rewriting) -> None:
    """What something is looked up in: one of the two maps gets its other name."""
    name = LOOKED_UP.get(expr.ident_expr.name)
    if name is None:
        _expr(expr, state)
        return
    state.references[expr.id] = Reference(name=name)
    expr.ident_expr.name = name


def _call(expr: Expr, state: Rewriting) -> None:
    call = expr.call_expr
    function = call.function
    if function in _CHECKED:
        state.checked.update((function, text) for one in call.args if (text := _text(one)))
    if function == "matches":
        _count_pattern(_text(call.args[-1]), state)
    if len(call.args) == 1 and function in _LITERALS:
        literal = _literal(function, call.args[0])
        if literal is not None:
            expr.const_expr.CopyFrom(Constant(bytes_value=literal))
            return
    changes = COMPARISONS.get(function)
    if call.HasField("target") and len(call.args) == 1 and function in MEMBERS:
        changes = member
    original = Expr()
    if changes is not None:
        original.CopyFrom(expr)
    state.mixed += function == _MIXED
    for place, argument in enumerate(call.args):
        (_operand if place == 0 and function in _LOOK_UPS else _expr)(argument, state)
    _expr(call.target, state)
    state.mixed -= function == _MIXED
    if function == "substring" and len(call.args) == 2:
        call.function = BETWEEN
        state.references[expr.id] = Reference(overload_id=[BETWEEN])
    if changes is not None:
        expr.CopyFrom(changes(original, expr, state))


def _count_pattern(text: str | None, state: Rewriting) -> None:
    if text is None:
        raise NotInKubernetesError("a regular expression that is not written out")
    times = prod(max(1, *(int(each or 0) for each in found)) for found in _TIMES.findall(text))
    state.patterns += (len(text) + 1) * min(times, _MAX_TIMES) * _ROUNDS**state.loops
    if state.patterns > _MAX_PATTERNS:
        raise NotInKubernetesError("regular expressions that take too long")


def _literal(function: str, argument: Expr) -> bytes | None:
    """The value of ``quantity("1Gi")``; None where it is no literal, or a wrong one."""
    text = _text(argument)
    if text is None:
        return None
    try:
        return _LITERALS[function](text)
    except ValueError:
        return None


def _text(expr: Expr) -> str | None:
    """The text that an expression is as a literal."""
    constant = expr.const_expr
    return constant.string_value if constant.HasField("string_value") else None


def _list(literal: Expr.List, state: Rewriting) -> None:
    optional = literal.optional_indices
    _check_same(
        ((state.type_of(one), place in optional) for place, one in enumerate(literal.elements)),
        state,
    )
    for element in literal.elements:
        _expr(element, state)


def _struct(literal: Expr.Struct, state: Rewriting) -> None:
    entries = literal.entries
    keys = [entry.map_key for entry in entries if entry.HasField("map_key")]
    _check_same(((state.type_of(key), False) for key in keys), state)
    _check_same(((state.type_of(entry.value), entry.optional_entry) for entry in entries), state)
    for entry in entries:
        _expr(entry.map_key, state)
        _expr(entry.value, state)


def _check_same(types: Iterable[tuple[Type, bool]], state: Rewriting) -> None:
    """Types of elements, each with whether it is optional: then what it may hold counts."""
    held = (
        kind.abstract_type.parameter_types[:1] if optional else [kind] for kind, optional in types
    )
    found = {b"".join(kind.SerializeToString(deterministic=True) for kind in each) for each in held}
    if len(found) > 1 and not state.mixed:
        raise NotInKubernetesError("a literal has elements of several types")
