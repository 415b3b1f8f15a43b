"""Machine shapes: what hardware a node's kubelet sees.

A shape is a folder ``{sys,proc}`` (a name under fixtures/sysfs, or a path), or text that describes
a machine to generate: ``ZONESxCPUS[,option=value...]``, e.g. ``2x32`` (2 zones of 32 CPUs: 2
sockets, 16 cores each, 2 threads) or ``8x48,sockets=2,memory=96Gi,hugepages-2Mi=512``.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rte.model import bits, quantity
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sysfs"
_KIB = 1024
_PAGE_SIZES = {"2Mi": 2048, "1Gi": 1048576}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A regular machine.

    Attributes:
        zones: NUMA zones with CPUs.
        cpus: logical CPUs of each.
        sockets: divides ``zones``.
        threads: of each core; numbered like Linux on x86 does, all first threads before the second.
        memory: bytes of each zone.
        hugepages: page size in KiB -> pages of each zone.
        memory_only: further zones that have memory and no CPU.
        l3: cores that share a level-3 cache (0: all of a zone).
    """

    zones: int
    cpus: int
    sockets: int
    threads: int = 2
    memory: int = 64 << 30
    hugepages: tuple[tuple[int, int], ...] = ((2048, 0), (1048576, 0))
    memory_only: int = 0
    l3: int = 0


def parse(text: str) -> Shape:
    """Read the text form.

    Raises:
        ClusterError: unknown option, or numbers that describe no machine.
    """
    size, *options = text.split(",")
    match = re.fullmatch(r"(\d+)x(\d+)", size)
    if match is None:
        raise ClusterError(f"machine shape {text!r}: neither a fixture, a folder, nor ZONESxCPUS")
    zones, cpus = int(match[1]), int(match[2])
    values: dict[str, int] = {"sockets": 2 if zones % 2 == 0 else 1}
    hugepages = dict.fromkeys(_PAGE_SIZES.values(), 0)
    for option in options:
        key, _, value = option.partition("=")
        if key.startswith("hugepages-") and key[10:] in _PAGE_SIZES and value.isdigit():
            hugepages[_PAGE_SIZES[key[10:]]] = int(value)
        elif key == "memory":
            values["memory"] = quantity.parse_resource("memory", value)
        elif key in {"sockets", "threads", "memory-only", "l3"} and value.isdigit():
            values[key.replace("-", "_")] = int(value)
        else:
            raise ClusterError(
                f"machine shape {text!r}: {option!r} is none of sockets=, threads=, memory=, "
                "memory-only=, l3=, hugepages-2Mi=, hugepages-1Gi="
            )
    shape = Shape(zones=zones, cpus=cpus, hugepages=tuple(sorted(hugepages.items())), **values)
    if not zones or not shape.threads or not shape.sockets or cpus < 1:
        raise ClusterError(
            f"machine shape {text!r}: zones, CPUs, sockets and threads are above zero"
        )
    if zones % shape.sockets or cpus % shape.threads:
        raise ClusterError(f"machine shape {text!r}: sockets divide zones, threads divide CPUs")
    return shape


def materialise(shape: str | Path | Shape, cache: Path) -> Path:
    """The folder ``{sys,proc}`` of a shape; a generated one is made once per ``cache``."""
    if isinstance(shape, str) and (FIXTURES / shape / "sys").is_dir():
        return FIXTURES / shape
    if isinstance(shape, Path) or (isinstance(shape, str) and Path(shape, "sys").is_dir()):
        return Path(shape).absolute()
    described = parse(shape) if isinstance(shape, str) else shape
    target = cache / re.sub(r"[^A-Za-z0-9]+", "-", repr(described)).strip("-").lower()
    if not target.exists():
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        generate(described, partial)
        partial.rename(target)
    return target


def memory_zones(folder: Path) -> list[int]:
    """Ids of the zones that have memory, as the kubelet's memory manager sees them."""
    found = []
    for path in (folder / "sys/devices/system/node").glob("node[0-9]*"):
        meminfo = path / "meminfo"
        match = re.search(r"MemTotal:\s+(\d+)", meminfo.read_text()) if meminfo.exists() else None
        if match and int(match[1]):
            found.append(int(path.name[4:]))
    return sorted(found) or [0]


