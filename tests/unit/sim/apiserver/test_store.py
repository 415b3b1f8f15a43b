"""The store: one revision for all, bounded history, watches that miss nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.sim.apiserver import Query
from rte.sim.apiserver.status import StatusError
from rte.sim.apiserver.storage.store import Obj, Store, Watch, text_key

_WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "del"])), max_size=30)


def obj(name: str, **spec: str) -> Obj:
    return {"metadata": {"name": name}, "spec": spec}


def play(store: Store, writes: list[tuple[str, str]]) -> list[dict[str, Obj]]:
    """Carry writes out; the table after each revision."""
    tables = [{}]
    for name, what in writes:
        key = ("", name)
        if what == "put":
            store.put("things", key, obj(name, n=str(len(tables))))
        elif store.get("things", key) is not None:
            store.delete("things", key)
        else:
            continue
        tables.append({k[1]: o for k, o in store.items("things")})
    return tables


@given(_WRITES)
def test_a_list_at_an_old_revision_shows_what_was_there(writes: list[tuple[str, str]]) -> None:
    store = Store()
    first = store.revision
    tables = play(store, writes)
    for offset, table in enumerate(tables):
        assert {k[1]: o for k, o in store.items("things", first + offset)} == table


_KEYS = st.tuples(st.sampled_from(["", "a", "a-b", "b"]), st.sampled_from(["a", "b-", "b.c"]))


@given(st.lists(_KEYS, max_size=30), st.integers(0, 30), st.sampled_from(["", "a", "b"]), _KEYS)
def test_a_part_of_a_list_is_the_whole_cut(
    writes: list[tuple[str, str]], back: int, namespace: str, after: tuple[str, str]
) -> None:
    store = Store()
    for key in writes:
        if store.get("things", key) is None:
            store.put("things", key, obj(key[1]))
        else:
            store.delete("things", key)
    revision = max(1, store.revision - back)
    whole = store.items("things", revision)
    assert [text_key(key) for key, _ in whole] == sorted(text_key(key) for key, _ in whole)
    start = text_key(after)
    assert store.items("things", revision, namespace=namespace, after=start) == [
        (key, one)
        for key, one in whole
        if text_key(key) > start and (not namespace or key[0] == namespace)
    ]


@given(_WRITES, st.integers(0, 30))
def test_a_watch_from_any_revision_leads_to_the_present(
    writes: list[tuple[str, str]], start: int
) -> None:
    store = Store()
    first = store.revision
    tables = play(store, writes)
    start = min(start, len(tables) - 1)
    table = dict(tables[start])
    for kind, changed in store.watch("things", Query(), first + start).pending():
        name = changed["metadata"]["name"]
        assert (kind == "ADDED") == (name not in table)
        if kind == "DELETED":
            del table[name]
        else:
            table[name] = changed
    assert table == tables[-1]


async def test_a_selection_turns_changes_into_additions_and_deletions() -> None:
    store = Store()
    from rte.sim.apiserver.storage.selectors import FieldRequirement

    on_n1 = Query(fields=(FieldRequirement("spec.nodeName", equal=True, value="n1"),))
    watch = store.watch("pods", on_n1, None)
    store.put("pods", ("", "a"), obj("a"))
    store.put("pods", ("", "a"), obj("a", nodeName="n1"))
    store.put("pods", ("", "b"), obj("b", nodeName="n2"))
    store.put("pods", ("", "a"), obj("a", nodeName="n2"))
    assert [kind for kind, _ in watch.pending()] == ["ADDED", "DELETED"]


def test_beyond_the_history_there_is_410() -> None:
    store = Store(history=3)
    first = store.revision
    play(store, [("a", "put")] * 6)
    with pytest.raises(StatusError) as caught:
        store.watch("things", Query(), first)
    assert (caught.value.status, caught.value.reason) == (410, "Expired")
    assert len(store.watch("things", Query(), store.revision - 3).pending()) == 3
    store.compact()
    with pytest.raises(StatusError):
        store.items("things", store.revision - 1)


async def test_a_stopped_watch_ends_the_iteration_after_what_is_queued() -> None:
    store = Store()
    watch = store.watch("things", Query(), None)
    store.put("things", ("", "a"), obj("a"))
    watch.stop()
    store.put("things", ("", "b"), obj("b"))
    assert [o["metadata"]["name"] async for _, o in watch] == ["a"]
    assert store.watches() == []


async def test_only_changes_count_as_lag() -> None:
    store = Store()
    watch = store.watch("things", Query(), None)
    watch.begin_with(obj(str(number)) for number in range(Watch.LIMIT + 1))
    store.put("things", ("", "a"), obj("a"))
    assert not watch.stopped
    assert len(watch.pending()) == Watch.LIMIT + 2
