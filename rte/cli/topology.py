"""``rte topology``: the machine, and who holds what, as the agent sees it."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.cli import terminal
from rte.cli.parsing import MACHINE
from rte.model import bits
from rte.model.node import NodeReading
from rte.model.quantity import format_bytes, page_size
from rte.model.words import counted, describe_holding
from rte.sysfs import document, pci_names, read_machine
from rte.view import drawing
from rte.view.drawing import paint, words

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rte.agent.settings import AgentSettings
    from rte.model.bits import CPUSet
    from rte.model.machine import CPU, Machine, PCIDevice, PCIZones, Zone


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "machine",
        nargs="?",
        metavar="MACHINE",
        help=f"{MACHINE}; without it: this machine, with its kubelet where there is one",
    )
    config.add_arguments(parser, "topology")
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "svg", "html"), default="text", help="form"
    )


def run(args: argparse.Namespace) -> int:
    """Read and print; 0 = done.

    Raises:
        errors.RteError: the machine, or a kubelet that was named, cannot be read.
    """
    reading = read(args)
    if args.output == "json":
        text = document.format_document(_document(reading))
    elif args.output == "svg":
        text = drawing.draw(reading.machine, reading, _device_names(reading.machine))
    elif args.output == "html":
        from rte.view import page, still  # here: it brings the scheduler's view of nodes with it

        picture = still.picture_of(reading, _device_names(reading.machine))
        sys.stdout.buffer.write(page.assemble(picture))
        sys.stdout.buffer.flush()
        return 0
    else:
        text = "".join(f"{line}\n" for line in describe(reading))
    sys.stdout.buffer.write(terminal.plain(text).encode())
    sys.stdout.buffer.flush()
    return 0


def read(args: argparse.Namespace) -> NodeReading:
    """The machine that the arguments name, and its kubelet where one belongs to it.

    Raises:
        errors.RteError: as :func:`run`.
    """
    agent = config.load("topology", vars(args), os.environ).agent
    if args.machine is not None:
        hardware = (agent.sysfs_root, agent.procfs_root)
        if any((*hardware, agent.podresources_socket, agent.kubelet_state_dir)):
            raise errors.UsageError(
                f"{args.machine} is a machine of its own: leave --sysfs-root, --procfs-root, "
                "--kubelet-state-dir and --podresources-socket out (RTE_... variables too)"
            )
        from rte.cli import machines  # it knows clusters; this host's hardware needs none
        from rte.library.machines import find, only

        here = find(args.machine)
        if not here:
            return machines.node_of_cluster(args.machine, args)
        found = only(here, args.machine)
        return replace(found.reading, node_name=found.reading.node_name or found.name)
    machine = read_machine(agent.sysfs, agent.procfs)
    if (agent.sysfs_root is None) != (agent.procfs_root is None):
        missing = "--procfs-root" if agent.procfs_root is None else "--sysfs-root"
        print(
            f"rte topology: note: without {missing} the rest is read from this host: give both",
            file=sys.stderr,
        )
    named = agent.podresources_socket is not None or agent.kubelet_state_dir is not None
    # Hardware that is not this host's has a name only where somebody gives it one.
    own = "" if agent.sysfs_root else platform.node().lower()
    agent = replace(agent, node_name=agent.node_name or own)
    if named or (agent.asks_kubelet and _has_kubelet(agent)):
        from rte.agent import oneshot  # a bare machine needs no kubelet, so no gRPC either

        return asyncio.run(oneshot.read_node(agent, machine))
    return NodeReading(node_name=agent.node_name, machine=machine)


def _has_kubelet(agent: AgentSettings) -> bool:
    """Whether this host's kubelet is there to be asked, by us."""
    try:
        directory, socket = agent.state_dir, agent.socket
        return (
            directory is not None
            and os.access(directory, os.R_OK | os.X_OK)
            and socket is not None
            and Path(socket.removeprefix("unix://")).is_socket()
        )
    except OSError:
        return False


