"""``rte snapshot``: this node's sysfs, procfs and kubelet files as a fixture.

The archive unpacks to ``sys/`` and ``proc/`` (for ``--sysfs-root`` and ``--procfs-root``),
``expected.json`` (the machine as read now) and, where a kubelet was asked, ``kubelet/``: its state
files (for ``--kubelet-state-dir``), ``config.yaml`` and ``podresources.json``.

With ``--cluster`` it holds a cluster's objects instead, as far as decisions follow from them.
"""

from __future__ import annotations

import asyncio
import bz2
import dataclasses
import functools
import gzip
import io
import lzma
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.model.words import counted
from rte.reader import files, jsontext, yamltext
from rte.sysfs import document, read_machine
from rte.sysfs.capture import Captured, capture

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from rte.agent.settings import AgentSettings

#: Kept of the kubelet's configuration, with what admission depends on; anything else in the file
#: (TLS, tokens, registries) stays behind.
_CONFIG_KEYS = ("apiVersion", "kind", "cpuManagerReconcilePeriod", "enforceNodeAllocatable")

_NOTE = (
    "it shows the hardware with its MAC addresses and GPU UUIDs, names of pods and containers, and "
    "the kubelet's settings that admission depends on; --redact numbers addresses, UUIDs and names"
)

_CLUSTER_NOTE = (
    "no environment, command or secret is in it, but names, labels and images are; --redact "
    "numbers namespaces and pods and leaves images out"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "out",
        type=Path,
        metavar="OUT.tar[.gz|.xz|.bz2|.zst]",
        help="archive to write, compressed as its name says; `-`: a plain one to standard output",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="the objects of a cluster that decisions follow from, for `--from` of explain, fit, "
        "defrag and view, and `-f` of simulate (.tar, .tar.gz or .tar.zst)",
    )
    parser.add_argument(
        "--redact",
        action="store_true",
        help="numbers instead of names and hardware ids (--cluster: of namespaces and pods)",
    )
    for flag, what in (("groups-policy", "rules of processing groups"), ("scores", "preferences")):
        parser.add_argument(
            f"--{flag}",
            type=Path,
            metavar="FILE",
            help=f"with --cluster: {what}, as the scheduler's flag of that name; saved too",
        )
    parser.add_argument(
        "--from",
        dest="sources",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="with --cluster: objects of this file instead of a cluster",
    )
    config.add_arguments(parser, "snapshot")


def run(args: argparse.Namespace) -> int:
    """Capture into an archive; 0 = written.

    Raises:
        errors.RteError: nothing to capture, a source that was asked for cannot be read, or the
            archive cannot be written.
    """
    if str(args.out) == "-" and sys.stdout.isatty():
        raise errors.UsageError("an archive is nothing for a terminal: redirect it, or name a file")
    compress = _compression(args.out, cluster=args.cluster)
    if args.cluster:
        return _save_cluster(args, compress)
    if args.sources or args.groups_policy or args.scores:
        raise errors.UsageError("--from, --groups-policy and --scores are for --cluster")
    agent = config.load("snapshot", vars(args), os.environ).agent
    machine = read_machine(agent.sysfs, agent.procfs)
    entries = capture(agent.sysfs, agent.procfs)
    text = document.format_document(
        {"about": "Captured by rte snapshot."} | document.build_document(machine)
    )
    entries.append(Captured("expected.json", text=text))
    entries += _capture_kubelet(agent)
    if args.redact:
        entries = _redacted(entries)
    _put(args.out, compress(_archive(sorted(entries, key=lambda entry: entry.path))))
    told = f"{args.out}: {len(entries)} entries, {counted(len(machine.cpus), 'CPU')}"
    print(told + ("" if args.redact else f"; {_NOTE}"), file=sys.stderr)
    return 0


def _save_cluster(args: argparse.Namespace, compress: Callable[[bytes], bytes]) -> int:
    from rte.cli import clusterfile, live  # here: an agent's image reads no cluster
    from rte.scheduler.shell import policies

    policies.load_policies(args.groups_policy)
    policies.load_scoring(args.scores)
    given = {"groupsPolicy": args.groups_policy, "scores": args.scores}
    settings = {
        key: yamltext.load(files.read_text(path), key, jsontext.FILE)
        for key, path in given.items()
        if path
    }
    items = files.load_objects(args.sources) or asyncio.run(live.read_cluster(args))
    entries = clusterfile.capture(items, settings, redact=args.redact)
    _put(args.out, compress(_archive(entries)))
    told = f"{args.out}: {counted(len(items), 'object')}"
    print(told + ("" if args.redact else f"; {_CLUSTER_NOTE}"), file=sys.stderr)
    return 0