def generate(shape: Shape, folder: Path) -> None:
    """Write the sysfs and procfs files of a shape, as Linux shows them."""
    cores_per_zone = shape.cpus // shape.threads
    cores = cores_per_zone * shape.zones
    zones_per_socket = shape.zones // shape.sockets
    l3 = shape.l3 or cores_per_zone
    core_of = {
        thread * cores + core: core for thread in range(shape.threads) for core in range(cores)
    }
    zone_of = {cpu: core // cores_per_zone for cpu, core in core_of.items()}

    def group(cpus: Iterable[int]) -> str:
        return bits.format_list(bits.of(cpus))

    members: dict[tuple[str, int], str] = {}
    for kind, key in (
        ("core", lambda core: core),
        ("l3", lambda core: core // l3),
        ("zone", lambda core: core // cores_per_zone),
        ("socket", lambda core: core // (cores_per_zone * zones_per_socket)),
    ):
        lists: dict[int, list[int]] = {}
        for cpu, core in core_of.items():
            lists.setdefault(key(core), []).append(cpu)
        members |= {(kind, index): group(cpus) for index, cpus in lists.items()}

    system = folder / "sys/devices/system"
    for name in ("online", "possible", "present"):
        _write(system / "cpu" / name, group(core_of))
    _write(system / "cpu/offline", "")
    for cpu, core in core_of.items():
        socket = zone_of[cpu] // zones_per_socket
        here = system / f"cpu/cpu{cpu}"
        _write(here / "online", 1)
        topology = {
            "core_id": core % (cores_per_zone * zones_per_socket),
            "physical_package_id": socket,
            "die_id": 0,
        }
        for name in ("thread_siblings_list", "core_cpus_list"):
            topology[name] = members["core", core]
        for name in ("core_siblings_list", "package_cpus_list", "die_cpus_list"):
            topology[name] = members["socket", socket]
        for name, value in topology.items():
            _write(here / "topology" / name, value)
        caches = (
            (1, "Data", "32K", "core", core),
            (1, "Instruction", "32K", "core", core),
            (2, "Unified", "1024K", "core", core),
            (3, "Unified", "32768K", "l3", core // l3),
        )
        for index, (level, kind, size, sharing, ident) in enumerate(caches):
            cache = here / f"cache/index{index}"
            _write(cache / "level", level)
            _write(cache / "type", kind)
            _write(cache / "size", size)
            _write(cache / "id", ident)
            _write(cache / "shared_cpu_list", members[sharing, ident])
        (here / f"node{zone_of[cpu]}").symlink_to(f"../../node/node{zone_of[cpu]}")

    total = shape.zones + shape.memory_only
    for name in ("online", "possible", "has_memory", "has_normal_memory"):
        _write(system / "node" / name, group(range(total)))
    _write(system / "node/has_cpu", group(range(shape.zones)))
    kib = shape.memory // _KIB
    huge_kib = sum(size * count for size, count in shape.hugepages)
    for zone in range(total):
        here = system / f"node/node{zone}"
        mine = [cpu for cpu in core_of if zone_of[cpu] == zone]
        _write(here / "cpulist", group(mine))
        distances = [_distance(zone, other, shape, zones_per_socket) for other in range(total)]
        _write(here / "distance", " ".join(map(str, distances)))
        rows = (("MemTotal", kib), ("MemFree", kib - huge_kib), ("MemUsed", huge_kib))
        _write(
            here / "meminfo",
            "\n".join(f"Node {zone} {name}:{value:>16} kB" for name, value in rows),
        )
        for size, count in shape.hugepages:
            _pool(here / f"hugepages/hugepages-{size}kB", count)
        for cpu in mine:
            (here / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
    (folder / "sys/kernel/mm/hugepages").mkdir(parents=True)
    for size, count in shape.hugepages:
        _pool(folder / f"sys/kernel/mm/hugepages/hugepages-{size}kB", count * total)
    free = (kib - huge_kib) * total
    info = {"MemTotal": kib * total, "MemFree": free, "MemAvailable": free, "SwapTotal": 0}
    _write(
        folder / "proc/meminfo", "\n".join(f"{name}:{value:>16} kB" for name, value in info.items())
    )


def _distance(zone: int, other: int, shape: Shape, zones_per_socket: int) -> int:
    if zone == other:
        return 10
    if max(zone, other) >= shape.zones:
        return 40
    return 12 if zone // zones_per_socket == other // zones_per_socket else 21


def _pool(folder: Path, count: int) -> None:
    _write(folder / "nr_hugepages", count)
    _write(folder / "free_hugepages", count)
    _write(folder / "surplus_hugepages", 0)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")
