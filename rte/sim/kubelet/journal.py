"""The states that the CPU and memory manager write one after the other while they work.

An allocation writes the pool first and the entry after, a release the reverse; what a pod holds as
a whole (gate PodLevelResourceManagers) is taken before its first part and freed after its last.
Sources: ``policy_static.go`` of both managers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rte.placement.kubelet import memory as memory_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.model.bits import CPUSet
    from rte.model.kubelet import CPUManagerState, MemoryManagerState
    from rte.model.node import MemoryBlock, ZoneMemory

_Held = TypeVar("_Held")


def take_cpus(
    state: CPUManagerState, uid: str, container: str, cpus: CPUSet
) -> Iterator[CPUManagerState]:
    """A container gets CPUs from the shared pool."""
    state = replace(state, default=state.default & ~cpus)
    yield state
    yield replace(state, entries=_with(state.entries, uid, container, cpus))


def take_pod_cpus(
    state: CPUManagerState, uid: str, whole: CPUSet, parts: Mapping[str, CPUSet]
) -> Iterator[CPUManagerState]:
    """A pod gets CPUs, and its containers parts of them."""
    state = replace(state, default=state.default & ~whole)
    yield state
    state = replace(state, pod_entries={**state.pod_entries, uid: whole})
    yield state
    for name, cpus in parts.items():
        state = replace(state, entries=_with(state.entries, uid, name, cpus))
        yield state


def release_cpus(
    state: CPUManagerState, gone: Iterable[tuple[str, str]]
) -> Iterator[CPUManagerState]:
    """Containers (UID, name) give back what no sibling holds too."""
    for uid, name in gone:
        cpus = state.entries.get(uid, {}).get(name)
        if cpus is None:
            continue
        state = replace(state, entries=_lacking(state.entries, uid, name))
        yield state
        left = state.entries.get(uid, {})
        whole = state.pod_entries.get(uid)
        if whole is None:
            for other in left.values():
                cpus &= ~other
            state = replace(state, default=state.default | cpus)
            yield state
        elif not left:
            state = replace(state, default=state.default | whole)
            yield state
            state = replace(state, pod_entries=_but(state.pod_entries, uid))
            yield state


def take_memory(
    state: MemoryManagerState,
    uid: str,
    container: str,
    blocks: tuple[MemoryBlock, ...],
    rows: Mapping[int, ZoneMemory],
) -> Iterator[MemoryManagerState]:
    """A container gets memory; ``rows`` are the zones afterwards."""
    state = replace(state, zones=rows)
    yield state
    yield replace(state, entries=_with(state.entries, uid, container, blocks))


def take_pod_memory(
    state: MemoryManagerState,
    uid: str,
    whole: tuple[MemoryBlock, ...],
    parts: Mapping[str, tuple[MemoryBlock, ...]],
    rows: Mapping[int, ZoneMemory],
) -> Iterator[MemoryManagerState]:
    """A pod gets memory, and its containers parts of it; ``rows`` are the zones afterwards."""
    state = replace(state, zones=rows)
    yield state
    state = replace(state, pod_entries={**state.pod_entries, uid: whole})
    yield state
    for name, blocks in parts.items():
        state = replace(state, entries=_with(state.entries, uid, name, blocks))
        yield state


def release_memory(
    state: MemoryManagerState, gone: Iterable[tuple[str, str]]
) -> Iterator[MemoryManagerState]:
    """Containers (UID, name) give their memory back."""
    for uid, name in gone:
        blocks = state.entries.get(uid, {}).get(name)
        if blocks is None:
            continue
        state = replace(state, entries=_lacking(state.entries, uid, name))
        yield state
        whole = state.pod_entries.get(uid)
        if whole is None:
            state = replace(state, zones=memory_rules.release(state.zones, blocks))
            yield state
        elif uid not in state.entries:
            state = replace(state, zones=memory_rules.release(state.zones, whole))
            yield state
            state = replace(state, pod_entries=_but(state.pod_entries, uid))
            yield state


def _with(
    entries: Mapping[str, Mapping[str, _Held]], uid: str, container: str, held: _Held
) -> dict[str, Mapping[str, _Held]]:
    return {**entries, uid: {**entries.get(uid, {}), container: held}}


def _lacking(
    entries: Mapping[str, Mapping[str, _Held]], uid: str, container: str
) -> dict[str, Mapping[str, _Held]]:
    left = _but(entries[uid], container)
    return {**entries, uid: left} if left else _but(entries, uid)


def _but(table: Mapping[str, _Held], key: str) -> dict[str, _Held]:
    return {name: value for name, value in table.items() if name != key}
