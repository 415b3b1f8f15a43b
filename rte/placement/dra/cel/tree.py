"""Checked CEL expressions as trees: what Kubernetes forbids on top, and where it looks differently.

The CEL library hands a checked expression out as bytes (``cel.expr.CheckedExpr`` of cel-spec, in
protobuf's wire format) and takes one in. In between two things are done to it here:

* What Kubernetes refuses is found: literals of lists and maps with elements of several types, wrong
  texts of durations, timestamps and regular expressions.
* What Kubernetes does otherwise is said in the library's own terms. Looking up a domain of
  ``device.attributes`` or ``device.capacity`` is led to a map of its own, because there, and only
  there, a domain that does not exist is an empty map. Quantities and versions are compared as the
  bytes that they are, and their literals are made once. ``==`` is an error where a value of
  Kubernetes' own is on the left and something else on the right (its types say so, and ``!=`` does
  not ask them), and where a version is looked for in a literal list (which is hashed).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from rte.placement.dra.cel import values, wire
from rte.placement.dra.cel.library import LOOKED_UP, NOT_IN_KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Field numbers of CheckedExpr and Expr.
_REFERENCES, _TYPES, _EXPR = 2, 3, 4
_ID, _CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = 2, 3, 4, 5, 6, 7, 8, 9
#: Field numbers of Type.
_TYPE_NULL, _TYPE_ABSTRACT = 2, 14
#: Field numbers of Constant whose values Kubernetes can hash: null, bool, int, uint, double, text.
_HASHED = frozenset(range(1, 7))
_DYN = b"\x0a\x00"
_LOOK_UPS = ("_[_]", "_[?_]", "_?._")
_SUMS = ("add", "sub")
#: Member functions of quantities and versions -> the comparison of bytes that they are.
_COMPARISONS = {
    "isGreaterThan": ("_>_", "greater_bytes"),
    "isLessThan": ("_<_", "less_bytes"),
}
_LITERALS = {"quantity": values.quantity_of, "semver": values.semver_of}
#: Functions whose literal arguments Kubernetes checks when it compiles.
_CHECKED = ("duration", "timestamp", "matches")
#: Whose literal arguments may have elements of several types.
_MIXED = "format"
#: Ids of expressions that are added begin here; those of the library count from 1.
_FIRST_ID = 1_000_000


class NotInKubernetesError(Exception):
    """The expression compiles here, but not in Kubernetes."""


@dataclass
class _Rewriting:
    """What is known of an expression, and what has become of it.

    ``references`` are names (of variables) and overloads (of calls) that are new, by id; ``texts``
    may name a domain, ``checked`` are functions with texts that they have to understand; within
    ``mixed`` calls literals may have elements of several types.
    """

    types: dict[int, bytes]
    references: dict[int, tuple[str, str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    checked: set[tuple[str, str]] = field(default_factory=set)
    mixed: int = 0
    ids: Iterator[int] = field(default_factory=lambda: count(_FIRST_ID))

    def call(self, function: str, overload: str, *arguments: bytes) -> bytes:
        """A new call."""
        id_ = next(self.ids)
        self.references[id_] = "", overload
        call = wire.write([(2, 2, function.encode()), *((3, 2, one) for one in arguments)])
        return wire.write([(_ID, 0, id_), (_CALL, 2, call)])

    def number(self, value: int) -> bytes:
        """A new literal."""
        return wire.write(
            [(_ID, 0, next(self.ids)), (_CONST, 2, wire.write([(3, 0, value & wire.MASK)]))]
        )

    def boolean(self, *, value: bool) -> bytes:
        """A new literal."""
        return wire.write([(_ID, 0, next(self.ids)), (_CONST, 2, wire.write([(2, 0, value)]))])

    def ident(self, name: str) -> bytes:
        """A new name."""
        id_ = next(self.ids)
        self.references[id_] = name, ""
        return wire.write([(_ID, 0, id_), (_IDENT, 2, wire.write([(1, 2, name.encode())]))])


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
    ((_, _, url), (_, _, body)) = wire.read(checked)
    message = wire.read(wire.content(body))
    for _, _, entry in wire.each(message, _REFERENCES):
        reference = wire.first(wire.read(wire.content(entry)), 2)
        overloads = [wire.content(v).decode() for _, _, v in wire.each(wire.read(reference), 3)]
        if not NOT_IN_KUBERNETES.isdisjoint(overloads):
            raise NotInKubernetesError(f"no such function: {overloads[0]}")
    state = _Rewriting(
        {
            wire.integer(wire.read(wire.content(e)), 1): _type_of(e)
            for _, _, e in wire.each(message, _TYPES)
        }
    )
    done: wire.Fields = [
        (number, form, _expr(wire.content(value), state) if number == _EXPR else value)
        for number, form, value in message
    ]
    kept = [
        (number, form, value)
        for number, form, value in done
        if number != _REFERENCES
        or wire.integer(wire.read(wire.content(value)), 1) not in state.references
    ]
    for id_, (name, overload) in state.references.items():
        reference = wire.write([(1, 2, name.encode())] if name else [(3, 2, overload.encode())])
        kept.append((_REFERENCES, 2, wire.write([(1, 0, id_), (2, 2, reference)])))
    data = wire.write([(1, 2, url), (2, 2, wire.write(kept))])
    return Rewritten(data, frozenset(state.texts), frozenset(state.checked))


def _expr(data: bytes, state: _Rewriting) -> bytes:
    fields = wire.read(data)
    for place, (number, form, value) in enumerate(fields):
        if number == _CONST:
            state.texts.update(
                wire.content(v).decode() for _, _, v in wire.each(wire.read(wire.content(value)), 6)
            )
        elif number == _SELECT:
            fields[place] = number, form, _select(wire.content(value), state)
        elif number == _CALL:
            return _call(fields, wire.content(value), state)
        elif number == _LIST:
            fields[place] = number, form, _list(wire.content(value), state)
        elif number == _STRUCT:
            fields[place] = number, form, _struct(wire.content(value), state)
        elif number == _COMPREHENSION:
            fields[place] = number, form, _within(wire.content(value), {2, 4, 5, 6, 7}, state)
    return wire.write(fields)


def _select(data: bytes, state: _Rewriting) -> bytes:
    fields = wire.read(data)
    state.texts.update(wire.content(value).decode() for _, _, value in wire.each(fields, 2))
    return wire.write(
        [(n, w, _operand(wire.content(v), state) if n == 1 else v) for n, w, v in fields]
    )


def _operand(data: bytes, state: _Rewriting) -> bytes:
    """What something is looked up in: one of the two maps gets its other name."""
    fields = wire.read(data)
    ident = next((wire.content(value) for _, _, value in wire.each(fields, _IDENT)), None)
    name = wire.first(wire.read(ident), 1).decode() if ident is not None else ""
    if name not in LOOKED_UP:
        return _expr(data, state)
    state.references[wire.integer(fields, _ID)] = LOOKED_UP[name], ""
    renamed = wire.write([(1, 2, LOOKED_UP[name].encode())])
    return wire.write([(n, w, renamed if n == _IDENT else v) for n, w, v in fields])


def _call(expr: wire.Fields, data: bytes, state: _Rewriting) -> bytes:
    fields = wire.read(data)
    function = wire.first(fields, 2).decode()
    originals = [wire.content(value) for _, _, value in wire.each(fields, 3)]
    if function in _CHECKED:
        state.checked.update((function, text) for one in originals if (text := _text(one)))
    if len(originals) == 1 and function in _LITERALS:
        literal = _literal(function, originals[0])
        if literal is not None:
            return wire.write(
                [(_ID, 0, wire.integer(expr, _ID)), (_CONST, 2, wire.write([(7, 2, literal)]))]
            )
    target = wire.first(fields, 1)
    state.mixed += function == _MIXED
    arguments = [
        (_operand if place == 0 and function in _LOOK_UPS else _expr)(argument, state)
        for place, argument in enumerate(originals)
    ]
    left = _expr(target, state) if target else b""
    state.mixed -= function == _MIXED
    if target and len(arguments) == 1:
        if function in _COMPARISONS:
            return state.call(*_COMPARISONS[function], left, arguments[0])
        if function == "compareTo":
            return _order(left, arguments[0], state)
    parts: wire.Fields = [(2, 2, function.encode()), *((3, 2, one) for one in arguments)]
    if target:
        parts.insert(0, (1, 2, left))
    done = wire.write([(n, w, wire.write(parts) if n == _CALL else v) for n, w, v in expr])
    match function:
        case "_==_":
            return _equal(done, originals, arguments, state)
        case "_!=_" if _is_sum(originals[1]):
            return state.call("_==_", "equals", *(_type_call(one, state) for one in arguments))
        case "@in":
            return _is_in(done, originals, arguments, state)
    return done


def _literal(function: str, argument: bytes) -> bytes | None:
    """The value of ``quantity("1Gi")``; None where it is no literal, or a wrong one."""
    text = _text(argument)
    if text is None:
        return None
    try:
        return _LITERALS[function](text)
    except ValueError:
        return None


def _text(expr: bytes) -> str | None:
    """The text that an expression is as a literal."""
    constant = wire.first(wire.read(expr), _CONST)
    return next((wire.content(v).decode() for _, _, v in wire.each(wire.read(constant), 6)), None)


def _order(left: bytes, right: bytes, state: _Rewriting) -> bytes:
    """``left < right ? -1 : left > right ? 1 : 0``."""
    above = state.call("_>_", "greater_bytes", left, right)
    below = state.call("_<_", "less_bytes", left, right)
    rest = state.call("_?_:_", "conditional", above, state.number(1), state.number(0))
    return state.call("_?_:_", "conditional", below, state.number(-1), rest)


def _equal(
    comparison: bytes, originals: list[bytes], arguments: list[bytes], state: _Rewriting
) -> bytes:
    """An error where the left side is of a type of Kubernetes' own and the right side is not.

    A sum of quantities on the right counts as another type (as ``*Quantity`` of Go is).
    """
    left, right = arguments
    kinds = [_type(original, state) for original in originals]
    own = [kind == _DYN or _number(kind) == _TYPE_ABSTRACT for kind in kinds]
    if _is_sum(originals[1]):
        return _fail(left, right, state)
    if not own[0] or _number(kinds[1]) in (_TYPE_NULL, _TYPE_ABSTRACT):
        return comparison
    wrong = _is_own(left, state)
    if own[1]:
        known = state.call("_||_", "logical_or", _is_own(right, state), _is_null(right, state))
        wrong = state.call("_&&_", "logical_and", wrong, state.call("!_", "logical_not", known))
    return state.call("_?_:_", "conditional", wrong, _fail(left, right, state), comparison)


def _is_in(
    search: bytes, originals: list[bytes], arguments: list[bytes], state: _Rewriting
) -> bytes:
    """What is looked for in an empty literal is not evaluated; else a version cannot be hashed."""
    literal = wire.first(wire.read(originals[1]), _LIST)
    elements = [wire.content(value) for _, _, value in wire.each(wire.read(literal), 1)]
    if not elements:
        is_literal = any(True for _ in wire.each(wire.read(originals[1]), _LIST))
        return state.boolean(value=False) if is_literal else search
    kinds = {_number(wire.first(wire.read(element), _CONST)) for element in elements}
    if _type(originals[0], state) != _DYN or not kinds <= _HASHED:
        return search
    left = arguments[0]
    wrong = _fail(left, state.number(0), state)
    return state.call("_?_:_", "conditional", _is_own(left, state), wrong, search)


def _is_sum(expr: bytes) -> bool:
    call = wire.read(wire.first(wire.read(expr), _CALL))
    return wire.first(call, 2).decode() in _SUMS and bool(wire.first(call, 1))


def _fail(left: bytes, right: bytes, state: _Rewriting) -> bytes:
    """An error: there is no such order."""
    wrong = state.call("type", "type", right)
    return state.call("_<_", "less_bytes", left, wrong)


def _is_own(value: bytes, state: _Rewriting) -> bytes:
    return state.call("_==_", "equals", _type_call(value, state), state.ident("bytes"))


def _is_null(value: bytes, state: _Rewriting) -> bytes:
    return state.call("_==_", "equals", _type_call(value, state), state.ident("null_type"))


def _type_call(value: bytes, state: _Rewriting) -> bytes:
    return state.call("type", "type", value)


def _list(data: bytes, state: _Rewriting) -> bytes:
    fields = wire.read(data)
    elements = [wire.content(value) for _, _, value in wire.each(fields, 1)]
    optional = wire.integers(fields, 2)
    _check_same(
        (_element_type(one, place in optional, state) for place, one in enumerate(elements)), state
    )
    return _within(data, {1}, state)


def _struct(data: bytes, state: _Rewriting) -> bytes:
    fields = wire.read(data)
    entries = [wire.read(wire.content(value)) for _, _, value in wire.each(fields, 2)]
    _check_same(
        (_type(wire.first(entry, 3), state) for entry in entries if wire.first(entry, 3)), state
    )
    _check_same(
        (
            _element_type(wire.first(entry, 4), bool(wire.integer(entry, 5)), state)
            for entry in entries
        ),
        state,
    )
    return wire.write(
        [(n, w, _within(wire.content(v), {3, 4}, state) if n == 2 else v) for n, w, v in fields]
    )


def _element_type(expr: bytes, optional: bool, state: _Rewriting) -> bytes:
    """The type of an element; of an optional one what it may hold."""
    kind = _type(expr, state)
    return (
        wire.first(wire.read(wire.first(wire.read(kind), _TYPE_ABSTRACT)), 2) if optional else kind
    )


def _within(data: bytes, parts: set[int], state: _Rewriting) -> bytes:
    return wire.write(
        [(n, w, _expr(wire.content(v), state) if n in parts else v) for n, w, v in wire.read(data)]
    )


def _check_same(types: Iterable[bytes], state: _Rewriting) -> None:
    if len(set(types)) > 1 and not state.mixed:
        raise NotInKubernetesError("a literal has elements of several types")


def _type(expr: bytes, state: _Rewriting) -> bytes:
    return state.types.get(wire.integer(wire.read(expr), _ID), _DYN)


def _type_of(entry: int | bytes) -> bytes:
    return wire.first(wire.read(wire.content(entry)), 2)


def _number(message: bytes) -> int:
    fields = wire.read(message)
    return fields[0][0] if fields else 0
