"""A Machine as a JSON document: what ``rte topology -o json`` prints and fixtures expect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rte.model import bits
from rte.reader.json import Json, JsonObject

if TYPE_CHECKING:
    from rte.model import machine

Document = JsonObject


def build_document(read: machine.Machine) -> Document:
    """The whole Machine in plain JSON values; CPU sets are lists as the kernel writes them."""
    return {
        "vendor": read.vendor,
        "model": read.model,
        "memory_bytes": read.memory_bytes,
        "sockets": read.sockets,
        **_told_of_cpus(read),
        "cpus": [
            {
                "id": cpu.id,
                "core": cpu.core,
                "die": cpu.die,
                "socket": cpu.socket,
                "zone": cpu.zone,
                "l3": cpu.l3,
                "siblings": bits.format_list(cpu.siblings),
                "online": cpu.online,
                "kind": cpu.kind,
                **_told_otherwise(cpu),
            }
            for cpu in read.cpus
        ],
        "zones": [
            {
                "id": zone.id,
                "cpus": bits.format_list(zone.cpus),
                "memory_bytes": zone.memory_bytes,
                "hugepages": {str(size): zone.hugepages[size] for size in sorted(zone.hugepages)},
                **_free_pages(zone),
                "distances": {str(to): zone.distances[to] for to in sorted(zone.distances)},
            }
            for zone in read.zones
        ],
        "pci": [
            {
                "address": device.address,
                "kind": device.kind,
                "vendor": device.vendor,
                "device": device.device,
                "zone": device.zone,
                "path": list(device.path),
                "details": dict(sorted(device.details.items())),
                **_interfaces(device),
            }
            for device in read.pci
        ],
        "warnings": list(read.warnings),
    }


def _told_of_cpus(read: machine.Machine) -> Document:
    told = {
        "cpu_arch": read.cpu_arch,
        "isolated": bits.format_list(read.isolated),
        "nohz_full": bits.format_list(read.nohz_full),
    }
    return {key: value for key, value in told.items() if value}


def _free_pages(zone: machine.Zone) -> Document:
    """Only where some are in use: else it is what ``hugepages`` says."""
    if not zone.free_hugepages or zone.free_hugepages == zone.hugepages:
        return {}
    return {"free_hugepages": {str(s): zone.free_hugepages[s] for s in sorted(zone.free_hugepages)}}


def _interfaces(device: machine.PCIDevice) -> Document:
    """All interfaces and RDMA devices; ``details`` has the first of each."""
    document: Document = {}
    if any(it.port or it.port_name or it.bond for it in device.interfaces) or (
        len(device.interfaces) > 1
    ):
        document["interfaces"] = [
            {"name": it.name, "mac": it.mac, "mbps": it.mbps, "link": it.link, "port": it.port,
             "port_name": it.port_name, "bond": it.bond}
            for it in device.interfaces
        ]  # fmt: skip
    if len(device.rdma) > 1:
        document["rdma"] = list(device.rdma)
    return document


def _told_otherwise(cpu: machine.CPU) -> Document:
    """``core_id`` and ``package_id`` where the kernel's differ from ``core`` and ``socket``."""
    told = {"core_id": cpu.core_id, "package_id": cpu.package_id}
    return {key: value for key, value in told.items() if value is not None}


def format_document(document: Json) -> str:
    """JSON text with one line for each CPU, zone, device and warning."""
    fields = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            items = ",\n".join(f"    {json.dumps(item)}" for item in value)
            fields.append(f"  {json.dumps(key)}: [\n{items}\n  ]")
        else:
            fields.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(fields) + "\n}\n"
