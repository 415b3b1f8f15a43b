"""One coherent reading of a kubelet: state files and podresources of the same moment.

Files are read again only when they changed, so the same functions serve a reading on demand and
an agent that follows changes: keep the last :class:`StateFiles`, call :func:`read_state_files`
whenever a watch fires, and :func:`rte.model.kubelet.combine` the parts.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from rte import errors
from rte.kubelet import PLUGIN_DIR, statefiles
from rte.model.kubelet import StateFiles, combine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rte.model.kubelet import (
        Allocatable,
        AllocatedPods,
        CPUManagerState,
        DeviceCheckpoint,
        KubeletView,
        ListedPod,
        MemoryManagerState,
        Signature,
    )
    from rte.model.node import KubeletConfig

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
    return _read(state_dir / statefiles.CPU_STATE, statefiles.parse_cpu_state)


def read_memory_state(state_dir: Path) -> MemoryManagerState | None:
    """Read ``memory_manager_state``; as :func:`read_cpu_state`."""
    return _read(state_dir / statefiles.MEMORY_STATE, statefiles.parse_memory_state)


def read_allocated_pods(state_dir: Path) -> AllocatedPods | None:
    """Read ``allocated_pods_state``; as :func:`read_cpu_state`."""
    return _read(state_dir / statefiles.ALLOCATED_PODS, statefiles.parse_allocated_pods)


def read_device_checkpoint(plugin_dir: Path) -> DeviceCheckpoint | None:
    """Read the device manager's checkpoint; as :func:`read_cpu_state`."""
    return _read(plugin_dir / statefiles.DEVICE_CHECKPOINT, statefiles.parse_device_checkpoint)


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
            state_dir / statefiles.ALLOCATED_PODS,
            plugin_dir / statefiles.DEVICE_CHECKPOINT,
            state_dir / statefiles.CPU_STATE,
            state_dir / statefiles.MEMORY_STATE,
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
        with path.open("rb", buffering=0) as file:
            while len(text) <= _MAX_FILE_BYTES and (piece := file.read(_PIECE_BYTES)):
                text += piece
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.KubeletError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise errors.KubeletError(f"{path}: too large for a state file")
    return parse(bytes(text), str(path))
