"""CPUs: which are there, which are on-line, and what shares a core, die, socket and L3 cache.

Sources, best first (each step down leaves a note, except between names of the same thing):

* on-line: ``cpu/online``; else per CPU ``cpuN/online``, /proc/cpuinfo and /proc/stat, the zones'
  CPU lists, a ``topology`` directory. Present: ``cpu/present``, else the ``cpuN`` directories.
* groups: the CPU lists of ``topology/`` (new name, old name, then their hexadecimal maps), else
  equal ids, else /proc/cpuinfo.
* L3: the cache index whose level is 3, by its shared list or map, else by its id.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rte.model import bits, machine
from rte.sysfs import groups, procfs
from rte.sysfs.tree import parse, parse_int

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
L3_FILES = ("shared_cpu_list", "shared_cpu_map")
#: A core that has less than this share of the largest ``cpu_capacity`` is an efficiency core
#: (favoured cores of one kind differ by a few percent only).
EFFICIENCY_SHARE = 0.75


class Sources:
    """The two trees and what several steps take from them, read once and only when wanted."""

    def __init__(self, sys: Tree, proc: Tree, notes: Notes) -> None:
        self.sys = sys
        self.proc = proc
        self.notes = notes

    @cached_property
    def root(self) -> str:
        """The directory of the ``cpuN`` directories."""
        return first_dir(self.sys, "devices/system/cpu", "bus/cpu/devices")

    @cached_property
    def dirs(self) -> CPUSet:
        """The CPUs that have a directory."""
        return numbered(self.sys.names(self.root), "cpu")

    @cached_property
    def cpuinfo(self) -> Mapping[int, Mapping[str, str]]:
        """The blocks of /proc/cpuinfo."""
        return procfs.read_cpuinfo(self.proc)

    def topology_dir(self, cpu: int) -> str:
        """Where the ids and siblings of a CPU are."""
        return f"{self.root}/cpu{cpu}/topology"

    def id_of(self, cpu: int, file: str) -> int | None:
        """An id file of a CPU; None if it is missing, damaged or negative (not told)."""
        value = parse(self.sys.read(f"{self.topology_dir(cpu)}/{file}"), parse_int)
        return None if value is None or value < 0 else value

    def told(self, cpu: int, *keys: str) -> int | None:
        """A number from the CPU's block of /proc/cpuinfo."""
        block = self.cpuinfo.get(cpu, {})
        values = (parse(block.get(key), parse_int) for key in keys)
        return next((value for value in values if value is not None and value >= 0), None)


@dataclass(frozen=True, kw_only=True)
class Presence:
    """Which CPUs there are; ``online`` is part of ``present``."""

    present: CPUSet
    online: CPUSet


@dataclass(frozen=True, kw_only=True)
class Topology:
    """What on-line CPUs share. ``cores``: CPU -> its siblings; the others: CPU -> id."""

    cores: Mapping[int, CPUSet]
    core_ids: Mapping[int, int]
    die_ids: Mapping[int, int]
    socket_ids: Mapping[int, int]
    l3_ids: Mapping[int, int]


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


def read_presence(sources: Sources, in_zones: Callable[[], CPUSet]) -> Presence:
    """Which CPUs are present and on-line. ``in_zones``: all CPUs that the zones' lists name."""
    sys, root, notes = sources.sys, sources.root, sources.notes
    dirs = sources.dirs
    online = parse(sys.read(f"{root}/online"), bits.parse_list)
    present = parse(sys.read(f"{root}/present"), bits.parse_list)
    if not online:
        online = _guess_online(sources, present or dirs, in_zones())
        notes.add("cpu/online", "missing or unreadable; judged each CPU by its other files")
    if not present:
        present = dirs | online
        if not dirs:
            notes.add("cpu/present", "missing or unreadable, and no cpuN directory is there")
    return Presence(present=present | online, online=online)


def _guess_online(sources: Sources, present: CPUSet, in_zones: CPUSet) -> CPUSet:
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


def read_topology(sources: Sources, online: CPUSet) -> Topology:
    """The groups of on-line CPUs and their ids."""
    cores = _groups(sources, online, CORE_FILES)
    socket_ids = _socket_ids(sources, online, cores)
    die_ids = _die_ids(sources, online)
    core_ids = _core_ids(sources, online, cores)
    places = {cpu: (socket_ids[cpu], die_ids[cpu], core_ids[cpu]) for cpu in core_ids}
    cores = _complete_cores(sources, online, cores, places)
    core_ids = _unique_core_ids(sources, cores, places)
    l3 = _l3_groups(sources, online)
    return Topology(
        cores=cores,
        core_ids=core_ids,
        die_ids=die_ids,
        socket_ids=socket_ids,
        l3_ids=_l3_ids(sources, l3),
    )


