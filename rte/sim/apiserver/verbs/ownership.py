"""Who set which field (``metadata.managedFields``), and server-side apply.

A writer owns fields if it names itself (``fieldManager``), as ``kubectl`` does. One that does not
is known by the first word of its user agent, but only where fields have owners already: objects
that programs alone write are not tracked, whereas the real server tracks all.

Source: apimachinery ``pkg/util/managedfields``, structured-merge-diff ``merge``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from rte import errors
from rte.reader import jsontext
from rte.sim.apiserver import status
from rte.sim.apiserver.schema import fieldsets, openapi, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import Json
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.schema.fieldsets import Path, Paths
    from rte.sim.apiserver.storage.store import Obj

_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SERVERS = ("apiVersion", "kind", "metadata")
#: Of metadata, what the server decides or what names the object.
_IDENTITY = (
    "name", "generateName", "namespace", "creationTimestamp", "selfLink", "uid", "generation",
    "managedFields", "resourceVersion",
)  # fmt: skip
_UNOWNED = frozenset(
    [(), *((f"f:{name}",) for name in _SERVERS), *(("f:metadata", f"f:{n}") for n in _IDENTITY)]
)


class FieldOwner(NamedTuple):
    """Who writes: a name, ``Update`` or ``Apply``, and the sub-resource written."""

    name: str
    operation: str = "Update"
    subresource: str = ""


def schema_of(kind: ServedResource) -> Json:
    """The schema by which objects of a resource merge."""
    if kind.definition is None:
        return openapi.components()[openapi.component(kind.struct)]
    meta = {"$ref": openapi.PREFIX + openapi.component("meta/v1.ObjectMeta")}
    properties = kind.definition.schema.get("properties") or {}
    return {**kind.definition.schema, "properties": {**properties, "metadata": meta}}


def after_update(
    kind: ServedResource,
    entries: Sequence[Obj],
    old: Obj | None,
    new: Obj,
    writer: FieldOwner,
    now: str,
) -> list[Obj]:
    """Entries after a create (``old`` None), update or patch: who changes a field owns it."""
    zero: Obj = typed.decode(kind.struct, {})[0] if kind.struct else {}
    before = old or {**zero, "kind": new["kind"], "apiVersion": new["apiVersion"], "metadata": {}}
    difference = fieldsets.compare(before, new, schema_of(kind))
    changed = _within(difference.changed - _UNOWNED, kind, writer)
    removed = difference.removed
    out = _taken(entries, changed | removed, writer)
    mine = (_owned(entries, writer) - removed) | changed
    return _with(out, entries, writer, kind, mine, now)


def apply(
    kind: ServedResource, live: Obj, config: Obj, writer: FieldOwner, now: str, *, force: bool
) -> tuple[Obj, list[Obj]]:
    """A live object with what is applied, and the entries then.

    Raises:
        status.StatusError: 409, others own fields that it would change.
    """
    schema = schema_of(kind)
    entries = live["metadata"].get("managedFields") or []
    mine = applied_fields(kind, config, writer)
    merged = fieldsets.merge(live, config, schema)
    others = frozenset(
        path for one in entries if not _is(one, writer) for path in _fields(one)
    )  # fmt: skip
    gone = _owned(entries, writer) - mine - others
    gone = frozenset(path for path in gone if not _holds_any(path, others | mine))
    merged = fieldsets.without(merged, schema, gone)
    difference = fieldsets.compare(live, merged, schema)
    if not force:
        own = _last_applied(kind, live) if writer.name == _KUBECTL else frozenset()
        _refuse_conflicts(entries, difference.changed - own, writer)
    out = _taken(entries, difference.changed, writer)
    notes = merged["metadata"].get("annotations") or {}
    if writer.name == _KUBECTL and not writer.subresource and _LAST_APPLIED in notes:
        notes[_LAST_APPLIED] = _as_applied(config)
    return merged, _with(out, entries, writer, kind, mine, now)


def _as_applied(config: Obj) -> str:
    """What ``kubectl apply`` from its own side would note of an applied object: it may go on there
    (apimachinery ``managedfields/internal/lastappliedupdater.go``).
    """
    metadata = {**config["metadata"]}
    if _LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {**metadata["annotations"]}
        del metadata["annotations"][_LAST_APPLIED]
    told = {**config, "metadata": metadata}
    return orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode() + "\n"


def _last_applied(kind: ServedResource, live: Obj) -> Paths:
    """Fields that ``kubectl apply`` has set from its own side and that are as it set them: to take
    them over is no conflict (apimachinery ``managedfields/internal/lastappliedmanager.go``).
    """
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    try:
        config = jsontext.load(text, _LAST_APPLIED) if text else None
    except errors.MalformedError:
        config = None
    if not isinstance(config, dict):
        return frozenset()
    schema = schema_of(kind)
    difference = fieldsets.compare(config, live, schema)
    return frozenset(fieldsets.fields_of(config, schema)) - difference.changed - difference.removed


def applied_fields(kind: ServedResource, config: Obj, writer: FieldOwner) -> Paths:
    """The fields that an applied object sets."""
    found = frozenset(fieldsets.fields_of(config, schema_of(kind)))
    return _within(found - _UNOWNED, kind, writer)


def with_entry(kind: ServedResource, fields: Paths, writer: FieldOwner, now: str) -> list[Obj]:
    """The entries of an object that one writer has made."""
    return _with([], [], writer, kind, fields, now)


def _within(paths: Paths, kind: ServedResource, writer: FieldOwner) -> Paths:
    """A write of the status owns nothing else, any other write nothing of the status."""
    if not kind.has_status:
        return paths
    of_status = writer.subresource == "status"
    return frozenset(
        path
        for path in paths
        if (path[0] == "f:status") == of_status or (of_status and path[0] == "f:metadata")
    )


def _holds_any(path: Path, others: Paths) -> bool:
    return any(other[: len(path)] == path for other in others)


def _is(entry: Obj, writer: FieldOwner) -> bool:
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == writer


def _fields(entry: Obj) -> Paths:
    return frozenset(fieldsets.from_fields(entry.get("fieldsV1") or {}))


def _owned(entries: Sequence[Obj], writer: FieldOwner) -> Paths:
    return next((_fields(one) for one in entries if _is(one, writer)), frozenset())


def _taken(entries: Sequence[Obj], paths: Paths, writer: FieldOwner) -> list[Obj]:
    """Entries of the others without fields that somebody else has set."""
    out = []
    for one in entries:
        if _is(one, writer):
            continue
        fields = _fields(one)
        left = fields - paths
        if left == fields:
            out.append(one)
        elif left:
            out.append({**one, "fieldsV1": fieldsets.to_fields(left)})
    return out


def _with(
    others: Sequence[Obj],
    entries: Sequence[Obj],
    writer: FieldOwner,
    kind: ServedResource,
    fields: Paths,
    now: str,
) -> list[Obj]:
    """The others and the writer's own entry, which keeps its time while it stays the same."""
    if not fields:
        return list(others)
    mine = {
        "manager": writer.name,
        "operation": writer.operation,
        "apiVersion": kind.group_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fieldsets.to_fields(fields),
        **({"subresource": writer.subresource} if writer.subresource else {}),
    }
    for one in entries:
        if _is(one, writer) and {**one, "time": ""} == {**mine, "time": ""}:
            mine = one
    out = [*others, mine]
    return sorted(out, key=lambda one: (one["operation"], one.get("time") or "", one["manager"]))


def _refuse_conflicts(entries: Sequence[Obj], changed: Paths, writer: FieldOwner) -> None:
    found: dict[str, list[Path]] = {}
    for one in entries:
        paths = [] if _is(one, writer) else sorted(_fields(one) & changed)
        if paths:
            found.setdefault(_described(one), []).extend(paths)
    if not found:
        return
    count = sum(map(len, found.values()))
    words = [
        word
        for name in sorted(found)
        for word in (f"conflicts with {name}:", *(f"- {fieldsets.text(p)}" for p in found[name]))
    ]
    text = f"{count} conflicts: " + "\n".join(words)
    if count == 1:
        (name, (path,)) = next(iter(found.items()))
        text = f"1 conflict: conflict with {name}: {fieldsets.text(path)}"
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {name}",
            "field": fieldsets.text(path),
        }
        for name, paths in found.items()
        for path in paths
    ]
    raise status.StatusError(409, f"Apply failed with {text}", details={"causes": causes})


def _described(entry: Obj) -> str:
    out = f'"{entry["manager"]}"'
    if entry.get("subresource"):
        out += f' with subresource "{entry["subresource"]}"'
    return f"{out} using {entry['apiVersion']}" if entry["operation"] == "Update" else out
