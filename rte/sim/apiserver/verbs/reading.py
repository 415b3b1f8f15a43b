"""Get, list, watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.storage import query as queries
from rte.sim.apiserver.storage.query import Query, StoredPage
from rte.sim.apiserver.storage.store import text_key
from rte.sim.apiserver.verbs import bodies

if TYPE_CHECKING:
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Key, Obj, Watch
    from rte.sim.apiserver.verbs.state import VerbState


def get(state: VerbState, kind: ServedResource, name: str, namespace: str = "") -> Obj:
    """Read one object.

    Raises:
        status.StatusError: 404.
    """
    return bodies.shown(kind, state.stored(kind, (namespace, name)))


def list_page(state: VerbState, kind: ServedResource, query: Query | None = None) -> StoredPage:
    """List; consistent also across pages.

    Raises:
        status.StatusError: 400, 410 (version compacted), 504 (version in the future).
    """
    query = query or Query()
    revision, start = _list_position(state, query)
    found: list[Obj] = []
    last: Key = ("", "")
    remaining: int | None = None
    token = ""
    limit = max(0, query.limit)
    rows = state.store.items(kind.table, revision, namespace=query.namespace, after=start)
    shown = state.store.revision if revision is None else revision
    for index, (key, obj) in enumerate(rows):
        if not query.matches(key, obj):
            continue
        if limit and len(found) == limit:
            token = queries.make_token(shown, text_key(last))
            if not query.labels and not query.fields:
                remaining = len(rows) - index
            break
        found.append(bodies.shown(kind, obj))
        last = key
    return StoredPage(found, str(shown), token, remaining)


def _list_position(state: VerbState, query: Query) -> tuple[int | None, str]:
    if query.token:
        return queries.read_token(query.token)
    if query.version in ("", "0"):
        return None, ""
    revision = queries.parse_version(query.version)
    if revision > state.store.revision:
        raise queries.too_large(revision, state.store.revision)
    if query.match == "Exact" or (query.limit > 0 and query.match == ""):
        if revision < state.store.compacted:
            raise status.expired("The resourceVersion for the provided list is too old.")
        return revision, ""
    return None, ""


def watch(
    state: VerbState, kind: ServedResource, query: Query | None = None, *, initial: bool = False
) -> Watch:
    """Watch from ``query.version``: "" and "0" (or ``initial``) begin with all that exists.

    Raises:
        status.StatusError: 410, the version has been compacted.
    """
    query = query or Query()
    if initial or query.version in ("", "0"):
        watch = state.store.watch(kind.table, query, None)
        rows = state.store.items(kind.table, namespace=query.namespace)
        watch.begin_with(obj for key, obj in rows if query.matches(key, obj))
        return watch
    return state.store.watch(kind.table, query, queries.parse_version(query.version))
