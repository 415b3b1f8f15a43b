"""The annotation ``topology.rte.dev/device-zones``: where PCI functions are, who has DRA devices.

The kubelet leaves devices of DRA out of its Topology Manager. docs/nrt.md explains every key. A
reader takes what it understands; other keys are for later releases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import orjson

from rte import errors
from rte.model import bits
from rte.model.machine import PCIZones
from rte.model.node import ClaimedDevice
from rte.reader import jsontext
from rte.reader.jsontext import Int64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.node import NodeReading
    from rte.reader.json import JsonObject

ANNOTATION = "topology.rte.dev/device-zones"
VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceZones:
    """Zones of PCI functions; UID -> container -> devices of DRA that it holds.

    Of a device only what names it is there: namespace and CDI names are empty.
    """

    pci: PCIZones = field(default_factory=PCIZones)
    claimed: Mapping[str, Mapping[str, tuple[ClaimedDevice, ...]]] = field(default_factory=dict)


class _DeviceZonesDocument(msgspec.Struct, rename="camel"):
    version: Int64
    pcie_roots: dict[str, bits.Id | None] = {}
    pci_functions: dict[str, bits.Id] = {}
    claimed: dict[str, dict[str, list[tuple[str, str, str, str, str]]]] = {}


def encode(reading: NodeReading) -> str | None:
    """The annotation's text, None where there is nothing to tell; equal readings, equal text."""
    zones = reading.machine.pci_zones
    if not zones.roots and not zones.functions and not reading.claimed:
        return None
    document: JsonObject = {
        "version": VERSION,
        "pcieRoots": dict(zones.roots),
        "pciFunctions": dict(zones.functions),
        "claimed": {
            uid: {
                name: sorted([d.claim, d.driver, d.pool, d.device, d.share] for d in devices)
                for name, devices in containers.items()
            }
            for uid, containers in reading.claimed.items()
        },
    }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def decode(text: str) -> DeviceZones:
    """What the annotation says.

    Raises:
        errors.ParseError: not this format, or another version.
    """
    document = jsontext.decode(text, _DeviceZonesDocument, "device-zones")
    if document.version != VERSION:
        raise errors.ParseError(
            "device-zones",
            document.version,
            f"this program reads version {VERSION}; use the same release",
        )
    return DeviceZones(
        pci=PCIZones(roots=document.pcie_roots, functions=document.pci_functions),
        claimed={
            uid: {
                name: tuple(ClaimedDevice("", *names) for names in devices)
                for name, devices in containers.items()
            }
            for uid, containers in document.claimed.items()
        },
    )
