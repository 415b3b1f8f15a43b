"""Caches: which CPUs share one of the third level, and how large they all are.

The cache index whose level is 3, by its shared list or map, else by its id. Sizes are for people
who look at a machine; nothing is placed by them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.sysfs import groups
from rte.sysfs.tree import parse, parse_id, parse_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.model.bits import CPUSet
    from rte.model.machine import CPU
    from rte.sysfs.tree import Notes, Tree

#: Which CPUs share a cache.
L3_FILES = ("shared_cpu_list", "shared_cpu_map")
#: The kernel prints whole KiB (``size_show`` in drivers/base/cacheinfo.c); some firmware told MiB.
_SIZE = re.compile(r"(\d{1,9})([KM])", re.ASCII)
_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}


def read_caches(
    sys: Tree, root: str, cpus: Iterable[CPU]
) -> tuple[dict[int, int], dict[str, dict[str, int]]]:
    """Sizes in bytes: of each L3 group by its id, and of what a core has below it (``L1d``).

    Cores of one kind are alike, so the first of each kind stands for all; the second table is keyed
    by kind. What sysfs does not tell is missing.

    Args:
        sys: the tree of ``/sys``.
        root: the directory of the ``cpuN`` directories, within it.
        cpus: those of the machine, with their L3 groups and kinds.
    """
    shared: dict[int, int] = {}
    own: dict[str, dict[str, int]] = {}
    for cpu in cpus:
        if not cpu.online:
            continue
        directory = f"{root}/cpu{cpu.id}/cache"
        if cpu.kind not in own:
            own[cpu.kind] = dict(sorted(_read(sys, directory, {1, 2})))
        if cpu.l3 is not None and cpu.l3 not in shared:
            shared[cpu.l3] = dict(_read(sys, directory, {3})).get("L3", 0)
    return (
        {group: size for group, size in shared.items() if size},
        {kind: sizes for kind, sizes in own.items() if sizes},
    )


def _read(sys: Tree, directory: str, levels: set[int]) -> Iterator[tuple[str, int]]:
    for index in sys.names(directory):
        place = f"{directory}/{index}"
        if not index.startswith("index"):
            continue
        level = parse(sys.read(f"{place}/level"), parse_int)
        if level in levels and (size := parse(sys.read(f"{place}/size"), _parse_size)):
            kind = _TYPES.get((sys.read(f"{place}/type") or "").strip(), "")
            yield f"L{level}{kind}", size


def _parse_size(text: str) -> int:
    """Bytes of ``32K``.

    Raises:
        errors.ParseError: anything else.
    """
    match = _SIZE.fullmatch(text.strip(" \t\r\n\0"))
    if match is None:
        raise errors.ParseError("cache size", text)
    return int(match[1]) << (20 if match[2] == "M" else 10)


# Groups


def read_groups(sys: Tree, root: str, online: CPUSet, notes: Notes) -> tuple[dict[int, int], bool]:
    """CPU -> the id of its L3 group, and whether caches have ids at all (Linux 4.10, by far not
    everywhere on arm64).
    """
    finder = _L3Finder(sys, root)
    shared = _l3_groups(sys, online, finder, notes)
    ids = {mask: finder.id_of(bits.lowest(mask)) for mask in groups.distinct(shared)}
    known = [value for value in ids.values() if value is not None]
    if len(set(known)) == len(ids):
        return {cpu: ids[mask] or 0 for cpu, mask in shared.items()}, True
    notes.add(
        "cpu*/cache/index*/id",
        "repeats; L3 groups are numbered by their lowest CPU"
        if len(known) == len(ids)
        else "missing or unreadable; L3 groups are numbered by their lowest CPU",
    )
    return {cpu: bits.lowest(mask) for cpu, mask in shared.items()}, bool(known)


def _l3_groups(sys: Tree, online: CPUSet, finder: _L3Finder, notes: Notes) -> dict[int, CPUSet]:
    shared = groups.partition(online, groups.Lists(sys.read_in, finder, L3_FILES, online))
    lost = bits.of(cpu for cpu in finder.found if cpu not in shared) & online
    alike = groups.by_value(
        {cpu: value for cpu in bits.members(lost) if (value := finder.id_of(cpu)) is not None}
    )
    for cpu in bits.members(lost):
        notes.add(
            "cpu*/cache/index*/shared_cpu_list",
            "missing or unreadable; L3 group taken from the cache's id"
            if cpu in alike
            else "missing or unreadable; no L3 group",
            str(cpu),
        )
    if not finder.any_cache:
        notes.add("cpu*/cache", "missing; no L3 groups")
    return shared | alike


class _L3Finder:
    """Where the level-3 cache of a CPU is described, None if it has none."""

    def __init__(self, sys: Tree, root: str) -> None:
        self.found: dict[int, str] = {}
        self.any_cache = False
        self._sys, self._root = sys, root
        self._last = ""

    def __call__(self, cpu: int) -> str | None:
        cache = f"{self._root}/cpu{cpu}/cache"
        if not self._is_l3(f"{cache}/{self._last}"):
            indexes = [n for n in self._sys.names(cache) if n.startswith("index")]
            self.any_cache |= bool(indexes)
            last = next((n for n in reversed(indexes) if self._is_l3(f"{cache}/{n}")), None)
            if last is None:
                return None
            self._last = last
        self.found[cpu] = f"{cache}/{self._last}"
        return self.found[cpu]

    def id_of(self, cpu: int) -> int | None:
        """The id of the CPU's L3 cache; None if it has none, or one that cannot be."""
        place = self.found.get(cpu) or self(cpu)
        return parse_id(self._sys.read(f"{place}/id")) if place else None

    def _is_l3(self, index: str) -> bool:
        return parse(self._sys.read(f"{index}/level"), parse_int) == 3
