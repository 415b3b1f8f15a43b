"""CPUs: which are there, which are on-line, and what shares a core, die, socket and L3 cache.

Sources, best first (each step down leaves a note, except between names of the same thing):

* on-line: ``cpu/online``; else per CPU ``cpuN/online``, /proc/cpuinfo and /proc/stat, the zones'
  CPU lists, a ``topology`` directory. Present: ``cpu/present``, else the ``cpuN`` directories.
* groups: the CPU lists of ``topology/`` (new name, old name, then their hexadecimal maps), else
  equal ids, else /proc/cpuinfo. Ids only name what the lists group: on some machines they repeat
  (sockets of s390 books, bus-numbered ia64), on POWER the package is -1. The kubelet goes by ids
  alone, so ``CPU.core_id`` and ``CPU.package_id`` keep them where they differ.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from rte.model import bits, machine
from rte.sysfs import caches, groups, procfs
from rte.sysfs.tree import parse, parse_id, parse_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.model.bits import CPUSet
    from rte.sysfs.tree import Notes, Tree

#: New names first (Linux 5.3), then the old ones; lists before maps.
CORE_FILES = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
DIE_FILES = ("die_cpus_list", "die_cpus")
SOCKET_FILES = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
#: An s390 machine numbers sockets within books and books within drawers.
BOOK_FILES = ("book_siblings_list", "book_siblings")
#: Drawer, book and package.
_SocketKey: TypeAlias = tuple[int, int, int]
#: The perf events of each kind of core on x86 (arch/x86/events/intel/core.c) name its CPUs.
KINDS = {"cpu_core": "performance", "cpu_atom": "efficiency", "cpu_lowpower": "low-power"}
#: A core that has less than this share of the largest ``cpu_capacity`` is an efficiency core
#: (favoured cores of one kind differ by a few percent only).
EFFICIENCY_SHARE = 0.75


class CPUTrees:
    """The two trees and what several steps take from them, read once and only when wanted."""

    def __init__(self, sys: Tree, proc: Tree, notes: Notes) -> None:
        self.sys = sys
        self.proc = proc
        self.notes = notes
        self._core_ids: dict[str, str | None] = {}

    @cached_property
    def root(self) -> str:
        """The directory of the ``cpuN`` directories."""
        return first_dir(self.sys, "devices/system/cpu", "bus/cpu/devices")

    @cached_property
    def cpuinfo(self) -> Mapping[int, Mapping[str, str]]:
        """The blocks of /proc/cpuinfo."""
        return procfs.read_cpuinfo(self.proc)

    def topology_dir(self, cpu: int) -> str:
        """Where the ids and siblings of a CPU are."""
        return f"{self.root}/cpu{cpu}/topology"

    def core_list(self, directory: str, file: str) -> str | None:
        """A file in a topology directory that names the siblings."""
        text, self._core_ids[directory] = self.sys.read_together(directory, file, "core_id")
        return text

    def core_id(self, cpu: int) -> int | None:
        """What the kernel calls the CPU's core, as :meth:`id_of`."""
        directory = self.topology_dir(cpu)
        if directory not in self._core_ids:
            self._core_ids[directory] = self.sys.read_in(directory, "core_id")
        return parse_id(self._core_ids[directory])

    def id_of(self, cpu: int, file: str) -> int | None:
        """An id file of a CPU; None if it is missing, damaged or negative (not told)."""
        return parse_id(self.sys.read_in(self.topology_dir(cpu), file))

    def told(self, cpu: int, *keys: str) -> int | None:
        """A number from the CPU's block of /proc/cpuinfo."""
        block = self.cpuinfo.get(cpu, {})
        values = (parse_id(block.get(key)) for key in keys)
        return next((value for value in values if value is not None), None)


@dataclass(frozen=True, kw_only=True)
class Presence:
    """Which CPUs there are; ``online`` is part of ``present``."""

    present: CPUSet
    online: CPUSet


@dataclass(frozen=True, kw_only=True)
class CPUTopology:
    """What on-line CPUs share. ``cores``: CPU -> its siblings; the ids: CPU -> id.

    ``listed_cores`` are those of the cores that lists of siblings tell; the others are worked out
    from ids, which may repeat. ``core_ids`` and ``package_ids`` are the kernel's: some are missing,
    some repeat elsewhere.
    """

    cores: Mapping[int, CPUSet]
    listed_cores: Mapping[int, CPUSet]
    core_ids: Mapping[int, int]
    die_ids: Mapping[int, int]
    package_ids: Mapping[int, int]
    socket_ids: Mapping[int, int]
    l3_ids: Mapping[int, int]
    l3_ids_told: bool


def first_dir(tree: Tree, *paths: str) -> str:
    """The first of the paths that is a directory, else the first."""
    return next((path for path in paths if tree.is_dir(path)), paths[0])


