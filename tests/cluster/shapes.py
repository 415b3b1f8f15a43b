"""Machine shapes: what hardware a node's kubelet sees.

A shape is the name of a machine of fixtures/sysfs, a folder ``{sys,proc}``, a
:class:`tests.machines.Shape`, or text: ``ZONESxCPUS[,option=value...]``, e.g. ``2x32`` (2 zones of
32 CPUs: 2 sockets, 16 cores each, 2 threads) or ``8x48,sockets=2,memory=96Gi,hugepages-2Mi=512``.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from rte.model import quantity
from rte.sim import pci
from tests import fixture_machines, machines
from tests.cluster.processes import ClusterError

_PAGE_SIZES = {"hugepages-2Mi": 2 << 20, "hugepages-1Gi": 1 << 30}
_OPTIONS = ("sockets", "threads", "memory", "memory-only", "l3", "gpus", "nics", *_PAGE_SIZES)


def parse(text: str) -> machines.Shape:
    """Read the text form; ``memory``, pools, ``gpus`` and ``nics`` are per zone.

    ``memory-only`` counts further zones.

    Raises:
        ClusterError: unknown option, or numbers that describe no machine.
    """
    size, *options = text.split(",")
    match = re.fullmatch(r"(\d+)x(\d+)", size)
    if match is None:
        raise ClusterError(f"machine shape {text!r}: neither a fixture, a folder, nor ZONESxCPUS")
    zones, cpus = int(match[1]), int(match[2])
    values = {"sockets": 1 if zones % 2 else 2, "threads": 2 if cpus % 2 == 0 else 1}
    values |= {"memory": 64 << 30, "memory-only": 0, "l3": -1, "gpus": 0, "nics": 0}
    values |= dict.fromkeys(_PAGE_SIZES, 0)
    for option in options:
        key, _, value = option.partition("=")
        if key not in _OPTIONS or not value:
            raise ClusterError(
                f"machine shape {text!r}: {option!r} is none of {', '.join(_OPTIONS)}"
            )
        values[key] = quantity.parse_resource("memory", value)
    sockets, threads = values["sockets"], values["threads"]
    if not (zones and cpus and sockets and threads) or zones % sockets or cpus % threads:
        raise ClusterError(f"machine shape {text!r}: sockets divide zones, threads divide CPUs")
    memory = values["memory"]
    return machines.Shape(
        about=text,
        sockets=sockets,
        zones=zones // sockets,
        cores=cpus // threads,
        threads=threads,
        memory=(memory,),
        pools={pages: (values[key],) for key, pages in _PAGE_SIZES.items()},
        memory_only=dict.fromkeys(range(zones, zones + values["memory-only"]), memory),
        l3_cores=None if values["l3"] < 0 else values["l3"],
        devices=tuple(
            machines.Device(
                address=one.address,
                kind="gpu" if one.pci_class.startswith("0x0302") else "nic",
                pci_class=one.pci_class,
                vendor=one.vendor,
                device=one.device,
                zone=one.zone,
                path=(one.bridge,),
            )
            for one in pci.functions(zones, values["gpus"], values["nics"])
        ),
    )


def materialise(shape: str | Path | machines.Shape, cache: Path) -> Path:
    """The folder ``{sys,proc}`` of a shape; a generated one is made once per ``cache``.

    A fixture is written again with all that a kubelet reads beyond what the fixture holds.
    """
    if isinstance(shape, Path) or (isinstance(shape, str) and Path(shape, "sys").is_dir()):
        return Path(shape).absolute()
    if isinstance(shape, machines.Shape):
        described, name = shape, "shape"
    elif shape in fixture_machines.FIXTURES:
        described, name = fixture_machines.FIXTURES[shape].shape, shape
    else:
        described, name = parse(shape), shape
    digest = hashlib.sha256(repr(described).encode()).hexdigest()[:8]
    target = cache / (re.sub(r"[^A-Za-z0-9]+", "-", name)[:40] + f"-{digest}")
    if not target.exists():
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        machines.generate(described, partial, full=True)
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


def complete(machine: Path, target: Path) -> None:
    """Write beside a machine what a kubelet needs and a fixture may lack.

    ``cpuinfo``: with a clock speed, which cAdvisor insists on; ``bus-cpu``: /sys/bus/cpu/devices,
    by which it counts sockets where cpuinfo does not tell them.
    """
    source = machine / "proc/cpuinfo"
    text = source.read_text() if source.exists() else ""
    if "MHz" not in text:
        text = re.sub(r"(?m)^(processor\s*: *\d+)$", r"\1\ncpu MHz\t\t: 2000.000", text)
    if "MHz" not in text:
        text += "cpu MHz\t\t: 2000.000\n"
    (target / "cpuinfo").write_text(text)
    bus = target / "bus-cpu"
    bus.mkdir()
    for cpu in (machine / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        (bus / cpu.name).symlink_to(f"../../../devices/system/cpu/{cpu.name}")
