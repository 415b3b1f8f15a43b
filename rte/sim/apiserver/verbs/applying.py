"""Server-side apply."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from rte.sim.apiserver import status
from rte.sim.apiserver.schema import typed
from rte.sim.apiserver.verbs import bodies, changing, creating, ownership
from rte.sim.apiserver.verbs.ownership import FieldOwner

if TYPE_CHECKING:
    from rte.reader.json import JsonValue
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Obj
    from rte.sim.apiserver.verbs.bodies import WriteOptions
    from rte.sim.apiserver.verbs.state import VerbState

APPLY = "application/apply-patch+yaml"


def apply(
    state: VerbState,
    kind: ServedResource,
    name: str,
    body: JsonValue,
    namespace: str,
    *,
    options: WriteOptions,
    force: bool = False,
    subresource: str = "",
) -> Obj:
    """Bring an object to what its appliers say, or create it.

    Raises:
        status.StatusError: 400, 404 (sub-resource), 409 (others own a field), 422, 500 (fields
            that the schema does not declare).
    """
    if not options.manager:
        cause = status.required("fieldManager", "is required for apply patch")
        raise status.rejected("PatchOptions", "", [cause], "meta.k8s.io")
    config = _checked(kind, name, namespace, body)
    writer = FieldOwner(options.manager, "Apply", subresource)
    lenient = replace(options, validation="Ignore")
    key = (namespace if kind.namespaced else "", name)
    old = state.store.get(kind.table, key)
    if old is None:
        if subresource:
            raise status.not_found(kind.plural, name, kind.group)
        fields = ownership.applied_fields(kind, config, writer)
        entries = ownership.with_entry(kind, fields, writer, state.now())
        return creating.create(state, kind, config, namespace, lenient, entries=entries)
    live = orjson.loads(orjson.dumps(bodies.shown(kind, old)))
    merged, entries = ownership.apply(kind, live, config, writer, state.now(), force=force)
    merged["metadata"].pop("managedFields", None)
    if not config["metadata"].get("resourceVersion"):
        merged["metadata"].pop("resourceVersion", None)
        merged["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    new = bodies.decode(state, kind, merged, lenient)
    creating.settle_namespace(kind, new, namespace)
    return changing.replace_stored(
        state, kind, key, old, new, subresource, lenient, entries=entries
    )


def _checked(kind: ServedResource, name: str, namespace: str, body: JsonValue) -> Obj:
    """The applied object.

    Raises:
        status.StatusError: 400, 500.
    """
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise status.bad_request("error decoding YAML: the body is no object")
    config: Obj = orjson.loads(orjson.dumps(body))
    bodies.check_type(kind, config)
    metadata = config.setdefault("metadata", {})
    given = metadata.get("name") or name
    if given != name:
        raise status.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )
    metadata["name"] = name
    if metadata.get("managedFields"):
        raise status.bad_request("metadata.managedFields must be nil")
    try:
        if kind.definition is not None:
            _, unknown = kind.definition.decode(orjson.loads(orjson.dumps(config)))
        else:
            _, unknown = typed.decode(kind.struct, config)
    except status.DecodeError as error:
        raise status.bad_request(str(error)) from error
    if unknown:
        lines = [f".{path}: field not declared in schema" for path in sorted(unknown)]
        why = lines[0] if len(lines) == 1 else "errors:\n" + "\n".join(f"  {x}" for x in lines)
        who = f"{namespace}/{name}" if namespace else f"/{name}"
        raise status.StatusError(
            500,
            f"failed to create typed patch object ({who}; {kind.group}/{kind.version}, "
            f"Kind={kind.kind}): {why}",
            reason="",
        )
    return config
