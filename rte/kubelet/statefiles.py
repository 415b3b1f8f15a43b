"""The kubelet's checkpoint files: text in, values of :mod:`rte.model.kubelet` out, and one coherent
reading of all of them with podresources.

The kubelet replaces these files atomically (pkg/kubelet/util/store), so text that does not parse
was damaged, or cut short by whoever copied it. Verified are structure and types, down to every id
and amount, and the file's own checksum, as a starting kubelet does.

Files are read again only when they changed, so the same functions serve a reading on demand and
an agent that follows changes: keep the last :class:`StateFiles`, call :func:`read_state_files`
whenever a watch fires, and :func:`rte.model.kubelet.combine` the parts.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from rte import errors
from rte.kubelet import PLUGIN_DIR, checkpoints
from rte.model import bits
from rte.model.kubelet import (
    AllocatedPods,
    CPUManagerState,
    DeviceCheckpoint,
    DeviceHolding,
    MemoryManagerState,
    StateFiles,
    combine,
)
from rte.model.node import MemoryAmounts, MemoryBlock, ZoneMemory
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rte.model.kubelet import Allocatable, KubeletView, ListedPod, Signature
    from rte.model.node import KubeletConfig

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
    return jsontext.decode(whole, kind, what, jsontext.FILE)


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


#: Larger than any state file; a guard against a wrong path.
_MAX_FILE_BYTES = 64 << 20
_PIECE_BYTES = 16 << 10

#: A kubelet writes a burst of files per admission; it is over long before these are used up.
_ATTEMPTS = 20

#: Longest tick of a kernel's file clock: so long may two versions of a file have the same time, and
#: an inode that was freed by one rename may serve the next.
TICK_NS = 10_000_000

_State = TypeVar("_State")


class PodresourcesClient(Protocol):
    """What :func:`read_view` needs of a podresources client."""

    async def list(self) -> tuple[ListedPod, ...]:
        """All pods."""

    async def allocatable(self) -> Allocatable | None:
        """What could be handed out, None where the kubelet does not offer the call."""


def read_cpu_state(state_dir: Path) -> CPUManagerState | None:
    """Read ``cpu_manager_state``; None when it is not there.

    Raises:
        errors.KubeletError: the file cannot be read.
        errors.ParseError: it is empty, cut short or damaged.
    """
    return _read(state_dir / CPU_STATE, parse_cpu_state)


def read_memory_state(state_dir: Path) -> MemoryManagerState | None:
    """Read ``memory_manager_state``; as :func:`read_cpu_state`."""
    return _read(state_dir / MEMORY_STATE, parse_memory_state)


def read_allocated_pods(state_dir: Path) -> AllocatedPods | None:
    """Read ``allocated_pods_state``; as :func:`read_cpu_state`."""
    return _read(state_dir / ALLOCATED_PODS, parse_allocated_pods)


def read_device_checkpoint(plugin_dir: Path) -> DeviceCheckpoint | None:
    """Read the device manager's checkpoint; as :func:`read_cpu_state`."""
    return _read(plugin_dir / DEVICE_CHECKPOINT, parse_device_checkpoint)