def numbered(names: Iterable[str], prefix: str) -> bits.Mask:
    """The numbers N of all names ``<prefix>N``."""
    mask = 0
    for name in names:
        digits = name.removeprefix(prefix)
        if digits != name and digits.isascii() and digits.isdigit() and len(digits) <= 5:
            number = int(digits)
            mask |= 1 << number if number <= bits.MAX_ID else 0
    return mask


def read_mask(sys: Tree, name: str) -> CPUSet:
    """A set that the kernel lists (``isolated``, ``nohz_full``); empty where it does not."""
    # nohz_full holds "(null)" where the kernel was booted without.
    return parse(sys.read(f"devices/system/cpu/{name}"), bits.parse_list) or 0


def read_presence(sources: CPUTrees, in_zones: Callable[[], CPUSet]) -> Presence:
    """Which CPUs are present and on-line. ``in_zones``: all CPUs that the zones' lists name."""
    sys, root, notes = sources.sys, sources.root, sources.notes
    # Of use in any case: the tree knows from now on which cpuN are directories.
    names = sys.names(root)
    online = parse(sys.read(f"{root}/online"), bits.parse_list)
    present = parse(sys.read(f"{root}/present"), bits.parse_list)
    if online and present:
        return Presence(present=present | online, online=online)
    dirs = numbered(names, "cpu")
    if not online:
        online = _guess_online(sources, present or dirs, in_zones())
        notes.add("cpu/online", "missing or unreadable; judged each CPU by its other files")
    if not present:
        present = dirs | online
        if not dirs:
            notes.add("cpu/present", "missing or unreadable, and no cpuN directory is there")
    return Presence(present=present | online, online=online)


def _guess_online(sources: CPUTrees, present: CPUSet, in_zones: CPUSet) -> CPUSet:
    running = bits.of(cpu for cpu in sources.cpuinfo if cpu <= bits.MAX_ID) or bits.of(
        cpu for cpu in procfs.read_stat_cpus(sources.proc) if cpu <= bits.MAX_ID
    )
    candidates = present | in_zones | running
    states = {
        cpu: parse(sources.sys.read(f"{sources.root}/cpu{cpu}/online"), parse_int)
        for cpu in bits.members(candidates)
    }
    said_on = bits.of(cpu for cpu, state in states.items() if state == 1)
    said_off = bits.of(cpu for cpu, state in states.items() if state == 0)
    silent = candidates & ~said_on & ~said_off
    # Zones and cpuinfo list on-line CPUs only, and off-line ones have no topology directory.
    described = bits.of(
        cpu for cpu in bits.members(silent) if sources.sys.is_dir(sources.topology_dir(cpu))
    )
    return said_on | (silent & ((running | described | in_zones) or candidates))


def read_topology(sources: CPUTrees, online: CPUSet) -> CPUTopology:
    """The groups of on-line CPUs and their ids."""
    lists = groups.Lists(sources.core_list, sources.topology_dir, CORE_FILES, online)
    cores = _split_modules(sources, groups.partition(online, lists))
    package_ids, socket_ids = _socket_ids(sources, online)
    die_ids = _die_ids(sources, online)
    core_ids = _core_ids(sources, online, cores)
    l3_ids, l3_ids_told = caches.read_groups(sources.sys, sources.root, online, sources.notes)
    complete: Mapping[int, CPUSet] = cores
    if lost := online & ~groups.union(cores):
        places = {cpu: (socket_ids[cpu], die_ids[cpu], core_ids[cpu]) for cpu in core_ids}
        complete = _complete_cores(sources, lost, cores, places)
    return CPUTopology(
        cores=complete,
        listed_cores=cores,
        core_ids=core_ids,
        die_ids=die_ids,
        package_ids=package_ids,
        socket_ids=socket_ids,
        l3_ids=l3_ids,
        l3_ids_told=l3_ids_told,
    )


def build_cpus(
    sources: CPUTrees, presence: Presence, topology: CPUTopology, zone_of: Mapping[int, int]
) -> tuple[machine.CPU, ...]:
    """All present CPUs in id order."""
    kinds = _read_kinds(sources, presence.online, topology)
    core_ids = _unique_core_ids(sources, topology, zone_of)
    present = list(bits.members(presence.present))
    unknown = itertools.repeat(-1)
    return tuple(
        # In the order of the fields.
        map(
            machine.CPU,
            present,
            map(core_ids.get, present, unknown),
            map(topology.die_ids.get, present, unknown),
            map(topology.socket_ids.get, present, unknown),
            map(zone_of.get, present, unknown),
            map(topology.l3_ids.get, present),
            (topology.cores.get(cpu, 1 << cpu) for cpu in present),
            map(set(bits.members(presence.online)).__contains__, present),
            map(kinds.get, present, itertools.repeat("")),
            map(_others(topology.core_ids, core_ids).get, present),
            map(_others(topology.package_ids, topology.socket_ids).get, present),
        )
    )


