"""``rte snapshot``: this node's sysfs, procfs and kubelet files as a fixture.

The archive unpacks to ``sys/`` and ``proc/`` (for ``--sysfs-root`` and ``--procfs-root``),
``expected.json`` (the machine as read now) and, where a kubelet was asked, ``kubelet/``: its state
files (for ``--kubelet-state-dir``), ``config.yaml`` and ``podresources.json``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rte import errors
from rte.model import bits
from rte.sysfs import document, read_machine
from rte.sysfs.capture import Captured, capture

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from rte.model.kubelet import Allocatable, ListedPod

KUBELET_DIR = Path("/var/lib/kubelet")
#: What admission depends on; anything else in the file (TLS, tokens, registries) stays behind.
CONFIG_KEYS = (
    "apiVersion",
    "kind",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "enforceNodeAllocatable",
    "evictionHard",
    "featureGates",
    "kubeReserved",
    "maxPods",
    "memoryManagerPolicy",
    "reservedMemory",
    "reservedSystemCPUs",
    "systemReserved",
    "topologyManagerPolicy",
    "topologyManagerPolicyOptions",
    "topologyManagerScope",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("out", type=Path, metavar="OUT.tar", help="archive to write")
    parser.add_argument("--sysfs-root", type=Path, metavar="DIR", help="stands for /sys")
    parser.add_argument("--procfs-root", type=Path, metavar="DIR", help="stands for /proc")
    parser.add_argument(
        "--kubelet-state-dir",
        type=Path,
        metavar="DIR",
        help=f"the kubelet's --root-dir (default: {KUBELET_DIR}, if there and no root is given)",
    )
    parser.add_argument(
        "--device-plugin-dir",
        type=Path,
        metavar="DIR",
        help="the device manager's folder (default: device-plugins below the kubelet's directory)",
    )
    parser.add_argument(
        "--podresources-socket", metavar="ADDR", help="ask this kubelet what its pods hold"
    )
    parser.add_argument(
        "--kubelet-config-file",
        type=Path,
        metavar="F",
        help="the kubelet's --config (default: config.yaml in the state directory, if there)",
    )


def run(args: argparse.Namespace) -> int:
    """Capture into an archive; 0 = written.

    Raises:
        errors.RteError: nothing to capture, a source that was asked for cannot be read, or the
            archive cannot be written.
    """
    sysfs_root, procfs_root = args.sysfs_root or Path("/sys"), args.procfs_root or Path("/proc")
    machine = read_machine(sysfs_root, procfs_root)
    read = document.build_document(machine)
    entries = capture(sysfs_root, procfs_root)
    about = {"about": "Captured by rte snapshot."}
    text = document.format_document(about | read)
    entries.append(Captured("expected.json", text=text))
    state_dir = args.kubelet_state_dir
    if state_dir is None and not (args.sysfs_root or args.procfs_root) and _is_there(KUBELET_DIR):
        state_dir = KUBELET_DIR
    if state_dir is not None:
        entries += _capture_state(state_dir, args.device_plugin_dir)
    entries += _capture_config(args.kubelet_config_file, state_dir)
    if args.podresources_socket:
        entries.append(asyncio.run(_capture_podresources(args.podresources_socket)))
    _write(args.out, sorted(entries, key=lambda entry: entry.path))
    print(f"{args.out}: {len(entries)} entries, {len(machine.cpus)} CPUs", file=sys.stderr)
    return 0


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _capture_state(state_dir: Path, plugin_dir: Path | None) -> list[Captured]:
    from rte.kubelet import PLUGIN_DIR, statefiles  # a bare machine needs neither

    if not _is_there(state_dir):
        raise errors.KubeletError(
            f"kubelet state directory {state_dir}: no such directory; "
            "name the kubelet's --root-dir with --kubelet-state-dir"
        )
    entries = []
    for name in (statefiles.CPU_STATE, statefiles.MEMORY_STATE, statefiles.ALLOCATED_PODS):
        text = _read(state_dir / name)
        if text is not None:
            entries.append(Captured(f"kubelet/{name}", text=text))
    checkpoint = (plugin_dir or state_dir / PLUGIN_DIR) / statefiles.DEVICE_CHECKPOINT
    text = _read(checkpoint)
    if text is not None:
        kept = _without_responses(text, checkpoint)
        entries.append(Captured(f"kubelet/{PLUGIN_DIR}/{checkpoint.name}", text=kept))
    return entries


def _without_responses(text: str, path: Path) -> str:
    """The device checkpoint without what plugins told the runtime: it may hold anything."""
    try:
        checkpoint = json.loads(text)
        for entry in checkpoint["Data"]["PodDeviceEntries"] or ():
            entry["AllocResp"] = ""
    except (ValueError, TypeError, KeyError) as error:
        raise errors.KubeletError(f"{path}: not a device checkpoint; leave it out") from error
    return json.dumps(checkpoint)


def _capture_config(config_file: Path | None, state_dir: Path | None) -> list[Captured]:
    path = config_file or (state_dir / "config.yaml" if state_dir else None)
    text = _read(path) if path else None
    if path is None or text is None:
        if config_file:
            raise errors.KubeletError(f"kubelet configuration {config_file}: no such file")
        return []
    import yaml  # here: a bare machine does without

    from rte.kubelet import config

    given = config.parse_document(text, str(path))
    kept = {key: given[key] for key in CONFIG_KEYS if key in given}
    return [Captured("kubelet/config.yaml", text=yaml.safe_dump(kept, sort_keys=True))]


async def _capture_podresources(address: str) -> Captured:
    from rte.kubelet import podresources  # gRPC takes long to load

    async with podresources.PodResources(address) as client:
        pods, allocatable = await asyncio.gather(client.list(), client.allocatable())
    return Captured("kubelet/podresources.json", text=_format_answers(pods, allocatable))


def _format_answers(pods: Iterable[ListedPod], allocatable: Allocatable | None) -> str:
    answers = {"list": list(pods), "allocatable": allocatable}
    return json.dumps(_readable(answers), indent=1) + "\n"


def _readable(value: Any, key: str = "") -> Any:
    """Values of ours as mappings, sets as the kernel's lists, tuples as lists."""
    if dataclasses.is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    elif isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        # Device ids are keys with a zone set each; fields of ours have names of ours.
        return {
            name: _readable(item, "zones" if key == "devices" else name)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in value]
    if isinstance(value, int) and key in {"cpus", "zones"}:
        return bits.format_list(value)
    return value


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise errors.KubeletError(f"{path}: {reason}") from error


def _write(out: Path, entries: Iterable[Captured]) -> None:
    """Write an archive whose bytes depend on the entries alone, and put it in place at once."""
    try:
        with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}.", delete=False) as f:
            temporary = Path(f.name)
            try:
                with tarfile.open(fileobj=f, mode="w", format=tarfile.GNU_FORMAT) as archive:
                    for entry in entries:
                        _add(archive, entry)
                f.flush()
                os.fsync(f.fileno())
                temporary.replace(out)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise errors.RteError(f"cannot write {out}: {error.strerror or error}") from error


def _add(archive: tarfile.TarFile, entry: Captured) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o644
    if entry.directory:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
    elif entry.target is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
        archive.addfile(info)
    else:
        content = (entry.text or "").encode()
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
