"""Simulated machines: sysfs and procfs trees of any shape, with the truth about each.

The truth (``expected``) comes from the parameters alone; nothing here reads a tree.

``generate(Shape(sockets=2), out)`` writes ``out/sys`` and ``out/proc``; ``full=True`` with all that
cAdvisor reads, for kubelets on simulated hardware. The committed ones: ``tests.fixture_machines``.
"""

# Tens of thousands of small files: pathlib would take most of the time.
# ruff: noqa: PTH103, PTH110, PTH123, PTH211
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

GIB = 1 << 30
MIB = 1 << 20

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Device:
    """A PCI function: what its files say (``files``) and what a reader must find (``details``).

    ``path`` is the chain of bridges above it; bridges are written as well. ``more`` are further
    keys of the document.
    """

    address: str
    kind: str
    pci_class: str
    vendor: str
    device: str
    zone: int
    path: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A machine.

    Attributes:
        about: what is special about it.
        sockets, zones, cores, threads: number of sockets, zones per socket, cores per zone,
            threads per core.
        zone_ids: ids of the zones with CPUs (default 0, 1, ...).
        memory: bytes of each zone with CPUs, by position (the last one repeats).
        pools: page size in bytes -> pages of each zone with memory, by position.
        memory_only: zone id -> bytes.
        empty_zones: zones on-line without CPUs and memory.
        adjacent: threads of a core have adjacent numbers (arm64, POWER); else the second threads
            follow all first ones (x86).
        l3_cores: cores per L3 group; None = all of a zone, 0 = the machine tells no L3.
        l3_ids: caches have an ``id`` file.
        cache_sizes: what the kernel tells of L1 (both), L2 and L3; None = it tells only L3 groups.
        die_zones: zones per die; 0 = the kernel tells no dies.
        offline: CPUs that are present but off-line.
        cpu_stride: CPU ids are multiples of it (holes).
        old: names and hexadecimal maps of old kernels, no ``cpulist``, no lists at all.
        books: sockets per book (s390), 0 = no books; socket ids start anew in each book.
        package_id: socket -> what ``physical_package_id`` says; None = as ``books`` has it.
        modules: pairs of cores list each other as thread siblings, core ids start anew in each
            zone (AMD family 15h before Linux 4.9).
        capacities: capacity per core, cyclic; empty = no cpu_capacity.
        atoms: number of trailing cores that are efficiency cores with one thread (x86 hybrid).
        low_power: so many of these, the last, are low-power cores.
        node_dir: False = a kernel without NUMA.
        vendor, model: of /proc/cpuinfo.
        devices: PCI functions.
        cpuid: family, model and stepping that /proc/cpuinfo tells.
        files: more files, by path below the machine's directory.
        more: what these files add to the document.
        distance: zone position, zone position -> distance; None = 12 within a socket, else 21.
    """

    about: str = ""
    sockets: int = 1
    zones: int = 1
    cores: int = 1
    threads: int = 1
    zone_ids: tuple[int, ...] = ()
    memory: tuple[int, ...] = (4 * GIB,)
    pools: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: {2 * MIB: (0,)})
    memory_only: Mapping[int, int] = field(default_factory=dict)
    empty_zones: tuple[int, ...] = ()
    adjacent: bool = False
    l3_cores: int | None = None
    l3_ids: bool = True
    cache_sizes: tuple[str, str, str] | None = None
    die_zones: int = 0
    offline: tuple[int, ...] = ()
    cpu_stride: int = 1
    old: bool = False
    books: int = 0
    package_id: Callable[[int], int] | None = None
    modules: bool = False
    capacities: tuple[int, ...] = ()
    atoms: int = 0
    low_power: int = 0
    node_dir: bool = True
    vendor: str = "GenuineIntel"
    model: str = "Simulated CPU"
    devices: tuple[Device, ...] = ()
    cpuid: tuple[int, int, int] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    distance: Callable[[int, int], int] | None = None

    @property
    def cpu_zone_ids(self) -> tuple[int, ...]:
        return self.zone_ids or tuple(range(self.sockets * self.zones))

    @property
    def all_zone_ids(self) -> list[int]:
        return sorted({*self.cpu_zone_ids, *self.memory_only, *self.empty_zones})


def build_rows(shape: Shape) -> list[Row]:
    """The truth about every CPU, as if all were on-line, in id order.

    Beside the fields of the expected document: ``kernel_socket`` and ``book``, as the files say.
    """
    n_cores = shape.sockets * shape.zones * shape.cores
    threads = [1 if c >= n_cores - shape.atoms else shape.threads for c in range(n_cores)]
    numbers: dict[tuple[int, int], int] = {}
    for t in range(shape.threads):
        for c in range(n_cores):
            if t < threads[c]:
                position = c * shape.threads + t if shape.adjacent else len(numbers)
                numbers[c, t] = position * shape.cpu_stride
    l3_cores = shape.cores if shape.l3_cores is None else shape.l3_cores
    cores_in = shape.cores if shape.modules else shape.cores * shape.zones
    package_id = shape.package_id or (lambda s: s % shape.books if shape.books else s)
    top = max(shape.capacities, default=0)
    rows = []
    for (c, t), cpu in numbers.items():
        zone = c // shape.cores
        socket = zone // shape.zones
        kind = ""
        if shape.atoms:
            kind = "efficiency" if c >= n_cores - shape.atoms else "performance"
            kind = "low-power" if c >= n_cores - shape.low_power else kind
        capacity = shape.capacities[c % len(shape.capacities)] if shape.capacities else None
        if capacity is not None:
            kind = "performance" if capacity * 4 >= top * 3 else "efficiency"
        rows.append(
            {
                "id": cpu,
                "core": c % cores_in,
                "die": zone % shape.zones // shape.die_zones if shape.die_zones else 0,
                "socket": socket,
                "zone": shape.cpu_zone_ids[zone] if shape.node_dir else max(0, package_id(socket)),
                "l3": c // l3_cores if l3_cores else None,
                "siblings": [numbers[c, u] for u in range(threads[c])],
                "online": cpu not in shape.offline,
                "kind": kind,
                "capacity": capacity,
                "kernel_socket": package_id(socket),
                "book": socket // shape.books if shape.books else None,
                "thread": t,
            }
        )
    return sorted(rows, key=lambda row: row["id"])


def build_zones(shape: Shape) -> list[Row]:
    """The truth about every zone: id, online CPUs, memory, pools, distances."""
    rows = build_rows(shape)
    ids = shape.all_zone_ids if shape.node_dir else sorted({row["zone"] for row in rows})
    with_memory: dict[int, int] = {}
    for position, zone in enumerate(shape.cpu_zone_ids):
        with_memory[zone] = shape.memory[min(position, len(shape.memory) - 1)]
    with_memory |= shape.memory_only
    if not shape.node_dir:
        # Whose the memory is, nobody tells where packages stand for zones.
        with_memory = {ids[0]: sum(with_memory.values())} if len(ids) == 1 else {}
    owners = [zone for zone in ids if with_memory.get(zone)]
    pools: dict[int, dict[int, int]] = {zone: {} for zone in ids}
    for size, counts in shape.pools.items():
        for position, zone in enumerate(owners):
            pools[zone][size] = counts[min(position, len(counts) - 1)]
    distance = shape.distance or (lambda a, b: _usual_distance(shape, ids, a, b))
    return [
        {
            "id": zone,
            "cpus": [row["id"] for row in rows if row["zone"] == zone and row["online"]],
            "memory_bytes": with_memory.get(zone, 0),
            "hugepages": pools[zone],
            "distances": {other: 10 if a == b else distance(a, b) for b, other in enumerate(ids)}
            if shape.node_dir
            else {zone: 10},
        }
        for a, zone in enumerate(ids)
    ]


def memory_of(shape: Shape) -> int:
    """The machine's memory in bytes."""
    sizes = [*shape.memory, *[shape.memory[-1]] * len(shape.cpu_zone_ids)]
    return sum(sizes[: len(shape.cpu_zone_ids)]) + sum(shape.memory_only.values())


