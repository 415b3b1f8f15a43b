"""Parsers of the kubelet's checkpoint files: text in, values of :mod:`rte.model.kubelet` out.

The kubelet replaces these files atomically (pkg/kubelet/util/store), so text that does not parse
was damaged, or cut short by whoever copied it. Verified are structure and types, down to every id
and amount, and the file's own checksum, as a starting kubelet does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from rte import errors
from rte.kubelet import checkpoints
from rte.model import bits
from rte.model.kubelet import (
    AllocatedPods,
    CPUManagerState,
    DeviceCheckpoint,
    DeviceHolding,
    MemoryManagerState,
)
from rte.model.node import MemoryAmounts, MemoryBlock, ZoneMemory
from rte.reader import budget, jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")

CPU_STATE = "cpu_manager_state"
MEMORY_STATE = "memory_manager_state"
ALLOCATED_PODS = "allocated_pods_state"
DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"

#: Stands for "no zone recorded" in the device checkpoint (nodeWithoutTopology in pod_devices.go).
_NO_ZONE = "-1"


def parse_cpu_state(text: str | bytes, what: str = CPU_STATE) -> CPUManagerState:
    """Parse ``cpu_manager_state`` in the formats V2 to V4.

    Which format a file has is decided as a kubelet of 1.37 does (cpumanager/state,
    loadAndMigrateCheckpointV4): by ``data``; else by which checksum holds, and only V2 may have
    none.

    Raises:
        errors.ParseError: not such a file, or its checksum does not hold.
    """
    data = _embedded(text, what)
    document = _decode(checkpoints.CPUDocument, text if data is None else data, what)
    entries = {
        uid: {name: _cpus(cpus, what) for name, cpus in (containers or {}).items()}
        for uid, containers in (document.entries or {}).items()
    }
    pods = {uid: _cpus(entry.cpu_set, what) for uid, entry in (document.pod_entries or {}).items()}
    default = bits.parse_list(document.default_cpu_set, what)
    if data is None and not _has_pods(document, text, what):
        pods = {}
    return CPUManagerState(
        policy=document.policy_name,
        default=default,
        entries=entries,
        pod_entries=pods,
        embedded=data is not None,
    )


def parse_memory_state(text: str | bytes, what: str = MEMORY_STATE) -> MemoryManagerState:
    """Parse ``memory_manager_state`` in the formats V1 to V3; as :func:`parse_cpu_state`.

    Raises:
        errors.ParseError: not such a file, or its checksum does not hold.
    """
    data = _embedded(text, what)
    document = _decode(checkpoints.MemoryDocument, text if data is None else data, what)
    zones = {}
    for key, row in (document.machine_state or {}).items():
        zone = _zone_key(key, what)
        zones[zone] = _zone_memory(zone, row)
    pods = {
        uid: _blocks(entry.memory_blocks or ())
        for uid, entry in (document.pod_entries or {}).items()
    }
    if data is None and not _has_pods(document, text, what):
        pods = {}
    return MemoryManagerState(
        policy=document.policy_name,
        zones=dict(sorted(zones.items())),
        entries={
            uid: {name: _blocks(blocks or ()) for name, blocks in (containers or {}).items()}
            for uid, containers in (document.entries or {}).items()
        },
        pod_entries=pods,
        embedded=data is not None,
    )


def parse_allocated_pods(text: str | bytes, what: str = ALLOCATED_PODS) -> AllocatedPods:
    """Parse ``allocated_pods_state`` (pkg/kubelet/allocation/state/checkpoint.go, >= 1.33).

    Its payload is JSON inside a JSON string: pod UID -> container name -> allocated resources.

    Raises:
        errors.ParseError: not such a file, or its checksum does not hold.
    """
    document = _decode(checkpoints.AllocatedDocument, text, what)
    data = _decode(checkpoints.AllocatedData, document.data, what)
    _verify(document.checksum, checkpoints.text_checksum(document.data), text, what)
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
        errors.ParseError: not such a file, or its checksum does not hold.
    """
    document = _decode(checkpoints.DeviceDocument, text, what)
    data = document.data
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
    _verify(document.checksum, data.content_checksum(), text, what)
    return DeviceCheckpoint(entries=entries, registered=registered)


# From one version of the file to the next, nearly all lists stay as they are.
_cpus = lru_cache(maxsize=8192)(bits.parse_list)
_mask = lru_cache(maxsize=1024)(bits.of)


def _embedded(text: str | bytes, what: str) -> str | None:
    """The content of the formats of 1.37; None for an older format."""
    envelope = _decode(checkpoints.Envelope, text, what)
    if not envelope.is_used:
        return None
    _verify(envelope.data_checksum, checkpoints.text_checksum(envelope.data), text, what)
    return envelope.data


def _has_pods(
    document: checkpoints.CPUDocument | checkpoints.MemoryDocument, text: str | bytes, what: str
) -> bool:
    """Whether a file of an older format has pod entries, by the checksum that holds.

    Raises:
        errors.ParseError: none does.
    """
    told = document.checksum
    if document.pod_entries and document.content_checksum(with_pods=True) == told:
        return True
    # An old file backend wrote none.
    if told in (0, document.content_checksum()):
        return False
    _verify(told, document.content_checksum(with_pods=True), text, what)
    return True


def _verify(told: int, found: int, text: str | bytes, what: str) -> None:
    if told != found:
        raise errors.ParseError(
            what, text, f"its checksum is {told}, that of its content {found}: torn, or edited"
        )


def _decode(kind: type[_T], text: str | bytes, what: str) -> _T:
    if not text.strip():
        raise errors.ParseError(what, text, "empty")
    try:
        # The decoder passes over what it does not look at, so over damaged keys too.
        whole = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise errors.ParseError(what, text, str(error)) from error
    return jsontext.decode(whole, kind, what, budget.FILE)


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


def _zone_memory(zone: int, row: checkpoints.CheckpointZone) -> ZoneMemory:
    return ZoneMemory(
        assignments=row.number_of_assignments,
        group=_mask(row.cells or ()) or 1 << zone,
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


@lru_cache(maxsize=2048)
def _blocks(blocks: tuple[checkpoints.CheckpointBlock, ...]) -> tuple[MemoryBlock, ...]:
    return tuple(
        [MemoryBlock(block.type, _mask(block.numa_affinity or ()), block.size) for block in blocks]
    )


def _zone_key(key: str, what: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 6 and int(key) <= bits.MAX_ID):
        raise errors.ParseError(what, key, "expected a zone id")
    return int(key)
