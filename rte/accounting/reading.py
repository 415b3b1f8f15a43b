"""Machine + kubelet view -> NodeReading: the true state of a node.

True is what the kubelet would hold at its next admission: the state files, less what belongs to
pods that are no longer active, released by the kubelet's own rules. It is built only from files
that agree with each other; what podresources or sysfs say differently is named, not guessed away.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte import errors
from rte.accounting import liveness, machine
from rte.accounting.devices import device_pools
from rte.accounting.globs import matches
from rte.accounting.holdings import (
    claimed_devices,
    counted_holdings,
    disagreements,
    read_holdings,
    read_listing,
    read_pod_holdings,
    uids_of,
)
from rte.model import bits
from rte.model.node import KoordletNode, KubeletConfig, NodeReading, NodeState, PodRef, ZoneMemory
from rte.placement.kubelet.admission import settle
from rte.placement.kubelet.memory import initial_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.accounting.holdings import Listing, Name
    from rte.model.bits import CPUSet
    from rte.model.kubelet import KubeletView, NodePod
    from rte.model.machine import Machine
    from rte.model.node import Holding, MemoryBlock, Topology


CPU_POLICIES = ("none", "static")
MEMORY_POLICIES = ("None", "Static")


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How to read a node.

    Attributes:
        previous: state of an earlier reading; used while the kubelet is the same (equal epochs).
        synced: False from a restart of the kubelet until it has re-admitted its pods.
        settled: the state files have not changed for a while, so CPUs that are in none of them
            were plugged in after the kubelet's start, rather than caught between two writes.
        drop_unknown: pods of the state files that the API does not show are gone. True for pods
            that were listed after the files were read; a watcher, which may lag behind the
            kubelet, says False and hands deleted pods in as terminal.
        reference_container: namespace, pod and container that asks for no exclusive CPUs: what an
            old kubelet lists for it is the shared pool, and is subtracted everywhere.
        exclude_pods: (namespace glob, name glob): pods that are not counted in zones and
            fingerprint.
        node_capacity: the Node's capacity, by resource; tells how many devices there are.
        node_annotations: those of the Node that koordlet copies.
    """

    previous: NodeState | None = None
    synced: bool = True
    settled: bool = False
    drop_unknown: bool = True
    reference_container: tuple[str, str, str] | None = None
    exclude_pods: tuple[tuple[str, str], ...] = ()
    node_capacity: Mapping[str, int] = field(default_factory=dict)
    node_annotations: Mapping[str, str] = field(default_factory=dict)


def build_reading(
    node_name: str,
    hardware: Machine,
    view: KubeletView,
    active_pods: Sequence[NodePod] | None = None,
    options: ReadingOptions | None = None,
) -> NodeReading:
    """Account for every CPU, byte and device of a node.

    ``active_pods`` are the API's pods of this node, terminal ones included, None where the API is
    not asked: then podresources tells who is active, and without it nobody is dropped.

    Raises:
        errors.InconsistentStateError: the kubelet is between two writes of one change; read again.
        errors.KubeletError: the reserved CPUs cannot be told, or a policy is unknown.
        errors.ParseError: a glob of ``exclude_pods`` is malformed.
    """
    options = options or ReadingOptions()
    previous = options.previous
    if previous is not None and (not view.epoch or previous.epoch != view.epoch):
        previous = None
    config, notes = _running_config(view)
    view, serves_pods = liveness.of_running_kubelet(view, config)
    topology, reserved, changed = machine.read_machine(
        hardware,
        view,
        config,
        previous,
        options.node_capacity,
        settled=options.settled,
        may_lose=options.settled and serves_pods,
    )
    pools = device_pools(view, previous.devices if previous else {}, options.node_capacity)
    listing = read_listing(view, options.reference_container)
    uids = uids_of(view, listing, active_pods)
    holdings = read_holdings(view, config, listing, uids, pools)
    pod_holdings = read_pod_holdings(view, listing, uids)
    counted = counted_holdings(holdings, pod_holdings)
    state = NodeState(
        topology=topology,
        config=config,
        kubelet_version=view.version,
        epoch=view.epoch,
        synced=options.synced,
        reserved=reserved,
        shared=_shared(view, config, topology, reserved, listing, counted),
        memory=_memory(view, config, topology, counted),
        devices=pools,
        admitted=liveness.admitted_uids(view, active_pods, listing, uids, holdings),
        holdings=holdings,
        pod_holdings=pod_holdings,
    )
    active = liveness.active_uids(
        view, listing, active_pods, uids, drop_unknown=options.drop_unknown
    )
    notes += changed
    notes += disagreements(state, view, listing, uids)
    state = settle(state, active)
    names = _names(active_pods, listing, uids, state)
    excluded = frozenset(
        uid for uid, name in names.items() if _is_excluded(name, options.exclude_pods)
    )
    return NodeReading(
        node_name=node_name,
        machine=hardware,
        state=state,
        pods=tuple(
            PodRef(uid, namespace, name, _is_exclusive(state, uid))
            for namespace, name, uid in sorted((*name, uid) for uid, name in names.items())
            if uid not in excluded
        ),
        disagreements=tuple(notes),
        excluded=excluded,
        claimed=claimed_devices(view, uids),
        koordlet=KoordletNode(
            {
                pod.uid: pod.koordlet
                for pod in active_pods or ()
                if pod.koordlet is not None and not pod.terminal
            },
            options.node_annotations,
        ),
    )