def _usual_distance(shape: Shape, ids: Sequence[int], a: int, b: int) -> int:
    mine, other = ids[a], ids[b]
    if mine not in shape.cpu_zone_ids or other not in shape.cpu_zone_ids:
        return 17
    positions = shape.cpu_zone_ids.index(mine), shape.cpu_zone_ids.index(other)
    return 12 if positions[0] // shape.zones == positions[1] // shape.zones else 21


def expected(shape: Shape) -> dict[str, Any]:
    """The document that a right reading of the machine gives; warnings are the caller's."""
    rows = build_rows(shape)
    on = {row["id"] for row in rows if row["online"]}
    l3 = _l3_numbers(shape, rows)
    cpus = [
        {
            "id": row["id"],
            "core": row["core"] if row["online"] else -1,
            "die": row["die"] if row["online"] else -1,
            "socket": row["socket"] if row["online"] else -1,
            "zone": row["zone"],
            "l3": l3.get(row["l3"]) if row["online"] else None,
            "siblings": _list(
                [s for s in row["siblings"] if s in on] if row["online"] else [row["id"]]
            ),
            "online": row["online"],
            "kind": row["kind"] if row["online"] else "",
            **(
                {"package_id": row["kernel_socket"]}
                if row["online"] and row["kernel_socket"] != row["socket"]
                else {}
            ),
        }
        for row in rows
    ]
    zones = [
        {
            **zone,
            "cpus": _list(zone["cpus"]),
            "hugepages": {str(size): zone["hugepages"][size] for size in sorted(zone["hugepages"])},
            "distances": {str(to): d for to, d in zone["distances"].items()},
        }
        for zone in build_zones(shape)
    ]
    return {
        "about": shape.about,
        "vendor": shape.vendor,
        "model": shape.model,
        "memory_bytes": memory_of(shape),
        "sockets": len(
            {r["kernel_socket"] for r in rows if r["online"] and r["kernel_socket"] >= 0}
        ),
        **shape.more,
        "cpus": cpus,
        "zones": zones,
        "pci": [
            {
                "address": d.address,
                "kind": d.kind,
                "vendor": d.vendor,
                "device": d.device,
                "zone": d.zone if d.zone >= 0 else None,
                "path": list(d.path),
                "details": dict(sorted(d.details.items())),
                **d.more,
            }
            for d in sorted(shape.devices, key=lambda d: d.address)
            if d.kind
        ],
        "warnings": [],
    }


