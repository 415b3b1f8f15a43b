"""What the kubelet of one node says, source by source; None stands for a source that is absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from rte.model.bits import CPUSet, ZoneSet
from rte.model.node import ClaimedDevice, MemoryBlock

if TYPE_CHECKING:
    from rte.model.node import KoordletPod, KubeletConfig, ZoneMemory

#: In the place of a container's name: the pod as a whole.
WHOLE_POD = ""


@dataclass(frozen=True, slots=True)
class CPUManagerState:
    """``cpu_manager_state``.

    Attributes:
        policy: ``none`` or ``static``.
        default: the shared pool.
        entries: UID -> container name -> its CPUs: exclusive ones, or those of its pod that it
            shares with other containers of the pod.
        pod_entries: UID -> what a pod with pod-level resources holds as a whole (gate
            PodLevelResourceManagers). ``entries`` of its containers are parts of it.
        embedded: the content came from ``data``, the format of 1.37; an older kubelet goes by the
            fields beside it, which have no ``pod_entries``.
    """

    policy: str
    default: CPUSet
    entries: Mapping[str, Mapping[str, CPUSet]] = field(default_factory=dict)
    pod_entries: Mapping[str, CPUSet] = field(default_factory=dict)
    embedded: bool = False


@dataclass(frozen=True, slots=True)
class MemoryManagerState:
    """``memory_manager_state``.

    Attributes:
        policy: ``None`` or ``Static``.
        zones: rows by zone id.
        entries: UID -> container name -> blocks in file order.
        pod_entries: UID -> blocks of the pod as a whole; they count, not those of ``entries``.
        embedded: as in :class:`CPUManagerState`.
    """

    policy: str
    zones: Mapping[int, ZoneMemory] = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]] = field(default_factory=dict)
    pod_entries: Mapping[str, tuple[MemoryBlock, ...]] = field(default_factory=dict)
    embedded: bool = False


@dataclass(frozen=True, slots=True)
class AllocatedPods:
    """``allocated_pods_state``: pods that passed the whole admission chain, UID -> containers."""

    pods: Mapping[str, frozenset[str]] = field(default_factory=dict)


class DeviceHolding(Struct, frozen=True):
    """Devices of one resource: device id -> its zones, None where no zone is recorded."""

    resource: str
    devices: Mapping[str, ZoneSet | None]


@dataclass(frozen=True, slots=True)
class DeviceCheckpoint:
    """``kubelet_internal_checkpoint`` of the device manager.

    ``entries``: UID -> container name -> holdings, one per resource. ``registered``: resource ->
    ids of its **healthy** devices; empty from a kubelet restart until the plugin registers again.
    """

    entries: Mapping[str, Mapping[str, tuple[DeviceHolding, ...]]] = field(default_factory=dict)
    registered: Mapping[str, frozenset[str]] = field(default_factory=dict)


class ListedContainer(Struct, frozen=True):
    """A container as podresources lists it; ordinary init containers are never listed.

    ``devices`` are merged: the kubelet sends one entry per device and zone.
    """

    name: str
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DeviceHolding, ...] = ()
    claimed: tuple[ClaimedDevice, ...] = ()


class ListedPod(Struct, frozen=True):
    """A pod as podresources lists it: no UID, and shown before it is admitted.

    ``cpus`` and ``memory`` are what a pod with pod-level resources holds as a whole (1.37, gate
    PodLevelResourceManagers); containers list then only what is theirs alone, which is part of it.
    """

    namespace: str
    name: str
    containers: tuple[ListedContainer, ...] = ()
    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocatable:
    """Podresources' ``GetAllocatableResources``.

    ``cpus``: all CPUs that the kubelet knows less the reserved ones; empty under CPU policy none.
    ``memory``: one block per zone and type; empty under memory policy None. ``devices``: healthy
    ones only, and none whose topology has no zones (the kubelet leaves those out).
    """

    cpus: CPUSet = 0
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[DeviceHolding, ...] = ()


#: What tells one version of a file from the next; None for a file that is not there.
Signature: TypeAlias = "tuple[int, int, int] | None"


@dataclass(frozen=True, kw_only=True)
class StateFiles:
    """The state files as read at one moment; None for a file that is not there.

    ``read_ns`` is when reading began (Unix time).
    """

    allocated: AllocatedPods | None = None
    devices: DeviceCheckpoint | None = None
    cpu: CPUManagerState | None = None
    memory: MemoryManagerState | None = None
    signatures: tuple[Signature, ...] = (None, None, None, None)
    read_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class KubeletView:
    """All that one kubelet says, as read; nothing here is reconciled yet.

    Attributes:
        config: effective configuration, None where it cannot be learnt.
        version: e.g. ``v1.35.4``; empty where unknown.
        epoch: changes only when the kubelet restarts; empty where it cannot be learnt.
        cpu: CPU manager state file.
        memory: memory manager state file.
        allocated: pods that were admitted (kubelets >= 1.33).
        devices: device-manager checkpoint.
        pods: podresources ``List``.
        allocatable: podresources ``GetAllocatableResources``.
        coherent: the podresources answers came while the files stood still, so that a difference
            between them is a disagreement and not a change under way.
    """

    config: KubeletConfig | None = None
    version: str = ""
    epoch: str = ""
    cpu: CPUManagerState | None = None
    memory: MemoryManagerState | None = None
    allocated: AllocatedPods | None = None
    devices: DeviceCheckpoint | None = None
    pods: tuple[ListedPod, ...] | None = None
    allocatable: Allocatable | None = None
    coherent: bool = True


def combine(
    files: StateFiles | None,
    *,
    config: KubeletConfig | None = None,
    version: str = "",
    epoch: str = "",
    pods: tuple[ListedPod, ...] | None = None,
    allocatable: Allocatable | None = None,
    coherent: bool = True,
) -> KubeletView:
    """Put the parts of a view together; ``coherent`` as in :class:`KubeletView`."""
    files = files or StateFiles()
    return KubeletView(
        config=config,
        version=version,
        epoch=epoch,
        cpu=files.cpu,
        memory=files.memory,
        allocated=files.allocated,
        devices=files.devices,
        pods=pods,
        allocatable=allocatable,
        coherent=coherent,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePod:
    """A pod of this node as the API shows it.

    Attributes:
        uid: the UID that the kubelet uses (static pods: that of the manifest, not of the mirror).
        terminal: phase Succeeded or Failed, or known to be deleted.
        admitted: the kubelet has reported on it (startTime) and did not refuse it; the admission
            marker for kubelets that keep no ``allocated_pods_state``.
        is_mirror: the API shows a mirror pod, which stands for a static one.
        koordlet: what Koordinator says of it; None: nothing.
    """

    uid: str
    namespace: str
    name: str
    terminal: bool = False
    admitted: bool = True
    is_mirror: bool = False
    koordlet: KoordletPod | None = None