def _document(reading: NodeReading) -> document.Document:
    """The whole machine; with a kubelet also who holds what."""
    whole = document.build_document(reading.machine) | _caches(reading.machine)
    state = reading.state
    if state is None:
        return whole
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in reading.pods}
    whole["shared"] = bits.format_list(state.shared)
    whole["reserved"] = bits.format_list(state.reserved)
    whole["holdings"] = [
        {
            "uid": uid,
            "pod": names.get(uid, ""),
            "container": container,
            "cpus": bits.format_list(holding.cpus),
            "memory": [
                {
                    "resource": block.resource,
                    "zones": bits.format_list(block.zones),
                    "bytes": block.size,
                }
                for block in holding.memory
            ],
            "devices": {
                resource: [state.devices[resource].ids[i] for i in bits.members(mask)]
                for resource, mask in sorted(holding.devices.items())
            },
        }
        for uid in sorted(state.holdings)
        for container, holding in sorted(state.holdings[uid].items())
    ]
    whole["disagreements"] = list(reading.disagreements)
    return whole


def _caches(machine: Machine) -> document.Document:
    """Sizes in bytes: of L3 groups by id, and of the caches below by kind of core."""
    told = {"l3_bytes": dict(machine.l3_bytes), "core_caches": dict(machine.core_caches)}
    return {key: value for key, value in told.items() if value}


def describe(reading: NodeReading) -> Iterator[str]:
    """The machine in lines of text."""
    machine = reading.machine
    names = _device_names(machine)
    yield machine.model or machine.vendor or "Machine"
    yield words.summarize(machine)
    yield from filter(None, [words.describe_sets(machine), words.describe_caches(machine)])
    sockets: dict[frozenset[int], list[Zone]] = {}
    for zone in machine.zones:
        sockets.setdefault(_sockets(machine, zone), []).append(zone)
    for ids, zones in sockets.items():
        yield ""
        if ids:
            yield f"Socket{'s' if len(ids) > 1 else ''} {words.format_ids(ids)}"
        for zone in zones:
            yield from _describe_zone(machine, zone, names)
    yield from _describe_rest(machine, names)
    yield from _describe_distances(machine)
    yield from _describe_holders(reading)
    if machine.warnings:
        yield "\nRead with reservations"
        yield from (f"  {line}" for line in machine.warnings)
    if reading.disagreements:
        yield "\nSources that disagree"
        yield from (f"  {line}" for line in reading.disagreements)


def _sockets(machine: Machine, zone: Zone) -> frozenset[int]:
    return frozenset(cpu.socket for cpu in machine.cpus if zone.cpus >> cpu.id & 1)


def _describe_pool(zone: Zone, size: int) -> str:
    count = zone.hugepages[size]
    if not count:
        return f"{page_size(size)}: none"
    text = f"{page_size(size)}: {count:,} = {format_bytes(size * count)}"
    free = zone.free_hugepages.get(size, count)
    return text if free == count else f"{text} ({free:,} free)"


def _describe_zone(machine: Machine, zone: Zone, names: words.Names) -> Iterator[str]:
    if zone.cpus:
        what = f"{counted(zone.cpus.bit_count(), 'CPU')} {bits.format_list(zone.cpus)}"
    else:
        what = "memory only" if zone.memory_bytes else "no CPUs, no memory"
    yield f"  Zone {zone.id}: {what}, {format_bytes(zone.memory_bytes)}"
    pools = [_describe_pool(zone, size) for size in sorted(zone.hugepages)]
    if pools:
        yield f"    huge pages {', '.join(pools)}"
    cpus_here = {cpu.id: cpu for cpu in machine.cpus if zone.cpus >> cpu.id & 1}
    # The threads of a core may have several caches (POWER10).
    caches: dict[tuple[int, ...], list[CPU]] = {}
    for cpu in cpus_here.values():
        mates = (cpus_here.get(mate, cpu).l3 for mate in bits.members(cpu.siblings))
        caches.setdefault(tuple(sorted({l3 for l3 in mates if l3 is not None})), []).append(cpu)
    for l3s, cpus in caches.items():
        name = " and ".join(words.name_l3(machine, l3) for l3 in l3s) or "L3 not known"
        yield f"    {name}: {_describe_cores(cpus)}"
    here = [device for device in machine.pci if device.zone == zone.id]
    yield from _describe_devices(here, machine.pci_zones, names, "    ")


