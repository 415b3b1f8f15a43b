"""Is the kubelet between two writes of one change?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.model.kubelet import WHOLE_POD

if TYPE_CHECKING:
    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.kubelet import CPUManagerState, MemoryManagerState


def assigned_cpus(state: CPUManagerState) -> CPUSet:
    """All CPUs that a container holds exclusively."""
    cpus = 0
    for containers in state.entries.values():
        for held in containers.values():
            cpus |= held
    return cpus


def check_cpus(state: CPUManagerState, owned: CPUSet) -> None:
    """Every CPU that the manager owns must be in the shared pool or held by someone.

    One allocation writes the smaller ``defaultCpuSet`` first and the entry after it, a release the
    reverse (policy_static.go: allocateCPUs, RemoveContainer), so in between CPUs are nowhere.

    Raises:
        errors.InconsistentStateError: between two writes; read again.
    """
    missing = owned & ~(state.default | assigned_cpus(state))
    if missing:
        raise errors.InconsistentStateError(
            f"cpu_manager_state: CPUs {bits.format_list(missing)} are neither shared nor held: "
            "a change is under way; read again"
        )


def check_memory(state: MemoryManagerState) -> None:
    """Rows and entries must tell of the same blocks.

    An allocation writes the rows first and the entry after it, a release the reverse; a block
    counts once in every zone of it. While a container takes over memory of init containers, their
    blocks shrink after its own is written (policy_static.go: Allocate, RemoveContainer), so for a
    moment the entries hold more than the rows have reserved. (Less is no sign of a change under
    way: releasing memory of overlapping zone groups may leave some reserved for nobody.)

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
    if any(WHOLE_POD in containers for containers in state.entries.values()):
        return  # how a pod's own blocks and its containers' add up is not settled upstream
    for zone, row in state.zones.items():
        if row.assignments != counts[zone]:
            raise errors.InconsistentStateError(
                f"memory_manager_state: zone {zone} counts {row.assignments} assignments and "
                f"{counts[zone]} are listed: a change is under way; read again"
            )
    for resource, size in held.items():
        reserved = sum(
            row.amounts[resource].reserved
            for row in state.zones.values()
            if resource in row.amounts
        )
        if size > reserved:
            raise errors.InconsistentStateError(
                f"memory_manager_state: {size} bytes of {resource} are held and {reserved} are "
                "reserved: a change is under way; read again"
            )


def _sizes(state: MemoryManagerState) -> dict[tuple[str, ZoneSet], list[int]]:
    """The sizes of all blocks, by resource and zones."""
    sizes: dict[tuple[str, ZoneSet], list[int]] = {}
    for containers in state.entries.values():
        for blocks in containers.values():
            for block in blocks:
                sizes.setdefault((block.resource, block.zones), []).append(block.size)
    return sizes