def _put(out: Path, archive: bytes) -> None:
    if str(out) == "-":
        sys.stdout.buffer.write(archive)
        sys.stdout.buffer.flush()
    else:
        _write(out, archive)


def _compression(out: Path, *, cluster: bool) -> Callable[[bytes], bytes]:
    kind = out.name.rpartition(".")[2]
    if cluster and kind == "zst":
        import zstandard  # here: an agent's image does without

        return zstandard.ZstdCompressor(level=10).compress
    if cluster and kind in ("xz", "txz", "bz2"):
        raise errors.UsageError(
            f"{out}: with --cluster, give a name that ends with .tar, .tar.gz or .tar.zst"
        )
    if kind in ("zst", "lz4", "zip", "7z", "Z", "br"):
        raise errors.UsageError(
            f"{out}: give a name that ends with .tar, .tar.gz, .tar.xz or .tar.bz2"
        )
    if kind in ("gz", "tgz"):
        return functools.partial(gzip.compress, mtime=0)  # equal content gives equal bytes
    if kind in ("xz", "txz"):
        return lzma.compress
    return bz2.compress if kind == "bz2" else bytes


def _capture_kubelet(agent: AgentSettings) -> list[Captured]:
    """What lies in the kubelet's directory and what it answers, as far as it is named or there."""
    state_dir = agent.state_dir
    if agent.kubelet_state_dir is None and state_dir is not None and not _is_there(state_dir):
        state_dir = None
    entries = _capture_state(state_dir, agent.plugin_dir) if state_dir else []
    entries += _capture_config(agent.kubelet_config_file, state_dir)
    socket = agent.socket
    if socket is not None and (agent.podresources_socket or _is_socket(socket)):
        entries.append(asyncio.run(_capture_podresources(socket)))
    return entries


def _is_socket(address: str) -> bool:
    try:
        return Path(address.removeprefix("unix://")).is_socket()
    except OSError:
        return False


def _redacted(entries: list[Captured]) -> list[Captured]:
    from rte.kubelet.redaction import Redaction

    redaction = Redaction()
    return [
        entry
        if entry.text is None
        else dataclasses.replace(
            entry,
            text=redaction.file(entry.path.rpartition("/")[2], entry.text)
            if entry.path.startswith("kubelet/")
            else "\n"
            if entry.path.endswith("/unique_id")
            else redaction.text(entry.text),
        )
        for entry in entries
    ]


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _capture_state(state_dir: Path, plugin_dir: Path | None) -> list[Captured]:
    from rte.kubelet import PLUGIN_DIR, redaction, statefiles  # a bare machine needs neither

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
        try:
            kept = redaction.without_responses(text)
        except errors.ParseError as error:
            raise errors.KubeletError(f"{checkpoint}: {error}; leave it out") from error
        entries.append(Captured(f"kubelet/{PLUGIN_DIR}/{checkpoint.name}", text=kept))
    return entries


def _capture_config(config_file: Path | None, state_dir: Path | None) -> list[Captured]:
    path = config_file or (state_dir / "config.yaml" if state_dir else None)
    text = _read(path) if path else None
    if path is None or text is None:
        if config_file:
            raise errors.KubeletError(f"kubelet configuration {config_file}: no such file")
        return []
    import yaml  # here: a bare machine does without

    from rte.kubelet import config_document

    given = config_document.parse(text, str(path))
    kept = {key: given[key] for key in (*_CONFIG_KEYS, *config_document.KEYS) if key in given}
    return [Captured("kubelet/config.yaml", text=yaml.safe_dump(kept, sort_keys=True))]


async def _capture_podresources(address: str) -> Captured:
    from rte.kubelet import podresources, recorded  # gRPC takes long to load

    async with podresources.PodResources(address) as client:
        pods, allocatable = await asyncio.gather(client.list(), client.allocatable())
    return Captured("kubelet/podresources.json", text=recorded.format_answers(pods, allocatable))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise errors.KubeletError(f"{path}: {reason}") from error


def _archive(entries: Iterable[Captured]) -> bytes:
    """An archive whose bytes depend on the entries alone."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in entries:
            _add(archive, entry)
    return file.getvalue()


def _write(out: Path, archive: bytes) -> None:
    """Put the archive in place at once."""
    try:
        with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}.", delete=False) as f:
            temporary = Path(f.name)
            try:
                f.write(archive)
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
