"""A body as it is stored, and a stored object as it is shown."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import events
from rte.sim.apiserver.schema import defaults, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import JsonValue
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Key, Obj
    from rte.sim.apiserver.verbs.state import VerbState


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write. ``warnings`` receives texts for the Warning header. ``manager`` is who is
    to own the fields that change, ``agent`` who does if the request names no manager and the
    object's fields have owners; ``scale``: it is written through that sub-resource.
    """

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = ""
    agent: str = ""
    scale: bool = False
    warnings: list[str] = field(default_factory=list)


def decode(
    state: VerbState,
    kind: ServedResource,
    body: JsonValue,
    options: WriteOptions,
    *,
    raw: bool = False,
) -> Obj:
    """Type, prune and default a body. ``raw`` lets decoding errors through as they are."""
    if not isinstance(body, dict):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind})"
        )
    body = check_type(kind, body)
    prefix = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    try:
        if kind.definition is not None:
            new, unknown = kind.definition.decode(orjson.loads(orjson.dumps(body)))
        else:
            new, unknown = typed.decode(kind.struct, body)
    except status.DecodeError as error:
        if raw:
            raise
        raise status.bad_request(prefix + str(error)) from error
    if unknown:
        texts = [f'unknown field "{path}"' for path in unknown]
        if options.validation == "Strict":
            raise status.bad_request(f"{prefix}strict decoding error: {', '.join(texts)}")
        if options.validation == "Warn":
            options.warnings.extend(texts)
    new.pop("kind", None)
    new.pop("apiVersion", None)
    if kind.struct == "events/v1.Event":
        new = events.core_event(new)
    if kind.struct == "core/v1.Secret" and new.get("stringData"):
        plain = new.pop("stringData")
        encoded = {k: base64.b64encode(v.encode()).decode() for k, v in plain.items()}
        new["data"] = {**new.get("data", {}), **encoded}
    if kind.struct:
        defaults.fill("core/v1.Event" if kind.table == "events" else kind.struct, new)
    kind.rules.default(new)
    return {"kind": kind.kind, "apiVersion": state.storage_version(kind), **new}


def shown(kind: ServedResource, obj: Obj) -> Obj:
    """A stored object in the version asked for."""
    if obj["apiVersion"] == kind.group_version:
        return obj
    if kind.struct == "events/v1.Event":
        return events.new_event(obj)
    if kind.definition is not None:
        obj = kind.definition.prune(obj)
    return {**obj, "apiVersion": kind.group_version}


def rejected(kind: ServedResource, name: str, causes: Sequence[status.Cause]) -> status.StatusError:
    """422 for what the rules of a kind found."""
    group = "" if kind.table == "events" else kind.group  # both versions are checked as core's
    return status.rejected(kind.kind, name, list(dict.fromkeys(causes)), group)


def uid_conflict(kind: ServedResource, key: Key, wanted: str, found: str) -> status.StatusError:
    """409: the object has another UID than the one asked for."""
    path = "/".join(part for part in (_registry(kind), *key) if part)
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in "
        f"object meta: {found}"
    )
    return status.conflict(kind.plural, key[1], why, kind.group)


def _registry(kind: ServedResource) -> str:
    if kind.table == "nodes":
        return "minions"
    return f"{kind.group}/{kind.plural}" if kind.definition else kind.plural


_META_ORDER = {item.name: i for i, item in enumerate(typed.structs()["meta/v1.ObjectMeta"])}


def ordered(metadata: Obj) -> Obj:
    """Metadata in the order of the real server's answers, empty parts left out."""
    kept = {k: v for k, v in metadata.items() if v not in ("", None, [], {})}
    return dict(sorted(kept.items(), key=lambda item: _META_ORDER[item[0]]))


def check_type(kind: ServedResource, body: Obj) -> Obj:
    """The body, if it is of the resource's type.

    Raises:
        status.StatusError: 400.
    """
    given, version = body.get("kind") or kind.kind, body.get("apiVersion") or kind.group_version
    if kind.definition is not None and ("kind" not in body or "apiVersion" not in body):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            "Object 'Kind' is missing"
        )
    if version != kind.group_version or given != kind.kind:
        short = str(version).rpartition("/")[2]
        why = (
            f"converting ({short}.{given}) to (core.{kind.kind}): unknown conversion"
            if version == kind.group_version
            else f'no kind "{given}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
        raise status.bad_request(
            f'{given} in version "{short}" cannot be handled as a {kind.kind}: {why}'
        )
    return body
