"""Evaluates CEL expressions over devices (``k8s.io/dynamic-resource-allocation/cel``).

The one place that knows the CEL library. An expression is compiled once; its answer for a device is
kept with the device.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from rte.placement.dra.cel import library, tree, values
from rte.placement.dra.cel.rewriting import NotInKubernetesError
from rte.placement.dra.objects import Attribute
from rte.placement.dra.verdict import ClaimRefusal, Reason

if TYPE_CHECKING:
    from rte.placement.dra.objects import Device, DeviceCapacity
    from rte.placement.dra.structured.pools import PoolDevice
    from rte.reader.json import Json, JsonObject

#: ``CELSelectorExpressionMaxLength``.
_MAX_LENGTH = 10 * 1024
#: Longer ones are kept apart, and few of them: a program takes some 140 times its text.
_LONG = 512
#: Answers that are kept with a device; most clusters have fewer different selectors.
_MAX_KEPT = 32
#: ``has(device.driver)``, which is true, and before it comments and literals of text, where it is
#: none; each is passed once, complete or not (cel-spec, "Syntax"). The library knows the fields of
#: ``device`` as variables, of which nothing can be asked.
_FIELD_TEST = re.compile(
    r"""(//[^\n]*+"""
    r"""|"{3}(?:\\[\s\S]|"{1,2}(?!")|[^"\\])*+(?:"{3})?"""
    r"""|'{3}(?:\\[\s\S]|'{1,2}(?!')|[^'\\])*+(?:'{3})?"""
    r"""|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?)"""
    r"""|\bhas\s*\(\s*device\s*\.\s*(?:driver|allowMultipleAllocations|attributes|capacity)\s*\)"""
)
#: What an attribute may be, by the check of a derived attribute.
_DERIVED = ("bool", "int", "string", "dyn", "kubernetes.semver", "list")


class CEL:
    """The :class:`~rte.placement.dra.structured.requests.Expressions` of allocation."""

    def matches(self, expression: str, device: PoolDevice) -> bool:
        """The truth of a selector for a device.

        Raises:
            Refusal: it does not compile, fails for the device, or yields something else.
        """
        found = device.evaluated.get(expression)
        if found is None:
            try:
                found = evaluate(expression, device.id.driver, device.device)
            except ClaimRefusal as refusal:
                # Not the exception itself: it would keep the frames that it has passed.
                found = (refusal.reason, str(refusal))
            if len(device.evaluated) >= _MAX_KEPT:
                device.evaluated.clear()
            device.evaluated[expression] = found
        if isinstance(found, tuple):
            raise ClaimRefusal(*found)
        return found

    def derive(self, expression: str, device: PoolDevice) -> Attribute:
        """The value of a derived attribute for a device.

        Raises:
            Refusal: it does not compile, fails for the device, or yields something else.
        """
        return derive(expression, device.id.driver, device.device)


def evaluate(expression: str, driver: str, device: Device) -> bool:
    """The truth of a selector for a device of a driver.

    Raises:
        Refusal: it does not compile, fails for the device, or yields something else.
    """
    program = _compile(expression, derived=False)
    found = program.run(driver, device)
    if not isinstance(found, bool):
        raise ClaimRefusal(
            Reason.CEL_RUNTIME, f"{_shown(expression)} yields {type(found).__name__}"
        )
    return found


def derive(expression: str, driver: str, device: Device) -> Attribute:
    """The value of a derived attribute for a device of a driver.

    Raises:
        Refusal: it does not compile, fails for the device, or yields something else.
    """
    found = _compile(expression, derived=True).run(driver, device)
    if isinstance(found, list):
        kinds = {_kind(one) for one in found} or {"string"}
        if len(kinds) == 1 and (kind := kinds.pop()):
            many = tuple(values.semver_text(v) if kind == "version" else v for v in found)
            return msgspec.convert({f"{kind}s": many}, Attribute)
    elif kind := _kind(found):
        one = values.semver_text(found) if kind == "version" else found
        return msgspec.convert({kind: one}, Attribute)
    raise ClaimRefusal(Reason.CEL_RUNTIME, f"{_shown(expression)} yields what no attribute can be")


def _kind(value: object) -> str:
    if values.is_kind("Semver", value):
        return "version"
    return {bool: "bool", int: "int", str: "string"}.get(type(value), "")


