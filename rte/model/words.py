"""Zones and counts as people read them, once for every command, event and message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.quantity import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.model.node import ClaimedDevice, Holding

#: What names a machine (:mod:`rte.library.machines`); a command takes a node of the cluster too.
MACHINE = (
    "a shape (2x32), a fixture, a folder with sys/ and proc/, an archive of rte snapshot, a file "
    "of NodeResourceTopologies"
)


def zones(members: int | None) -> str:
    """A set of NUMA zones: ``zone 1``, ``zones 0-1,3``; nothing known or empty: ``no zone``.

    The object's own zone names (``node-1``) are for programs: a cluster calls its machines nodes.
    """
    if not members:
        return "no zone"
    return f"zone{'s' * (members.bit_count() > 1)} {bits.format_list(members)}"


def counted(count: float, noun: str) -> str:
    """A count with its noun: ``1 CPU``, ``0.5 CPUs``, ``2 pods``."""
    return f"{count:.12g} {noun}" if count == 1 else f"{count:.12g} {noun}s"


def share(some: int, total: int, noun: str) -> str:
    """Some of all: ``2 of 3 nodes``, ``none of 3 nodes``; of one alone ``1 node``, ``no node``."""
    if total == 1:
        return counted(some, noun) if some else f"no {noun}"
    return f"{some or 'none'} of {counted(total, noun)}"


def describe_holding(held: Holding, claims: Sequence[ClaimedDevice] = ()) -> str:
    """CPUs, memory, devices of plugins and of claims in one line."""
    what = [bits.format_list(held.cpus)] if held.cpus else []
    what += [
        f"{block.resource} {format_bytes(block.size)} of {zones(block.zones)}"
        for block in held.memory
    ]
    what += [f"{n.bit_count()} {name}" for name, n in sorted(held.devices.items()) if n]
    return ", ".join(what + [f"{device.driver} {device.device}".rstrip() for device in claims])