def _describe_cores(cpus: Sequence[CPU]) -> str:
    """Cores of equal kind and width together: ``8 cores of 2 threads 0+32 1+33 ...``."""
    kinds: dict[tuple[str, int], list[CPUSet]] = {}
    for siblings, kind in dict.fromkeys((cpu.siblings, cpu.kind) for cpu in cpus):
        kinds.setdefault((kind, siblings.bit_count()), []).append(siblings)
    parts = []
    for (kind, width), cores in kinds.items():
        noun = f"{kind} core".lstrip() + ("s" if len(cores) > 1 else "")
        if width == 1:
            union = 0
            for mask in cores:
                union |= mask
            parts.append(f"{len(cores)} {noun} {bits.format_list(union)}")
            continue
        shown = " ".join("+".join(map(str, bits.members(mask))) for mask in cores)
        parts.append(f"{len(cores)} {noun} of {width} threads {shown}")
    return "; ".join(parts)


def _describe_devices(
    devices: Sequence[PCIDevice], pci: PCIZones, names: words.Names, indent: str
) -> Iterator[str]:
    """By root, as DRA drivers name it in ``pcieRoot``, and by switch."""
    groups: dict[tuple[str, str], list[PCIDevice]] = {}
    for device in devices:
        key = pci.root_of(device.address) or "", words.switch_of(device)
        groups.setdefault(key, []).append(device)
    for (root, switch), members in groups.items():
        if root or switch:
            above = f"root {root}" if root else "", f"switch {switch}" if switch else ""
            yield f"{indent}PCIe {', '.join(filter(None, above))}"
        inner = indent + "  " if root or switch else indent
        yield from (f"{inner}{d.address} {words.describe_device(d, names)}" for d in members)


def _describe_rest(machine: Machine, names: words.Names) -> Iterator[str]:
    lost = bits.of(cpu.id for cpu in machine.cpus if cpu.online and cpu.zone < 0)
    if lost:
        yield f"\nCPUs of unknown zone: {bits.format_list(lost)}"
    off = bits.of(cpu.id for cpu in machine.cpus if not cpu.online)
    if off:
        yield f"\nCPUs off-line: {bits.format_list(off)}"
    devices = [device for device in machine.pci if device.zone is None]
    if devices:
        yield "\nDevices without a known zone"
        yield from _describe_devices(devices, machine.pci_zones, names, "  ")


def _describe_distances(machine: Machine) -> Iterator[str]:
    if len(machine.zones) < 2:
        return
    yield "\nDistances"
    ids = [zone.id for zone in machine.zones]
    if len(ids) > 32:
        for zone in machine.zones:
            yield f"  zone {zone.id}: " + _runs(zone)
        return
    rows = [["", *map(str, ids)]]
    rows += [[str(z.id), *(str(z.distances.get(to, "?")) for to in ids)] for z in machine.zones]
    width = max(len(word) for row in rows for word in row)
    yield from ("  " + " ".join(word.rjust(width) for word in row) for row in rows)


def _runs(zone: Zone) -> str:
    """Zones at the same distance together."""
    groups: dict[int, int] = {}
    for to, distance in zone.distances.items():
        groups[distance] = groups.get(distance, 0) | 1 << to
    return ", ".join(f"{d} to {bits.format_list(mask)}" for d, mask in sorted(groups.items()))


def _describe_holders(reading: NodeReading) -> Iterator[str]:
    state = reading.state
    if state is None:
        return
    yield "\nCPUs by holder"
    # A kubelet that assigns no CPUs has no shared pool of its own.
    yield f"  shared pool {bits.format_list(state.shared or state.topology.all_cpus)}"
    if state.reserved:
        yield f"  reserved {bits.format_list(state.reserved)}"
    for name, holding, claims in paint.holdings_of(reading):
        yield f"  {name}: {describe_holding(holding, claims)}"


def _device_names(machine: Machine) -> words.Names:
    return pci_names.read_names((device.vendor, device.device) for device in machine.pci)
