"""Structural schemas of custom resources: pruning, defaults, validation.

Covered of OpenAPI v3: type, properties, additionalProperties, items, required, nullable, enum,
pattern, minimum/maximum, min/max lengths and counts, default, x-kubernetes-int-or-string,
x-kubernetes-preserve-unknown-fields. Not covered: CEL rules, list-map keys, combinators.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.schema import typed

if TYPE_CHECKING:
    from rte.reader.json import Json, JsonValue
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_BASE = frozenset(("apiVersion", "kind", "metadata"))


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One served version of a CRD."""

    schema: Json
    columns: tuple[Json, ...]
    has_status: bool

    def decode(self, body: Obj) -> tuple[Obj, list[str]]:
        """Prune unknown fields and apply defaults; returns also the pruned paths.

        Raises:
            status.DecodeError: metadata is not ObjectMeta.
        """
        metadata, unknown = typed.decode("meta/v1.ObjectMeta", body.get("metadata"))
        unknown = [f"metadata.{path}" for path in unknown]
        rest = {key: value for key, value in body.items() if key not in _BASE}
        pruned = _prune(rest, self.schema, "", unknown)
        _default(pruned, self.schema)
        return {"metadata": metadata, **pruned}, unknown

    def prune(self, obj: Obj) -> Obj:
        """An object of another version, as this one shows it."""
        rest = {key: value for key, value in obj.items() if key not in _BASE}
        kept = {key: value for key, value in obj.items() if key in _BASE}
        return {**kept, **_prune(rest, self.schema, "", [])}

    def validate(self, obj: Obj) -> list[Cause]:
        """Complaints of the schema."""
        body = {key: value for key, value in obj.items() if key not in _BASE}
        out: list[Cause] = []
        _validate(body, self.schema, "", out)
        return [cause for cause in out if cause.field not in _BASE]


def _prune(value: JsonValue, schema: Json, path: str, unknown: list[str]) -> JsonValue:
    if isinstance(value, dict):
        if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
            return value
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        out: Obj = {}
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if key in properties:
                out[key] = _prune(item, properties[key], where, unknown)
            elif isinstance(extra, dict):
                out[key] = _prune(item, extra, where, unknown)
            elif extra or schema.get("x-kubernetes-preserve-unknown-fields"):
                out[key] = item
            else:
                unknown.append(where)
        return out
    if isinstance(value, list):
        inner = schema.get("items") or {}
        return [_prune(item, inner, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    return value


def _default(value: JsonValue, schema: Json) -> None:
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if value.get(key) is None and key in value and not inner.get("nullable"):
                del value[key]
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                _default(value[key], inner)
    elif isinstance(value, list):
        for item in value:
            _default(item, schema.get("items") or {})


def _validate(value: JsonValue, schema: Json, path: str, out: list[Cause]) -> None:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            _mistyped(value, path, "integer,string", out)
            if schema.get("anyOf"):
                text = f'"{path}" must validate at least one schema (anyOf)'
                out.append(status.invalid("<nil>", "", text))
        else:
            _validate_scalar(value, schema, path, out)
        return
    wanted = schema.get("type")
    if wanted and not _is(value, wanted):
        _mistyped(value, path, wanted, out)
        return
    if isinstance(value, dict):
        _validate_object(value, schema, path, out)
    elif isinstance(value, list):
        low, high = schema.get("minItems"), schema.get("maxItems")
        if low is not None and len(value) < low:
            text = f"{path} in body should have at least {low} items"
            out.append(status.invalid(path, len(value), text))
        if high is not None and len(value) > high:
            text = f"{path} in body should have at most {high} items"
            out.append(status.invalid(path, len(value), text))
        for index, item in enumerate(value):
            _validate(item, schema.get("items") or {}, f"{path}[{index}]", out)
    else:
        _validate_scalar(value, schema, path, out)


def _validate_object(value: Obj, schema: Json, path: str, out: list[Cause]) -> None:
    out += [
        status.required(f"{path}.{name}" if path else name)
        for name in schema.get("required") or ()
        if name not in value and (path or name not in _BASE)
    ]
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if key in properties:
            _validate(item, properties[key], where, out)
        elif isinstance(extra, dict):
            _validate(item, extra, where, out)


def _is(value: JsonValue, wanted: str) -> bool:
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _mistyped(value: JsonValue, path: str, wanted: str, out: list[Cause]) -> None:
    found = next(
        (
            name
            for name, kinds in _TYPES.items()
            if isinstance(value, kinds) and isinstance(value, bool) == (name == "boolean")
        ),
        "null",
    )
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    out.append(status.Cause(path, "TypeInvalid", text))


def _validate_scalar(value: JsonValue, schema: Json, path: str, out: list[Cause]) -> None:
    enum = schema.get("enum")
    if enum is not None and value not in enum:
        out.append(status.unsupported(path, value, [str(item) for item in enum]))
    pattern = schema.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        out.append(status.invalid(path, value, f"{path} in body should match '{pattern}'"))
    if isinstance(value, str):
        size: float = len(value)
        low, high = schema.get("minLength"), schema.get("maxLength")
    else:
        size, low, high = value, schema.get("minimum"), schema.get("maximum")
    if low is not None and size < low:
        out.append(status.invalid(path, value, f"{path} in body should be at least {low}"))
    if high is not None and size > high:
        out.append(status.invalid(path, value, f"{path} in body should be at most {high}"))
