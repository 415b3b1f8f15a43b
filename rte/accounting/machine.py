"""The machine that a running kubelet goes by, the CPUs that it keeps for the system, and whether it
is between two writes of one change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.accounting.topology import kubelet_topology
from rte.model import bits, quantity
from rte.model.node import KubeletConfig, ZoneInfo
from rte.placement.kubelet import releases, startup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.kubelet import CPUManagerState, KubeletView, MemoryManagerState
    from rte.model.machine import Machine
    from rte.model.node import NodeState, Topology, ZoneMemory

_HUGEPAGES = "hugepages-"

#: Of an empty machine, the picker has taken the same CPUs in all releases whose rules are known.
_NEWEST = f"v1.{max(releases.NEWEST_PATCH)}.0"


def is_strict(config: KubeletConfig) -> bool:
    """Whether reserved CPUs are kept out of the shared pool too."""
    return config.cpu_options.get("strict-cpu-reservation", "").lower() in ("true", "1", "t")


def read_machine(
    machine: Machine,
    view: KubeletView,
    config: KubeletConfig,
    previous: NodeState | None,
    capacity: Mapping[str, int],
    *,
    settled: bool,
    may_lose: bool,
) -> tuple[Topology, CPUSet, list[str]]:
    """Topology as of the kubelet's start, reserved CPUs, and what contradicts them.

    What the kubelet read then is known from an earlier reading, the memory manager's rows, or the
    Node's ``capacity``, which are of that moment; the hardware of today comes last.

    ``may_lose`` as in :func:`check_cpus`.

    Raises:
        errors.InconsistentStateError: the kubelet is between two writes.
        errors.KubeletError: the reserved CPUs cannot be told.
    """
    lost: list[str] = []
    if view.memory:
        lost += check_memory(view.memory, may_lose=may_lose)
    if config.cpu_policy == "static":
        reserved = _reserved(machine, view, config, previous)
        known = _known_cpus(machine, view, config, previous, reserved, settled=settled)
        if view.cpu:
            owned = known & ~reserved if is_strict(config) else known
            lost += check_cpus(view.cpu, owned, may_lose=may_lose)
    else:
        reserved = config.reserved_cpus or 0
        known = previous.topology.all_cpus if previous is not None else machine.online
    rows = view.memory.zones if view.memory else {}
    if (
        previous is not None
        and previous.topology.all_cpus == known
        and (rows or not _surplus(previous.topology, capacity))
    ):
        topology = previous.topology
    else:
        topology = kubelet_topology(machine, known)
        topology = _with_memory(topology, rows) if rows else _at_start(topology, capacity)
    return topology, reserved, lost + _differences(machine, topology, known, capacity)


def _reserved(
    machine: Machine, view: KubeletView, config: KubeletConfig, previous: NodeState | None
) -> CPUSet:
    """The explicit list; else what podresources leaves out of the shared pool; else what the
    kubelet's own picker takes from the whole machine (NewStaticPolicy in policy_static.go).
    """
    if config.reserved_cpus is not None:
        return config.reserved_cpus
    if previous is not None:
        return previous.reserved
    if view.allocatable and view.allocatable.cpus and view.cpu and not is_strict(config):
        return view.cpu.default & ~view.allocatable.cpus
    if view.config is None and view.allocatable and view.allocatable.cpus:
        return machine.online & ~view.allocatable.cpus
    only_cpus = replace(config, memory_policy="None", topology_policy="none", topology_options={})
    known = releases.known(view.version) is not None
    version = view.version if known else _NEWEST
    try:
        return startup.initial_state(kubelet_topology(machine), only_cpus, {}, version).reserved
    except errors.KubeletError as error:
        raise errors.KubeletError(
            f"the reserved CPUs cannot be told: {error}; configure reservedSystemCPUs, or let rte "
            "reach podresources"
        ) from error


def pick_reserved(topology: Topology, number: int) -> CPUSet:
    """So many CPUs of the whole machine, as a kubelet picks those that it reserves.

    Raises:
        errors.KubeletError: there are not so many.
    """
    config = KubeletConfig(cpu_policy="static", cpu_reservation_milli=1000 * number)
    return startup.initial_state(topology, config, {}, _NEWEST).reserved


def _known_cpus(
    machine: Machine,
    view: KubeletView,
    config: KubeletConfig,
    previous: NodeState | None,
    reserved: CPUSet,
    *,
    settled: bool,
) -> CPUSet:
    """The CPUs that were on-line when the kubelet started."""
    if view.allocatable and view.allocatable.cpus:
        return view.allocatable.cpus | reserved
    if previous is not None:
        return previous.topology.all_cpus
    if view.cpu and settled:
        known = view.cpu.default | assigned_cpus(view.cpu)
        return known | reserved if is_strict(config) else known
    return machine.online


def _surplus(topology: Topology, capacity: Mapping[str, int]) -> dict[int, int]:
    """By page size: how many huge pages there are more than the Node has; fewer: below zero."""
    pages: Counter[int] = Counter()
    for zone in topology.zones:
        pages.update(zone.hugepages)
    more = {
        size: number - capacity[quantity.hugepage_resource(size)] // size
        for size, number in pages.items()
        if quantity.hugepage_resource(size) in capacity
    }
    return {size: number for size, number in more.items() if number}


def _at_start(topology: Topology, capacity: Mapping[str, int]) -> Topology:
    """Huge pages that each zone had at least when the kubelet started, by the Node's total."""
    surplus = {size: more for size, more in _surplus(topology, capacity).items() if more > 0}
    if not surplus:
        return topology
    zones = []
    for zone in topology.zones:
        pages = {
            size: max(number - surplus.get(size, 0), 0) for size, number in zone.hugepages.items()
        }
        zones.append(replace(zone, hugepages=pages))
    return replace(topology, zones=tuple(zones))