class _Program:
    """A compiled expression and the texts in it that may name a domain."""

    def __init__(self, expression: str, program: Any, texts: frozenset[str]) -> None:
        self._expression = expression
        self._program = program
        self._texts = texts

    def run(self, driver: str, device: Device) -> Any:
        attributes = _by_domain(driver, device.attributes, _value)
        capacity = _by_domain(driver, device.capacity, _amount)
        domains: dict[str, JsonObject] = {text: {} for text in (*self._texts, driver)}
        data = {
            "device.driver": driver,
            "device.allowMultipleAllocations": bool(device.allow_multiple_allocations),
            "device.attributes": attributes,
            "device.capacity": capacity,
            library.LOOKED_UP["device.attributes"]: domains | attributes,
            library.LOOKED_UP["device.capacity"]: domains | capacity,
        }
        try:
            result = self._program.eval(data=data)
        except RuntimeError as error:  # out of the library's budget of iterations
            raise ClaimRefusal(
                Reason.CEL_RUNTIME, f"{_shown(self._expression)}: {_first_line(error)}"
            ) from error
        if result.type().name() == "ERROR":
            text = _first_line(result.value())
            raise ClaimRefusal(Reason.CEL_RUNTIME, f"{_shown(self._expression)}: {text}")
        return result.plain_value()


def _compiled(expression: str) -> tuple[str, _Program] | str:
    return (_kept_long if len(expression) > _LONG else _kept_short)(expression)


def _compiled_anew(expression: str) -> tuple[str, _Program] | str:
    """The type that the expression yields and its program, or why it does not compile."""
    if len(expression.encode()) > _MAX_LENGTH:
        return f"longer than {_MAX_LENGTH} bytes"
    check, run = library.environments()
    try:
        checked = check.compile(_FIELD_TEST.sub(lambda found: found[1] or "true", expression))
        rewritten = tree.rewrite(checked.serialize())
        program = run.deserialize(rewritten.data)
    except (RuntimeError, NotInKubernetesError) as error:
        return _first_line(error)
    for function, text in rewritten.checked:
        if not library.understands(function, text):
            return f"invalid {function} argument {_shown(text)}"
    return str(checked.return_type()), _Program(expression, program, rewritten.texts)


_kept_short = lru_cache(maxsize=512)(_compiled_anew)
_kept_long = lru_cache(maxsize=32)(_compiled_anew)


def _compile(expression: str, *, derived: bool) -> _Program:
    found = _compiled(expression)
    if isinstance(found, str):
        text = f"cannot place: rte cannot compile {_shown(expression)}: {found}"
        raise ClaimRefusal(Reason.CEL_COMPILE, text)
    kind, program = found
    allowed = kind.lower().startswith(_DERIVED) if derived else kind.lower() in ("bool", "dyn")
    if not allowed:
        raise ClaimRefusal(Reason.CEL_COMPILE, f"cannot place: {_shown(expression)} yields {kind}")
    return program


def _by_domain(driver: str, named: Json, read: Any) -> dict[str, JsonObject]:
    """Domain -> name -> value; what has no domain is the driver's."""
    found: dict[str, JsonObject] = {}
    for name, value in named.items():
        domain, slash, bare = name.partition("/")
        if not slash:
            domain, bare = driver, name
        found.setdefault(domain, {})[bare] = read(value)
    return found


def _value(attribute: Attribute) -> Any:
    """An attribute as the CEL library sees it (``getAttributeValue``)."""
    if attribute.integers is not None:
        return list(attribute.integers)
    if attribute.booleans is not None:
        return list(attribute.booleans)
    if attribute.strings is not None:
        return list(attribute.strings)
    try:
        if attribute.versions is not None:
            return [values.semver_of(version) for version in attribute.versions]
        if attribute.version is not None:
            return values.semver_of(attribute.version)
    except ValueError as error:
        raise ClaimRefusal(Reason.CEL_RUNTIME, f"parse semantic version: {error}") from error
    for one in (attribute.integer, attribute.boolean, attribute.string):
        if one is not None:
            return one
    raise ClaimRefusal(Reason.CEL_RUNTIME, "unsupported attribute value")


def _amount(capacity: DeviceCapacity) -> Any:
    return values.of_nano(capacity.value)


def _first_line(message: object) -> str:
    return str(message).partition("\n")[0]


def _shown(expression: str) -> str:
    return repr(expression if len(expression) <= 80 else expression[:77] + "...")
