"""What /proc tells: cpuinfo (the CPUs that are on-line), stat, meminfo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.sysfs.tree import Tree

_MEMINFO = re.compile(r"^(?:Node\s+\d+\s+)?(\w+(?:\(\w+\))?):\s+(\d{1,15})(\s+kB)?\s*$")
_S390 = re.compile(r"^processor (\d{1,5}): ")
_SPARC = re.compile(r"^CPU(\d{1,5})$")
_STAT = re.compile(r"^cpu(\d{1,5}) ", re.MULTILINE)
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


def read_identity(proc: Tree) -> tuple[str, str]:
    """Vendor and model as /proc/cpuinfo names them, ``""`` where it does not."""
    found: dict[str, str] = {}
    # The kernel takes milliseconds to format a long cpuinfo; identity is in its first lines.
    for line in (proc.read("cpuinfo", 4096) or "").splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if colon and value:
            found.setdefault(key, value)
    vendor = next((found[key] for key in _VENDOR if key in found), "")
    model = next((found[key] for key in _MODEL if key in found), "")
    return vendor, model


def parse_meminfo(text: str) -> dict[str, int]:
    """The fields of a meminfo file (/proc or one zone's): bytes, or a count for HugePages_*."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        if match := _MEMINFO.match(line):
            name, number, unit = match.groups()
            if unit or name.startswith("HugePages_"):
                fields.setdefault(name, int(number) * (1024 if unit else 1))
    return fields
