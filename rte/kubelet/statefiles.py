"""Parsers of the kubelet's checkpoint files: text in, values of :mod:`rte.model.kubelet` out.

The kubelet replaces these files atomically (pkg/kubelet/util/store), so text that does not parse
was damaged, or cut short by whoever copied it. Checksums are hashes of Go's in-memory layout and
are not verified; structure and types are, down to every id and amount.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

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
    from collections.abc import Mapping

CPU_STATE = "cpu_manager_state"
MEMORY_STATE = "memory_manager_state"
ALLOCATED_PODS = "allocated_pods_state"
DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"

#: No machine has an exbibyte: the kubelet's unsigned arithmetic has run below zero, or the file is
#: damaged. Sums of sound amounts stay far within 64 bits.
MOST_BYTES = 1 << 60

#: Stands for "no zone recorded" in the device checkpoint (nodeWithoutTopology in pod_devices.go).
_NO_ZONE = "-1"


def parse_cpu_state(text: str | bytes, what: str = CPU_STATE) -> CPUManagerState:
    """Parse ``cpu_manager_state`` (pkg/kubelet/cm/cpumanager/state/checkpoint.go, v2 and v3).

    Raises:
        errors.ParseError: not such a file.
    """
    document = _document(text, what)
    entries = {
        uid: {
            name: _cpus(_text(cpus, what, "a CPU list"), what)
            for name, cpus in _table(containers, what, "entries by pod UID and container").items()
        }
        for uid, containers in _table(document.get("entries"), what, "entries").items()
    }
    for uid, entry in _table(document.get("podEntries"), what, "podEntries").items():
        cpus = _text(_table(entry, what, "podEntries").get("cpuSet", ""), what, "a CPU list")
        entries.setdefault(uid, {})[WHOLE_POD] = bits.parse_list(cpus, what)
    return CPUManagerState(
        policy=_required_text(document, "policyName", what),
        default=bits.parse_list(_required_text(document, "defaultCpuSet", what), what),
        entries=entries,
    )


def parse_memory_state(text: str | bytes, what: str = MEMORY_STATE) -> MemoryManagerState:
    """Parse ``memory_manager_state`` (pkg/kubelet/cm/memorymanager/state/checkpoint.go).

    Raises:
        errors.ParseError: not such a file.
    """
    document = _document(text, what)
    zones = {}
    for key, row in _table(document.get("machineState"), what, "machineState").items():
        zone = _zone_key(key, what)
        zones[zone] = _zone_memory(zone, _table(row, what, "machineState"), what)
    entries = {
        uid: {
            name: _blocks(blocks, what)
            for name, blocks in _table(containers, what, "entries by pod UID and container").items()
        }
        for uid, containers in _table(document.get("entries"), what, "entries").items()
    }
    for uid, entry in _table(document.get("podEntries"), what, "podEntries").items():
        blocks = _table(entry, what, "podEntries").get("memoryBlocks")
        entries.setdefault(uid, {})[WHOLE_POD] = _blocks(blocks, what)
    return MemoryManagerState(
        policy=_required_text(document, "policyName", what),
        zones=dict(sorted(zones.items())),
        entries=entries,
    )


def parse_allocated_pods(text: str | bytes, what: str = ALLOCATED_PODS) -> AllocatedPods:
    """Parse ``allocated_pods_state`` (pkg/kubelet/allocation/state/checkpoint.go, >= 1.33).

    Its payload is JSON inside a JSON string: pod UID -> container name -> allocated resources.

    Raises:
        errors.ParseError: not such a file.
    """
    document = _document(text, what)
    data = _document(_required_text(document, "data", what), what)
    pods = {}
    for uid, entry in _table(data.get("entries"), what, "entries").items():
        containers = _table(entry, what, "entries").get("ContainerResources")
        pods[uid] = frozenset(_table(containers, what, "ContainerResources"))
    return AllocatedPods(pods=pods)


def parse_device_checkpoint(text: str | bytes, what: str = DEVICE_CHECKPOINT) -> DeviceCheckpoint:
    """Parse the device-manager checkpoint (pkg/kubelet/cm/devicemanager/checkpoint).

    A device without topology and one whose topology has no zones look the same here: None.

    Raises:
        errors.ParseError: not such a file.
    """
    document = _document(text, what)
    if "Data" not in document:
        raise errors.ParseError(what, text, "no Data")
    data = _table(document["Data"], what, "Data")
    entries: dict[str, dict[str, tuple[DeviceHolding, ...]]] = {}
    for item in _rows(data.get("PodDeviceEntries"), what, "PodDeviceEntries"):
        entry = _table(item, what, "PodDeviceEntries")
        containers = entries.setdefault(_required_text(entry, "PodUID", what), {})
        name = _required_text(entry, "ContainerName", what)
        holding = DeviceHolding(
            _required_text(entry, "ResourceName", what),
            _device_zones(entry.get("DeviceIDs"), what),
        )
        containers[name] = (*containers.get(name, ()), holding)
    registered = {
        resource: frozenset(
            _text(device, what, "a device id")
            for device in _rows(devices, what, "RegisteredDevices")
        )
        for resource, devices in _table(
            data.get("RegisteredDevices"), what, "RegisteredDevices"
        ).items()
    }
    return DeviceCheckpoint(entries=entries, registered=registered)


# From one version of the file to the next, nearly all lists stay as they are.
_cpus = lru_cache(maxsize=8192)(bits.parse_list)


def _device_zones(value: object, what: str) -> Mapping[str, int | None]:
    if isinstance(value, list):  # kubelets before 1.20 recorded no zones
        return {_text(device, what, "a device id"): None for device in value}
    zones: dict[str, int | None] = {}
    for key, devices in _table(value, what, "DeviceIDs by zone").items():
        zone = None if key == _NO_ZONE else _zone_key(key, what)
        for device in _rows(devices, what, "DeviceIDs"):
            name = _text(device, what, "a device id")
            if zone is None:
                zones.setdefault(name, None)
            else:
                zones[name] = (zones.get(name) or 0) | 1 << zone
    return zones


def _zone_memory(zone: int, row: Mapping[str, Any], what: str) -> ZoneMemory:
    amounts = {}
    for resource, table in _table(row.get("memoryMap"), what, "memoryMap").items():
        numbers = _table(table, what, "memoryMap")
        amounts[resource] = MemoryAmounts(
            *(
                _amount(numbers.get(key), what, key)
                for key in ("total", "systemReserved", "allocatable", "reserved", "free")
            )
        )
    cells = _rows(row.get("cells"), what, "cells")
    return ZoneMemory(
        assignments=_amount(row.get("numberOfAssignments"), what, "numberOfAssignments"),
        group=bits.of(_zone(cell, what) for cell in cells) or 1 << zone,
        amounts=dict(sorted(amounts.items())),
    )


def _blocks(value: object, what: str) -> tuple[MemoryBlock, ...]:
    blocks = []
    for item in _rows(value, what, "memory blocks"):
        block = _table(item, what, "memory blocks")
        zones = 0
        for zone in _rows(block.get("numaAffinity"), what, "numaAffinity"):
            zones |= 1 << _zone(zone, what)
        resource = _required_text(block, "type", what)
        blocks.append(MemoryBlock(resource, zones, _amount(block.get("size"), what, "size")))
    return tuple(blocks)


def _document(text: str | bytes, what: str) -> Mapping[str, Any]:
    if not text.strip():
        raise errors.ParseError(what, text, "empty")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise errors.ParseError(what, text, f"not JSON: {error}") from error
    return _table(document, what, "the whole")


def _table(value: object, what: str, part: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.ParseError(what, value, f"{part}: expected an object")
    return value


def _rows(value: object, what: str, part: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise errors.ParseError(what, value, f"{part}: expected a list")
    return value


def _text(value: object, what: str, part: str) -> str:
    if not isinstance(value, str):
        raise errors.ParseError(what, value, f"expected {part}")
    return value


def _required_text(document: Mapping[str, Any], key: str, what: str) -> str:
    if key not in document:
        raise errors.ParseError(what, document, f"no {key}")
    return _text(document[key], what, key)


def _amount(value: object, what: str, part: str) -> int:
    if type(value) is not int or not 0 <= value < MOST_BYTES:
        raise errors.ParseError(what, value, f"{part}: expected a number from 0 to 2^60")
    return value


def _zone_key(key: str, what: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 6):
        raise errors.ParseError(what, key, "expected a zone id")
    return _zone(int(key), what)


def _zone(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value <= bits.MAX_ID:
        raise errors.ParseError(what, value, "expected a zone id")
    return value
