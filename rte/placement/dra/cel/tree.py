"""Checked CEL expressions as trees: what Kubernetes forbids on top, and where it looks differently.

The CEL library hands a checked expression out as bytes (``cel.expr.CheckedExpr`` of cel-spec, in
protobuf's wire format) and takes one in. In between two things are done to it here:

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

from rte.placement.dra.cel import comparisons, values, wire
from rte.placement.dra.cel.functions import BETWEEN
from rte.placement.dra.cel.library import LOOKED_UP, NOT_IN_KUBERNETES
from rte.placement.dra.cel.rewriting import (
    CALL,
    COMPREHENSION,
    CONST,
    ID,
    IDENT,
    LIST,
    SELECT,
    STRUCT,
    TYPE_ABSTRACT,
    NotInKubernetesError,
    Rewriting,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# Field numbers of CheckedExpr.
_REFERENCES, _TYPES, _EXPR = 2, 3, 4
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
    ((_, _, url), (_, _, body)) = wire.read(checked)
    message = wire.read(wire.content(body))
    growing = 0
    for _, _, entry in wire.each(message, _REFERENCES):
        reference = wire.first(wire.read(wire.content(entry)), 2)
        overloads = [wire.content(v).decode() for _, _, v in wire.each(wire.read(reference), 3)]
        if not NOT_IN_KUBERNETES.isdisjoint(overloads):
            raise NotInKubernetesError(f"no such function: {overloads[0]}")
        growing += not _GROWING.isdisjoint(overloads)
    if growing > _MAX_GROWING:
        raise NotInKubernetesError(f"more than {_MAX_GROWING} lists or texts are put together")
    state = Rewriting(
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


def _expr(data: bytes, state: Rewriting) -> bytes:
    fields = wire.read(data)
    for place, (number, form, value) in enumerate(fields):
        if number == CONST:
            state.texts.update(
                wire.content(v).decode() for _, _, v in wire.each(wire.read(wire.content(value)), 6)
            )
        elif number == SELECT:
            fields[place] = number, form, _select(wire.content(value), state)
        elif number == CALL:
            return _call(fields, wire.content(value), state)
        elif number == LIST:
            fields[place] = number, form, _list(wire.content(value), state)
        elif number == STRUCT:
            fields[place] = number, form, _struct(wire.content(value), state)
        elif number == COMPREHENSION:
            state.loops += 1
            fields[place] = number, form, _within(wire.content(value), {2, 4, 5, 6, 7}, state)
            state.loops -= 1
    return wire.write(fields)


def _select(data: bytes, state: Rewriting) -> bytes:
    fields = wire.read(data)
    state.texts.update(wire.content(value).decode() for _, _, value in wire.each(fields, 2))
    return wire.write(
        [(n, w, _operand(wire.content(v), state) if n == 1 else v) for n, w, v in fields]
    )


def _operand(data: bytes, state: Rewriting) -> bytes:
    """What something is looked up in: one of the two maps gets its other name."""
    fields = wire.read(data)
    ident = next((wire.content(value) for _, _, value in wire.each(fields, IDENT)), None)
    name = wire.first(wire.read(ident), 1).decode() if ident is not None else ""
    if name not in LOOKED_UP:
        return _expr(data, state)
    state.references[wire.integer(fields, ID)] = LOOKED_UP[name], ""
    renamed = wire.write([(1, 2, LOOKED_UP[name].encode())])
    return wire.write([(n, w, renamed if n == IDENT else v) for n, w, v in fields])


def _call(expr: wire.Fields, data: bytes, state: Rewriting) -> bytes:
    fields = wire.read(data)
    function = wire.first(fields, 2).decode()
    originals = [wire.content(value) for _, _, value in wire.each(fields, 3)]
    if function in _CHECKED:
        state.checked.update((function, text) for one in originals if (text := _text(one)))
    if function == "matches":
        _count_pattern(_text(originals[-1]), state)
    if len(originals) == 1 and function in _LITERALS:
        literal = _literal(function, originals[0])
        if literal is not None:
            return wire.write(
                [(ID, 0, wire.integer(expr, ID)), (CONST, 2, wire.write([(7, 2, literal)]))]
            )
    target = wire.first(fields, 1)
    state.mixed += function == _MIXED
    arguments = [
        (_operand if place == 0 and function in _LOOK_UPS else _expr)(argument, state)
        for place, argument in enumerate(originals)
    ]
    left = _expr(target, state) if target else b""
    state.mixed -= function == _MIXED
    if target and len(arguments) == 1 and function in comparisons.MEMBERS:
        kinds = {state.type_of(target), state.type_of(originals[0])}
        return comparisons.member(function, kinds, left, arguments[0], state)
    if function == "substring" and len(arguments) == 2:
        function = BETWEEN
        state.references[wire.integer(expr, ID)] = "", BETWEEN
    parts: wire.Fields = [(2, 2, function.encode()), *((3, 2, one) for one in arguments)]
    if target:
        parts.insert(0, (1, 2, left))
    done = wire.write([(n, w, wire.write(parts) if n == CALL else v) for n, w, v in expr])
    match function:
        case "_==_":
            return comparisons.equal(done, originals, arguments, state)
        case "_!=_":
            return comparisons.not_equal(done, originals, arguments, state)
        case "@in":
            return comparisons.is_in(done, originals, arguments, state)
    return done


def _count_pattern(text: str | None, state: Rewriting) -> None:
    if text is None:
        raise NotInKubernetesError("a regular expression that is not written out")
    times = prod(max(1, *(int(each or 0) for each in found)) for found in _TIMES.findall(text))
    state.patterns += (len(text) + 1) * min(times, _MAX_TIMES) * _ROUNDS**state.loops
    if state.patterns > _MAX_PATTERNS:
        raise NotInKubernetesError("regular expressions that take too long")


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
    constant = wire.first(wire.read(expr), CONST)
    return next((wire.content(v).decode() for _, _, v in wire.each(wire.read(constant), 6)), None)


def _list(data: bytes, state: Rewriting) -> bytes:
    fields = wire.read(data)
    elements = [wire.content(value) for _, _, value in wire.each(fields, 1)]
    optional = wire.integers(fields, 2)
    _check_same(
        (_element_type(one, place in optional, state) for place, one in enumerate(elements)), state
    )
    return _within(data, {1}, state)


def _struct(data: bytes, state: Rewriting) -> bytes:
    fields = wire.read(data)
    entries = [wire.read(wire.content(value)) for _, _, value in wire.each(fields, 2)]
    _check_same(
        (state.type_of(wire.first(entry, 3)) for entry in entries if wire.first(entry, 3)), state
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


def _element_type(expr: bytes, optional: bool, state: Rewriting) -> bytes:
    """The type of an element; of an optional one what it may hold."""
    kind = state.type_of(expr)
    return (
        wire.first(wire.read(wire.first(wire.read(kind), TYPE_ABSTRACT)), 2) if optional else kind
    )


def _within(data: bytes, parts: set[int], state: Rewriting) -> bytes:
    return wire.write(
        [(n, w, _expr(wire.content(v), state) if n in parts else v) for n, w, v in wire.read(data)]
    )


def _check_same(types: Iterable[bytes], state: Rewriting) -> None:
    if len(set(types)) > 1 and not state.mixed:
        raise NotInKubernetesError("a literal has elements of several types")


def _type_of(entry: int | bytes) -> bytes:
    return wire.first(wire.read(wire.content(entry)), 2)
