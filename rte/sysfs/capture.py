"""Captures what rte reads of sysfs and procfs, and what could stand in for it: a small dump.

Only files that :mod:`rte.sysfs` knows are taken, and of long ones only the lines that it reads, so
a dump holds nothing private, and the same machine gives the same bytes.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rte.model import bits
from rte.sysfs import groups
from rte.sysfs.caches import L3_FILES
from rte.sysfs.cpus import (
    BOOK_FILES,
    CORE_FILES,
    DIE_FILES,
    KINDS,
    SOCKET_FILES,
    numbered,
)
from rte.sysfs.gpus import INFORMATION
from rte.sysfs.pci import ADDRESS, BUS, find_devices, kind_of
from rte.sysfs.tree import Notes, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Globs of files below /sys; each ``*`` stands for one name.
_FILES = (
    "devices/system/cpu/online",
    "devices/system/cpu/offline",
    "devices/system/cpu/possible",
    "devices/system/cpu/present",
    "devices/system/cpu/isolated",
    "devices/system/cpu/nohz_full",
    "devices/system/cpu/intel_pstate/no_turbo",
    "devices/system/cpu/cpu[0-9]*/online",
    "devices/system/cpu/cpu[0-9]*/cpu_capacity",
    "devices/system/node/has_cpu",
    "devices/system/node/has_memory",
    "devices/system/node/has_normal_memory",
    "devices/system/node/online",
    "devices/system/node/possible",
    "devices/system/node/node[0-9]*/distance",
    "devices/system/node/node[0-9]*/meminfo",
    "devices/system/node/node[0-9]*/hugepages/hugepages-*/nr_hugepages",
    "devices/system/node/node[0-9]*/hugepages/hugepages-*/free_hugepages",
    *(f"devices/{name}/cpus" for name in KINDS),
    "kernel/mm/hugepages/hugepages-*/nr_hugepages",
)
#: Files of one CPU.
_CPU_IDS = tuple(
    f"topology/{name}"
    for name in ("core_id", "physical_package_id", "die_id", "book_id", "drawer_id")
)
#: Files of one CPU that say the same.
_CPU_GROUPS = tuple(
    tuple(f"topology/{name}" for name in names)
    for names in (CORE_FILES, DIE_FILES, SOCKET_FILES, BOOK_FILES)
)
_LINKS = (
    "devices/system/cpu/cpu[0-9]*/node[0-9]*",
    "devices/system/node/node[0-9]*/cpu[0-9]*",
)
_INTERFACE_FILES = ("address", "dev_port", "operstate", "phys_port_name", "speed")
_DEVICE_FILES = (
    "class",
    "device",
    "numa_node",
    "sriov_numvfs",
    "sriov_totalvfs",
    "vendor",
    "mem_info_vram_total",
    "product_name",
    "unique_id",
    "nvme/nvme*/model",
    *(f"{parent}net/*/{name}" for parent in ("", "virtio*/") for name in _INTERFACE_FILES),
)
_DEVICE_LINKS = ("driver", "physfn", "virtfn[0-9]*", "net/*/master", "virtio*/net/*/master")
_DEVICE_DIRECTORIES = ("drm/render*", "infiniband/*", "net/*", "virtio*/net/*")
_MEMINFO_LINES = re.compile(
    r"^(?:Node\s+\d+\s+)?(?:MemTotal|SwapTotal|HugePages_Total|Hugepagesize):"
)
_CPUINFO_LINES = re.compile(
    r"^(?:$|processor|cpu number|vendor|model|stepping|cpu model|cpu family|cpu\s*:|family|"
    r"machine|physical id|core id|package|core\s*:|book id|drawer id|"
    r"CPU (?:implementer|part)|CPU\d+|Model|uarch)"
)
_GPU_LINES = re.compile(r"^(?:Model|GPU UUID|Device Minor|GPU Excluded):")
_STAT_LINES = re.compile(r"^cpu\d+ ")


@dataclass(frozen=True, slots=True)
class Captured:
    """One entry of a dump. ``path`` is relative; exactly one of the others is given.

    Attributes:
        text: content of a file.
        target: target of a symbolic link.
        directory: a directory that may hold nothing.
    """

    path: str
    text: str | None = None
    target: str | None = None
    directory: bool = False


def capture(sysfs_root: Path, procfs_root: Path) -> list[Captured]:
    """All that rte reads, below ``sys/`` and ``proc/``, ascending by path."""
    entries = {entry.path: entry for entry in _capture_sys(Tree(sysfs_root, "/sys"))}
    entries |= {entry.path: entry for entry in _capture_proc(Tree(procfs_root, "/proc"))}
    return [entries[path] for path in sorted(entries)]


def _capture_sys(sys: Tree) -> Iterator[Captured]:
    for pattern in _FILES:
        yield from _files(sys, "", pattern)
    for pattern in _LINKS:
        yield from _links(sys, "", pattern)
    for node in _expand(sys, "", "devices/system/node/node[0-9]*"):
        yield from _first(sys, node, ("cpulist", "cpumap"))
    for cpu in bits.members(numbered(sys.names("devices/system/cpu"), "cpu")):
        yield from _capture_cpu(sys, cpu)
    for address, place in find_devices(sys, Notes()).items():
        if kind_of(sys, place) != "":
            if target := sys.link(f"{BUS}/{address}"):
                yield Captured(f"sys/{BUS}/{address}", target=target)
            yield from _capture_device(sys, place)


def _capture_cpu(sys: Tree, number: int) -> Iterator[Captured]:
    cpu = f"devices/system/cpu/cpu{number}"
    if sys.is_dir(cpu):
        yield Captured(f"sys/{cpu}", directory=True)
    for name in _CPU_IDS:
        yield from _files(sys, cpu, name)
    for names in _CPU_GROUPS:
        yield from _first(sys, cpu, names, number)
    for index in _expand(sys, cpu, "cache/index*"):
        yield from _files(sys, index, "level")
        yield from _files(sys, index, "size")
        yield from _files(sys, index, "type")
        # Only the last level is ever looked at beyond these.
        if (sys.read(f"{index}/level") or "").strip() == "3":
            yield from _files(sys, index, "id")
            yield from _first(sys, index, L3_FILES, number)


def _capture_device(sys: Tree, place: str) -> Iterator[Captured]:
    for bridge in PurePosixPath(place).parents:
        if ADDRESS.match(bridge.name):
            yield from _files(sys, str(bridge), "numa_node")
            yield from _first(sys, str(bridge), ("local_cpulist", "local_cpus"))
    yield from _first(sys, place, ("local_cpulist", "local_cpus"))
    for pattern in _DEVICE_FILES:
        yield from _files(sys, place, pattern)
    for pattern in _DEVICE_LINKS:
        yield from _links(sys, place, pattern)
    for pattern in _DEVICE_DIRECTORIES:
        for name in _expand(sys, place, pattern):
            yield Captured(f"sys/{name}", directory=True)


def _first(
    sys: Tree, base: str, names: Sequence[str], cpu: int | None = None
) -> Iterator[Captured]:
    """The first of several files that is there and holds something: a set with ``cpu``."""
    for name in names:
        found = list(_files(sys, base, name))
        if not found or not (found[0].text or "").strip():
            continue
        if cpu is None or (groups.parse_set(name, found[0].text) or 0) >> cpu & 1:
            yield from found
            return


def _capture_proc(proc: Tree) -> Iterator[Captured]:
    for name, lines in (
        ("cpuinfo", _CPUINFO_LINES),
        ("meminfo", _MEMINFO_LINES),
        ("stat", _STAT_LINES),
    ):
        text = proc.read(name)
        if text is None:
            continue
        kept = [line for line in text.splitlines() if lines.match(line)]
        if name == "stat":
            # Which CPUs are listed is all that counts; the numbers change all the time.
            kept = [line.split()[0] + " 0" for line in kept]
        yield Captured(f"proc/{name}", text="".join(f"{line}\n" for line in kept))
    yield from _capture_gpus(proc)


def _capture_gpus(proc: Tree) -> Iterator[Captured]:
    for path in _expand(proc, "", f"{INFORMATION}/*/information"):
        text = proc.read(path)
        if text is not None:
            kept = [line for line in text.splitlines() if _GPU_LINES.match(line)]
            yield Captured(f"proc/{path}", text="".join(f"{line}\n" for line in kept))


def _files(sys: Tree, base: str, pattern: str) -> Iterator[Captured]:
    for path in _expand(sys, base, pattern):
        text = sys.read(path)
        if text is None:
            continue
        if path.endswith("/meminfo"):
            kept = [line for line in text.splitlines() if _MEMINFO_LINES.match(line)]
            text = "".join(f"{line}\n" for line in kept)
        yield Captured(f"sys/{path}", text=text)


def _links(sys: Tree, base: str, pattern: str) -> Iterator[Captured]:
    for path in _expand(sys, base, pattern):
        if target := sys.link(path):
            yield Captured(f"sys/{path}", target=target)


def _expand(sys: Tree, base: str, pattern: str) -> list[str]:
    """The paths that a glob stands for; names without wildcard are not looked up."""
    found = [base]
    for part in pattern.split("/"):
        if "*" in part:
            found = [
                f"{parent}/{name}"
                for parent in found
                for name in fnmatch.filter(sys.names(parent), part)
            ]
        else:
            found = [f"{parent}/{part}" if parent else part for parent in found]
    return found
