"""The machine that a running kubelet goes by, and the CPUs that it keeps for the system."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.accounting import consistency
from rte.accounting.topology import kubelet_topology
from rte.model import bits, quantity
from rte.model.node import ZoneInfo
from rte.placement.kubelet import releases, startup

if TYPE_CHECKING:
    from rte.model.bits import CPUSet
    from rte.model.kubelet import KubeletView, MemoryManagerState
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig, NodeState, Topology

_HUGEPAGES = "hugepages-"


def is_strict(config: KubeletConfig) -> bool:
    """Whether reserved CPUs are kept out of the shared pool too."""
    return config.cpu_options.get("strict-cpu-reservation", "").lower() in ("true", "1", "t")


def read_machine(
    machine: Machine,
    view: KubeletView,
    config: KubeletConfig,
    previous: NodeState | None,
    *,
    settled: bool,
    may_lose: bool,
) -> tuple[Topology, CPUSet, list[str]]:
    """Topology as of the kubelet's start, reserved CPUs, and what contradicts them.

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
        reserved, known = config.reserved_cpus or 0, machine.online
    if previous is not None and previous.topology.all_cpus == known:
        topology = previous.topology
    else:
        topology = kubelet_topology(machine, known)
        if view.memory and view.memory.zones:
            topology = _with_memory(topology, view.memory)
    return topology, reserved, lost + _differences(machine, view, topology, known)


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
    topology = kubelet_topology(machine)
    only_cpus = replace(config, memory_policy="None", topology_policy="none", topology_options={})
    # Of an empty machine, the picker has taken the same CPUs in all releases whose rules are known.
    known = releases.known(view.version) is not None
    version = view.version if known else f"v1.{max(releases.NEWEST_PATCH)}.0"
    try:
        return startup.initial_state(topology, only_cpus, {}, version).reserved
    except errors.KubeletError as error:
        raise errors.KubeletError(
            f"the reserved CPUs cannot be told: {error}; configure reservedSystemCPUs, or let rte "
            "reach podresources"
        ) from error


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


def _with_memory(topology: Topology, memory: MemoryManagerState) -> Topology:
    """Sizes from the memory manager's rows, which are those of the kubelet's start."""
    distances = {zone.id: zone.distances for zone in topology.zones}
    zones = []
    for zone, row in memory.zones.items():
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
    machine: Machine, view: KubeletView, topology: Topology, known: CPUSet
) -> list[str]:
    lines = []
    if known != machine.online:
        lines.append(
            f"on-line CPUs are {bits.format_list(machine.online)}, the kubelet goes by "
            f"{bits.format_list(known)}: restart it after hot-plug"
        )
    unknown = known & ~topology.all_cpus
    if unknown:
        lines.append(
            f"the kubelet goes by CPUs {bits.format_list(unknown)}, which sysfs does not describe"
        )
    if view.memory and view.memory.zones:
        sizes = {zone.id: (zone.memory_bytes, dict(zone.hugepages)) for zone in machine.zones}
        lines += [
            f"memory or huge pages of zone {zone.id} changed since the kubelet's start: "
            "restart it to make use of them"
            for zone in topology.zones
            if sizes.get(zone.id) != (zone.memory_bytes, dict(zone.hugepages))
        ]
    return lines
