"""A node state as its kubelet would tell it, source by source (:mod:`rte.model.kubelet`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rte.accounting.liveness import EMBEDDED_MINOR
from rte.model import bits
from rte.model.kubelet import (
    Allocatable,
    AllocatedPods,
    CPUManagerState,
    DeviceCheckpoint,
    DeviceHolding,
    ListedContainer,
    ListedPod,
    MemoryManagerState,
)
from rte.model.node import Holding, MemoryBlock
from rte.model.pod import ContainerKind
from rte.placement.kubelet import demand, releases
from rte.placement.kubelet.demand import has_pod_level_resources
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.bits import Mask
    from rte.model.node import ClaimedDevice, DevicePool, NodeState
    from rte.model.pod import Container, Pod

_NOTHING = Holding()


def cpu_state(state: NodeState) -> CPUManagerState:
    """``cpu_manager_state``."""
    if state.config.cpu_policy != "static":
        return CPUManagerState("none", 0, embedded=_embeds(state))
    entries = {
        uid: {name: holding.cpus for name, holding in containers.items() if holding.cpus}
        for uid, containers in state.holdings.items()
    }
    return CPUManagerState(
        "static",
        state.shared,
        entries={uid: containers for uid, containers in entries.items() if containers},
        pod_entries={uid: pod.cpus for uid, pod in state.pod_holdings.items() if pod.cpus},
        embedded=_embeds(state),
    )


def memory_state(state: NodeState) -> MemoryManagerState:
    """``memory_manager_state``."""
    if state.config.memory_policy != "Static":
        return MemoryManagerState("None", embedded=_embeds(state))
    entries = {
        uid: {name: holding.memory for name, holding in containers.items() if holding.memory}
        for uid, containers in state.holdings.items()
    }
    return MemoryManagerState(
        "Static",
        state.memory,
        entries={uid: containers for uid, containers in entries.items() if containers},
        pod_entries={uid: pod.memory for uid, pod in state.pod_holdings.items() if pod.memory},
        embedded=_embeds(state),
    )


def device_checkpoint(state: NodeState) -> DeviceCheckpoint:
    """``kubelet_internal_checkpoint``."""
    entries = {
        uid: {
            name: _held(state.devices, holding)
            for name, holding in containers.items()
            if holding.devices
        }
        for uid, containers in state.holdings.items()
    }
    registered = {
        resource: frozenset(pool.ids[i] for i in bits.members(pool.healthy))
        for resource, pool in state.devices.items()
    }
    return DeviceCheckpoint(
        entries={uid: containers for uid, containers in entries.items() if containers},
        registered=registered,
    )


def allocated_pods(pods: Iterable[Pod]) -> AllocatedPods:
    """``allocated_pods_state`` of the admitted pods."""
    return AllocatedPods(
        pods={pod.uid: frozenset(container.name for container in pod.containers) for pod in pods}
    )


def listed_pods(
    state: NodeState,
    pods: Iterable[Pod],
    claimed: Mapping[str, Mapping[str, tuple[ClaimedDevice, ...]]],
) -> tuple[ListedPod, ...]:
    """Podresources ``List`` of the active pods; ``claimed``: UID -> container -> devices of DRA.

    Since 1.37 the gate PodLevelResourceManagers makes it show what a pod holds as a whole, and then
    no pool that containers of the pod share (cm/container_manager_linux.go, GetCPUs, GetMemory).
    """
    rules = rules_of(state.config, state.kubelet_version)
    as_whole = rules.pod_level_managers and _embeds(state)
    return tuple(
        ListedPod(
            namespace=pod.namespace,
            name=pod.name,
            containers=tuple(
                replace(
                    _listed(
                        state, pod.uid, container, whole=as_whole and has_pod_level_resources(pod)
                    ),
                    claimed=claimed.get(pod.uid, {}).get(container.name, ()),
                )
                for container in pod.containers
                if container.kind is not ContainerKind.INIT
            ),
            cpus=state.pod_holdings.get(pod.uid, _NOTHING).cpus if as_whole else 0,
            memory=state.pod_holdings.get(pod.uid, _NOTHING).memory if as_whole else (),
        )
        for pod in pods
    )


def allocatable(state: NodeState) -> Allocatable:
    """Podresources ``GetAllocatableResources``."""
    cpus = 0
    if state.config.cpu_policy == "static":
        cpus = state.topology.all_cpus & ~state.reserved
    memory = tuple(
        MemoryBlock(resource, 1 << zone, amounts.allocatable)
        for zone, row in state.memory.items()
        for resource, amounts in sorted(row.amounts.items())
        if amounts.allocatable
    )
    # A device whose topology has no zones is left out (cm/container_manager.go).
    shown = {
        resource: pool.healthy & ~pool.by_zones.get(0, 0)
        for resource, pool in state.devices.items()
    }
    devices = tuple(
        DeviceHolding(resource, _devices(state.devices[resource], mask))
        for resource, mask in sorted(shown.items())
        if mask
    )
    return Allocatable(cpus=cpus, memory=memory, devices=devices)


def _embeds(state: NodeState) -> bool:
    """Whether this release writes the content into ``data``."""
    release = releases.parse(state.kubelet_version)
    return release is not None and release.minor >= EMBEDDED_MINOR


def _listed(state: NodeState, uid: str, container: Container, *, whole: bool) -> ListedContainer:
    holding = state.holdings.get(uid, {}).get(container.name, _NOTHING)
    own = not whole or demand.is_eligible(container)
    own_cpus = own and not (whole and container.limits.get("cpu", 0) % 1000)
    return ListedContainer(
        name=container.name,
        cpus=holding.cpus if own_cpus else 0,
        memory=holding.memory if own else (),
        devices=_held(state.devices, holding),
    )


def _held(pools: Mapping[str, DevicePool], holding: Holding) -> tuple[DeviceHolding, ...]:
    return tuple(
        DeviceHolding(resource, _devices(pools[resource], mask))
        for resource, mask in sorted(holding.devices.items())
    )


def _devices(pool: DevicePool, mask: Mask) -> dict[str, int | None]:
    """Device id -> zones; a topology without zones counts as none, as in the kubelet's answers."""
    return {pool.ids[i]: pool.zones[i] or None for i in bits.members(mask)}
