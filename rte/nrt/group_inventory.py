"""The annotation ``topology.rte.dev/inventory``: the hardware that processing groups are placed on.

docs/nrt.md explains every key. A reader takes what it understands; other keys are for later
releases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import xxhash

from rte import errors
from rte.accounting import zone_resources
from rte.model import bits, quantity
from rte.placement.groups.inventory import GPU, NIC, Core, Inventory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine, PCIDevice
    from rte.model.node import NodeReading

ANNOTATION = "topology.rte.dev/inventory"
VERSION = 1
#: A node with more than this (some 500 VFs) publishes no inventory.
MAX_BYTES = 96 * 1024

_HUGEPAGES = "hugepages-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What the annotation says."""

    inventory: Inventory
    cpu_arch: str = ""


class _GPU(msgspec.Struct):
    address: str
    zone: int | None = None
    path: int = 0
    model: str = ""
    memory_gib: int = msgspec.field(default=0, name="memoryGiB")
    uuid: str = ""
    index: int | None = None


class _NIC(msgspec.Struct, rename="camel"):
    address: str
    zone: int | None = None
    path: int = 0
    name: str = ""
    mac: str = ""
    mbps: int | None = None
    link: str = ""
    pf: str | None = None
    rdma: str = ""


class _Reserved(msgspec.Struct):
    cpus: str = ""
    hugepages: dict[str, int] = {}


class _Document(msgspec.Struct, rename="camel"):
    version: int
    generation: str = ""
    cpu_arch: str = ""
    zones: dict[int, dict[str, int]] = {}
    cores: dict[int, str] = {}
    paths: list[list[str]] = []
    gpus: list[_GPU] = []
    nics: list[_NIC] = []
    reserved: _Reserved = msgspec.field(default_factory=_Reserved)


def encode(reading: NodeReading, speeds: Mapping[str, int] | None = None) -> str | None:
    """The annotation's text; equal readings give equal text.

    Args:
        reading: of the node.
        speeds: interface -> Mb/s, for interfaces whose driver tells no speed while they are down.

    Returns:
        None where the machine has no zones, or more devices than the annotation may hold.
    """
    machine = reading.machine
    if not machine.zones:
        return None
    hardware = _hardware(machine, speeds or {})
    generation = xxhash.xxh64_hexdigest(_dump(hardware))
    document = {
        "version": VERSION,
        "generation": generation,
        **hardware,
        "reserved": {
            "cpus": bits.format_list(_reserved_cpus(reading)),
            "hugepages": _reserved_pages(reading),
        },
    }
    text = _dump(document)
    return text.decode() if len(text) <= MAX_BYTES else None


def decode(text: str) -> Published:
    """The inventory.

    Raises:
        errors.ParseError: not this format, or another version.
    """
    try:
        document = msgspec.json.decode(text, type=_Document)
        if document.version == VERSION:
            return Published(inventory=_inventory(document), cpu_arch=document.cpu_arch)
    except (msgspec.DecodeError, IndexError, TypeError, UnicodeEncodeError) as error:
        raise errors.ParseError("inventory", text, str(error)) from error
    raise errors.ParseError(
        "inventory",
        document.version,
        f"this program reads version {VERSION}; use the same release",
    )


def inventory_of(reading: NodeReading, speeds: Mapping[str, int] | None = None) -> Published | None:
    """What a reader of the annotation gets; None as in :func:`encode`."""
    text = encode(reading, speeds)
    return None if text is None else decode(text)


def _dump(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _hardware(machine: Machine, speeds: Mapping[str, int]) -> dict[str, Any]:
    devices = [device for device in machine.pci if _is_usable(device)]
    paths = sorted({device.path for device in devices})
    number = {path: i for i, path in enumerate(paths)}
    return {
        "cpuArch": machine.cpu_arch,
        "zones": {zone.id: _pages(zone.hugepages) for zone in machine.zones},
        "cores": {zone.id: _cores(machine, zone.cpus) for zone in machine.zones if zone.cpus},
        "paths": paths,
        "gpus": [_gpu(it, number[it.path]) for it in devices if it.kind == "gpu"],
        "nics": [_nic(it, number[it.path], speeds) for it in devices if it.kind == "nic"],
    }


def _is_usable(device: PCIDevice) -> bool:
    return device.kind == "nic" or (
        device.kind == "gpu" and device.details.get("health") != "excluded"
    )


def _pages(pools: Mapping[int, int]) -> dict[str, int]:
    return {_size(size): count for size, count in sorted(pools.items()) if count}


def _size(size: int) -> str:
    return quantity.hugepage_resource(size).removeprefix(_HUGEPAGES)


def _cores(machine: Machine, cpus: bits.CPUSet) -> str:
    """Siblings of each core as CPU lists, by blanks, ascending: ``0,16 1,17``."""
    masks = {cpu.siblings & cpus or 1 << cpu.id for cpu in machine.cpus if cpus >> cpu.id & 1}
    return " ".join(bits.format_list(mask) for mask in sorted(masks, key=bits.lowest))


def _place(device: PCIDevice, path: int) -> dict[str, Any]:
    return {"address": device.address, "zone": device.zone, "path": path}


def _gpu(device: PCIDevice, path: int) -> dict[str, Any]:
    details = device.details
    told = {
        "model": details.get("model", ""),
        "memoryGiB": int(details.get("memory_bytes", "0")) >> 30,
        "uuid": details.get("uuid", ""),
    }
    index = details.get("index", "")
    return {
        **_place(device, path),
        **{key: value for key, value in told.items() if value},
        **({"index": int(index)} if index.isdecimal() else {}),
    }


def _nic(device: PCIDevice, path: int, speeds: Mapping[str, int]) -> dict[str, Any]:
    details = device.details
    name, speed = details.get("interface", ""), details.get("speed_mbps")
    told = {
        "name": name,
        "mac": details.get("mac", ""),
        "mbps": int(speed) if speed else speeds.get(name),
        "link": details.get("link", ""),
        "pf": details.get("pf"),
        "rdma": details.get("rdma", ""),
    }
    return {**_place(device, path), **{key: value for key, value in told.items() if value}}


def _reserved_cpus(reading: NodeReading) -> bits.CPUSet:
    """CPUs that groups may not use: the kubelet's, those not isolated, those given to containers."""
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


def _address(device: _GPU | _NIC) -> str:
    return device.address


def _inventory(document: _Document) -> Inventory:
    cores = [
        Core(tuple(bits.members(bits.parse_list(siblings))), zone)
        for zone, listed in document.cores.items()
        for siblings in listed.split()
    ]
    paths = [tuple(path) for path in document.paths]
    return Inventory(
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
