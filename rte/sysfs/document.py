"""A Machine as a JSON document: what ``rte topology -o json`` prints and fixtures expect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model import machine

Document = dict[str, Any]


def build_document(read: machine.Machine) -> Document:
    """The whole Machine in plain JSON values; CPU sets are lists as the kernel writes them."""
    return {
        "vendor": read.vendor,
        "model": read.model,
        "memory_bytes": read.memory_bytes,
        "sockets": read.sockets,
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
            }
            for device in read.pci
        ],
        "warnings": list(read.warnings),
    }


def _told_otherwise(cpu: machine.CPU) -> Document:
    """``core_id`` and ``package_id`` where the kernel's differ from ``core`` and ``socket``."""
    told = {"core_id": cpu.core_id, "package_id": cpu.package_id}
    return {key: value for key, value in told.items() if value is not None}


def format_document(document: Mapping[str, Any]) -> str:
    """JSON text with one line for each CPU, zone, device and warning."""
    fields = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            items = ",\n".join(f"    {json.dumps(item)}" for item in value)
            fields.append(f"  {json.dumps(key)}: [\n{items}\n  ]")
        else:
            fields.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(fields) + "\n}\n"
