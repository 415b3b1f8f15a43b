"""The annotation ``topology.rte.dev/inventory``: the hardware that processing groups are placed on.

docs/nrt.md explains every key. A reader takes what it understands; other keys are for later
releases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import orjson
import xxhash

from rte import errors
from rte.accounting import zone_resources
from rte.model import bits, quantity
from rte.placement.groups.inventory import GPU, NIC, Core, GroupInventory, PCIFunction
from rte.reader import jsontext
from rte.reader.jsontext import Int64

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.model.machine import Machine, PCIDevice
    from rte.model.node import NodeReading
    from rte.reader.json import Json, JsonObject

ANNOTATION = "topology.rte.dev/inventory"
VERSION = 1
#: A node with more than this (some 500 VFs) publishes no inventory.
MAX_BYTES = 96 * 1024

_HUGEPAGES = "hugepages-"
#: States of an interface (Linux ``operstate``) in which nothing goes through it.
_NO_LINK = frozenset({"down", "lowerlayerdown", "notpresent"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedInventory:
    """What the annotation says."""

    inventory: GroupInventory
    cpu_arch: str = ""


class _GPU(msgspec.Struct):
    address: str
    zone: bits.Id | None = None
    path: bits.Id = 0
    model: str = ""
    memory_gib: Int64 = msgspec.field(default=0, name="memoryGiB")
    uuid: str = ""
    index: Int64 | None = None


class _InventoryNIC(msgspec.Struct, rename="camel"):
    address: str
    zone: bits.Id | None = None
    path: bits.Id = 0
    name: str = ""
    mac: str = ""
    mbps: Int64 | None = None
    link: str = ""
    pf: str | None = None
    rdma: str = ""


class _Reserved(msgspec.Struct):
    cpus: str = ""
    hugepages: dict[str, Int64] = {}


class _InventoryDocument(msgspec.Struct, rename="camel"):
    version: Int64
    generation: str = ""
    cpu_arch: str = ""
    zones: dict[bits.Id, dict[str, Int64]] = {}
    cores: dict[bits.Id, str] = {}
    paths: list[list[str]] = []
    gpus: list[_GPU] = []
    nics: list[_InventoryNIC] = []
    reserved: _Reserved = msgspec.field(default_factory=_Reserved)


def published(reading: NodeReading, speeds: Mapping[str, int] | None = None) -> PublishedInventory:
    """The inventory of a node.

    Args:
        reading: of the node.
        speeds: interface -> Mb/s, for interfaces whose driver tells no speed while they are down.
    """
    machine = reading.machine
    return PublishedInventory(
        inventory=GroupInventory(
            pages={zone.id: _pages(zone.hugepages) for zone in machine.zones},
            cores=tuple(_cores(machine)),
            gpus=tuple(_gpu(it) for it in machine.pci if it.kind == "gpu" and not _is_excluded(it)),
            nics=tuple(_nic(it, speeds or {}) for it in machine.pci if it.kind == "nic"),
            reserved_cpus=_reserved_cpus(reading),
            reserved_pages=_reserved_pages(reading),
        ),
        cpu_arch=machine.cpu_arch,
    )


def encode(what: PublishedInventory) -> str | None:
    """The annotation's text; equal inventories give equal text, whose ``generation`` is new.

    None where there are no zones, or more devices than the annotation may hold.
    """
    inventory = what.inventory
    if not inventory.pages:
        return None
    hardware = _hardware(what)
    reserved = inventory.reserved_cpus, inventory.reserved_pages
    document = {
        "version": VERSION,
        "generation": xxhash.xxh64_hexdigest(_dump(hardware)),
        **hardware,
        "reserved": {"cpus": bits.format_list(reserved[0]), "hugepages": dict(reserved[1])},
    }
    text = _dump(document)
    return text.decode() if len(text) <= MAX_BYTES else None


def decode(text: str) -> PublishedInventory:
    """The inventory.

    Raises:
        errors.ParseError: not this format, or another version.
    """
    try:
        document = jsontext.decode(text, _InventoryDocument, "inventory")
        if document.version == VERSION:
            return PublishedInventory(inventory=_inventory(document), cpu_arch=document.cpu_arch)
    except IndexError as error:
        raise errors.ParseError("inventory", text, str(error)) from error
    raise errors.ParseError(
        "inventory",
        document.version,
        f"this program reads version {VERSION}; use the same release",
    )


def _dump(document: Json) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _hardware(what: PublishedInventory) -> JsonObject:
    inventory = what.inventory
    paths = sorted({device.path for device in (*inventory.gpus, *inventory.nics)})
    number = {path: i for i, path in enumerate(paths)}
    cores: dict[int, list[str]] = {}
    for core in inventory.cores:
        cores.setdefault(core.zone, []).append(bits.format_list(bits.of(core.cpus)))
    return {
        "cpuArch": what.cpu_arch,
        "zones": {zone: dict(pages) for zone, pages in inventory.pages.items()},
        "cores": {zone: " ".join(siblings) for zone, siblings in cores.items()},
        "paths": paths,
        "gpus": [
            _told(
                gpu,
                number,
                model=gpu.model or None,
                memoryGiB=gpu.memory_gib or None,
                uuid=gpu.uuid or None,
                index=gpu.index,
            )
            for gpu in inventory.gpus
        ],
        "nics": [
            _told(
                nic,
                number,
                name=nic.name or None,
                mac=nic.mac or None,
                mbps=nic.mbps,
                link=nic.link or None,
                pf=nic.pf,
                rdma=nic.rdma_device or None,
            )
            for nic in inventory.nics
        ],
    }


def _told(
    device: PCIFunction, number: Mapping[tuple[str, ...], int], **facts: str | int | None
) -> JsonObject:
    """A device with the facts that are known."""
    place = {"address": device.address, "zone": device.zone, "path": number[device.path]}
    return place | {key: value for key, value in facts.items() if value is not None}


def _pages(pools: Mapping[int, int]) -> dict[str, int]:
    return {quantity.page_size(size): count for size, count in sorted(pools.items()) if count}


def _cores(machine: Machine) -> Iterator[Core]:
    """The on-line siblings of each core, by lowest CPU."""
    zones = {zone.id for zone in machine.zones}
    masks = {
        cpu.siblings & machine.online or 1 << cpu.id: cpu.zone
        for cpu in machine.cpus
        if cpu.online and cpu.zone in zones
    }
    for mask in sorted(masks, key=bits.lowest):
        yield Core(tuple(bits.members(mask)), masks[mask])


def _is_excluded(device: PCIDevice) -> bool:
    return device.details.get("health") == "excluded"


def _gpu(device: PCIDevice) -> GPU:
    details = device.details
    index = details.get("index", "")
    return GPU(
        address=device.address,
        zone=device.zone,
        path=device.path,
        model=details.get("model", ""),
        memory_gib=int(details.get("memory_bytes", "0")) >> 30,
        uuid=details.get("uuid", ""),
        index=int(index) if index.isdecimal() else None,
    )


def _nic(device: PCIDevice, speeds: Mapping[str, int]) -> NIC:
    details = device.details
    name, speed = details.get("interface", ""), details.get("speed_mbps")
    rdma = details.get("rdma", "")
    return NIC(
        address=device.address,
        zone=device.zone,
        path=device.path,
        name=name,
        mac=details.get("mac", ""),
        mbps=int(speed) if speed else speeds.get(name),
        link="down" if details.get("link") in _NO_LINK else details.get("link", ""),
        pf=details.get("pf"),
        rdma=bool(rdma),
        rdma_device=rdma,
    )


def _reserved_cpus(reading: NodeReading) -> bits.CPUSet:
    """CPUs that groups may not use: the kubelet's, not isolated ones, those of containers."""
    machine, state = reading.machine, reading.state
    reserved = machine.online & ~machine.isolated if machine.isolated else 0
    if state is not None:
        reserved |= state.config.reserved_cpus or 0
        for containers in state.holdings.values():
            for holding in containers.values():
                reserved |= holding.cpus
    return reserved


