"""The kubelet's checkpoint files: the same JSON, checksums and order of writes.

A checksum is FNV-1a over Go's dump of the structure (apimachinery ``util/dump``: spew's ``%#v``
with sorted keys), so the dumps of the four structures are spelt out here. Sources: the ``state``
packages of cpumanager, memorymanager and allocation, and devicemanager/checkpoint (v1.35).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import orjson

from rte.kubelet import statefiles
from rte.kubelet.reading import PLUGIN_DIR
from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rte.model.kubelet import CPUManagerState, DeviceCheckpoint, MemoryManagerState
    from rte.model.node import MemoryBlock, ZoneMemory

_AMOUNTS = (
    ("total", "TotalMemSize", "total"),
    ("systemReserved", "SystemReserved", "system_reserved"),
    ("allocatable", "Allocatable", "allocatable"),
    ("reserved", "Reserved", "reserved"),
    ("free", "Free", "free"),
)


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def encode_cpu_state(state: CPUManagerState) -> bytes:
    """``cpu_manager_state``."""
    entries = {
        uid: {name: bits.format_list(cpus) for name, cpus in sorted(containers.items())}
        for uid, containers in sorted(state.entries.items())
    }
    default = bits.format_list(state.default)
    dump = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){state.policy} "
        f"DefaultCPUSet:(string){default} "
        f"Entries:(map[string]map[string]string){_dump(entries)} "
        "Checksum:(checksum.Checksum)0}"
    )
    return orjson.dumps(
        {
            "policyName": state.policy,
            "defaultCpuSet": default,
            **({"entries": entries} if entries else {}),
            "checksum": fnv1a(dump),
        }
    )


def encode_memory_state(state: MemoryManagerState) -> bytes:
    """``memory_manager_state``."""
    zones = sorted(state.zones.items())
    entries = {
        uid: {name: [_block(block) for block in blocks] for name, blocks in sorted(held.items())}
        for uid, held in sorted(state.entries.items())
    }
    dumped = " ".join(f"{zone}:{_dump_zone(row)}" for zone, row in zones)
    dumped_entries = " ".join(
        f"{uid}:map["
        + " ".join(
            f"{name}:[" + " ".join(_dump_block(block) for block in blocks) + "]"
            for name, blocks in sorted(held.items())
        )
        + "]"
        for uid, held in sorted(state.entries.items())
    )
    dump = (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){state.policy} "
        f"MachineState:(state.NUMANodeMap)map[{dumped}] "
        f"Entries:(state.ContainerMemoryAssignments)map[{dumped_entries}] "
        "Checksum:(checksum.Checksum)0}"
    )
    return orjson.dumps(
        {
            "policyName": state.policy,
            "machineState": {str(zone): _zone(row) for zone, row in zones},
            **({"entries": entries} if entries else {}),
            "checksum": fnv1a(dump),
        }
    )


def encode_device_checkpoint(state: DeviceCheckpoint) -> bytes:
    """``kubelet_internal_checkpoint``."""
    entries = [
        {
            "PodUID": uid,
            "ContainerName": name,
            "ResourceName": holding.resource,
            "DeviceIDs": _by_zone(holding.devices),
            "AllocResp": "",
        }
        for uid, containers in sorted(state.entries.items())
        for name, holdings in sorted(containers.items())
        for holding in holdings
    ]
    registered = {name: sorted(ids) for name, ids in sorted(state.registered.items())}
    dumped = " ".join(
        f"{{PodUID:(string){row['PodUID']} ContainerName:(string){row['ContainerName']} "
        f"ResourceName:(string){row['ResourceName']} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_dump(row['DeviceIDs'])} AllocResp:([]uint8)[]}}"
        for row in entries
    )
    dump = (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{f'[{dumped}]' if entries else '<nil>'} "
        f"RegisteredDevices:(map[string][]string){_dump(registered)}}}"
    )
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
    return orjson.dumps({"Data": data, "Checksum": fnv1a(dump)})


def encode_allocated_pods(specs: Mapping[str, Mapping[str, Any]]) -> bytes:
    """``allocated_pods_state`` of admitted pods: UID -> pod spec of the API.

    It holds app containers and sidecars, not ordinary init containers.
    """
    entries = {
        uid: {
            "ContainerResources": {
                container["name"]: _resources(container.get("resources") or {})
                for container in sorted(_running(spec), key=lambda item: str(item["name"]))
            },
            "PodLevelResources": _resources(spec["resources"]) if spec.get("resources") else None,
        }
        for uid, spec in sorted(specs.items())
    }
    data = orjson.dumps({"entries": entries} if entries else {}).decode()
    return orjson.dumps({"data": data, "checksum": fnv1a(f"(string){data}")})


def _running(spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from spec.get("containers") or ()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield container


def _resources(stanza: Mapping[str, Any]) -> dict[str, Any]:
    return {
        which: dict(sorted(stanza[which].items()))
        for which in ("limits", "requests")
        if stanza.get(which)
    }


def _dump(value: object) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_dump(item)}" for key, item in value.items()) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_dump(item) for item in value) + "]"
    return str(value)


def _zone(row: ZoneMemory) -> dict[str, Any]:
    return {
        "numberOfAssignments": row.assignments,
        "memoryMap": {
            name: {key: getattr(amounts, field) for key, _, field in _AMOUNTS}
            for name, amounts in sorted(row.amounts.items())
        },
        "cells": list(bits.members(row.group)),
    }


def _dump_zone(row: ZoneMemory) -> str:
    tables = " ".join(
        f"{name}:<*>"
        "{" + " ".join(f"{go}:(uint64){getattr(amounts, field)}" for _, go, field in _AMOUNTS) + "}"
        for name, amounts in sorted(row.amounts.items())
    )
    cells = " ".join(str(zone) for zone in bits.members(row.group))
    return (
        f"<*>{{NumberOfAssignments:(int){row.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{tables}] Cells:([]int)[{cells}]}}"
    )


def _block(block: MemoryBlock) -> dict[str, Any]:
    zones = list(bits.members(block.zones))
    return {"numaAffinity": zones, "type": block.resource, "size": block.size}


def _dump_block(block: MemoryBlock) -> str:
    zones = " ".join(str(zone) for zone in bits.members(block.zones))
    return (
        f"{{NUMAAffinity:([]int)[{zones}] Type:(v1.ResourceName){block.resource} "
        f"Size:(uint64){block.size}}}"
    )


def _by_zone(devices: Mapping[str, int | None]) -> dict[str, list[str]]:
    table: dict[int, list[str]] = {}
    for device, zones in sorted(devices.items()):
        for zone in bits.members(zones) if zones else (-1,):
            table.setdefault(zone, []).append(device)
    return {str(zone): ids for zone, ids in sorted(table.items())}


class StateDir:
    """The kubelet's directory; remembers what it wrote, so an unchanged file is not written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: dict[str, bytes] = {}
        (root / PLUGIN_DIR).mkdir(parents=True, exist_ok=True)

    def write_cpu_state(self, state: CPUManagerState) -> None:
        """Write ``cpu_manager_state``."""
        self._write(statefiles.CPU_STATE, encode_cpu_state(state))

    def write_memory_state(self, state: MemoryManagerState) -> None:
        """Write ``memory_manager_state``."""
        self._write(statefiles.MEMORY_STATE, encode_memory_state(state))

    def write_device_checkpoint(self, state: DeviceCheckpoint) -> None:
        """Write the device manager's checkpoint."""
        name = f"{PLUGIN_DIR}/{statefiles.DEVICE_CHECKPOINT}"
        self._write(name, encode_device_checkpoint(state))

    def write_allocated_pods(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """Write ``allocated_pods_state``."""
        self._write(statefiles.ALLOCATED_PODS, encode_allocated_pods(specs))

    def _write(self, name: str, text: bytes) -> None:
        if self._written.get(name) == text:
            return
        path = self.root / name
        partial = path.with_name(f".{path.name}.partial")  # as pkg/kubelet/util/store does
        partial.write_bytes(text)
        os.replace(partial, path)  # noqa: PTH105 (atomic, and what the kubelet does)
        self._written[name] = text