def _with_memory(topology: Topology, rows: Mapping[int, ZoneMemory]) -> Topology:
    """Sizes from the memory manager's rows, which are those of the kubelet's start."""
    distances = {zone.id: zone.distances for zone in topology.zones}
    zones = []
    for zone, row in rows.items():
        pools = {}
        for resource, amounts in row.amounts.items():
            if resource.startswith(_HUGEPAGES):
                size = quantity.parse(resource.removeprefix(_HUGEPAGES))
                pools[size] = amounts.total // size if size else 0
        total = row.amounts["memory"].total if "memory" in row.amounts else 0
        zones.append(
            ZoneInfo(
                id=zone,
                memory_bytes=total,
                hugepages=dict(sorted(pools.items())),
                distances=distances.get(zone, ()),
            )
        )
    return replace(topology, zones=tuple(zones))


def _differences(
    machine: Machine, topology: Topology, known: CPUSet, capacity: Mapping[str, int]
) -> list[str]:
    lines = []
    if known != machine.online:
        lines.append(
            f"on-line CPUs are {bits.format_list(machine.online)}, the kubelet goes by "
            f"{bits.format_list(known)}: restart it after hot-plug"
        )
    counted = capacity.get("cpu", 0) // 1000
    if known == machine.online and counted not in (0, known.bit_count()):
        lines.append(
            f"CPUs on-line: {known.bit_count()}, of the Node: {counted}; restart the kubelet "
            "after hot-plug"
        )
    unknown = known & ~topology.all_cpus
    if unknown:
        lines.append(
            f"the kubelet goes by CPUs {bits.format_list(unknown)}, which sysfs does not describe"
        )
    sizes = {zone.id: (zone.memory_bytes, dict(zone.hugepages)) for zone in machine.zones}
    lines += [
        f"memory or huge pages of zone {zone.id} changed since the kubelet's start: "
        "restart it to make use of them"
        for zone in topology.zones
        if sizes.get(zone.id) != (zone.memory_bytes, dict(zone.hugepages))
    ]
    return lines


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