def _l3_numbers(shape: Shape, rows: Sequence[Row]) -> dict[int | None, int | None]:
    """The truth's L3 number -> the number that a reader gives it."""
    if shape.l3_ids:
        return {row["l3"]: row["l3"] for row in rows}
    first: dict[int | None, int | None] = {None: None}
    for row in rows:
        if row["online"]:
            first.setdefault(row["l3"], row["id"])
    return first


def _list(members: Sequence[int]) -> str:
    return bits.format_list(bits.of(members))


def _map(members: Sequence[int], width: int) -> str:
    mask = bits.of(members)
    words = max(1, -(-width // 32))
    return ",".join(f"{mask >> 32 * i & 0xFFFFFFFF:08x}" for i in reversed(range(words)))


class _Writer:
    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        self._made: set[str] = set()

    def file(self, path: str, content: object) -> None:
        self._parent(path)
        with open(f"{self.root}/{path}", "w", encoding="utf-8", newline="\n") as out:
            out.write(f"{content}\n")

    def link(self, path: str, target: str) -> None:
        self._parent(path)
        os.symlink(target, f"{self.root}/{path}")

    def directory(self, path: str) -> None:
        if path not in self._made:
            os.makedirs(f"{self.root}/{path}", exist_ok=True)
            self._made.add(path)

    def _parent(self, path: str) -> None:
        self.directory(path.rpartition("/")[0])


def generate(shape: Shape, out_dir: Path, *, full: bool = False) -> None:
    """Write ``out_dir/sys`` and ``out_dir/proc``; the directories must not be there yet.

    ``full`` adds what cAdvisor reads beyond what rte does: every cache level with type and size,
    the per-CPU ``online`` file, all names of all lists, pool details.
    """
    out = _Writer(out_dir)
    rows = build_rows(shape)
    zones = build_zones(shape)
    _write_cpus(out, shape, rows, full=full)
    if shape.node_dir:
        _write_nodes(out, shape, rows, zones, full=full)
    for size in shape.pools:
        count = sum(zone["hugepages"].get(size, 0) for zone in zones)
        _write_pool(out, "sys/kernel/mm/hugepages", size, count, full=full)
    _write_proc(out, shape, rows, zones)
    for device in shape.devices:
        _write_device(out, shape, device)
    for path, content in shape.files.items():
        out.file(path, content)


def _write_cpus(out: _Writer, shape: Shape, rows: Sequence[Row], *, full: bool) -> None:
    base = "sys/devices/system/cpu"
    online = [row["id"] for row in rows if row["online"]]
    everyone = [row["id"] for row in rows]
    if not shape.old:
        out.file(f"{base}/online", _list(online))
        out.file(f"{base}/present", _list(everyone))
        out.file(f"{base}/possible", _list(everyone))
        out.file(f"{base}/offline", _list(sorted(set(everyone) - set(online))))
    if shape.atoms:
        for name, kind in (
            ("cpu_core", "performance"),
            ("cpu_atom", "efficiency"),
            ("cpu_lowpower", "low-power"),
        ):
            of_kind = [r["id"] for r in rows if r["kind"] == kind and r["online"]]
            if of_kind:
                out.file(f"sys/devices/{name}/cpus", _list(of_kind))
    lean = not full and len(rows) > 256
    for row in rows:
        cpu = f"{base}/cpu{row['id']}"
        out.directory(cpu)
        if shape.node_dir and not (lean or shape.old):
            out.link(f"{cpu}/node{row['zone']}", f"../../node/node{row['zone']}")
        if full or not row["online"]:
            out.file(f"{cpu}/online", int(row["online"]))
        if row["online"]:
            _write_topology(out, shape, rows, row, cpu, full=full)
            _write_caches(out, shape, rows, row, cpu, full=full)
            if row["capacity"] is not None:
                out.file(f"{cpu}/cpu_capacity", row["capacity"])


def _write_topology(
    out: _Writer, shape: Shape, rows: Sequence[Row], row: Row, cpu: str, *, full: bool
) -> None:
    online = [r for r in rows if r["online"]]
    width = rows[-1]["id"] + 1

    def lists(names: Sequence[str], members: Sequence[int]) -> None:
        for name in names:
            text = _map(members, width) if not name.endswith("_list") else _list(members)
            out.file(f"{cpu}/topology/{name}", text)

    same = [r["id"] for r in online if r["id"] in row["siblings"]]
    if shape.modules:
        same = [r["id"] for r in online if r["id"] // 2 == row["id"] // 2]
    package = [r["id"] for r in online if r["socket"] == row["socket"]]
    out.file(f"{cpu}/topology/core_id", row["core"])
    out.file(f"{cpu}/topology/physical_package_id", row["kernel_socket"])
    if shape.old:
        lists(("thread_siblings", "core_siblings"), same)
        lists(("core_siblings",), package)
        return
    lists(("core_cpus_list", *(("thread_siblings_list",) if full else ())), same)
    lists(("package_cpus_list", *(("core_siblings_list",) if full else ())), package)
    if shape.die_zones:
        out.file(f"{cpu}/topology/die_id", row["die"])
        die = [r["id"] for r in online if (r["socket"], r["die"]) == (row["socket"], row["die"])]
        lists(("die_cpus_list",), die)
    if shape.books:
        book = [r["id"] for r in online if r["book"] == row["book"]]
        out.file(f"{cpu}/topology/book_id", row["book"])
        out.file(f"{cpu}/topology/drawer_id", 0)
        lists(("book_siblings_list",), book)


def _write_caches(
    out: _Writer, shape: Shape, rows: Sequence[Row], row: Row, cpu: str, *, full: bool
) -> None:
    online = [r for r in rows if r["online"]]
    width = rows[-1]["id"] + 1
    same = [r["id"] for r in online if r["id"] in row["siblings"]]
    levels: list[tuple[int, int, str, str, Sequence[int], int]] = []
    own_l1, own_l2, l3 = shape.cache_sizes or ("32K", "1024K", "32768K")
    if full or shape.cache_sizes:
        own = row["core"] + row["socket"] * 1000
        levels += [
            (0, 1, "Data", own_l1, same, own),
            (1, 1, "Instruction", own_l1, same, own),
            (2, 2, "Unified", own_l2, same, own),
        ]
    if row["l3"] is not None:
        shared = [r["id"] for r in online if r["l3"] == row["l3"]]
        levels.append((3, 3, "Unified", l3, shared, row["l3"]))
    for index, level, kind, size, shared, number in levels:
        path = f"{cpu}/cache/index{index}"
        out.file(f"{path}/level", level)
        if shape.old:
            out.file(f"{path}/shared_cpu_map", _map(shared, width))
            continue
        out.file(f"{path}/shared_cpu_list", _list(shared))
        if shape.l3_ids:
            out.file(f"{path}/id", number)
        if full or shape.cache_sizes:
            out.file(f"{path}/type", kind)
            out.file(f"{path}/size", size)
        if full:
            out.file(f"{path}/shared_cpu_map", _map(shared, width))


def _write_nodes(
    out: _Writer, shape: Shape, rows: Sequence[Row], zones: Sequence[Row], *, full: bool
) -> None:
    base = "sys/devices/system/node"
    ids = [zone["id"] for zone in zones]
    if not shape.old:
        out.file(f"{base}/online", _list(ids))
        out.file(f"{base}/possible", _list(ids))
        out.file(f"{base}/has_cpu", _list([z["id"] for z in zones if z["cpus"]]))
        for name in ("has_memory", "has_normal_memory"):
            out.file(f"{base}/{name}", _list([z["id"] for z in zones if z["memory_bytes"]]))
    lean = not full and len(rows) > 64
    for zone in zones:
        node = f"{base}/node{zone['id']}"
        out.file(f"{node}/cpumap", _map(zone["cpus"], rows[-1]["id"] + 1))
        if not shape.old:
            out.file(f"{node}/cpulist", _list(zone["cpus"]))
        out.file(f"{node}/distance", " ".join(str(zone["distances"][to]) for to in ids))
        out.file(f"{node}/meminfo", _node_meminfo(zone))
        if zone["memory_bytes"]:
            for size, count in zone["hugepages"].items():
                _write_pool(out, f"{node}/hugepages", size, count, full=full)
        for row in () if lean else rows:
            if row["zone"] == zone["id"]:
                out.link(f"{node}/cpu{row['id']}", f"../../cpu/cpu{row['id']}")


def _node_meminfo(zone: Row) -> str:
    number, kib = zone["id"], zone["memory_bytes"] >> 10
    used = sum(size * count for size, count in zone["hugepages"].items()) >> 10
    lines = [
        f"Node {number} {key}:{value:>15} kB"
        for key, value in (("MemTotal", kib), ("MemFree", kib - used), ("MemUsed", used))
    ]
    if 2 * MIB in zone["hugepages"]:
        count = zone["hugepages"][2 * MIB]
        lines += [f"Node {number} HugePages_{key}:{count:>6}" for key in ("Total", "Free")]
        lines.append(f"Node {number} HugePages_Surp:     0")
    return "\n".join(lines)


def _write_pool(out: _Writer, base: str, size: int, count: int, *, full: bool) -> None:
    path = f"{base}/hugepages-{size >> 10}kB"
    out.file(f"{path}/nr_hugepages", count)
    if full:
        out.file(f"{path}/free_hugepages", count)
        out.file(f"{path}/surplus_hugepages", 0)
        if base.endswith("mm/hugepages"):
            out.file(f"{path}/resv_hugepages", 0)


def _write_proc(out: _Writer, shape: Shape, rows: Sequence[Row], zones: Sequence[Row]) -> None:
    total = memory_of(shape) >> 10
    pool = sum(z["hugepages"].get(size, 0) * size for z in zones for size in shape.pools) >> 10
    lines = [
        f"{key}:{value:>16} kB"
        for key, value in (
            ("MemTotal", total),
            ("MemFree", total - pool),
            ("MemAvailable", total - pool),
            ("Buffers", 0),
            ("Cached", 0),
            ("SwapTotal", 0),
            ("SwapFree", 0),
        )
    ]
    if 2 * MIB in shape.pools:
        count = sum(zone["hugepages"].get(2 * MIB, 0) for zone in zones)
        lines += [f"HugePages_Total: {count:>7}", f"HugePages_Free: {count:>8}"]
        lines += ["HugePages_Rsvd:        0", "HugePages_Surp:        0"]
        lines += ["Hugepagesize:       2048 kB", f"Hugetlb:{pool:>16} kB"]
    out.file("proc/meminfo", "\n".join(lines))
    online = [row for row in rows if row["online"]]
    out.file("proc/cpuinfo", "\n\n".join(_cpuinfo_block(shape, row) for row in online) + "\n")


def _cpuinfo_block(shape: Shape, row: Row) -> str:
    lines = [f"processor\t: {row['id']}"]
    lines += [f"vendor_id\t: {shape.vendor}", f"model name\t: {shape.model}"]
    if shape.cpuid is not None:
        family, model, stepping = shape.cpuid
        lines += [f"cpu family\t: {family}", f"model\t\t: {model}", f"stepping\t: {stepping}"]
    if row["kernel_socket"] >= 0:
        lines += [f"physical id\t: {row['kernel_socket']}", f"core id\t\t: {row['core']}"]
    return "\n".join(lines)


def _write_device(out: _Writer, shape: Shape, device: Device) -> None:
    domain_bus = (device.path or (device.address,))[0].rpartition(":")[0]
    host = f"sys/devices/pci{domain_bus}"
    above = host
    for bridge in device.path:
        above = f"{above}/{bridge}"
        if not os.path.exists(f"{out.root}/{above}/class"):
            out.file(f"{above}/class", "0x060400")
            out.file(f"{above}/vendor", "0x1000")
            out.file(f"{above}/device", "0xc010")
            out.file(f"{above}/numa_node", device.zone)
            _link_on_bus(out, bridge, above)
    place = f"{above}/{device.address}"
    out.file(f"{place}/class", device.pci_class)
    out.file(f"{place}/vendor", device.vendor)
    out.file(f"{place}/device", device.device)
    out.file(f"{place}/numa_node", device.zone)
    for name, content in device.files.items():
        out.file(f"{place}/{name}", content)
    for name, target in device.links.items():
        out.link(f"{place}/{name}", target)
    _link_on_bus(out, device.address, place)


def _link_on_bus(out: _Writer, address: str, place: str) -> None:
    out.link(f"sys/bus/pci/devices/{address}", f"../../../{place.removeprefix('sys/')}")
