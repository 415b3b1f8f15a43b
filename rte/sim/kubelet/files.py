"""The kubelet's checkpoint files: the same JSON, formats, checksums and order of writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from rte.kubelet import PLUGIN_DIR, checkpoints, statefiles
from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rte.model.kubelet import CPUManagerState, DeviceCheckpoint, MemoryManagerState
    from rte.model.node import MemoryBlock, ZoneMemory


def encode_cpu_state(state: CPUManagerState) -> bytes:
    """``cpu_manager_state``: V4 for an embedded state, V3 for one with pod entries, else V2."""
    document = checkpoints.CPUDocument(
        policy_name=state.policy,
        default_cpu_set=bits.format_list(state.default),
        entries={
            uid: {name: bits.format_list(cpus) for name, cpus in sorted(containers.items())}
            for uid, containers in sorted(state.entries.items())
        },
        pod_entries={
            uid: checkpoints.PodCPUs(bits.format_list(cpus))
            for uid, cpus in sorted(state.pod_entries.items())
        },
    )
    return _encode(document, embedded=state.embedded)


def encode_memory_state(state: MemoryManagerState) -> bytes:
    """``memory_manager_state``: V3 for an embedded state, V2 for one with pod entries, else V1."""
    document = checkpoints.MemoryDocument(
        policy_name=state.policy,
        machine_state={str(zone): _row(row) for zone, row in sorted(state.zones.items())},
        entries={
            uid: {name: _blocks(blocks) for name, blocks in sorted(held.items())}
            for uid, held in sorted(state.entries.items())
        },
        pod_entries={
            uid: checkpoints.PodBlocks(_blocks(blocks))
            for uid, blocks in sorted(state.pod_entries.items())
        },
    )
    return _encode(document, embedded=state.embedded)


def encode_device_checkpoint(state: DeviceCheckpoint) -> bytes:
    """``kubelet_internal_checkpoint``."""
    entries = [
        checkpoints.DeviceEntry(
            pod_uid=uid,
            container_name=name,
            resource_name=holding.resource,
            device_ids=_by_zone(holding.devices),
            alloc_resp=b"",
        )
        for uid, containers in sorted(state.entries.items())
        for name, holdings in sorted(containers.items())
        for holding in holdings
    ]
    data = checkpoints.DeviceData(
        pod_device_entries=entries or None,
        registered_devices={name: sorted(ids) for name, ids in sorted(state.registered.items())},
    )
    return msgspec.json.encode(checkpoints.DeviceDocument(data, data.content_checksum()))


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
    return orjson.dumps({"data": data, "checksum": checkpoints.text_checksum(data)})


def _encode(
    document: checkpoints.CPUDocument | checkpoints.MemoryDocument, *, embedded: bool
) -> bytes:
    if not embedded:
        document.checksum = document.content_checksum(with_pods=bool(document.pod_entries))
        return msgspec.json.encode(document)
    data = msgspec.json.encode(document).decode()
    document.pod_entries = {}
    document.checksum = document.content_checksum()
    outer = msgspec.to_builtins(document)
    return orjson.dumps(outer | {"data": data, "dataChecksum": checkpoints.text_checksum(data)})


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


def _row(row: ZoneMemory) -> checkpoints.CheckpointZone:
    return checkpoints.CheckpointZone(
        number_of_assignments=row.assignments,
        memory_map={
            name: checkpoints.CheckpointAmounts(
                amounts.total,
                amounts.system_reserved,
                amounts.allocatable,
                amounts.reserved,
                amounts.free,
            )
            for name, amounts in sorted(row.amounts.items())
        },
        cells=tuple(bits.members(row.group)),
    )


def _blocks(blocks: Iterable[MemoryBlock]) -> tuple[checkpoints.CheckpointBlock, ...]:
    return tuple(
        checkpoints.CheckpointBlock(
            numa_affinity=tuple(bits.members(block.zones)), type=block.resource, size=block.size
        )
        for block in blocks
    )


def _by_zone(devices: Mapping[str, int | None]) -> dict[str, list[str] | None]:
    table: dict[int, list[str]] = {}
    for device, zones in sorted(devices.items()):
        for zone in bits.members(zones) if zones else (-1,):
            table.setdefault(zone, []).append(device)
    return {str(zone): table[zone] for zone in sorted(table)}


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
