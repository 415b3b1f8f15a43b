"""A versioned store with the guarantees of etcd behind the API server's watch cache.

One monotonic revision over all objects, a bounded history of changes (older ones are compacted),
consistent lists at any revision still in the history, and watches that replay from a revision.
Values handed out are shared: treat them as read-only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from rte.reader.json import JsonObject, JsonValue
from rte.sim.apiserver import status

if TYPE_CHECKING:
    from collections.abc import Iterable

Obj: TypeAlias = JsonObject
#: namespace ("" for cluster-scoped objects) and name
Key: TypeAlias = tuple[str, str]


class StoreChange(NamedTuple):
    """One committed write. ``kind`` is ADDED, MODIFIED or DELETED; a deleted object is the last one
    with the revision of its deletion.
    """

    revision: int
    kind: str
    resource: str
    key: Key
    object: Obj
    previous: Obj | None


class StoreSelection(Protocol):
    """What a list or watch selects."""

    def matches(self, key: Key, obj: Obj) -> bool:
        """Whether the object is selected."""

    @property
    def index(self) -> tuple[str, str] | None:
        """A (field, value) that every selected object has, if one of :data:`INDEXED` is pinned."""


#: Fields by which watches are looked up, so that a thousand kubelets cost one look each.
INDEXED = ("metadata.name", "spec.nodeName")


class Watch:
    """An asynchronous iterator of (type, object); ends when :meth:`stop` is called."""

    #: A watcher that lags so many changes behind is cut off, as the real server does.
    LIMIT = 20_000

    def __init__(self, store: Store, resource: str, selection: StoreSelection) -> None:
        self._store = store
        self.resource = resource
        self.selection = selection
        self.revision = store.revision
        self._events: deque[tuple[str, Obj]] = deque()
        self._most = self.LIMIT
        self._wake = asyncio.Event()
        self._stopped = False

    def offer(self, change: StoreChange) -> None:
        """Queue what a change means under this selection."""
        new = change.kind != "DELETED" and self.selection.matches(change.key, change.object)
        old = change.previous is not None and self.selection.matches(change.key, change.previous)
        self.revision = change.revision
        if new:
            self._push("MODIFIED" if old else "ADDED", change.object)
        elif old and change.kind == "DELETED":
            self._push("DELETED", change.object)
        elif old and change.previous is not None:
            self._push("DELETED", stamped(change.previous, change.revision))

    def begin_with(self, objects: Iterable[Obj]) -> None:
        """Queue what exists already; however much it is, the watcher does not lag for it."""
        self._events.extend(("ADDED", obj) for obj in objects)
        self._most += len(self._events)
        self._wake.set()

    def _push(self, kind: str, obj: Obj) -> None:
        if len(self._events) >= self._most:
            self.stop()
            return
        self._events.append((kind, obj))
        self._wake.set()

    def pending(self) -> list[tuple[str, Obj]]:
        """Take all queued events without waiting."""
        events = list(self._events)
        self._events.clear()
        return events

    async def batch(self, seconds: float | None = None) -> list[tuple[str, Obj]]:
        """Wait for an event, ``seconds`` at most, and take all; empty also after :meth:`stop`."""
        if not self._events and not self._stopped:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return []
        return self.pending()

    @property
    def stopped(self) -> bool:
        """True once no further event can come."""
        return self._stopped and not self._events

    def stop(self) -> None:
        """End the watch; what is queued can still be read."""
        self._stopped = True
        self._wake.set()
        self._store.forget(self)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> tuple[str, Obj]:
        while not self._events:
            if self._stopped:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._events.popleft()


def stamped(obj: Obj, revision: int) -> Obj:
    """A shallow copy of ``obj`` that carries ``revision``."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


