"""Machines made of parameters: sysfs and procfs trees for agents and simulated kubelets.

A machine is described by text: ``ZONESxCPUS[,option=value...]``, e.g. ``2x32`` (2 zones of 32 CPUs:
2 sockets, 16 cores each, 2 threads) or ``8x48,sockets=2,memory=96Gi,hugepages-2Mi=512,l3=4``.
``memory-zones=8`` adds zones without CPUs (HBM, CXL), ``memory-zones=8x16Gi`` of other memory:
``2x72,threads=1,memory-zones=32x0`` has the 34 zones of a GB200 tray.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors, sysfs
from rte.model import bits, quantity
from rte.sim import pci

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rte.model.machine import Machine

#: Of a zone; less is a number whose unit was forgotten.
_LEAST_MEMORY = 1 << 20
_PAGES = {"2Mi": 2048, "1Gi": 1048576}
#: As many as a kernel of the distributions can have (CONFIG_NODES_SHIFT, CONFIG_NR_CPUS).
_MOST_ZONES, _MOST_CPUS = 1024, 8192


@dataclass(frozen=True, kw_only=True)
class MachineShape:
    """A regular machine.

    Attributes:
        zones: NUMA zones with CPUs.
        cpus: logical CPUs of each.
        sockets: divides ``zones``.
        threads: of each core; first threads are numbered before second ones, as on x86.
        memory: bytes of each zone.
        hugepages: page size in KiB -> pages of each zone with memory.
        l3: cores that share a level-3 cache (0: all of a zone).
        gpus, nics: PCI devices of each zone, below PCIe roots of their own (:mod:`rte.sim.pci`).
        memory_zones: bytes of each zone without CPUs; their ids follow those of the others.
    """

    zones: int
    cpus: int
    sockets: int
    threads: int = 2
    memory: int = 64 << 30
    hugepages: Mapping[int, int] = field(default_factory=lambda: dict.fromkeys(_PAGES.values(), 0))
    l3: int = 0
    gpus: int = 0
    nics: int = 0
    memory_zones: tuple[int, ...] = ()


def parse(text: str) -> MachineShape:
    """Read the text form.

    Raises:
        errors.UsageError: unknown option, or numbers that describe no machine.
    """
    size, *options = text.split(",")
    match = re.fullmatch(r"(\d{1,3})x(\d{1,4})", size)
    if match is None:
        raise errors.UsageError(f"shape {text!r}: expected ZONESxCPUS[,option=value...], e.g. 2x32")
    zones, cpus = int(match[1]), int(match[2])
    numbers = {"sockets": 2 if zones % 2 == 0 else 1, "threads": 2 if cpus % 2 == 0 else 1}
    numbers |= dict.fromkeys(("l3", "gpus", "nics"), 0)
    memory = 64 << 30
    others, size_of_others = 0, None
    pages = dict.fromkeys(_PAGES.values(), 0)
    for option in options:
        key, _, value = option.partition("=")
        more = re.fullmatch(r"(\d{1,4})(?:x(.+))?", value)
        if key.startswith("hugepages-") and key[10:] in _PAGES and value.isdigit():
            pages[_PAGES[key[10:]]] = int(value)
        elif key == "memory":
            memory = _bytes(text, option, value)
        elif key == "memory-zones" and more:
            others = int(more[1])
            size_of_others = _bytes(text, option, more[2]) if more[2] else None
        elif key in numbers and value.isdigit():
            numbers[key] = int(value)
        else:
            raise errors.UsageError(
                f"shape {text!r}: {option!r} is none of sockets=, threads=, memory=, "
                "memory-zones=N or NxBYTES, l3=, hugepages-2Mi=, hugepages-1Gi=, gpus=, nics="
            )
    sockets, threads = numbers["sockets"], numbers["threads"]
    if not (zones and cpus and sockets and threads) or zones % sockets or cpus % threads:
        raise errors.UsageError(
            f"shape {text!r}: all numbers are above zero, sockets divide zones, threads divide CPUs"
        )
    if zones + others > _MOST_ZONES or zones * cpus > _MOST_CPUS:
        raise errors.UsageError(
            f"shape {text!r}: Linux has {_MOST_ZONES} NUMA zones and {_MOST_CPUS} CPUs at most"
        )
    return MachineShape(
        zones=zones,
        cpus=cpus,
        sockets=sockets,
        threads=threads,
        memory=memory,
        hugepages=pages,
        l3=numbers["l3"],
        gpus=numbers["gpus"],
        nics=numbers["nics"],
        memory_zones=(memory if size_of_others is None else size_of_others,) * others,
    )


def _bytes(text: str, option: str, value: str) -> int:
    """Memory of a zone; a zone without CPUs may have none."""
    try:
        found = quantity.parse(value)
    except errors.ParseError as error:
        raise errors.UsageError(f"shape {text!r}: {error}") from error
    if found < _LEAST_MEMORY and (found or option == f"memory={value}"):
        raise errors.UsageError(
            f"shape {text!r}: {value} bytes are no memory of a zone: give a unit, "
            f"for example {option}Gi"
        )
    return found


def write(shape: MachineShape, folder: Path) -> None:
    """Write ``folder/sys`` and ``folder/proc`` as Linux shows them."""
    cores_per_zone = shape.cpus // shape.threads
    cores = cores_per_zone * shape.zones
    per_socket = shape.zones // shape.sockets
    total = cores * shape.threads
    sys, everyone = folder / "sys/devices/system", bits.format_list((1 << total) - 1)
    for name in ("online", "possible", "present"):
        _write(sys / "cpu" / name, everyone)
    _write(sys / "cpu/offline", "")
    members = [0] * shape.zones
    for cpu in range(total):
        core = cpu % cores
        zone = core // cores_per_zone
        members[zone] |= 1 << cpu
        _write_cpu(sys / f"cpu/cpu{cpu}", shape, core, zone // per_socket)
    sizes = [shape.memory] * shape.zones + list(shape.memory_zones)
    members += [0] * len(shape.memory_zones)
    every = (1 << len(sizes)) - 1
    filled = bits.of(zone for zone, size in enumerate(sizes) if size)
    for name, which in (
        ("online", every),
        ("possible", every),
        ("has_cpu", (1 << shape.zones) - 1),
        ("has_memory", filled),
        ("has_normal_memory", filled),
    ):
        _write(sys / "node" / name, bits.format_list(which))
    for zone, cpus in enumerate(members):
        here = sys / f"node/node{zone}"
        kib = sizes[zone] // 1024
        _write(here / "cpulist", bits.format_list(cpus))
        _write(
            here / "distance",
            " ".join(str(_distance(shape, zone, other)) for other in range(len(sizes))),
        )
        _write(here / "meminfo", f"Node {zone} MemTotal: {kib} kB\nNode {zone} MemFree: {kib} kB")
        for size, count in shape.hugepages.items() if kib else ():
            for name in ("nr_hugepages", "free_hugepages", "surplus_hugepages"):
                pages = 0 if name.startswith("surplus") else count
                _write(here / f"hugepages/hugepages-{size}kB" / name, str(pages))
        for cpu in bits.members(cpus):
            (here / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
    for one in pci.functions(shape.zones, shape.gpus, shape.nics):
        _write_function(folder / "sys", one)
    everything = sum(size // 1024 for size in sizes)
    _write(folder / "proc/meminfo", f"MemTotal: {everything} kB\nMemFree: {everything} kB")
    _write(folder / "proc/cpuinfo", _cpuinfo(shape, cores_per_zone, cores, per_socket))


def _distance(shape: MachineShape, zone: int, other: int) -> int:
    if zone == other:
        return 10
    if max(zone, other) >= shape.zones:
        return 17
    per_socket = shape.zones // shape.sockets
    return 12 if zone // per_socket == other // per_socket else 21


def _write_cpu(here: Path, shape: MachineShape, core: int, socket: int) -> None:
    cores_per_zone = shape.cpus // shape.threads
    cores = cores_per_zone * shape.zones
    per_socket = cores // shape.sockets
    group = shape.l3 or cores_per_zone
    first = core // cores_per_zone * cores_per_zone
    start = first + (core - first) // group * group
    shared = range(start, min(start + group, first + cores_per_zone))

    def threads(of: range) -> str:
        return bits.format_list(bits.of(c + cores * t for c in of for t in range(shape.threads)))

    siblings = threads(range(core, core + 1))
    package = threads(range(socket * per_socket, (socket + 1) * per_socket))
    topology = {
        "core_id": str(core % per_socket),
        "physical_package_id": str(socket),
        "die_id": "0",
        "thread_siblings_list": siblings,
        "core_cpus_list": siblings,
        "core_siblings_list": package,
        "package_cpus_list": package,
    }
    for name, text in topology.items():
        _write(here / "topology" / name, text)
    cache = {
        "level": "3",
        "type": "Unified",
        "size": "32768K",
        "id": str(core // group),
        "shared_cpu_list": threads(shared),
    }
    for name, text in cache.items():
        _write(here / "cache/index3" / name, text)


def _write_function(sys: Path, one: pci.SimulatedFunction) -> None:
    bridge = f"devices/{one.root}/{one.bridge}"
    ids = {"vendor": "0x1000", "device": "0xc010", "class": "0x060400"}
    own = {"vendor": one.vendor, "device": one.device, "class": one.pci_class}
    for place, files in ((bridge, ids), (f"{bridge}/{one.address}", own)):
        for name, text in {**files, "numa_node": str(one.zone)}.items():
            _write(sys / place / name, text)
        link = sys / "bus/pci/devices" / place.rpartition("/")[2]
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(f"../../../{place}")


def _cpuinfo(shape: MachineShape, cores_per_zone: int, cores: int, zones_per_socket: int) -> str:
    blocks = []
    for cpu in range(cores * shape.threads):
        core = cpu % cores
        socket = core // cores_per_zone // zones_per_socket
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: Simulated\nmodel name\t: Simulated CPU\n"
            f"physical id\t: {socket}\ncore id\t\t: {core}\n"
        )
    return "\n".join(blocks)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def make(text: str, folder: Path) -> Machine:
    """Write the machine that ``text`` describes into ``folder`` and read it back.

    Raises:
        errors.UsageError: see :func:`parse`.
    """
    if not folder.exists():
        write(parse(text), folder)
    return sysfs.read_machine(folder / "sys", folder / "proc")