def _others(told: Mapping[int, int], used: Mapping[int, int]) -> Mapping[int, int]:
    """What is told where something else is used."""
    return {cpu: value for cpu, value in told.items() if value != used.get(cpu)}


def _groups(sources: CPUTrees, online: CPUSet, names: tuple[str, ...]) -> dict[int, CPUSet]:
    lists = groups.Lists(sources.sys.read_in, sources.topology_dir, names, online)
    return groups.partition(online, lists)


def _split_modules(sources: CPUTrees, cores: Mapping[int, CPUSet]) -> Mapping[int, CPUSet]:
    """Siblings whose core ids all differ are cores of their own.

    Linux before 4.9 lists the two cores of a module (AMD family 15h) as thread siblings. Every
    kernel gives threads of one core the same id, so one core where ids are equal settles it.
    """
    differ = False
    for mask in dict.fromkeys(cores.values()):
        if mask.bit_count() > 1:
            ids = [sources.core_id(cpu) for cpu in bits.members(mask)]
            if None in ids:
                continue
            if len(set(ids)) < len(ids):
                return cores
            differ = True
    return {cpu: 1 << cpu for cpu in cores} if differ else cores


def _socket_ids(sources: CPUTrees, online: CPUSet) -> tuple[dict[int, int], dict[int, int]]:
    """CPU -> the kernel's id of its package (may be missing or -1), CPU -> its socket.

    Sockets are what the lists group; ids name them, and group CPUs without a list. Where the
    kernel says -1 (POWER), a list of one CPU is no answer: kernels that know no sockets put each
    CPU into one of its own (include/linux/topology.h).
    """
    file = "cpu*/topology/physical_package_id"
    sockets: dict[CPUSet, _SocketKey | None] = {}
    shared = _groups(sources, online, SOCKET_FILES)
    for mask in groups.distinct(shared):
        found = (_socket_key(sources, cpu) for cpu in bits.members(mask))
        sockets[mask] = next((key for key in found if key is not None), None)
    _add_unlisted(sources, sockets, online & ~groups.union(shared))
    named = [mask for mask, key in sockets.items() if key is not None]
    unnamed = [mask for mask, key in sockets.items() if key is None]
    if any(mask.bit_count() > 1 for mask in unnamed):
        sources.notes.add(file, "not told; sockets are what package_cpus groups")
    else:
        sockets = {mask: sockets[mask] for mask in named}
    numbers = {mask: -1 if key is None else key[-1] for mask, key in sockets.items()}
    package_ids = groups.spread(numbers)
    if not sockets:
        sources.notes.add(file, "told nowhere; one socket 0 stands for all")
        return package_ids, dict.fromkeys(bits.members(online), 0)
    if len(set(numbers.values())) < len(numbers) or -1 in numbers.values():
        if len(named) == len(numbers):
            sources.notes.add(file, "repeats; sockets are numbered in the order of their CPUs")
        numbers = {mask: n for n, mask in enumerate(sorted(numbers, key=bits.lowest))}
    ids = groups.spread(numbers)
    for cpu in bits.members(online):
        if cpu not in ids:
            sources.notes.add(file, "not told; socket unknown", str(cpu))
            ids[cpu] = -1
    return package_ids, ids


def _add_unlisted(
    sources: CPUTrees, sockets: dict[CPUSet, _SocketKey | None], lost: CPUSet
) -> None:
    """Put CPUs without a list of their own to the one socket of the same id, else together."""
    keys = {cpu: key for cpu in bits.members(lost) if (key := _socket_key(sources, cpu))}
    for mask in groups.distinct(groups.by_value(keys)):
        key = keys[bits.lowest(mask)]
        same = [listed for listed, other in sockets.items() if other == key]
        if not same:
            sockets[mask] = key
        elif len(same) == 1:
            del sockets[same[0]]
            sockets[same[0] | mask] = key


def _socket_key(sources: CPUTrees, cpu: int) -> _SocketKey | None:
    package = sources.id_of(cpu, "physical_package_id")
    if package is None:
        package = sources.told(cpu, "physical id", "package")
    if package is None:
        return None
    book = sources.id_of(cpu, "book_id")
    if book is None:
        lists = groups.Lists(sources.sys.read_in, sources.topology_dir, BOOK_FILES, ~0)
        mates = lists(cpu)
        book = 0 if mates is None else bits.lowest(mates)
    return sources.id_of(cpu, "drawer_id") or 0, book, package


