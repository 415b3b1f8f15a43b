"""The three patch formats: JSON Patch (RFC 6902), merge patch (RFC 7386), strategic merge patch.

The strategic rules are those of apimachinery ``pkg/util/strategicpatch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver.schema import typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import Json, JsonObject, JsonValue


class PatchError(Exception):
    """The patch does not apply to the object."""


def json_patch(document: JsonValue, operations: Sequence[Json]) -> JsonValue:
    """Apply RFC 6902 operations in place; returns the new document.

    Raises:
        PatchError: a path is missing, a test fails, or an operation is unknown.
    """
    for operation in operations:
        document = _json_operation(document, operation)
    return document


def _json_operation(document: JsonValue, operation: Json) -> JsonValue:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    match name:
        case "add":
            return _put(document, path, operation.get("value"), insert=True)
        case "replace":
            _look(document, path)
            return _put(document, path, operation.get("value"), insert=False)
        case "remove":
            return _remove(document, path)
        case "test":
            wanted = operation.get("value")
            try:
                found = _look(document, path)
            except PatchError:
                if wanted is None:
                    return document
                raise
            if not _same(found, wanted):
                raise PatchError(f"testing value {operation.get('path')} failed")
            return document
        case "copy":
            value = _look(document, _pointer(operation.get("from")))
            return _put(document, path, value, insert=True)
        case "move":
            source = _pointer(operation.get("from"))
            value = _look(document, source)
            return _put(_remove(document, source), path, value, insert=True)
        case _:
            raise PatchError(f"unexpected kind: {name}")


def _same(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


def _pointer(text: object) -> list[str]:
    if text == "":
        return []
    if not isinstance(text, str) or not text.startswith("/"):
        raise PatchError(f"bad path {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _look(document: JsonValue, path: Sequence[str]) -> JsonValue:
    for part in path:
        if isinstance(document, dict):
            if part not in document:
                raise PatchError(f"missing key {part}")
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        else:
            raise PatchError(f"nothing below {part}")
    return document


def _index(part: str, last: int) -> int:
    digits = part.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise PatchError(f"bad index {part}")
    index = int(part)
    if index < 0:
        index += last + 1
    if not 0 <= index <= last:
        raise PatchError(f"index {part} out of range")
    return index


def _put(document: JsonValue, path: Sequence[str], value: JsonValue, *, insert: bool) -> JsonValue:
    if not path:
        return value
    parent, last = _look(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        if not insert:
            parent[_index(last, len(parent) - 1)] = value
        elif last == "-":
            parent.append(value)
        else:
            parent.insert(_index(last, len(parent)), value)
    else:
        raise PatchError(f"nothing below {last}")
    return document


def _remove(document: JsonValue, path: Sequence[str]) -> JsonValue:
    if not path:
        raise PatchError("the whole document cannot be removed")
    _look(document, path)
    parent = _look(document, path[:-1])
    if isinstance(parent, dict):
        del parent[path[-1]]
    else:
        del parent[_index(path[-1], len(parent) - 1)]
    return document


def merge_patch(document: JsonValue, patch: JsonValue) -> JsonValue:
    """Apply RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


_ORDER, _DELETE, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def strategic_merge(document: JsonObject, patch: JsonObject, struct: str) -> JsonObject:
    """Apply a strategic merge patch to an object of type ``struct``.

    Raises:
        PatchError: a directive or a list element has the wrong shape.
    """
    return _merge_struct(document, patch, struct)


def _merge_struct(document: JsonObject, patch: JsonObject, struct: str | None) -> JsonObject:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown patch directive {directive}")
    fields = typed.struct_fields(struct) if struct in typed.structs() else {}
    out = dict(document)
    if _RETAIN in patch:
        keep = set(patch[_RETAIN])
        out = {key: value for key, value in out.items() if key in keep}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            name = key.removeprefix(_DELETE)
            if name in out:
                out[name] = [item for item in out[name] if item not in value]
        elif not key.startswith("$"):
            _merge_field(out, key, value, fields.get(key), patch.get(_ORDER + key))
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and isinstance(out.get(name), list):
            out[name] = _reorder(out[name], order, document.get(name) or [], fields.get(name))
    return out


def _merge_field(
    out: JsonObject,
    key: str,
    value: JsonValue,
    field: typed.SchemaField | None,
    order: list[JsonValue] | None,
) -> None:
    if value is None:
        out.pop(key, None)
        return
    kind = field.kind.removeprefix("*") if field else ""
    old = out.get(key)
    if isinstance(value, dict):
        base = old if isinstance(old, dict) else {}
        if field and "r" in field.flags:
            out[key] = value
        elif value.get("$patch") == "delete":
            out.pop(key, None)
        else:
            out[key] = _merge_struct(base, value, kind if kind in typed.structs() else None)
    elif isinstance(value, list) and field and "m" in field.flags:
        before = old if isinstance(old, list) else []
        if field.merge_key:
            merged, mentioned = _merge_keyed(before, value, field)
        else:
            merged = [*before, *(item for item in value if item not in before)]
            mentioned = value
        out[key] = _reorder(merged, order or mentioned, before, field)
    else:
        out[key] = value


def _merge_keyed(
    old: list[JsonValue], patch: list[JsonValue], field: typed.SchemaField
) -> tuple[list[JsonValue], list[JsonValue]]:
    key, struct = field.merge_key, field.kind.removeprefix("[]")
    if not all(isinstance(item, dict) for item in patch):
        raise PatchError(f"elements of {field.name} must be objects")
    plain = [item for item in patch if "$patch" not in item]
    if any(item.get("$patch") == "replace" for item in patch):
        return plain, plain
    dropped = [item.get(key) for item in patch if item.get("$patch") == "delete"]
    merged = [item for item in old if item.get(key) not in dropped]
    for item in plain:
        if key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, have in enumerate(merged) if have.get(key) == item[key]), None)
        if at is None:
            merged.append(_merge_struct({}, item, struct))
        else:
            merged[at] = _merge_struct(merged[at], item, struct)
    return merged, plain


def _reorder(
    items: list[JsonValue],
    order: list[JsonValue],
    server: list[JsonValue],
    field: typed.SchemaField | None,
) -> list[JsonValue]:
    """The real server's order: patch items in patch order, others woven in by live order."""
    key = field.merge_key if field else ""

    def identity(item: JsonValue) -> JsonValue:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    live = [identity(item) for item in server]
    named = [item for item in items if identity(item) in wanted]
    named.sort(key=lambda item: wanted.index(identity(item)))
    rest = [item for item in items if identity(item) not in wanted]
    rest.sort(key=lambda item: live.index(identity(item)) if identity(item) in live else len(live))
    out: list[JsonValue] = []
    while rest and named:
        left, right = identity(rest[0]), identity(named[0])
        first = left in live and right in live and live.index(left) < live.index(right)
        out.append((rest if first else named).pop(0))
    return [*out, *named, *rest]