def _running_config(view: KubeletView) -> tuple[KubeletConfig, list[str]]:
    """The configuration, with the policies that the running kubelet writes into its files."""
    notes = []
    config = view.config
    if config is None:
        notes.append("the kubelet's configuration is unknown; its sources tell the policies only")
        told = view.allocatable
        config = KubeletConfig(
            cpu_policy="static" if told and told.cpus else "none",
            memory_policy="Static" if told and told.memory else "None",
        )
    for state, policies in ((view.cpu, CPU_POLICIES), (view.memory, MEMORY_POLICIES)):
        if state and state.policy not in policies:
            raise errors.KubeletError(
                f"the kubelet's state file names policy {state.policy!r}, not one of "
                f"{', '.join(policies)}: this rte is too old for it, or the file is damaged"
            )
    if view.cpu and view.cpu.policy != config.cpu_policy:
        if view.config:
            notes.append(
                f"cpuManagerPolicy is {config.cpu_policy}, the running kubelet's file says "
                f"{view.cpu.policy}"
            )
        config = replace(config, cpu_policy=view.cpu.policy)
    if view.memory and view.memory.policy != config.memory_policy:
        if view.config:
            notes.append(
                f"memoryManagerPolicy is {config.memory_policy}, the running kubelet's file says "
                f"{view.memory.policy}"
            )
        config = replace(config, memory_policy=view.memory.policy)
    return config, notes


def _shared(
    view: KubeletView,
    config: KubeletConfig,
    topology: Topology,
    reserved: CPUSet,
    listing: Listing | None,
    counted: Iterable[Holding],
) -> CPUSet:
    """``defaultCpuSet``; without the file what the reference container shows, else what is left."""
    if config.cpu_policy != "static":
        return 0
    if view.cpu:
        return view.cpu.default
    if listing and listing.shared:
        return listing.shared
    held = 0
    for holding in counted:
        held |= holding.cpus
    left = topology.all_cpus & ~held
    return left & ~reserved if machine.is_strict(config) else left


def _memory(
    view: KubeletView, config: KubeletConfig, topology: Topology, counted: Iterable[Holding]
) -> Mapping[int, ZoneMemory]:
    """The memory manager's rows; without its file, the initial ones with every block filled in."""
    if config.memory_policy == "None":
        return {}
    if view.memory:
        return view.memory.zones
    rows = initial_rows(topology, config)
    for holding in counted:
        for block in holding.memory:
            _fill(rows, block)
    return rows


def _fill(rows: dict[int, ZoneMemory], block: MemoryBlock) -> None:
    """Zones ascending, each one's free memory used up before the next (updateMachineState)."""
    left = block.size
    for zone in bits.members(block.zones):
        row = rows.get(zone)
        if row is None or block.resource not in row.amounts:
            raise errors.InconsistentStateError(
                f"podresources lists {block.resource} of zone {zone}, where the machine has none; "
                "read again"
            )
        amount = row.amounts[block.resource]
        taken = min(left, amount.free)
        left -= taken
        filled = replace(amount, reserved=amount.reserved + taken, free=amount.free - taken)
        amounts = {**row.amounts, block.resource: filled}
        rows[zone] = ZoneMemory(assignments=row.assignments + 1, group=block.zones, amounts=amounts)


def _names(
    pods: Sequence[NodePod] | None,
    listing: Listing | None,
    uids: Mapping[Name, str],
    state: NodeState,
) -> dict[str, Name]:
    """The pods that this state accounts for: a pod that is not admitted yet is not among them."""
    if pods is None:
        return {uid: name for name, uid in uids.items()} if listing else {}
    return {
        pod.uid: (pod.namespace, pod.name)
        for pod in pods
        if not pod.terminal and pod.uid in state.admitted
    }


def _is_excluded(name: Name, globs: Sequence[tuple[str, str]]) -> bool:
    return any(matches(namespace, name[0]) and matches(pod, name[1]) for namespace, pod in globs)


def _is_exclusive(state: NodeState, uid: str) -> bool:
    """Holds CPUs, memory or devices of a zone (filter ``with-exclusive-resources``)."""
    for holding in state.holdings.get(uid, {}).values():
        if holding.cpus or any(block.zones for block in holding.memory):
            return True
        for resource, mask in holding.devices.items():
            zones = state.devices[resource].zones
            if any(zones[position] for position in bits.members(mask)):
                return True
    return False
