"""The annotation ``topology.rte.dev/device-zones``: in which zones PCI functions are.

For devices of DRA, which the kubelet leaves out of its Topology Manager. docs/nrt.md explains every
key. A reader takes what it understands; other keys are for later releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from rte import errors
from rte.model.machine import PCIZones

if TYPE_CHECKING:
    from rte.model.node import NodeReading

ANNOTATION = "topology.rte.dev/device-zones"
VERSION = 1


class _Document(msgspec.Struct, rename="camel"):
    version: int
    pcie_roots: dict[str, int | None] = {}
    pci_functions: dict[str, int] = {}


def encode(reading: NodeReading) -> str | None:
    """The annotation's text, None where the machine has none; equal readings give equal text."""
    zones = reading.machine.pci_zones
    if not zones.roots and not zones.functions:
        return None
    document: dict[str, Any] = {
        "version": VERSION,
        "pcieRoots": dict(zones.roots),
        "pciFunctions": dict(zones.functions),
    }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def decode(text: str) -> PCIZones:
    """The zones of PCI functions.

    Raises:
        errors.ParseError: not this format, or another version.
    """
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, TypeError, UnicodeEncodeError) as error:
        raise errors.ParseError("device-zones", text, str(error)) from error
    if document.version != VERSION:
        raise errors.ParseError(
            "device-zones",
            document.version,
            f"this program reads version {VERSION}; use the same release",
        )
    return PCIZones(roots=document.pcie_roots, functions=document.pci_functions)
