"""NUMA zones: which there are, whose the CPUs are, memory, huge pages, distances.

Sources, best first (each step down leaves a note):

* zones: ``node/online`` alone, without regard to directories; else the ``nodeN`` directories and
  the ``nodeN`` links of the CPUs; else packages stand for zones, as a kubelet takes them where the
  kernel has no NUMA (s390; cadvisor, getCPUTopology); else one zone 0. CPUs of a zone that is
  off-line are in none.
* a zone's CPUs: ``nodeN/cpulist``, ``nodeN/cpumap``, the ``cpuM`` entries of ``nodeN``, the
  ``nodeN`` links of the CPUs; then siblings of a core are in one zone, and what is left belongs to
  the one zone whose sources are lost, if no zone can be missing whole. What contradicts itself
  stays unknown.
* memory and huge pages: the zone's own files, else the node's totals less the other zones, unless
  a zone may be missing whole.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits, machine
from rte.sysfs import cpus, procfs
from rte.sysfs.tree import parse, parse_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.bits import CPUSet, ZoneSet
    from rte.sysfs.tree import Notes, Tree

_POOL = re.compile(r"^hugepages-(\d{1,12})kB$")
_NUMBERS = re.compile(r"[0-9\s]+")
LOCAL_DISTANCE = 10


class NodeFiles:
    """The files below ``devices/system/node``, each read once and only when wanted."""

    def __init__(self, sys: Tree, cpu_root: str) -> None:
        self.sys = sys
        self.cpu_root = cpu_root

    @cached_property
    def root(self) -> str:
        """The directory of the ``nodeN`` directories."""
        return cpus.first_dir(self.sys, "devices/system/node", "bus/node/devices")

    @cached_property
    def dirs(self) -> ZoneSet:
        """The zones that have a directory."""
        found = cpus.numbered(self.sys.names(self.root), "node")
        return bits.of(z for z in bits.members(found) if self.sys.is_dir(f"{self.root}/node{z}"))

    @cached_property
    def online(self) -> ZoneSet:
        """``node/online``; empty if it is missing, damaged or cut off."""
        text = self.sys.read(f"{self.root}/online")
        listed = parse(text, bits.parse_list) or 0
        if text is None or text.endswith("\n"):
            return listed
        # The kernel ends each line. Without that, and with zones in use that it misses: cut off.
        used = 0
        for name in ("has_cpu", "has_memory", "has_normal_memory"):
            used |= parse(self.sys.read(f"{self.root}/{name}"), bits.parse_list) or 0
        return 0 if used & self.dirs & ~listed else listed

    @cached_property
    def _told(self) -> Mapping[int, tuple[CPUSet, bool]]:
        """Zone -> the CPUs that its list or map names, and whether the text has its end of line."""
        told = {}
        for zone in bits.members(self.dirs):
            for file, parser in (("cpulist", bits.parse_list), ("cpumap", bits.parse_hex)):
                text = self.read(zone, file)
                found = parse(text, parser)
                if text is not None and found is not None:
                    told[zone] = found, text.rstrip("\0").endswith("\n")
                    break
        return told

    @cached_property
    def cpu_lists(self) -> Mapping[int, CPUSet]:
        """Zone -> the CPUs that its directory names; zones whose files are all useless are out."""
        lists = {}
        for zone in bits.members(self.dirs):
            found = self._told[zone][0] if zone in self._told else self._entries(zone)
            if found is not None:
                lists[zone] = found
        return lists

    def sound_cpu_lists(self, online: CPUSet) -> Mapping[int, CPUSet]:
        """``cpu_lists`` without what was cut off, as far as that shows.

        A text without the end of its line, where others have one, does not count if the lists do
        not make a partition of ``online``: cut off, ``8,16`` reads ``8,1``.
        """
        lists = dict(self.cpu_lists)
        ended = {zone for zone, (_, end) in self._told.items() if end}
        union = self.listed_cpus()
        doubled = sum(mask.bit_count() for mask in lists.values()) > union.bit_count()
        if ended and (online & ~union or doubled):
            for zone in self._told.keys() - ended:
                found = parse(self.read(zone, "cpumap"), bits.parse_hex)
                if found is None or found == self._told[zone][0]:
                    found = self._entries(zone)
                if found is None:
                    del lists[zone]
                else:
                    lists[zone] = found
        return lists

    def _entries(self, zone: int) -> CPUSet | None:
        return cpus.numbered(self.sys.names(f"{self.root}/node{zone}"), "cpu") or None

    def linked_zone(self, cpu: int) -> int | None:
        """The zone that the CPU's directory links to; None if it has no such link, or several."""
        linked = cpus.numbered(self.sys.names(f"{self.cpu_root}/cpu{cpu}"), "node")
        return bits.lowest(linked) if linked.bit_count() == 1 else None

    def has_entry(self, zone: int, cpu: int) -> bool:
        """Whether the zone's directory has an entry for the CPU."""
        path = f"{self.root}/node{zone}/cpu{cpu}"
        return self.sys.link(path) is not None or self.sys.is_dir(path)

    def listed_cpus(self) -> CPUSet:
        """All CPUs that the zones' directories name."""
        mask = 0
        for found in self.cpu_lists.values():
            mask |= found
        return mask

    def read(self, zone: int, file: str) -> str | None:
        """A file in the zone's directory."""
        return self.sys.read(f"{self.root}/node{zone}/{file}")

    def read_zone_pools(self, zone: int) -> dict[int, int | None]:
        """The zone's huge-page pools: size in bytes -> pages, None where unreadable."""
        return self.read_pool_dir(f"{self.root}/node{zone}/hugepages")

    def read_free_pages(self, zone: int, sizes: Iterable[int]) -> dict[int, int]:
        """Page size in bytes -> pages that nobody uses, those told."""
        free = {}
        for size in sizes:
            file = f"hugepages/hugepages-{size >> 10}kB/free_hugepages"
            pages = parse(self.read(zone, file), parse_int)
            if pages is not None and pages >= 0:
                free[size] = pages
        return free

    def read_pool_dir(self, path: str) -> dict[int, int | None]:
        """The huge-page pools in a directory: size in bytes -> pages, None where unreadable."""
        pools: dict[int, int | None] = {}
        for name in self.sys.names(path):
            if match := _POOL.match(name):
                pages = parse(self.sys.read(f"{path}/{name}/nr_hugepages"), parse_int)
                pools[int(match[1]) << 10] = None if pages is None or pages < 0 else pages
        return pools


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The zones and whose the CPUs are.

    Attributes:
        zones: all zones.
        zone_of: CPU -> zone; CPUs of unknown zone are left out.
        online: on-line CPUs.
        complete: no zone is missing whole, as far as that shows.
        whole: one zone that stands for a machine without NUMA files, where there is one package.
    """

    zones: ZoneSet
    zone_of: Mapping[int, int]
    online: CPUSet
    complete: bool = True
    whole: bool = False


def place(
    files: NodeFiles, presence: cpus.Presence, topology: cpus.CPUTopology, notes: Notes
) -> Placement:
    """Put every CPU into its zone."""
    online, cores = presence.online, topology.listed_cores
    lists = files.sound_cpu_lists(online)
    zone_of, contested = _told_zones(files, lists, presence)
    zones = files.online
    if not zones:
        zones = files.dirs | bits.of(zone for cpu, zone in zone_of.items() if online >> cpu & 1)
        if zones:
            why = "missing or unreadable; zones are those with a directory or with CPUs"
            notes.add("node/online", why)
    if not zones:
        return _by_packages(presence, topology.package_ids, notes)
    for zone in bits.members(files.dirs & ~zones):
        notes.add(f"node/node{zone}", "node/online does not list it; left out")
    for zone in bits.members(files.online & ~files.dirs):
        notes.add(f"node/node{zone}", "missing, though node/online lists it")
    outside = bits.of(cpu for cpu, zone in zone_of.items() if not zones >> zone & 1)
    for cpu in bits.members(outside & online):
        notes.add("cpu*/node*", "names a zone that is off-line; CPU is in none", str(cpu))
    for cpu in bits.members(outside):
        del zone_of[cpu]
    lost = zones & ~bits.of(lists)
    for zone in bits.members(lost):
        notes.add(f"node/node{zone}/cpulist", "missing or unreadable; zone told by the CPUs' side")
    # Without node/online, a zone may be missing whole, and its CPUs look like those of another.
    last = lost if lost.bit_count() == 1 and (files.online or lost == zones) else 0
    _infer(last, zone_of, contested, online & ~outside, cores, notes)
    complete = bool(files.online) or not online & ~outside & ~bits.of(zone_of)
    return Placement(zones=zones, zone_of=zone_of, online=online, complete=complete)


def _by_packages(
    presence: cpus.Presence, package_ids: Mapping[int, int], notes: Notes
) -> Placement:
    """Packages of one id are one zone, also those of different books."""
    zone_of = {cpu: package for cpu, package in package_ids.items() if package >= 0}
    ids = sorted(set(zone_of.values()))
    if len(ids) > 1:
        notes.add("devices/system/node", "missing; packages stand for zones, as for kubelets")
        return Placement(zones=bits.of(ids), zone_of=zone_of, online=presence.online)
    whole = ids[0] if ids else 0
    notes.add("devices/system/node", f"missing; one zone {whole} stands for the whole machine")
    everyone = dict.fromkeys(bits.members(presence.present), whole)
    return Placement(zones=1 << whole, zone_of=everyone, online=presence.online, whole=True)


def _told_zones(
    files: NodeFiles, lists: Mapping[int, CPUSet], presence: cpus.Presence
) -> tuple[dict[int, int], CPUSet]:
    """CPU -> zone where the files agree, and the CPUs that several zones claim for good."""
    claimed = doubly = contested = 0
    for mask in lists.values():
        doubly |= claimed & mask & presence.online
        claimed |= mask & presence.online
    once = claimed & ~doubly
    zone_of: dict[int, int] = {}
    for zone, mask in lists.items():
        zone_of.update(dict.fromkeys(bits.members(mask & once), zone))
    for cpu in bits.members(presence.present & ~once):
        linked = files.linked_zone(cpu)
        if linked is None and doubly >> cpu & 1:
            claimants = [zone for zone, mask in lists.items() if mask >> cpu & 1]
            backed = [z for z in claimants if files.has_entry(z, cpu)]
            linked = backed[0] if len(backed) == 1 else _nearest(claimants, lists)
        if linked is not None:
            zone_of[cpu] = linked
        elif doubly >> cpu & 1:
            contested |= 1 << cpu
    return zone_of, contested


def _nearest(zones: Sequence[int], lists: Mapping[int, CPUSet]) -> int | None:
    """The zone with the smallest list, if each larger list holds it whole; of equal ones the first.

    Memory that is further away is near to the CPUs of several zones. With numa=fake every part of
    a real zone lists all its CPUs, which the kernel counts as the first part's
    (arch/x86/mm/numa_emulation.c, numa_emulation).
    """
    ascending = sorted(zones, key=lambda zone: (lists[zone].bit_count(), zone))
    nested = all(not lists[a] & ~lists[b] for a, b in itertools.pairwise(ascending))
    return ascending[0] if nested else None


def _infer(
    last: ZoneSet,
    zone_of: dict[int, int],
    contested: CPUSet,
    online: CPUSet,
    cores: Mapping[int, CPUSet],
    notes: Notes,
) -> None:
    """Zones of on-line CPUs that no file places: by their siblings, then by elimination.

    ``last``: the one zone whose CPUs no file of its own tells, if there is just one.
    """
    for cpu in [cpu for cpu in bits.members(online) if cpu not in zone_of]:
        mates = {zone_of[mate] for mate in bits.members(cores.get(cpu, 0)) if mate in zone_of}
        if len(mates) == 1:
            zone_of[cpu] = mates.pop()
            notes.add("node/node*/cpulist", "CPU is in none; put into its siblings' zone", str(cpu))
    for cpu in [cpu for cpu in bits.members(online) if cpu not in zone_of]:
        if last and not contested >> cpu & 1:
            zone_of[cpu] = bits.lowest(last)
            notes.add(
                "node/node*/cpulist",
                "CPU is in none; put into the one zone whose CPUs are not told",
                str(cpu),
            )
        else:
            notes.add("node/node*/cpulist", "CPU is in none or in several; zone unknown", str(cpu))


def read_zones(
    files: NodeFiles, placed: Placement, proc: Tree, notes: Notes
) -> tuple[tuple[machine.Zone, ...], int]:
    """All zones in id order, and the memory of the machine in bytes."""
    text = proc.read("meminfo")
    node = procfs.parse_meminfo(text or "")
    total = node.get("MemTotal")
    zone_ids = list(bits.members(placed.zones))
    infos = {z: procfs.parse_meminfo(files.read(z, "meminfo") or "") for z in zone_ids}
    memory = _read_memory(infos, total, placed, notes)
    if total is None:
        notes.add("/proc/meminfo", "missing or unreadable; memory is the sum of the zones")
        total = sum(memory.values())
    pools = _read_pools(files, infos, node, memory, placed, notes)
    members = dict.fromkeys(zone_ids, 0)
    for cpu, zone in placed.zone_of.items():
        members[zone] |= 1 << cpu
    distances = _read_distances(files, placed, notes)
    zones = tuple(
        machine.Zone(
            id=zone,
            cpus=members[zone] & placed.online,
            memory_bytes=memory[zone],
            hugepages=pools[zone],
            free_hugepages=files.read_free_pages(zone, pools[zone]),
            distances=distances[zone],
        )
        for zone in zone_ids
    )
    return zones, total


def _read_memory(
    infos: Mapping[int, Mapping[str, int]], total: int | None, placed: Placement, notes: Notes
) -> dict[int, int]:
    memory = {zone: info["MemTotal"] for zone, info in infos.items() if "MemTotal" in info}
    lost = [zone for zone in infos if zone not in memory]
    if len(lost) == 1 and total is not None and placed.complete:
        memory[lost[0]] = max(0, total - sum(memory.values()))
        if not placed.whole:
            notes.add(
                f"node/node{lost[0]}/meminfo",
                "missing or unreadable; memory is /proc/meminfo less the other zones",
            )
        return memory
    for zone in lost:
        notes.add("node/node*/meminfo", "missing or unreadable; memory unknown, 0", str(zone))
        memory[zone] = 0
    return memory


def _read_pools(
    files: NodeFiles,
    infos: Mapping[int, Mapping[str, int]],
    node: Mapping[str, int],
    memory: Mapping[int, int],
    placed: Placement,
    notes: Notes,
) -> dict[int, dict[int, int]]:
    """Zone -> page size in bytes -> pages in the pool."""
    totals = files.read_pool_dir("kernel/mm/hugepages")
    default = node.get("Hugepagesize")
    if default is not None and totals.get(default) is None and "HugePages_Total" in node:
        totals[default] = node["HugePages_Total"]
    pools = {zone: files.read_zone_pools(zone) for zone in infos}
    sizes = sorted(set(totals).union(*pools.values()))
    result: dict[int, dict[int, int]] = {zone: {} for zone in infos}
    for size in sizes:
        # The kernel makes no pools for zones without memory.
        having = [zone for zone in infos if memory[zone] or size in pools[zone]]
        found = {zone: n for zone in having if (n := pools[zone].get(size)) is not None}
        lost = [zone for zone in having if zone not in found]
        file = f"node/node*/hugepages/hugepages-{size >> 10}kB"
        for zone in lost if size == default else ():
            if (count := infos[zone].get("HugePages_Total")) is not None:
                found[zone] = count
                notes.add(file, "missing or unreadable; taken from the zone's meminfo", str(zone))
        lost = [zone for zone in having if zone not in found]
        total = totals.get(size)
        telling = placed.complete and len(lost) == 1
        if total is not None and lost and (telling or total == sum(found.values())):
            rest = max(0, total - sum(found.values()))
            found.update(dict.fromkeys(lost, rest))
            if not placed.whole:
                why = "missing or unreadable; pages are the node's total less the other zones"
                notes.add(file, why, ", ".join(map(str, lost)))
        for zone in having:
            if zone in found:
                result[zone][size] = found[zone]
            else:
                notes.add(file, "missing or unreadable; pool unknown, left out", str(zone))
    return result


def _read_distances(files: NodeFiles, placed: Placement, notes: Notes) -> dict[int, dict[int, int]]:
    """Zone -> zone -> distance; a row that is lost is taken from the other zones' columns."""
    zones = list(bits.members(placed.zones))
    orders = [list(bits.members(mask)) for mask in (files.online, placed.zones, files.dirs)]
    known = set(zones)
    rows: dict[int, dict[int, int]] = {}
    for zone in zones:
        values = parse(files.read(zone, "distance"), _parse_distances) or []
        order = next((order for order in orders if len(order) == len(values)), None)
        if values and order is not None:
            row = {to: value for to, value in zip(order, values, strict=True) if to in known}
            # The firmware's table puts 10 on the diagonal; any other row is not this zone's.
            if row.get(zone) == LOCAL_DISTANCE:
                rows[zone] = row
    for zone in zones:
        if zone in rows:
            continue
        mirrored = {to: rows[to][zone] for to in zones if zone in rows.get(to, {})}
        if len(zones) > 1:
            notes.add(
                "node/node*/distance",
                "missing or unreadable; distances are those that the other zones tell",
                str(zone),
            )
        rows[zone] = dict(sorted({**mirrored, zone: LOCAL_DISTANCE}.items()))
    return rows


def _parse_distances(text: str) -> list[int]:
    words = text.split()
    if not _NUMBERS.fullmatch(text) or any(len(word) > 9 for word in words):
        raise errors.ParseError("distances", text)
    return [int(word) for word in words]