def _reserved_pages(reading: NodeReading) -> dict[str, int]:
    """Pages of the whole node that the kubelet keeps back."""
    reserved: Counter[str] = Counter()
    for amounts in zone_resources(reading).values():
        for name, amount in amounts.items():
            if name.startswith(_HUGEPAGES):
                size = name.removeprefix(_HUGEPAGES)
                page = quantity.parse(size)
                reserved[size] += (amount.capacity - amount.allocatable) // page
    return {size: count for size, count in sorted(reserved.items()) if count > 0}


def _address(device: _GPU | _InventoryNIC) -> str:
    return device.address


def _inventory(document: _InventoryDocument) -> GroupInventory:
    cores: list[Core] = []
    known = 0
    for zone, listed in document.cores.items():
        for siblings in listed.split():
            cpus = bits.parse_list(siblings)
            if cpus & known:
                raise errors.ParseError("inventory", siblings, "a CPU is of two cores")
            known |= cpus
            cores.append(Core(tuple(bits.members(cpus)), zone))
    paths = [tuple(path) for path in document.paths]
    return GroupInventory(
        pages=document.zones,
        cores=tuple(sorted(cores, key=lambda core: core.cpus[0])),
        gpus=tuple(
            GPU(
                address=gpu.address,
                zone=gpu.zone,
                path=paths[gpu.path],
                model=gpu.model,
                memory_gib=gpu.memory_gib,
                uuid=gpu.uuid,
                index=gpu.index,
            )
            for gpu in sorted(document.gpus, key=_address)
        ),
        nics=tuple(
            NIC(
                address=nic.address,
                zone=nic.zone,
                path=paths[nic.path],
                name=nic.name,
                mac=nic.mac,
                mbps=nic.mbps,
                link=nic.link,
                pf=nic.pf,
                rdma=bool(nic.rdma),
                rdma_device=nic.rdma,
            )
            for nic in sorted(document.nics, key=_address)
        ),
        reserved_cpus=bits.parse_list(document.reserved.cpus),
        reserved_pages=document.reserved.hugepages,
        generation=document.generation,
    )
