"""Parsers of the kubelet's checkpoint files: text in, values of :mod:`rte.model.kubelet` out.

The kubelet replaces these files atomically (pkg/kubelet/util/store), so text that does not parse
was damaged, or cut short by whoever copied it. Checksums are hashes of Go's in-memory layout and
are not verified; structure and types are, down to every id and amount. Go writes an empty map or
list as null, or leaves it out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from rte import errors
from rte.model import bits
from rte.model.kubelet import (
    WHOLE_POD,
    AllocatedPods,
    CPUManagerState,
    DeviceCheckpoint,
    DeviceHolding,
    MemoryManagerState,
)
from rte.model.node import MemoryAmounts, MemoryBlock, ZoneMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_T = TypeVar("_T")

CPU_STATE = "cpu_manager_state"
MEMORY_STATE = "memory_manager_state"
ALLOCATED_PODS = "allocated_pods_state"
DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"

#: No machine has an exbibyte: the kubelet's unsigned arithmetic has run below zero, or the file is
#: damaged. Sums of sound amounts stay far within 64 bits.
MOST_BYTES = 1 << 60

#: Stands for "no zone recorded" in the device checkpoint (nodeWithoutTopology in pod_devices.go).
_NO_ZONE = "-1"


_Amount: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_BYTES)]
_Zone: TypeAlias = Annotated[int, Meta(ge=0, le=bits.MAX_ID)]
#: By UID and container.
_ByContainer: TypeAlias = dict[str, dict[str, _T] | None]


class _PodCPUs(Struct, rename="camel"):
    cpu_set: str = ""


class _CPUDocument(Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str
    entries: _ByContainer[str] | None = None
    pod_entries: dict[str, _PodCPUs | None] | None = None


class _Block(Struct, rename="camel"):
    type: str
    size: _Amount
    numa_affinity: list[_Zone] | None = None


class _Amounts(Struct, rename="camel"):
    total: _Amount
    system_reserved: _Amount
    allocatable: _Amount
    reserved: _Amount
    free: _Amount


class _Row(Struct, rename="camel"):
    number_of_assignments: _Amount
    memory_map: dict[str, _Amounts] | None = None
    cells: list[_Zone] | None = None


class _PodBlocks(Struct, rename="camel"):
    memory_blocks: list[_Block] | None = None


class _MemoryDocument(Struct, rename="camel"):
    policy_name: str
    machine_state: dict[str, _Row] | None = None
    entries: _ByContainer[list[_Block] | None] | None = None
    pod_entries: dict[str, _PodBlocks | None] | None = None


class _AllocatedDocument(Struct):
    data: str


class _Allocated(Struct, rename="pascal"):
    container_resources: dict[str, Raw] | None = None


class _AllocatedData(Struct):
    entries: dict[str, _Allocated | None] | None = None


class _DeviceEntry(Struct, rename="pascal"):
    pod_uid: str = field(name="PodUID")
    container_name: str
    resource_name: str
    #: By zone; kubelets before 1.20 recorded no zones.
    device_ids: dict[str, list[str] | None] | list[str] | None = field(
        name="DeviceIDs", default=None
    )


class _DeviceData(Struct, rename="pascal"):
    pod_device_entries: list[_DeviceEntry] | None = None
    registered_devices: dict[str, list[str] | None] | None = None


class _DeviceDocument(Struct):
    data: _DeviceData | None = field(name="Data")


_CPU_DECODER = msgspec.json.Decoder(_CPUDocument)
_MEMORY_DECODER = msgspec.json.Decoder(_MemoryDocument)
_ALLOCATED_DECODER = msgspec.json.Decoder(_AllocatedDocument)
_ALLOCATED_DATA_DECODER = msgspec.json.Decoder(_AllocatedData)
_DEVICE_DECODER = msgspec.json.Decoder(_DeviceDocument)


def parse_cpu_state(text: str | bytes, what: str = CPU_STATE) -> CPUManagerState:
    """Parse ``cpu_manager_state`` (pkg/kubelet/cm/cpumanager/state/checkpoint.go, v2 and v3).

    Raises:
        errors.ParseError: not such a file.
    """
    document = _decode(_CPU_DECODER, text, what)
    entries = {
        uid: {name: _cpus(cpus, what) for name, cpus in (containers or {}).items()}
        for uid, containers in (document.entries or {}).items()
    }
    for uid, entry in (document.pod_entries or {}).items():
        cpus = entry.cpu_set if entry else ""
        entries.setdefault(uid, {})[WHOLE_POD] = bits.parse_list(cpus, what)
    return CPUManagerState(
        policy=document.policy_name,
        default=bits.parse_list(document.default_cpu_set, what),
        entries=entries,
    )


def parse_memory_state(text: str | bytes, what: str = MEMORY_STATE) -> MemoryManagerState:
    """Parse ``memory_manager_state`` (pkg/kubelet/cm/memorymanager/state/checkpoint.go).

    Raises:
        errors.ParseError: not such a file.
    """
    document = _decode(_MEMORY_DECODER, text, what)
    zones = {}
    for key, row in (document.machine_state or {}).items():
        zone = _zone_key(key, what)
        zones[zone] = _zone_memory(zone, row)
    entries = {
        uid: {name: _blocks(blocks or ()) for name, blocks in (containers or {}).items()}
        for uid, containers in (document.entries or {}).items()
    }
    for uid, entry in (document.pod_entries or {}).items():
        blocks = entry.memory_blocks if entry else None
        entries.setdefault(uid, {})[WHOLE_POD] = _blocks(blocks or ())
    return MemoryManagerState(
        policy=document.policy_name,
        zones=dict(sorted(zones.items())),
        entries=entries,
    )


def parse_allocated_pods(text: str | bytes, what: str = ALLOCATED_PODS) -> AllocatedPods:
    """Parse ``allocated_pods_state`` (pkg/kubelet/allocation/state/checkpoint.go, >= 1.33).

    Its payload is JSON inside a JSON string: pod UID -> container name -> allocated resources.

    Raises:
        errors.ParseError: not such a file.
    """
    document = _decode(_ALLOCATED_DECODER, text, what)
    data = _decode(_ALLOCATED_DATA_DECODER, document.data, what)
    return AllocatedPods(
        pods={
            uid: frozenset((entry and entry.container_resources) or ())
            for uid, entry in (data.entries or {}).items()
        }
    )


def parse_device_checkpoint(text: str | bytes, what: str = DEVICE_CHECKPOINT) -> DeviceCheckpoint:
    """Parse the device-manager checkpoint (pkg/kubelet/cm/devicemanager/checkpoint).

    A device without topology and one whose topology has no zones look the same here: None.

    Raises:
        errors.ParseError: not such a file.
    """
    data = _decode(_DEVICE_DECODER, text, what).data or _DeviceData()
    entries: dict[str, dict[str, tuple[DeviceHolding, ...]]] = {}
    for entry in data.pod_device_entries or ():
        containers = entries.setdefault(entry.pod_uid, {})
        name = entry.container_name
        holding = DeviceHolding(entry.resource_name, _device_zones(entry.device_ids or {}, what))
        containers[name] = (*containers.get(name, ()), holding)
    registered = {
        resource: frozenset(devices or ())
        for resource, devices in (data.registered_devices or {}).items()
    }
    return DeviceCheckpoint(entries=entries, registered=registered)


# From one version of the file to the next, nearly all lists stay as they are.
_cpus = lru_cache(maxsize=8192)(bits.parse_list)


def _decode(decoder: msgspec.json.Decoder[_T], text: str | bytes, what: str) -> _T:
    if not text.strip():
        raise errors.ParseError(what, text, "empty")
    try:
        # The decoder passes over what it does not look at, so over damaged keys too.
        return decoder.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise errors.ParseError(what, text, str(error)) from error


def _device_zones(
    ids: dict[str, list[str] | None] | list[str], what: str
) -> Mapping[str, int | None]:
    if isinstance(ids, list):
        return dict.fromkeys(ids)
    zones: dict[str, int | None] = {}
    for key, devices in ids.items():
        zone = None if key == _NO_ZONE else _zone_key(key, what)
        for device in devices or ():
            if zone is None:
                zones.setdefault(device, None)
            else:
                zones[device] = (zones.get(device) or 0) | 1 << zone
    return zones


def _zone_memory(zone: int, row: _Row) -> ZoneMemory:
    return ZoneMemory(
        assignments=row.number_of_assignments,
        group=bits.of(row.cells or ()) or 1 << zone,
        amounts={
            resource: MemoryAmounts(
                amounts.total,
                amounts.system_reserved,
                amounts.allocatable,
                amounts.reserved,
                amounts.free,
            )
            for resource, amounts in sorted((row.memory_map or {}).items())
        },
    )


def _blocks(blocks: Iterable[_Block]) -> tuple[MemoryBlock, ...]:
    return tuple(
        [
            MemoryBlock(block.type, bits.of(block.numa_affinity or ()), block.size)
            for block in blocks
        ]
    )


def _zone_key(key: str, what: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 6 and int(key) <= bits.MAX_ID):
        raise errors.ParseError(what, key, "expected a zone id")
    return int(key)
