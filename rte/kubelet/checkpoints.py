"""The kubelet's checkpoint files as they lie on disk: their fields, their formats, their checksums.

A checksum is FNV-1a (32 bits) over the text into which Go prints the object, its own checksum being
zero (pkg/kubelet/checkpointmanager/checksum, k8s.io/utils/dump.ForHash: spew's ``%#v``, keys
sorted). Go writes an empty map or list as null or leaves it out; where the two print differently,
so they are kept apart here: a field that is left out is empty, one that is null is None.

The formats of ``cpu_manager_state`` (cpumanager/state/checkpoint.go) and ``memory_manager_state``
(memorymanager/state/checkpoint.go):

* CPU V2 and memory V1: one object. All releases up to 1.35; 1.36 with the gate
  PodLevelResourceManagers off.
* CPU V3 and memory V2: the same with ``podEntries``. 1.36 with the gate on.
* CPU V4 and memory V3: the content is a JSON text in ``data``, guarded by ``dataChecksum``. The
  other fields are those of the oldest format, for kubelets that are older. 1.37.

The device checkpoint and ``allocated_pods_state`` have one format in 1.33 to 1.37.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from fnv_hash_fast import fnv1a_32
from msgspec import Meta, Raw, Struct, field

from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_T = TypeVar("_T")
_Key = TypeVar("_Key", str, int)

#: No machine has an exbibyte: the kubelet's unsigned arithmetic has run below zero, or the file is
#: damaged. Sums of sound amounts stay far within 64 bits.
MOST_BYTES = 1 << 60

Amount: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_BYTES)]
Checksum: TypeAlias = Annotated[int, Meta(ge=0)]
#: By UID and container.
ByContainer: TypeAlias = dict[str, dict[str, _T] | None]

_NIL = "<nil>"


class Envelope(Struct, rename="camel"):
    """What tells CPU V4 and memory V3 from older formats."""

    data: str = ""
    data_checksum: Checksum = 0

    @property
    def is_used(self) -> bool:
        """Whether the content is in ``data``; then a fault there is no reason to look elsewhere."""
        return bool(self.data or self.data_checksum)


class PodCPUs(Struct, rename="camel", omit_defaults=True):
    """What a pod holds as a whole; no field for no CPU."""

    cpu_set: str = ""


class CPUDocument(Struct, rename="camel", omit_defaults=True):
    """``cpu_manager_state`` in the formats V2 and V3, and the ``data`` of V4."""

    policy_name: str
    default_cpu_set: str
    entries: ByContainer[str] | None = field(default_factory=dict)
    pod_entries: dict[str, PodCPUs] | None = field(default_factory=dict)
    checksum: Checksum = 0

    def content_checksum(self, *, with_pods: bool = False) -> int:
        """The checksum of CPU V2, or ``with_pods`` of V3."""
        pods = ""
        if with_pods:
            pods = f" PodEntries:(state.PodCPUAssignments){_map(self.pod_entries, _pod_cpus)}"
        return _checksum(
            f"(*state.CPUManagerCheckpoint){{PolicyName:(string){self.policy_name} "
            f"DefaultCPUSet:(string){self.default_cpu_set} "
            f"Entries:(map[string]map[string]string){_map(self.entries, _of_containers)}"
            f"{pods} Checksum:(checksum.Checksum)0}}"
        )


class CheckpointBlock(Struct, rename="camel", kw_only=True, frozen=True):
    """A memory block."""

    numa_affinity: tuple[bits.Id, ...] | None = None
    type: str
    size: Amount


class CheckpointAmounts(Struct, rename="camel"):
    """Bytes of one memory type in one zone."""

    total: Amount
    system_reserved: Amount
    allocatable: Amount
    reserved: Amount
    free: Amount


class CheckpointZone(Struct, rename="camel"):
    """One zone."""

    number_of_assignments: Amount
    memory_map: dict[str, CheckpointAmounts] | None = None
    cells: tuple[bits.Id, ...] | None = None


class PodBlocks(Struct, rename="camel", omit_defaults=True):
    """What a pod holds as a whole."""

    memory_blocks: tuple[CheckpointBlock, ...] | None = None


class MemoryDocument(Struct, rename="camel", omit_defaults=True):
    """``memory_manager_state`` in the formats V1 and V2, and the ``data`` of V3."""

    policy_name: str
    machine_state: dict[str, CheckpointZone] | None
    entries: ByContainer[tuple[CheckpointBlock, ...] | None] | None = field(default_factory=dict)
    pod_entries: dict[str, PodBlocks] | None = field(default_factory=dict)
    checksum: Checksum = 0

    def content_checksum(self, *, with_pods: bool = False) -> int:
        """The checksum of memory V1, or ``with_pods`` of V2."""
        pods = ""
        if with_pods:
            pods = f" PodEntries:(state.PodMemoryAssignments){_map(self.pod_entries, _pod_blocks)}"
        return _checksum(
            f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){self.policy_name} "
            f"MachineState:(state.NUMANodeMap){_by_number(self.machine_state, _row)} "
            f"Entries:(state.ContainerMemoryAssignments){_map(self.entries, _blocks_of_containers)}"
            f"{pods} Checksum:(checksum.Checksum)0}}"
        )


class AllocatedDocument(Struct):
    """``allocated_pods_state``: ``data`` is a JSON text."""

    data: str
    checksum: Checksum = 0


class AllocatedPod(Struct, rename="pascal"):
    """One pod of ``allocated_pods_state``."""

    container_resources: dict[str, Raw] | None = None


class AllocatedData(Struct):
    """The ``data`` of ``allocated_pods_state``, by UID."""

    entries: dict[str, AllocatedPod | None] | None = None


class DeviceEntry(Struct, rename="pascal"):
    """What one container holds of one resource."""

    pod_uid: str = field(name="PodUID")
    container_name: str
    resource_name: str
    #: By zone; kubelets before 1.20 recorded no zones.
    device_ids: dict[str, list[str] | None] | list[str] | None = field(
        name="DeviceIDs", default=None
    )
    alloc_resp: bytes | None = None


class DeviceData(Struct, rename="pascal"):
    """The content of the device checkpoint."""

    pod_device_entries: list[DeviceEntry] | None = None
    registered_devices: dict[str, list[str] | None] | None = None

    def content_checksum(self) -> int:
        """The checksum of the device checkpoint."""
        return _checksum(
            "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
            f"{_list(self.pod_device_entries, _device_entry)} "
            f"RegisteredDevices:(map[string][]string){_map(self.registered_devices, _strings)}}}"
        )


class DeviceDocument(Struct, rename="pascal"):
    """``kubelet_internal_checkpoint``."""

    data: DeviceData
    checksum: Checksum = 0


def text_checksum(data: str) -> int:
    """The checksum of a content that is a text itself (``data``)."""
    return _checksum("(string)" + data)


def _checksum(printed: str) -> int:
    return fnv1a_32(printed.encode())


def _map(table: Mapping[_Key, _T] | None, printed: Callable[[_T], str]) -> str:
    if table is None:
        return _NIL
    if len(table) == 1:  # most pods have one container: a third of the time of all checksums
        ((key, value),) = table.items()
        return f"map[{key}:{printed(value)}]"
    return f"map[{' '.join([f'{key}:{printed(table[key])}' for key in sorted(table)])}]"


def _by_number(table: Mapping[str, _T] | None, printed: Callable[[_T], str]) -> str:
    """A map whose keys are numbers, which are texts in JSON."""
    if table is None:
        return _NIL
    return _map({int(key): value for key, value in table.items()}, printed)


def _list(items: Iterable[_T] | None, printed: Callable[[_T], str]) -> str:
    return _NIL if items is None else f"[{' '.join([printed(item) for item in items])}]"


def _strings(items: Iterable[str] | None) -> str:
    return _NIL if items is None else f"[{' '.join(items)}]"


# A handful of sets of zones, as often as there are blocks.
@lru_cache(maxsize=1024)
def _zones(zones: tuple[int, ...] | None) -> str:
    return _NIL if zones is None else f"[{' '.join(map(str, zones))}]"


def _of_containers(cpus: Mapping[str, str] | None) -> str:
    return _map(cpus, str)


def _blocks_of_containers(blocks: Mapping[str, tuple[CheckpointBlock, ...] | None] | None) -> str:
    return _map(blocks, _blocks)


@lru_cache(maxsize=1024)
def _go_cpu_set(cpu_set: str) -> str:
    """Go's set of CPUs: a structure around a map from number to nothing."""
    members = " ".join([f"{cpu}:{{}}" for cpu in bits.members(bits.parse_list(cpu_set))])
    return f"{{elems:(map[int]struct {{}})map[{members}]}}"


