"""What /proc tells: cpuinfo (the CPUs that are on-line), stat, meminfo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.model.machine import CPUBasics
from rte.sysfs.tree import pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.sysfs.tree import Tree

_MEMINFO = re.compile(r"^(?:Node\s+\d+\s+)?(\w+(?:\(\w+\))?):\s+(\d{1,15})(\s+kB)?\s*$")
_S390 = re.compile(r"^processor (\d{1,5}): ")
_SPARC = re.compile(r"^CPU(\d{1,5})$")
_STAT = re.compile(r"^cpu(\d{1,5}) ", re.MULTILINE)
#: Begins with plain text, so that the search goes through 600 KB (384 CPUs) at full speed.
_SOCKET = re.compile(rb"\nphysical id[^:\n]*:[ \t]*([0-9]{1,9})")
#: Holds the block of the first CPU.
_HEAD = 4096
#: keys that open the block of one CPU: x86, arm64, ppc64, ia64, riscv; then s390.
_BLOCK = {"processor", "cpu number"}
_VENDOR = ("vendor_id", "vendor", "CPU implementer")
_MODEL = ("model name", "cpu model", "family", "cpu", "machine", "Model", "CPU part", "uarch")


def read_cpuinfo(proc: Tree) -> dict[int, Mapping[str, str]]:
    """CPU id -> the lines of its block; the kernel lists on-line CPUs only."""
    text = proc.read("cpuinfo") or ""
    blocks: dict[int, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        if match := _S390.match(line):
            blocks.setdefault(int(match[1]), {})
            continue
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        if match := _SPARC.match(key):
            if value == "online":
                blocks.setdefault(int(match[1]), {})
        elif key in _BLOCK:
            if value.isascii() and value.isdigit() and len(value) <= 5:
                current = blocks.setdefault(int(value), {})
        else:
            current[key] = value
    return dict(blocks)


def read_stat_cpus(proc: Tree) -> frozenset[int]:
    """The CPUs that /proc/stat lists: those on-line."""
    return frozenset(int(match) for match in _STAT.findall(proc.read("stat") or ""))


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What /proc/cpuinfo says of the whole machine, ``""`` and 0 where it does not.

    ``sockets`` counts the different ``physical id`` lines, as cadvisor does (machine.GetSockets).
    ``family``, ``number`` and ``stepping`` tell the microarchitecture on x86, ``part`` on arm64;
    -1 and ``""`` where they are not told.
    """

    vendor: str
    model: str
    sockets: int
    basics: CPUBasics
    family: int = -1
    number: int = -1
    stepping: int = -1
    part: str = ""


def read_identity(proc: Tree) -> Identity:
    """Vendor, model and number of sockets."""
    head, sockets = proc.use("", "cpuinfo", _skim) or (b"", set())
    found: dict[str, str] = {}
    for line in head.decode("utf-8", "replace").splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if colon and value.isprintable():
            found.setdefault(key, value)
    return Identity(
        vendor=next((found[key] for key in _VENDOR if found.get(key)), ""),
        model=next((found[key] for key in _MODEL if found.get(key)), ""),
        sockets=len(sockets),
        family=_number(found.get("cpu family")),
        number=_number(found.get("model")),
        stepping=_number(found.get("stepping")),
        part=found.get("CPU part", ""),
        basics=CPUBasics(
            name=found.get("model name") or "unknown", vendor=found.get("vendor_id") or "unknown"
        ),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 4 else -1


def _skim(fd: int) -> tuple[bytes, set[bytes]]:
    """The beginning of an open cpuinfo, and its socket ids.

    Joined, the 600 KB of 384 CPUs would be fresh memory, which costs more than all the searching.
    """
    head = rest = b""
    sockets: set[bytes] = set()
    for piece in pieces(fd):
        if len(head) < _HEAD:
            head += piece
        text = rest + piece
        last = max(text.rfind(b"\n"), 0)
        sockets.update(_SOCKET.findall(text, 0, last))
        rest = text[last:]
    sockets.update(_SOCKET.findall(rest))
    return head[:_HEAD], sockets


def parse_meminfo(text: str) -> dict[str, int]:
    """The fields of a meminfo file (/proc or one zone's): bytes, or a count for HugePages_*."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        if match := _MEMINFO.match(line):
            name, number, unit = match.groups()
            if unit or name.startswith("HugePages_"):
                fields.setdefault(name, int(number) * (1024 if unit else 1))
    return fields