def build_cpus(
    sources: Sources, presence: Presence, topology: Topology, zone_of: Mapping[int, int]
) -> tuple[machine.CPU, ...]:
    """All present CPUs in id order."""
    kinds = _read_kinds(sources, presence.online, topology)
    return tuple(
        machine.CPU(
            id=cpu,
            core=topology.core_ids.get(cpu, -1),
            die=topology.die_ids.get(cpu, -1),
            socket=topology.socket_ids.get(cpu, -1),
            zone=zone_of.get(cpu, -1),
            l3=topology.l3_ids.get(cpu),
            siblings=topology.cores.get(cpu, 1 << cpu),
            online=bool(presence.online >> cpu & 1),
            kind=kinds.get(cpu, ""),
        )
        for cpu in bits.members(presence.present)
    )


def _groups(sources: Sources, online: CPUSet, names: tuple[str, ...]) -> dict[int, CPUSet]:
    lists = groups.Lists(sources.sys, sources.topology_dir, names, online)
    return groups.partition(online, lists)


def _socket_ids(sources: Sources, online: CPUSet, cores: Mapping[int, CPUSet]) -> dict[int, int]:
    shared = _groups(sources, online, SOCKET_FILES)
    keys: dict[int, tuple[int, ...] | None] = {}
    unnamed: list[CPUSet] = []
    for cpu in bits.members(online):
        if cpu not in shared:
            keys[cpu] = _socket_key(sources, cpu)
    for mask in groups.distinct(shared):
        found = (_socket_key(sources, cpu) for cpu in bits.members(mask))
        key = next((key for key in found if key is not None), None)
        if key is None:
            unnamed.append(mask)
        keys.update(dict.fromkeys(bits.members(mask), key))
    # A kernel that knows no sockets puts each CPU into one of its own (include/linux/topology.h).
    real = [mask for mask in unnamed if mask & ~cores.get(bits.lowest(mask), 0)]
    for mask in unnamed if real else ():
        # No real key has one member, so such a group stays one of its own.
        keys.update(dict.fromkeys(bits.members(mask), (bits.lowest(mask),)))
    file = "cpu*/topology/physical_package_id"
    if all(key is None for key in keys.values()):
        sources.notes.add(file, "told nowhere; one socket 0 stands for all")
        return dict.fromkeys(keys, 0)
    if real:
        sources.notes.add(file, "not told; sockets are what package_cpus groups")
    for cpu, key in sorted(keys.items()):
        if key is None:
            sources.notes.add(file, "not told; socket unknown", str(cpu))
    return _number_sockets(sources, keys)


def _socket_key(sources: Sources, cpu: int) -> tuple[int, ...] | None:
    package = sources.id_of(cpu, "physical_package_id")
    if package is None:
        package = sources.told(cpu, "physical id", "package")
    if package is None:
        return None
    book = sources.id_of(cpu, "book_id")
    if book is None:
        lists = groups.Lists(sources.sys, sources.topology_dir, BOOK_FILES, ~0)
        mates = lists(cpu)
        book = 0 if mates is None else bits.lowest(mates)
    return sources.id_of(cpu, "drawer_id") or 0, book, package


def _number_sockets(sources: Sources, keys: Mapping[int, tuple[int, ...] | None]) -> dict[int, int]:
    distinct = list(dict.fromkeys(keys[cpu] for cpu in sorted(keys) if keys[cpu] is not None))
    told = [key[-1] for key in distinct if key is not None and len(key) > 1]
    if len(told) == len(distinct) == len(set(told)):
        return {cpu: -1 if key is None else key[-1] for cpu, key in keys.items()}
    if len(set(told)) < len(told):
        sources.notes.add(
            "cpu*/topology/physical_package_id",
            "repeats from book to book; sockets are numbered by their lowest CPU",
        )
    numbers = {key: number for number, key in enumerate(distinct)}
    return {cpu: -1 if key is None else numbers[key] for cpu, key in keys.items()}


def _die_ids(sources: Sources, online: CPUSet) -> dict[int, int]:
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


def _core_ids(sources: Sources, online: CPUSet, cores: Mapping[int, CPUSet]) -> dict[int, int]:
    """What the kernel calls each core; CPUs without an answer are left out."""
    ids: dict[int, int] = {}
    for cpu in bits.members(online):
        if cpu in ids:
            continue
        members = list(bits.members(cores.get(cpu, 1 << cpu)))
        found = itertools.chain(
            (sources.id_of(member, "core_id") for member in members),
            (sources.told(member, "core id", "core") for member in members),
        )
        core = next((value for value in found if value is not None), None)
        if core is not None:
            ids.update(dict.fromkeys(members, core))
    return ids


def _complete_cores(
    sources: Sources,
    online: CPUSet,
    cores: Mapping[int, CPUSet],
    places: Mapping[int, tuple[int, int, int]],
) -> dict[int, CPUSet]:
    """Siblings of CPUs whose lists are missing: those of the same core id, else nobody."""
    lost = [cpu for cpu in bits.members(online) if cpu not in cores]
    alike = groups.by_value({cpu: places[cpu] for cpu in lost if cpu in places})
    complete = dict(cores)
    for cpu in lost:
        complete[cpu] = alike.get(cpu, 1 << cpu)
        sources.notes.add(
            "cpu*/topology/core_cpus_list",
            "no list of siblings; siblings are the CPUs of the same core_id"
            if cpu in places
            else "no list of siblings and no core_id; taken for a core of its own",
            str(cpu),
        )
    return complete


