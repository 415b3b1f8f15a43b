"""The machine that a running kubelet goes by, and the CPUs that it keeps for the system."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.accounting import consistency
from rte.accounting.topology import kubelet_topology
from rte.model import bits, quantity
from rte.model.node import KubeletConfig, ZoneInfo
from rte.placement.kubelet import releases, startup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.bits import CPUSet
    from rte.model.kubelet import KubeletView
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

    ``may_lose`` as in :func:`consistency.check_cpus`.

    Raises:
        errors.InconsistentStateError: the kubelet is between two writes.
        errors.KubeletError: the reserved CPUs cannot be told.
    """
    lost: list[str] = []
    if view.memory:
        lost += consistency.check_memory(view.memory, may_lose=may_lose)
    if config.cpu_policy == "static":
        reserved = _reserved(machine, view, config, previous)
        known = _known_cpus(machine, view, config, previous, reserved, settled=settled)
        if view.cpu:
            owned = known & ~reserved if is_strict(config) else known
            lost += consistency.check_cpus(view.cpu, owned, may_lose=may_lose)
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
        known = view.cpu.default | consistency.assigned_cpus(view.cpu)
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