def _die_ids(sources: CPUTrees, online: CPUSet) -> dict[int, int]:
    """Die ids, all 0 where the kernel or the architecture knows no dies."""
    first = bits.lowest(online)
    known = any(
        sources.sys.read(f"{sources.topology_dir(first)}/{name}") is not None
        for name in ("die_id", *DIE_FILES)
    )
    if not known:
        return dict.fromkeys(bits.members(online), 0)
    shared = _groups(sources, online, DIE_FILES)
    ids: dict[int, int] = {}
    for mask in groups.distinct(shared):
        found = (sources.id_of(cpu, "die_id") for cpu in bits.members(mask))
        die = next((value for value in found if value is not None), 0)
        ids.update(dict.fromkeys(bits.members(mask), die))
    for cpu in bits.members(online):
        if cpu not in ids:
            ids[cpu] = sources.id_of(cpu, "die_id") or 0
    return ids


def _core_ids(sources: CPUTrees, online: CPUSet, cores: Mapping[int, CPUSet]) -> dict[int, int]:
    """What the kernel calls each core; CPUs without an answer are left out."""
    ids: dict[int, int] = {}
    unlisted = bits.members(online & ~groups.union(cores))
    for mask in (*groups.distinct(cores), *(1 << cpu for cpu in unlisted)):
        core = sources.core_id(bits.lowest(mask))
        if core is None:
            found = itertools.chain(
                (sources.core_id(cpu) for cpu in bits.members(mask)),
                (sources.told(cpu, "core id", "core") for cpu in bits.members(mask)),
            )
            core = next((value for value in found if value is not None), None)
        if core is not None:
            for cpu in bits.members(mask):
                ids[cpu] = core
    return ids


def _complete_cores(
    sources: CPUTrees,
    lost: CPUSet,
    cores: Mapping[int, CPUSet],
    places: Mapping[int, tuple[int, int, int]],
) -> dict[int, CPUSet]:
    """All cores; siblings of CPUs whose lists are lost: those of the same core id, else nobody."""
    firsts = [bits.lowest(mask) for mask in groups.distinct(cores)]
    listed = [places[cpu] for cpu in firsts if cpu in places]
    telling = {} if len(set(listed)) < len(listed) else places
    alike = groups.by_value({cpu: telling[cpu] for cpu in bits.members(lost) if cpu in telling})
    complete = dict(cores)
    for cpu in bits.members(lost):
        complete[cpu] = alike.get(cpu, 1 << cpu)
        sources.notes.add(
            "cpu*/topology/core_cpus_list",
            "no list of siblings; siblings are the CPUs of the same core_id"
            if cpu in alike
            else "no list of siblings and no core_id that tells; taken for a core of its own",
            str(cpu),
        )
    return complete


def _unique_core_ids(
    sources: CPUTrees, topology: CPUTopology, zone_of: Mapping[int, int]
) -> dict[int, int]:
    """Core ids; numbered by lowest CPU wherever the kernel's are missing or ambiguous.

    Old kernels number the cores of AMD family 15h anew in each zone of a socket.
    """
    owner: dict[tuple[int, int, int, int], CPUSet] = {}
    for cpu, mask in topology.cores.items():
        core = topology.core_ids.get(cpu)
        if core is None:
            why = "not told; cores are numbered by their lowest CPU"
        else:
            place = (topology.socket_ids[cpu], topology.die_ids[cpu], zone_of.get(cpu, -1), core)
            if owner.setdefault(place, mask) == mask:
                continue
            why = "repeats within a die; cores are numbered by their lowest CPU"
        sources.notes.add("cpu*/topology/core_id", why)
        return {cpu: bits.lowest(mask) for cpu, mask in topology.cores.items()}
    return dict(topology.core_ids)


def _read_kinds(sources: CPUTrees, online: CPUSet, topology: CPUTopology) -> dict[int, str]:
    """Performance, efficiency or low-power, on machines that have several of them."""
    told = {
        kind: parse(sources.sys.read(f"devices/{name}/cpus"), bits.parse_list) or 0
        for name, kind in KINDS.items()
    }
    if len([mask for mask in told.values() if mask]) < 2:
        told = _kinds_by_capacity(sources, online, topology)
    return {cpu: kind for kind, mask in told.items() for cpu in bits.members(mask)}


def _kinds_by_capacity(
    sources: CPUTrees, online: CPUSet, topology: CPUTopology
) -> dict[str, CPUSet]:
    def capacity(cpu: int) -> int | None:
        return parse(sources.sys.read(f"{sources.root}/cpu{cpu}/cpu_capacity"), parse_int)

    if capacity(bits.lowest(online)) is None:
        return {}
    found = {
        mask: value
        for mask in groups.distinct(topology.cores)
        if (value := capacity(bits.lowest(mask))) is not None
    }
    limit = max(found.values()) * EFFICIENCY_SHARE
    fast = slow = 0
    for mask, value in found.items():
        if value < limit:
            slow |= mask
        else:
            fast |= mask
    return {"performance": fast, "efficiency": slow} if fast and slow else {}
