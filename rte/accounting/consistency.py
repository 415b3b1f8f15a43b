"""Is the kubelet between two writes of one change?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits

if TYPE_CHECKING:
    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.kubelet import CPUManagerState, MemoryManagerState


def assigned_cpus(state: CPUManagerState) -> CPUSet:
    """All CPUs that a pod or container holds."""
    cpus = 0
    for containers in state.entries.values():
        for held in containers.values():
            cpus |= held
    for held in state.pod_entries.values():
        cpus |= held
    return cpus


def check_cpus(state: CPUManagerState, owned: CPUSet, *, may_lose: bool = False) -> list[str]:
    """Every CPU that the manager owns must be in the shared pool or held by someone.

    One allocation writes the smaller ``defaultCpuSet`` first and the entry after it, a release the
    reverse (policy_static.go: allocateCPUs, RemoveContainer), so in between CPUs are nowhere. A pod
    that holds CPUs as a whole gets its own entry before those of its containers and loses it after
    them, its CPUs being in the shared pool again (AllocatePod, RemoveContainer).

    A kubelet that serves pods as a whole gives a running pod a second set after its own restart and
    loses the first one for good. With ``may_lose`` (it serves pods so, and the file has stood
    still) that is what it has done: lines that say what is lost.

    Raises:
        errors.InconsistentStateError: between two writes; read again.
    """
    found = []
    missing = owned & ~(state.default | assigned_cpus(state))
    if missing:
        found.append(
            f"cpu_manager_state: CPUs {bits.format_list(missing)} are neither shared nor held"
        )
    found += _without_containers("cpu_manager_state", state)
    return _unless_under_way(found, may_lose=may_lose)


def check_memory(state: MemoryManagerState, *, may_lose: bool = False) -> list[str]:
    """Rows and entries must tell of the same blocks.

    An allocation writes the rows first and the entry after it, a release the reverse; a block
    counts once in every zone of it. While a container takes over memory of init containers, their
    blocks shrink after its own is written (policy_static.go: Allocate, RemoveContainer), so for a
    moment the entries hold more than the rows have reserved. (Less is no sign of a change under
    way: releasing memory of overlapping zone groups may leave some reserved for nobody.) Of a pod
    that holds memory as a whole, its own blocks count and not those of its containers; its
    entries are written before the rows, and deleted after them (AllocatePod).

    With ``may_lose`` (:func:`check_cpus`) lines that say what does not add up.

    Raises:
        errors.InconsistentStateError: between two writes; read again.
    """
    if not state.zones and state.policy != "None":
        raise errors.InconsistentStateError(
            "memory_manager_state: no zones yet, the kubelet is starting; read again"
        )
    counts = dict.fromkeys(state.zones, 0)
    held: dict[str, int] = {}
    for (resource, zones), listed in _sizes(state).items():
        held[resource] = held.get(resource, 0) + sum(listed)
        for zone in bits.members(zones):
            row = state.zones.get(zone)
            if row is None or resource not in row.amounts:
                raise errors.InconsistentStateError(
                    f"memory_manager_state: {resource} is held in zone {zone}, which "
                    "has no row of it; read again"
                )
            counts[zone] += len(listed)
    found = [
        f"memory_manager_state: zone {zone} counts {row.assignments} assignments and "
        f"{counts[zone]} are listed"
        for zone, row in state.zones.items()
        if row.assignments != counts[zone]
    ]
    for resource, size in held.items():
        reserved = sum(
            row.amounts[resource].reserved
            for row in state.zones.values()
            if resource in row.amounts
        )
        if size > reserved:
            found.append(
                f"memory_manager_state: {size} bytes of {resource} are held and {reserved} are "
                "reserved"
            )
    found += _without_containers("memory_manager_state", state)
    return _unless_under_way(found, may_lose=may_lose)


def _without_containers(what: str, state: CPUManagerState | MemoryManagerState) -> list[str]:
    return [
        f"{what}: pod {uid} holds something as a whole, and none of its containers does"
        for uid in sorted(state.pod_entries.keys() - state.entries.keys())
    ]


def _unless_under_way(found: list[str], *, may_lose: bool) -> list[str]:
    if found and not may_lose:
        raise errors.InconsistentStateError(f"{found[0]}: a change is under way; read again")
    return found


def _sizes(state: MemoryManagerState) -> dict[tuple[str, ZoneSet], list[int]]:
    """The sizes of all blocks that count, by resource and zones."""
    sizes: dict[tuple[str, ZoneSet], list[int]] = {}
    for uid, containers in state.entries.items():
        held = [state.pod_entries[uid]] if uid in state.pod_entries else containers.values()
        for blocks in held:
            for block in blocks:
                sizes.setdefault((block.resource, block.zones), []).append(block.size)
    return sizes
