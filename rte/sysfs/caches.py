"""How large the caches are: for people who look at a machine; nothing is placed by it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte import errors
from rte.sysfs.tree import parse, parse_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.model.machine import CPU
    from rte.sysfs.tree import Tree

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
