"""Delete, at once or after a time of grace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.verbs import bodies, reading
from rte.sim.apiserver.verbs.state import rfc3339

if TYPE_CHECKING:
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.query import Query, StoredPage
    from rte.sim.apiserver.storage.store import Key, Obj
    from rte.sim.apiserver.verbs.state import VerbState


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a delete; see the API's type of the same name."""

    grace: int | None = None
    uid: str | None = None
    version: str | None = None
    propagation: str | None = None
    dry_run: bool = False


def delete(
    state: VerbState,
    kind: ServedResource,
    name: str,
    namespace: str = "",
    options: DeleteOptions | None = None,
) -> tuple[Obj, bool]:
    """Delete; returns the object and whether it is gone (else it only began to terminate).

    Raises:
        status.StatusError: 404, 409 (precondition).
    """
    options = options or DeleteOptions()
    key = (namespace if kind.namespaced else "", name)
    old = state.stored(kind, key)
    check_preconditions(kind, key, old, options)
    metadata = dict(old["metadata"])
    new = {**old, "metadata": metadata}
    pending, period = _begin_grace(state, kind, new, options)
    if pending:
        return bodies.shown(kind, old), False
    finalizers = _deletion_finalizers(metadata, options)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if kind.table == "namespaces" and old["spec"].get("finalizers"):
        new["status"] = {**old["status"], "phase": "Terminating"}
        metadata.setdefault("deletionTimestamp", state.now())
        return _commit_delete(state, kind, key, old, new, options)
    if finalizers and not period:
        first = not old["metadata"].get("deletionTimestamp")
        if first and kind.table != "pods" and metadata.get("generation"):
            metadata["generation"] += 1
        if metadata.get("deletionTimestamp", "9") > state.now():
            metadata["deletionTimestamp"] = state.now()
        metadata["deletionGracePeriodSeconds"] = 0
    if finalizers or period:
        return _commit_delete(state, kind, key, old, new, options)
    if metadata != old["metadata"]:  # a pod's end is seen twice: terminating, then gone
        new, _ = _commit_delete(state, kind, key, old, new, options)
    if not options.dry_run:
        new = state.store.delete(kind.table, key, new)
        state.removed(kind, new)
    return bodies.shown(kind, new), True


def _commit_delete(
    state: VerbState, kind: ServedResource, key: Key, old: Obj, new: Obj, options: DeleteOptions
) -> tuple[Obj, bool]:
    new["metadata"] = bodies.ordered(new["metadata"])
    if new != old and not options.dry_run:
        new = state.store.put(kind.table, key, new)
    return bodies.shown(kind, new), False


def _begin_grace(
    state: VerbState, kind: ServedResource, new: Obj, options: DeleteOptions
) -> tuple[bool, int]:
    """Graceful deletion, which only pods have: (nothing to do but wait, seconds of grace).

    Source: apiserver ``pkg/registry/rest/delete.go`` BeforeDelete.
    """
    metadata = new["metadata"]
    if kind.table != "pods":
        return False, 0
    period = options.grace
    if period is not None and period < 0:
        period = 1
    if metadata.get("deletionTimestamp"):
        left = metadata.get("deletionGracePeriodSeconds") or 0
        if left == 0:
            return False, 0
        if period is None or period >= left:
            return True, left
        shorter = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(
            seconds=left - period
        )
        now = state.clock()
        if shorter < now:
            shorter, period = now, 1 if period else 0
        metadata["deletionTimestamp"] = rfc3339(shorter)
        metadata["deletionGracePeriodSeconds"] = period
        return False, period
    if period is None:
        period = max(new["spec"].get("terminationGracePeriodSeconds") or 0, 0)
    if not new["spec"].get("nodeName") or new["status"].get("phase") in ("Failed", "Succeeded"):
        period = 0
    metadata["deletionTimestamp"] = rfc3339(state.clock() + timedelta(seconds=period))
    metadata["deletionGracePeriodSeconds"] = period
    metadata["generation"] = metadata.get("generation", 0) + 1
    return False, period


def _deletion_finalizers(metadata: Obj, options: DeleteOptions) -> list[str]:
    """Finalizers for the garbage collector, as the propagation policy asks."""
    finalizers = list(metadata.get("finalizers") or ())
    if options.propagation is None:
        return finalizers
    kept = [name for name in finalizers if name not in ("orphan", "foregroundDeletion")]
    extra = {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}
    return kept + extra.get(options.propagation, [])


def check_preconditions(kind: ServedResource, key: Key, old: Obj, options: DeleteOptions) -> None:
    """What a caller says of the object that it means to delete must be true.

    Raises:
        status.StatusError: 409.
    """
    uid, version = old["metadata"]["uid"], old["metadata"]["resourceVersion"]
    if options.uid is not None and options.uid != uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({uid}). The object might have been deleted and then recreated"
        )
        raise status.conflict(kind.kind, key[1], why, kind.group)
    if options.version is not None and options.version != version:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the "
            f"ResourceVersion in record ({version}). The object might have been modified"
        )
        raise status.conflict(kind.kind, key[1], why, kind.group)


def delete_collection(
    state: VerbState,
    kind: ServedResource,
    query: Query | None = None,
    options: DeleteOptions | None = None,
) -> StoredPage:
    """Delete all that the query selects; returns what was selected."""
    page = reading.list_page(state, kind, query)
    for obj in page.items:
        metadata = obj["metadata"]
        delete(state, kind, metadata["name"], metadata.get("namespace", ""), options)
    return page


def is_finished(kind: ServedResource, obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.table == "namespaces" and obj["spec"].get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
