"""Update and patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta, pods
from rte.sim.apiserver.schema import patch as patches
from rte.sim.apiserver.verbs import bodies, ownership
from rte.sim.apiserver.verbs.bodies import WriteOptions
from rte.sim.apiserver.verbs.creating import create, settle_namespace
from rte.sim.apiserver.verbs.deleting import is_finished

if TYPE_CHECKING:
    from rte.reader.json import JsonValue
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Key, Obj
    from rte.sim.apiserver.verbs.state import VerbState


JSON_PATCH = "application/json-patch+json"


MERGE_PATCH = "application/merge-patch+json"


STRATEGIC_PATCH = "application/strategic-merge-patch+json"


def update(
    state: VerbState,
    kind: ServedResource,
    obj: Obj,
    namespace: str = "",
    *,
    name: str = "",
    subresource: str = "",
    options: WriteOptions | None = None,
) -> Obj:
    """Replace an object, or its status.

    Raises:
        status.StatusError: 400, 404, 409 (stale version, other UID), 422.
    """
    options = options or WriteOptions()
    new = bodies.decode(state, kind, obj, options)
    metadata = new["metadata"]
    given = metadata.get("name", "")
    name = name or given
    if not given:
        raise status.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if given != name:
        raise status.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )
    settle_namespace(kind, new, namespace)
    key = (metadata.get("namespace", "") if kind.namespaced else "", name)
    old = state.store.get(kind.table, key)
    if old is None and kind.create_on_update and not subresource:
        body = {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}
        return create(state, kind, body, namespace, options)
    old = state.stored(kind, key)
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        raise bodies.uid_conflict(kind, key, uid, old["metadata"]["uid"])
    return replace_stored(state, kind, key, old, new, subresource, options)


def patch(
    state: VerbState,
    kind: ServedResource,
    name: str,
    body: JsonValue,
    namespace: str = "",
    *,
    content_type: str = MERGE_PATCH,
    subresource: str = "",
    options: WriteOptions | None = None,
) -> Obj:
    """Patch an object, or its status.

    Raises:
        status.StatusError: 400 (not a patch), 404, 409, 415 (format), 422 (does not apply).
    """
    options = options or WriteOptions()
    key = (namespace if kind.namespaced else "", name)
    old = state.stored(kind, key)
    before = orjson.loads(orjson.dumps(bodies.shown(kind, old)))
    after = patched(before, body, content_type, kind.struct)
    try:
        new = bodies.decode(state, kind, after, options, raw=True)
    except status.DecodeError as error:
        raise status.rejected("", "", [status.invalid("patch", "", str(error))]) from error
    given = new["metadata"].get("name", "")
    if given != name:
        raise status.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )
    settle_namespace(kind, new, namespace)
    return replace_stored(state, kind, key, old, new, subresource, options)


def patched(before: Obj, body: JsonValue, content_type: str, struct: str) -> JsonValue:
    """An object after a patch; ``struct`` is its type, "" for a custom resource.

    Raises:
        status.StatusError: 400 (not a patch), 415 (format), 422 (does not apply).
    """
    _check_patch(body, content_type)
    try:
        if content_type == JSON_PATCH:
            return patches.json_patch(before, body)
        if content_type == MERGE_PATCH:
            return patches.merge_patch(before, body)
        if content_type == STRATEGIC_PATCH and struct:
            return patches.strategic_merge(before, body, struct)
    except patches.PatchError as error:
        if content_type == STRATEGIC_PATCH:
            raise status.StatusError(500, str(error), reason="") from error
        raise status.StatusError(
            422, "the server rejected our request due to an error in our request", details={}
        ) from error
    raise status.StatusError(415, "415: Unsupported Media Type", details={})


def replace_stored(
    state: VerbState,
    kind: ServedResource,
    key: Key,
    old: Obj,
    new: Obj,
    subresource: str,
    options: WriteOptions,
    *,
    entries: list[Obj] | None = None,
) -> Obj:
    """Put a changed object in the place of the stored one, as far as its rules allow.

    ``entries``: who owns its fields, if that is settled.

    Raises:
        status.StatusError: 409, 422.
    """
    given = new["metadata"].pop("managedFields", None)
    _check_version(kind, old, new, subresource)
    before = old["metadata"]
    _keep(new["metadata"], before, "generation")
    if subresource == "status":
        kind.rules.status(new, old)
    elif subresource == "finalize":
        new["status"] = old["status"]
    else:
        if kind.table == "pods":
            pods.add_tolerations(new)
        kind.changed(new, old)
    metadata = new["metadata"]
    metadata.setdefault("uid", before["uid"])
    metadata["creationTimestamp"] = before["creationTimestamp"]
    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if "deletionGracePeriodSeconds" in before:
        metadata.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    _count_generation(kind, new, old, subresource)
    _validate_update(kind, new, old, subresource)
    metadata["resourceVersion"] = before["resourceVersion"]
    if entries is None:
        entries = (before.get("managedFields") or []) if given is None else given
        name = options.manager or (options.agent if entries else "")
        if name:
            writer = ownership.FieldOwner(name, "Update", "scale" if options.scale else subresource)
            entries = ownership.after_update(kind, entries, old, new, writer, state.now())
    metadata["managedFields"] = entries
    new["metadata"] = bodies.ordered(metadata)
    if new == old:
        return bodies.shown(kind, old)
    if options.dry_run:
        return bodies.shown(kind, new)
    if is_finished(kind, new):
        state.store.delete(kind.table, key)  # watchers see it as it was stored
        state.removed(kind, new)
        return bodies.shown(kind, new)
    stored = state.store.put(kind.table, key, new)
    state.wrote(kind, stored)
    return bodies.shown(kind, stored)


def _check_version(kind: ServedResource, old: Obj, new: Obj, subresource: str) -> None:
    """Optimistic concurrency: the version that the change is based on must be the present."""
    name = old["metadata"]["name"]
    version = new["metadata"].get("resourceVersion", "")
    if not version or version == "0":
        if not kind.unconditional and not subresource:
            given = 0 if kind.definition is None else "0x0"
            text = "must be specified for an update"
            cause = status.invalid("metadata.resourceVersion", given, text)
            raise status.rejected(kind.plural, name, [cause], kind.group)
    elif not version.isdigit():
        text = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise status.StatusError(500, text, reason="")
    elif version != old["metadata"]["resourceVersion"]:
        raise status.conflict(kind.plural, name, group=kind.group)


def _count_generation(kind: ServedResource, new: Obj, old: Obj, subresource: str) -> None:
    if subresource:
        return
    if kind.definition is not None:
        skip = {"metadata", "kind", "apiVersion"}
        if kind.definition.has_status:
            skip.add("status")
        changed = {k: v for k, v in new.items() if k not in skip} != {
            k: v for k, v in old.items() if k not in skip
        }
    else:
        changed = any(new.get(name) != old.get(name) for name in kind.rules.generation)
    if changed:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _validate_update(kind: ServedResource, new: Obj, old: Obj, subresource: str) -> None:
    causes = meta.validate(
        new["metadata"], namespaced=kind.namespaced, check_name=meta.path_segment
    )
    causes += meta.validate_update(new["metadata"], old["metadata"])
    if subresource == "status":
        causes += kind.rules.validate_status(new, old)
        if kind.definition is not None:
            causes += kind.rules.validate(new)
    elif kind.rules.validate_update is not None:
        causes += kind.rules.validate_update(new, old)
    else:
        causes += kind.rules.validate(new)
    if causes:
        raise bodies.rejected(kind, new["metadata"]["name"], causes)


def _check_patch(body: JsonValue, content_type: str) -> None:
    if content_type == JSON_PATCH:
        if not isinstance(body, list) or not all(isinstance(item, dict) for item in body):
            what = "object" if isinstance(body, dict) else "value"
            raise status.bad_request(
                f"error decoding patch: json: cannot unmarshal {what} into Go value of type "
                "[]handlers.jsonPatchOp"
            )
    elif not isinstance(body, dict):
        what = "array" if isinstance(body, list) else "value"
        raise status.bad_request(
            f"error decoding patch: json: cannot unmarshal {what} into Go value of type "
            "map[string]interface {}"
        )


def _keep(new: Obj, old: Obj, name: str) -> None:
    new.pop(name, None)
    if name in old:
        new[name] = old[name]