def _unique_core_ids(
    sources: Sources, cores: Mapping[int, CPUSet], places: Mapping[int, tuple[int, int, int]]
) -> dict[int, int]:
    """Core ids; numbered by lowest CPU wherever the kernel's are missing or ambiguous."""
    owner: dict[tuple[int, int, int], CPUSet] = {}
    for cpu, mask in cores.items():
        if cpu not in places:
            why = "not told; cores are numbered by their lowest CPU"
        elif owner.setdefault(places[cpu], mask) != mask:
            why = "repeats within a die; cores are numbered by their lowest CPU"
        else:
            continue
        sources.notes.add("cpu*/topology/core_id", why)
        return {cpu: bits.lowest(mask) for cpu, mask in cores.items()}
    return {cpu: place[2] for cpu, place in places.items()}


def _l3_groups(sources: Sources, online: CPUSet) -> dict[int, CPUSet]:
    finder = _L3Finder(sources)
    shared = groups.partition(online, groups.Lists(sources.sys, finder, L3_FILES, online))
    lost = bits.of(cpu for cpu in finder.found if cpu not in shared)
    alike = groups.by_value(
        {
            cpu: value
            for cpu in bits.members(lost & online)
            if (value := parse(sources.sys.read(f"{finder.found[cpu]}/id"), parse_int)) is not None
        }
    )
    for cpu in bits.members(lost):
        sources.notes.add(
            "cpu*/cache/index*/shared_cpu_list",
            "missing or unreadable; L3 group taken from the cache's id"
            if cpu in alike
            else "missing or unreadable; no L3 group",
            str(cpu),
        )
    if not finder.any_cache:
        sources.notes.add("cpu*/cache", "missing; no L3 groups")
    return shared | alike


class _L3Finder:
    """Where the level-3 cache of a CPU is described, None if it has none."""

    def __init__(self, sources: Sources) -> None:
        self.found: dict[int, str] = {}
        self.any_cache = False
        self._sources = sources
        self._last = ""

    def __call__(self, cpu: int) -> str | None:
        cache = f"{self._sources.root}/cpu{cpu}/cache"
        if not self._is_l3(f"{cache}/{self._last}"):
            indexes = [n for n in self._sources.sys.names(cache) if n.startswith("index")]
            self.any_cache |= bool(indexes)
            last = next((n for n in reversed(indexes) if self._is_l3(f"{cache}/{n}")), None)
            if last is None:
                return None
            self._last = last
        self.found[cpu] = f"{cache}/{self._last}"
        return self.found[cpu]

    def _is_l3(self, index: str) -> bool:
        return parse(self._sources.sys.read(f"{index}/level"), parse_int) == 3


def _l3_ids(sources: Sources, shared: Mapping[int, CPUSet]) -> dict[int, int]:
    finder = _L3Finder(sources)
    ids: dict[CPUSet, int | None] = {}
    for mask in groups.distinct(shared):
        index = finder(bits.lowest(mask))
        ids[mask] = parse(sources.sys.read(f"{index}/id"), parse_int)
    known = [value for value in ids.values() if value is not None and value >= 0]
    if len(set(known)) == len(ids):
        return {cpu: ids[mask] or 0 for cpu, mask in shared.items()}
    sources.notes.add(
        "cpu*/cache/index*/id",
        "repeats; L3 groups are numbered by their lowest CPU"
        if len(known) == len(ids)
        else "missing or unreadable; L3 groups are numbered by their lowest CPU",
    )
    return {cpu: bits.lowest(mask) for cpu, mask in shared.items()}


def _read_kinds(sources: Sources, online: CPUSet, topology: Topology) -> dict[int, str]:
    """Performance or efficiency, on machines that have both."""
    fast, slow = (
        parse(sources.sys.read(f"devices/{name}/cpus"), bits.parse_list) or 0
        for name in ("cpu_core", "cpu_atom")
    )
    if not (fast and slow):
        fast, slow = _kinds_by_capacity(sources, online, topology)
    return {
        cpu: "performance" if fast >> cpu & 1 else "efficiency"
        for cpu in bits.members((fast | slow) if fast and slow else 0)
    }


def _kinds_by_capacity(
    sources: Sources, online: CPUSet, topology: Topology
) -> tuple[CPUSet, CPUSet]:
    def capacity(cpu: int) -> int | None:
        return parse(sources.sys.read(f"{sources.root}/cpu{cpu}/cpu_capacity"), parse_int)

    if capacity(bits.lowest(online)) is None:
        return 0, 0
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
    return fast, slow