class Store:
    """See the module. Not thread-safe: one event loop owns it.

    Args:
        history: how many changes can be replayed before a watch gets 410.
    """

    def __init__(self, history: int = 10_000) -> None:
        self.revision = 1
        self.compacted = 0
        self._history: deque[StoreChange] = deque()
        self._limit = history
        self._objects: dict[str, dict[Key, Obj]] = {}
        self._keys: dict[str, list[Key]] = {}
        self._watches: dict[str, dict[tuple[str, str] | None, dict[Watch, None]]] = {}

    def get(self, resource: str, key: Key) -> Obj | None:
        """The current object."""
        return self._objects.get(resource, {}).get(key)

    def count(self, resource: str) -> int:
        """How many objects of a resource there are."""
        return len(self._objects.get(resource, ()))

    def items(
        self, resource: str, revision: int | None = None, *, namespace: str = "", after: str = ""
    ) -> list[tuple[Key, Obj]]:
        """Objects in key order, now or as they were at ``revision``.

        Args:
            resource: whose objects.
            revision: None: now.
            namespace: of this one only; empty: of all.
            after: those behind this key (see :func:`text_key`) only.

        Raises:
            status.StatusError: 410, the revision has been compacted.
        """
        table = self._objects.get(resource, {})
        keys = self._keys.get(resource, [])
        past = {} if revision is None else self._past(resource, revision)
        if gone := past.keys() - table.keys():
            keys = sorted([*keys, *gone], key=text_key)
        begin = bisect_right(keys, after, key=text_key)
        end = len(keys)
        if namespace:
            # In a text "0" comes right behind "/".
            begin = max(begin, bisect_left(keys, f"{namespace}/", key=text_key))
            end = bisect_left(keys, f"{namespace}0", key=text_key)
        if not past:
            return [(key, table[key]) for key in keys[begin:end]]
        rows = ((key, past[key] if key in past else table[key]) for key in keys[begin:end])
        return [(key, obj) for key, obj in rows if obj is not None]

    def _past(self, resource: str, revision: int) -> dict[Key, Obj | None]:
        """What was other than now at ``revision``; None: it did not exist."""
        if revision < self.compacted:
            raise status.expired(
                f"The provided continue parameter is too old: {revision} ({self.compacted})"
            )
        out: dict[Key, Obj | None] = {}
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            if change.resource == resource:
                out[change.key] = change.previous
        return out

    def put(self, resource: str, key: Key, obj: Obj) -> Obj:
        """Create or replace; returns the object with its new resourceVersion."""
        previous = self.get(resource, key)
        self.revision += 1
        obj = stamped(obj, self.revision)
        self._objects.setdefault(resource, {})[key] = obj
        if previous is None:
            insort(self._keys.setdefault(resource, []), key, key=text_key)
        kind = "ADDED" if previous is None else "MODIFIED"
        self._commit(StoreChange(self.revision, kind, resource, key, obj, previous))
        return obj

    def delete(self, resource: str, key: Key, last: Obj | None = None) -> Obj:
        """Remove; returns the object as it was (or ``last``) with the revision of the deletion."""
        previous = self._objects[resource].pop(key)
        keys = self._keys[resource]
        del keys[bisect_left(keys, text_key(key), key=text_key)]
        self.revision += 1
        obj = stamped(last or previous, self.revision)
        self._commit(StoreChange(self.revision, "DELETED", resource, key, obj, previous))
        return obj

    def compact(self, revision: int | None = None) -> None:
        """Forget the history up to ``revision`` (all of it by default)."""
        self.compacted = self.revision if revision is None else revision
        while self._history and self._history[0].revision <= self.compacted:
            self._history.popleft()

    def watch(self, resource: str, selection: StoreSelection, revision: int | None) -> Watch:
        """Watch from just after ``revision`` (None: from now).

        Raises:
            status.StatusError: 410, the history no longer reaches back to ``revision``.
        """
        watch = Watch(self, resource, selection)
        if revision is not None and revision < self.revision:
            if revision < self.compacted:
                raise status.expired(f"too old resource version: {revision} ({self.compacted})")
            for change in self._since(revision):
                if change.resource == resource:
                    watch.offer(change)
        self._watches.setdefault(resource, {}).setdefault(selection.index, {})[watch] = None
        return watch

    def forget(self, watch: Watch) -> None:
        """Stop delivering to a watch."""
        self._watches.get(watch.resource, {}).get(watch.selection.index, {}).pop(watch, None)

    def watches(self, resource: str | None = None) -> list[Watch]:
        """All open watches (of one resource)."""
        tables = self._watches.values() if resource is None else [self._watches.get(resource, {})]
        return [watch for table in tables for bucket in table.values() for watch in bucket]

    def _since(self, revision: int) -> Iterable[StoreChange]:
        recent: list[StoreChange] = []
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            recent.append(change)
        return reversed(recent)

    def _commit(self, change: StoreChange) -> None:
        self._history.append(change)
        while len(self._history) > self._limit:
            self.compacted = self._history.popleft().revision
        table = self._watches.get(change.resource)
        if not table:
            return
        buckets: dict[tuple[str, str] | None, None] = {None: None}
        for obj in (change.object, change.previous):
            if obj is not None:
                for path in INDEXED:
                    buckets[path, field_text(obj, path)] = None
        for bucket in buckets:
            for watch in list(table.get(bucket, ())):
                watch.offer(change)


def text_key(key: Key) -> str:
    """A key as text, by which the objects of a list are ordered."""
    return f"{key[0]}/{key[1]}" if key[0] else key[1]


def field_text(obj: Obj, path: str) -> str:
    """The value of a dotted path as selectors see it; "" where there is none."""
    value: JsonValue = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
