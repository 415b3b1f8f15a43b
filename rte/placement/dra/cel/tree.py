"""Checked CEL expressions as trees: what Kubernetes forbids on top, and where it looks differently.

The CEL library hands a checked expression out as bytes (``cel.expr.CheckedExpr`` of cel-spec, in
protobuf's wire format) and takes one in. In between two things are done to it here:

* Literals of lists and maps with elements of several types are found; Kubernetes refuses them.
* What Kubernetes does otherwise is said in the library's own terms. Looking up a domain of
  ``device.attributes`` or ``device.capacity`` is led to a map of its own, because there, and only
  there, a domain that does not exist is an empty map. Quantities and versions are compared as the
  bytes that they are, and their literals are made once. A version on the left side of a comparison
  with another type is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rte.placement.dra.cel import values, wire
from rte.placement.dra.cel.library import LOOKED_UP, NOT_IN_KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Iterator

# Field numbers of CheckedExpr and Expr.
_REFERENCES, _TYPES, _EXPR = 2, 3, 4
_ID, _CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = 2, 3, 4, 5, 6, 7, 8, 9
# Field numbers of Type that stand for what cannot be a version: none of its own, a list, a map.
_TYPE_LIST, _TYPE_MAP, _TYPE_ABSTRACT = 6, 7, 14
_DYN = b"\x0a\x00"
_LOOK_UPS = ("_[_]", "_[?_]", "_?._")
_EQUALITY = ("_==_", "_!=_")
#: Member functions of quantities and versions -> the comparison of bytes that they are.
_COMPARISONS = {
    "isGreaterThan": ("_>_", "greater_bytes"),
    "isLessThan": ("_<_", "less_bytes"),
}
_LITERALS = {"quantity": values.quantity_of, "semver": values.semver_of}
#: Ids of expressions that are added begin here; those of the library count from 1.
_FIRST_ID = 1_000_000


class NotInKubernetesError(Exception):
    """The expression compiles here, but not in Kubernetes."""


@dataclass
class _Rewriting:
    """What is known of an expression, and what has become of it.

    ``references`` are names (of variables) and overloads (of calls) that are new, by id.
    """

    types: dict[int, bytes]
    references: dict[int, tuple[str, str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
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

    def ident(self, name: str) -> bytes:
        """A new name."""
        id_ = next(self.ids)
        self.references[id_] = name, ""
        return wire.write([(_ID, 0, id_), (_IDENT, 2, wire.write([(1, 2, name.encode())]))])


def rewrite(checked: bytes) -> tuple[bytes, frozenset[str]]:
    """The expression for the evaluating environment, and all texts in it that may name a domain.

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
    return wire.write([(1, 2, url), (2, 2, wire.write(kept))]), frozenset(state.texts)


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
            fields[place] = number, form, _within(wire.content(value), {1}, state)
            _check_same(
                [element for _, _, element in wire.each(wire.read(wire.content(value)), 1)], state
            )
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
    if len(originals) == 1 and function in _LITERALS:
        literal = _literal(function, originals[0])
        if literal is not None:
            return wire.write(
                [(_ID, 0, wire.integer(expr, _ID)), (_CONST, 2, wire.write([(7, 2, literal)]))]
            )
    target = wire.first(fields, 1)
    arguments = [
        (_operand if place == 0 and function in _LOOK_UPS else _expr)(argument, state)
        for place, argument in enumerate(originals)
    ]
    if target and len(arguments) == 1:
        left = _expr(target, state)
        if function in _COMPARISONS:
            return state.call(*_COMPARISONS[function], left, arguments[0])
        if function == "compareTo":
            return _order(left, arguments[0], state)
    parts: wire.Fields = [(2, 2, function.encode()), *((3, 2, one) for one in arguments)]
    if target:
        parts.insert(0, (1, 2, _expr(target, state)))
    done = wire.write([(n, w, wire.write(parts) if n == _CALL else v) for n, w, v in expr])
    if function in _EQUALITY and _may_be_a_version_by_mistake(originals, state):
        return _guard(done, arguments, state)
    return done


def _literal(function: str, argument: bytes) -> bytes | None:
    """The value of ``quantity("1Gi")``; None where it is no literal, or a wrong one."""
    constant = wire.first(wire.read(argument), _CONST)
    text = next((wire.content(value) for _, _, value in wire.each(wire.read(constant), 6)), None)
    if text is None:
        return None
    try:
        return _LITERALS[function](text.decode())
    except ValueError:
        return None


def _order(left: bytes, right: bytes, state: _Rewriting) -> bytes:
    """``left < right ? -1 : left > right ? 1 : 0``."""
    above = state.call("_>_", "greater_bytes", left, right)
    below = state.call("_<_", "less_bytes", left, right)
    rest = state.call("_?_:_", "conditional", above, state.number(1), state.number(0))
    return state.call("_?_:_", "conditional", below, state.number(-1), rest)


def _may_be_a_version_by_mistake(arguments: list[bytes], state: _Rewriting) -> bool:
    left, right = (_type(argument, state) for argument in arguments)
    return (
        left == _DYN
        and right != _DYN
        and _number(right) not in (_TYPE_LIST, _TYPE_MAP, _TYPE_ABSTRACT)
    )


def _guard(comparison: bytes, arguments: list[bytes], state: _Rewriting) -> bytes:
    """``type(left) == bytes ? left < right : comparison``: the second has no overload."""
    left, right = arguments
    kind = state.call("type", "type", left)
    is_version = state.call("_==_", "equals", kind, state.ident("bytes"))
    wrong = state.call("_<_", "less_bytes", left, right)
    return state.call("_?_:_", "conditional", is_version, wrong, comparison)


def _struct(data: bytes, state: _Rewriting) -> bytes:
    fields = wire.read(data)
    keys: list[int | bytes] = []
    values: list[int | bytes] = []
    for place, (number, form, value) in enumerate(fields):
        if number == 2:
            entry = wire.read(wire.content(value))
            keys.extend(v for _, _, v in wire.each(entry, 3))
            values.extend(v for _, _, v in wire.each(entry, 4))
            fields[place] = number, form, _within(wire.content(value), {3, 4}, state)
    _check_same(keys, state)
    _check_same(values, state)
    return wire.write(fields)


def _within(data: bytes, parts: set[int], state: _Rewriting) -> bytes:
    return wire.write(
        [(n, w, _expr(wire.content(v), state) if n in parts else v) for n, w, v in wire.read(data)]
    )


def _check_same(elements: list[int | bytes], state: _Rewriting) -> None:
    found = {_type(wire.content(element), state) for element in elements} - {_DYN}
    if len(found) > 1:
        raise NotInKubernetesError("a literal has elements of several types")


def _type(expr: bytes, state: _Rewriting) -> bytes:
    return state.types.get(wire.integer(wire.read(expr), _ID), _DYN)


def _type_of(entry: int | bytes) -> bytes:
    return wire.first(wire.read(wire.content(entry)), 2)


def _number(message: bytes) -> int:
    fields = wire.read(message)
    return fields[0][0] if fields else 0
