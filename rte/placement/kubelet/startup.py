"""A kubelet's start on a machine: what it refuses, and its first state.

Sources: the ``NewManager`` functions of topology, CPU and memory manager, in the order in which the
container manager calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.model.node import NodeState
from rte.placement.kubelet import demand, memory, merge, outcome, releases
from rte.placement.kubelet.cpu import pickers, static
from rte.placement.kubelet.rules import StartError, build_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.bits import CPUSet
    from rte.model.node import DevicePool, KubeletConfig, Topology
    from rte.placement.kubelet.rules import KubeletRules


def initial_state(
    topology: Topology,
    config: KubeletConfig,
    devices: Mapping[str, DevicePool],
    kubelet_version: str,
) -> NodeState:
    """The node when its kubelet starts without any state.

    Raises:
        errors.KubeletStartError: this kubelet would refuse to start; ``text`` has its own words.
        errors.KubeletError: no rules are known for this version, or it picks its reserved CPUs out
            of too many sets of zones.
    """
    release = releases.known(kubelet_version)
    if release is None:
        raise errors.KubeletError(releases.why_unknown(kubelet_version))
    try:
        rules = build_rules(config, release)
        _check_zones(topology, rules)
        reserved = _reserve(topology, config, rules)
        if rules.memory:
            _check_reserved_memory(topology, config)
    except StartError as error:
        raise errors.KubeletStartError(str(error)) from error
    except outcome.Unpredictable as unknown:
        raise errors.KubeletError(f"reserved CPUs: {unknown.message}") from unknown
    shared = topology.all_cpus
    if rules.cpu and rules.cpu.strict_reservation:
        shared &= ~reserved
    return NodeState(
        topology=topology,
        config=config,
        kubelet_version=kubelet_version,
        reserved=reserved,
        shared=shared,
        memory=memory.initial_rows(topology, config) if rules.memory else {},
        devices=dict(devices),
    )


def _check_zones(topology: Topology, rules: KubeletRules) -> None:
    if rules.policy == merge.NONE:
        return
    if rules.prefer_closest and not all(zone.distances for zone in topology.zones):
        raise StartError(
            "topologymanager: cannot discover NUMA topology: error getting NUMA distances from "
            "cadvisor"
        )
    if len(topology.zones) > rules.max_zones:
        raise StartError(
            f"topologymanager: unsupported on machines with more than {rules.max_zones} NUMA Nodes"
        )


def _reserve(topology: Topology, config: KubeletConfig, rules: KubeletRules) -> CPUSet:
    """The reserved CPUs: the explicit list, else picked as for a container."""
    if rules.cpu is None:
        return config.reserved_cpus or 0
    where = "cpumanager: new static policy error: "
    machine = pickers.layout_of(topology)
    if rules.cpu.align_by_socket and topology.sockets > len(machine.zones):
        raise StartError(
            f"{where}Align by socket is not compatible with hardware where number of sockets are "
            "more than number of NUMA"
        )
    wanted = -(-config.cpu_reservation_milli // 1000)
    reserved = config.reserved_cpus or 0
    if not reserved:
        try:
            reserved = static.take(machine, rules.cpu, machine.all_cpus, wanted)
        except outcome.AllocationRefused:
            reserved = 0
        except outcome.Breaks as error:
            raise StartError(f"{where}{error.message}") from error
    if reserved.bit_count() != wanted:
        raise StartError(
            f"{where}[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {bits.format_list(reserved)} did not equal {wanted})"
        )
    unknown = reserved & ~machine.all_cpus
    if unknown:
        raise StartError(
            f"{where}[cpumanager] unable to build the reserved physical CPUs from the reserved "
            f"set: unknown CPU ID: {bits.lowest(unknown)}"
        )
    return reserved


def _check_reserved_memory(topology: Topology, config: KubeletConfig) -> None:
    totals: dict[str, int] = {}
    zones = {zone.id for zone in topology.zones}
    for zone, limits in config.reserved_memory.items():
        if zone not in zones:
            raise StartError(
                "memorymanager: the reserved memory configuration references a NUMA node "
                f"{zone} that does not exist on this machine"
            )
        for name, amount in limits.items():
            totals[name] = totals.get(name, 0) + amount
    node = {name: amount for name, amount in config.node_reserved.items() if demand.is_memory(name)}
    for name in sorted({*totals, *node} if config.node_reserved else ()):
        if totals.get(name, 0) != node.get(name, 0):
            raise StartError(
                f'memorymanager: the total amount "{_quantity(totals.get(name, 0))}" of type '
                f'"{name}" is not equal to the value "{_quantity(node.get(name, 0))}" determined '
                "by Node Allocatable feature"
            )
    if totals.get(memory.MEMORY, 0) <= 0:
        raise StartError(
            "memorymanager: [memorymanager] you should specify the system reserved memory"
        )


def _quantity(amount: int) -> str:
    """The API machinery's canonical text of an amount given in binary units."""
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if amount % 1024 or not amount:
            return f"{amount}{suffix}"
        amount //= 1024
    return f"{amount}Ei"
