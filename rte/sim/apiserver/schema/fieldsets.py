"""Sets of fields, and objects merged field by field, as server-side apply needs them.

A path is a tuple of elements in the notation of ``FieldsV1``: ``f:NAME`` a field or key of a map,
``k:{...}`` the item of a list with these keys, ``v:VALUE`` a member of a list that is a set. What
a schema calls atomic, and every scalar, is a leaf.

Source: sigs.k8s.io/structured-merge-diff ``typed`` and ``fieldpath``. Schemas are those that the
API publishes (:mod:`rte.sim.apiserver.schema.openapi`), or a custom resource's own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import orjson

from rte.reader.json import Json, JsonObject, JsonValue
from rte.sim.apiserver.schema.openapi import resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Path = tuple[str, ...]
Paths = frozenset[Path]
Schema: TypeAlias = Json


class Difference(NamedTuple):
    """What changed from one object to another."""

    changed: Paths
    removed: Paths


def from_fields(tree: Json, path: Path = ()) -> Iterator[Path]:
    """The paths of a ``FieldsV1`` object."""
    for name, inner in tree.items():
        if name == ".":
            yield path
        elif inner:
            yield from from_fields(inner, (*path, name))
        else:
            yield (*path, name)


def to_fields(paths: Iterable[Path]) -> JsonObject:
    """Paths as a ``FieldsV1`` object."""
    out: JsonObject = {}
    for path in sorted(paths):
        at = out
        for name in path:
            at = at.setdefault(name, {})
    for path in paths:
        at = out
        for name in path:
            at = at[name]
        if at:
            at["."] = {}
    return out


def text(path: Path) -> str:
    """A path as messages have it: ``.spec.containers[name="main"].image``."""
    out = ""
    for name in path:
        kind, _, rest = name.partition(":")
        if kind == "f":
            out += f".{rest}"
        elif kind == "k":
            keys = orjson.loads(rest)
            out += "[" + ",".join(f"{k}={orjson.dumps(v).decode()}" for k, v in keys.items()) + "]"
        else:
            out += f"[={rest}]"
    return out


def fields_of(value: JsonValue, schema: Schema, path: Path = ()) -> Iterator[Path]:
    """The fields that an applied object sets."""
    parts = _parts(value, schema)
    if parts is None:
        yield path
        return
    declared = _properties(schema)
    for name, (item, inner) in parts.items():
        below = (*path, name)
        yield from fields_of(item, inner, below)
        if item is None or item == {} or name[0] != "f" or name[2:] not in declared:
            yield below


def compare(old: JsonValue, new: JsonValue, schema: Schema) -> Difference:
    """Fields that differ; ``None`` counts as present, as a struct's zero value does."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare(old, new, schema, (), changed, removed)
    return Difference(frozenset(changed), frozenset(removed))


_ABSENT = object()


def _compare(
    old: JsonValue,
    new: JsonValue,
    schema: Schema,
    path: Path,
    changed: set[Path],
    removed: set[Path],
) -> None:
    before, after = _parts(old, schema), _parts(new, schema)
    if (before is None and after is None) or not (before or after):
        if old is _ABSENT or (new is not _ABSENT and old != new):
            changed.add(path)
        elif new is _ABSENT:
            removed.add(path)
        return
    if old is _ABSENT:
        changed.add(path)
    if new is _ABSENT:
        removed.add(path)
    before, after = before or {}, after or {}
    for name in {**before, **after}:
        left, inner = before.get(name, (_ABSENT, None))
        right, known = after.get(name, (_ABSENT, inner))
        _compare(left, right, known or {}, (*path, name), changed, removed)


def merge(old: JsonValue, new: JsonValue, schema: Schema) -> JsonValue:
    """An object with what is applied: maps and keyed lists item by item, all else as a whole."""
    before, after = _parts(old, schema), _parts(new, schema)
    if before is None or after is None or old is None or new is None:
        return copy.deepcopy(new)
    if isinstance(new, list):
        items = {name: item for name, (item, _) in before.items()}
        for name, (item, inner) in after.items():
            items[name] = merge(items[name], item, inner) if name in items else copy.deepcopy(item)
        return [items[name] for name in _interleaved(list(before), list(after))]
    out = dict(old)
    for name, (item, inner) in after.items():
        key = name[2:]
        out[key] = merge(out[key], item, inner) if key in out else copy.deepcopy(item)
    return out


def _interleaved(before: list[str], after: list[str]) -> list[str]:
    """In the order of ``after``; what is only before keeps its place ahead of what followed it."""
    out: list[str] = []
    rest = list(before)
    for name in after:
        while rest and rest[0] not in after:
            out.append(rest.pop(0))
        out.append(name)
        if name in rest:
            rest.remove(name)
    return [*out, *rest]


def without(value: JsonValue, schema: Schema, paths: Paths, path: Path = ()) -> JsonValue:
    """An object less the fields at some paths."""
    parts = _parts(value, schema)
    if parts is None or value is None:
        return value
    kept = {
        name: without(item, inner, paths, (*path, name))
        for name, (item, inner) in parts.items()
        if (*path, name) not in paths
    }
    if isinstance(value, list):
        return list(kept.values())
    return {name[2:]: item for name, item in kept.items()}


def _properties(schema: Schema) -> Json:
    found: Json = resolved(schema).get("properties") or {}
    return found


def _parts(value: JsonValue, schema: Schema) -> dict[str, tuple[JsonValue, Schema]] | None:
    """The items of a map or list that is merged by item, with their schemas; None: a leaf."""
    schema = resolved(schema)
    if isinstance(value, dict):
        extra = schema.get("additionalProperties")
        properties = schema.get("properties")
        if schema.get("x-kubernetes-map-type") == "atomic" or not (properties or extra):
            return None
        inner = extra if isinstance(extra, dict) else {}
        return {
            f"f:{key}": (item, (properties or {}).get(key, inner)) for key, item in value.items()
        }
    if not isinstance(value, list):
        return None
    inner, kind = schema.get("items") or {}, schema.get("x-kubernetes-list-type")
    if kind == "set":
        return {f"v:{orjson.dumps(item).decode()}": (item, {}) for item in value}
    if kind != "map":
        return None
    keys = sorted(schema["x-kubernetes-list-map-keys"])
    known = resolved(inner).get("properties") or {}
    out: dict[str, tuple[JsonValue, Schema]] = {}
    for item in value:
        told = {key: item.get(key, known.get(key, {}).get("default")) for key in keys}
        name = {key: part for key, part in told.items() if part is not None}
        out[f"k:{orjson.dumps(name).decode()}"] = (item, inner)
    return out