def read_state_files(
    state_dir: Path, previous: StateFiles | None = None, *, plugin_dir: Path | None = None
) -> StateFiles:
    """Read all state files as of one moment, those unchanged since ``previous`` not again.

    A pod enters ``allocated_pods_state`` last, so that file is read first: whoever is in it has
    all its entries in files read later. The set is taken only when nothing changed meanwhile.

    ``plugin_dir`` is the device manager's folder, by default that below ``state_dir``.

    Raises:
        errors.KubeletError: no such directory, or a file cannot be read.
        errors.ParseError: a file is empty, cut short or damaged.
        errors.InconsistentStateError: the files kept changing while they were read.
    """
    if not state_dir.is_dir():
        raise errors.KubeletError(
            f"kubelet state directory {state_dir}: no such directory; "
            "name the kubelet's --root-dir with --kubelet-state-dir"
        )
    known = previous or StateFiles()
    plugins = plugin_dir or state_dir / PLUGIN_DIR
    before = _signatures(state_dir, plugins)
    for _ in range(_ATTEMPTS):
        now_ns = time.time_ns()
        allocated, devices, cpu, memory = (
            new is not None and new == old and new[1] + TICK_NS < known.read_ns
            for new, old in zip(before, known.signatures, strict=True)
        )
        known = StateFiles(
            allocated=known.allocated if allocated else read_allocated_pods(state_dir),
            devices=known.devices if devices else read_device_checkpoint(plugins),
            cpu=known.cpu if cpu else read_cpu_state(state_dir),
            memory=known.memory if memory else read_memory_state(state_dir),
            signatures=before,
            read_ns=now_ns,
        )
        after = _signatures(state_dir, plugins)
        if after == before:
            return known
        before = after
    raise errors.InconsistentStateError(
        f"kubelet state files in {state_dir} kept changing while they were read; read again"
    )


def kubelet_epoch(socket: Path | None, plugin_dir: Path | None) -> str:
    """A text that changes only when the kubelet restarts; empty where nothing tells.

    A starting kubelet makes its sockets anew: that of podresources, else of device plugins.
    """
    candidates = [socket] if socket else []
    if plugin_dir:
        candidates.append(plugin_dir / "kubelet.sock")
    for path in candidates:
        try:
            status = path.stat()
        except OSError:
            continue
        return f"{status.st_ino:x}-{status.st_mtime_ns:x}"
    return ""


async def read_view(
    state_dir: Path | None,
    source: PodresourcesClient | None,
    *,
    plugin_dir: Path | None = None,
    config: KubeletConfig | None = None,
    version: str = "",
    epoch: str = "",
    previous: StateFiles | None = None,
    attempts: int = 5,
) -> tuple[KubeletView, StateFiles | None]:
    """Read files and podresources of the same moment; also the files, for the next reading.

    On a node so busy that the files change during every one of ``attempts``, the last answers are
    taken and marked as not coherent.

    Raises:
        errors.KubeletError: a source that was asked for cannot be read.
        errors.ParseError: a file is empty, cut short or damaged.
        errors.InconsistentStateError: the files kept changing while they were read.
    """
    files = read_state_files(state_dir, previous, plugin_dir=plugin_dir) if state_dir else None
    if source is None:
        return combine(files, config=config, version=version, epoch=epoch), files
    while True:
        pods, allocatable = await asyncio.gather(source.list(), source.allocatable())
        after = read_state_files(state_dir, files, plugin_dir=plugin_dir) if state_dir else None
        coherent = after == files
        files, attempts = after, attempts - 1
        if coherent or attempts <= 0:
            break
    view = combine(
        files,
        config=config,
        version=version,
        epoch=epoch,
        pods=pods,
        allocatable=allocatable,
        coherent=coherent,
    )
    return view, files


def _signatures(state_dir: Path, plugin_dir: Path) -> tuple[Signature, ...]:
    return tuple(
        _signature(path)
        for path in (
            state_dir / ALLOCATED_PODS,
            plugin_dir / DEVICE_CHECKPOINT,
            state_dir / CPU_STATE,
            state_dir / MEMORY_STATE,
        )
    )


def _signature(path: Path) -> Signature:
    try:
        status = path.stat()
    except OSError:  # read() tells a missing file from an unreadable one
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: Path, parse: Callable[[bytes, str], _State]) -> _State | None:
    text = bytearray()
    try:
        # Without waiting for a writer, where somebody has put a pipe in its place.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
            while len(text) <= _MAX_FILE_BYTES and (piece := file.read(_PIECE_BYTES)):
                text += piece
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.KubeletError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise errors.KubeletError(f"{path}: too large for a state file")
    return parse(bytes(text), str(path))