def _pod_cpus(pod: PodCPUs) -> str:
    return f"{{CPUSet:(cpuset.CPUSet){_go_cpu_set(pod.cpu_set)}}}"


def _pod_blocks(pod: PodBlocks) -> str:
    return f"{{MemoryBlocks:([]state.Block){_blocks(pod.memory_blocks)}}}"


def _row(row: CheckpointZone) -> str:
    return (
        f"<*>{{NumberOfAssignments:(int){row.number_of_assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){_map(row.memory_map, _amounts)} "
        f"Cells:([]int){_zones(row.cells)}}}"
    )


def _amounts(amounts: CheckpointAmounts) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){amounts.total} "
        f"SystemReserved:(uint64){amounts.system_reserved} "
        f"Allocatable:(uint64){amounts.allocatable} "
        f"Reserved:(uint64){amounts.reserved} Free:(uint64){amounts.free}}}"
    )


@lru_cache(maxsize=2048)
def _blocks(blocks: tuple[CheckpointBlock, ...] | None) -> str:
    return _list(blocks, _block)


def _block(block: CheckpointBlock) -> str:
    return (
        f"{{NUMAAffinity:([]int){_zones(block.numa_affinity)} "
        f"Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"
    )


def _device_entry(entry: DeviceEntry) -> str:
    ids = entry.device_ids
    if isinstance(ids, list):
        devices = f"([]string){_strings(ids)}"
    else:
        devices = f"(checkpoint.DevicesPerNUMA){_by_number(ids, _strings)}"
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} DeviceIDs:{devices} "
        f"AllocResp:([]uint8){_bytes(entry.alloc_resp)}}}"
    )


# A plugin's answer stays as it is while the container holds its devices.
@lru_cache(maxsize=1024)
def _bytes(data: bytes | None) -> str:
    return _NIL if data is None else f"[{' '.join(map(str, data))}]"
