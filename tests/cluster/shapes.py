"""Machine shapes: what hardware a node's kubelet sees.

A shape is the name of a machine of fixtures/sysfs, a folder ``{sys,proc}``, a
:class:`tests.machines.Shape`, or text as :mod:`rte.sim.machines` reads it, e.g. ``2x32`` or
``8x48,sockets=2,memory=96Gi,hugepages-2Mi=512``.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from rte import errors
from rte.sim import machines as simulated
from rte.sim import pci
from tests import fixture_machines, machines
from tests.cluster.processes import ClusterError


def parse(text: str) -> machines.Shape:
    """Read the text form, which is that of ``rte simulate --machine``.

    Raises:
        ClusterError: unknown option, or numbers that describe no machine.
    """
    try:
        shape = simulated.parse(text)
    except errors.UsageError as error:
        raise ClusterError(f"machine {error}") from error
    return machines.Shape(
        about=text,
        sockets=shape.sockets,
        zones=shape.zones // shape.sockets,
        cores=shape.cpus // shape.threads,
        threads=shape.threads,
        memory=(shape.memory,),
        pools={kib << 10: (pages,) for kib, pages in shape.hugepages.items()},
        memory_only=dict(enumerate(shape.memory_zones, shape.zones)),
        l3_cores=shape.l3 or None,
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
            for one in pci.functions(shape.zones, shape.gpus, shape.nics)
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
