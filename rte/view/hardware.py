"""The hardware of one node for the page: a drawing of it, and who holds which device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import accounting
from rte.model import bits
from rte.model.machine import PCIDevice
from rte.model.node import NodeReading, PodRef
from rte.scheduler.front.groups import books_of
from rte.scheduler.plugins.groups.given import with_groups
from rte.view import drawing
from rte.view.drawing import paint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.placement.groups.inventory import GroupInventory, PCIFunction
    from rte.reader.json import JsonObject
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.loop.cycle import Cycle
    from rte.view.drawing.words import Names


def reading_of(entry: NodeEntry, cycle: Cycle) -> NodeReading | None:
    """The node as far as its report tells it; None while its zones are not known."""
    outlook = entry.outlook()
    if outlook is None:
        return None
    state = with_groups(entry, outlook.predicted, books_of(cycle))
    machine = accounting.machine_of(state.topology)
    inventory = entry.report.inventory if entry.report else None
    if inventory is not None:
        machine = replace(machine, pci=tuple(_functions(inventory.inventory)))
    pods = entry.pods.values()
    names = tuple(PodRef(pod.kubelet_uid, pod.namespace, pod.name) for pod in pods)
    return NodeReading(node_name=entry.name, machine=machine, state=state, pods=names)


def describe(reading: NodeReading, names: Names | None = None) -> JsonObject:
    """``svg``, the drawing of ``rte topology``, and the ``devices`` that its kubelet knows.

    Args:
        reading: of the node.
        names: of PCI devices.
    """
    devices = paint.mix(reading.machine, reading).devices.values()
    return {
        "svg": drawing.draw(reading.machine, reading, names),
        "devices": [
            {
                "resource": device.resource,
                "id": device.id,
                "zones": "" if device.zones is None else bits.format_list(device.zones),
                "healthy": device.healthy,
                "holder": device.holder.name if device.holder else "",
            }
            for device in devices
        ],
    }


def _functions(inventory: GroupInventory) -> Iterator[PCIDevice]:
    for gpu in inventory.gpus:
        facts = {"model": gpu.model, "uuid": gpu.uuid}
        facts["memory_bytes"] = str(gpu.memory_gib << 30) if gpu.memory_gib else ""
        yield _function(gpu, "gpu", facts)
    for nic in inventory.nics:
        speed = "" if nic.mbps is None else str(nic.mbps)
        facts = {"interface": nic.name, "mac": nic.mac, "link": nic.link, "speed_mbps": speed}
        yield _function(nic, "nic", {**facts, "pf": nic.pf or "", "rdma": nic.rdma_device})


def _function(device: PCIFunction, kind: str, facts: dict[str, str]) -> PCIDevice:
    return PCIDevice(
        address=device.address,
        kind=kind,
        vendor="0x",
        device="0x",
        zone=device.zone,
        path=device.path,
        details={name: value for name, value in facts.items() if value},
    )
