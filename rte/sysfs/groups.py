"""Groups of CPUs that share something, from lists of which some may be missing or damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rte.model import bits
from rte.sysfs.tree import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rte.model.bits import CPUSet

    T = TypeVar("T")


class Lists:
    """Reads the set that a CPU says it belongs to, from the first of several files that helps.

    ``names`` are files in ``directory(cpu)``, read by ``read(directory, name)``; those that end in
    ``_list`` hold lists, others hold hexadecimal maps. A set that lacks its own CPU is damaged and
    counts as missing.
    """

    def __init__(
        self,
        read: Callable[[str, str], str | None],
        directory: Callable[[int], str | None],
        names: Sequence[str],
        online: CPUSet,
    ) -> None:
        self._read = read
        self._directory = directory
        self._files = [(name, _parser(name)) for name in names]
        self._online = online

    def __call__(self, cpu: int) -> CPUSet | None:
        """The on-line CPUs that ``cpu`` is grouped with, None if no file tells."""
        directory = self._directory(cpu)
        if directory is None:
            return None
        for position, (name, parser) in enumerate(self._files):
            found = parse(self._read(directory, name), parser)
            if found is not None and found >> cpu & 1:
                if position:
                    # One kernel has one set of names: ask the one that helped first from now on.
                    self._files.insert(0, self._files.pop(position))
                return found & self._online
        return None


def parse_set(name: str, text: str | None) -> CPUSet | None:
    """The CPUs in a file: a list if its name ends in ``_list``, else a map; None if damaged."""
    return parse(text, _parser(name))


def _parser(name: str) -> Callable[[str], CPUSet]:
    return bits.parse_list if name.endswith("_list") else bits.parse_hex


def partition(online: CPUSet, own: Callable[[int], CPUSet | None]) -> dict[int, CPUSet]:
    """CPU -> its group, for every CPU that some list places; groups are disjoint.

    ``own(cpu)`` is the set that a CPU reports, itself included, or None. One report speaks for all
    its members until two reports contradict each other; then every CPU is asked and the sets that
    most of their members confirm win.
    """
    groups: dict[int, CPUSet] = {}
    claimed = 0
    for cpu in bits.members(online):
        if cpu in groups or (mask := own(cpu)) is None:
            continue
        if mask & claimed:
            return _settle({cpu: own(cpu) for cpu in bits.members(online)})
        claimed |= mask
        for member in bits.members(mask):
            groups[member] = mask
    return groups


def _settle(reports: Mapping[int, CPUSet | None]) -> dict[int, CPUSet]:
    votes: dict[CPUSet, int] = {}
    for mask in reports.values():
        if mask is not None:
            votes[mask] = votes.get(mask, 0) + 1
    groups: dict[int, CPUSet] = {}
    taken = 0
    # Unanimous sets first: a damaged list is never confirmed by those it names wrongly.
    unanimous = [m for m in votes if all(reports.get(c) in {m, None} for c in bits.members(m))]
    for mask in sorted(unanimous, key=lambda m: (-votes[m], bits.lowest(m))):
        if not mask & taken:
            taken |= mask
            groups.update(dict.fromkeys(bits.members(mask), mask))
    while rest := {mask & ~taken: count for mask, count in votes.items() if mask & ~taken}:
        mask = max(rest, key=lambda m: (rest[m], m.bit_count(), -bits.lowest(m)))
        taken |= mask
        groups.update(dict.fromkeys(bits.members(mask), mask))
    return groups


def by_value(values: Mapping[int, object]) -> dict[int, CPUSet]:
    """CPU -> all CPUs that have the same value."""
    masks: dict[object, CPUSet] = {}
    for cpu, value in values.items():
        masks[value] = masks.get(value, 0) | 1 << cpu
    return {cpu: masks[value] for cpu, value in values.items()}


def spread(values: Mapping[CPUSet, T]) -> dict[int, T]:
    """CPU -> the value of its group."""
    spread: dict[int, T] = {}
    for mask, value in values.items():
        spread.update(dict.fromkeys(bits.members(mask), value))
    return spread


def union(groups: Mapping[int, CPUSet]) -> CPUSet:
    """All CPUs that are in a group."""
    mask = 0
    for group in groups.values():
        mask |= group
    return mask


def distinct(groups: Mapping[int, CPUSet]) -> list[CPUSet]:
    """Every group once, by lowest member."""
    return sorted(set(groups.values()), key=bits.lowest)
