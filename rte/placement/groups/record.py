"""The annotation that records an allocation: written before the bind, read after a restart.

Old and new releases read each other's records: what a reader does not know it leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from rte import errors
from rte.placement.groups.allocation import VERSION, GroupsAllocation
from rte.reader import jsontext
from rte.reader.budget import Int64  # noqa: TC001 - msgspec reads annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.inventory import GroupInventory


class RecordError(errors.RteError):
    """A record cannot be read; ``str(error)`` says where."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """An allocation and whose it is.

    Attributes:
        pod: UID of the pod.
        node: name of the node.
        inventory: generation of the inventory that it was decided on.
        devices: address -> what an application needs to find the device.
        values: names of the site (``vlan``) -> what they are on this node.
    """

    pod: str
    node: str
    allocation: GroupsAllocation
    inventory: str = ""
    devices: Mapping[str, Mapping[str, str | int | None]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The annotation: equal records give equal text."""
        document = {
            "version": VERSION,
            "pod": self.pod,
            "node": self.node,
            "inventory": self.inventory,
            **self.allocation.document(),
            "devices": {address: dict(told) for address, told in sorted(self.devices.items())},
            "values": dict(sorted(self.values.items())),
        }
        return msgspec.json.encode(document).decode()

    def holds_for(self, uid: str, node: str) -> bool:
        """Whether it counts for a pod on a node: a copied annotation holds nothing."""
        return self.pod == uid and self.node == node


def devices_of(
    allocation: GroupsAllocation, inventory: GroupInventory
) -> dict[str, Mapping[str, str | int | None]]:
    """What is said about each device given, by address."""
    gpus = {gpu.address: gpu for gpu in inventory.gpus}
    devices: dict[str, Mapping[str, str | int | None]] = {}
    for group in allocation.groups:
        for address in group.gpus:
            gpu = gpus[address]
            devices[address] = {"uuid": gpu.uuid, "model": gpu.model, "index": gpu.index}
        for address in group.functions():
            nic = inventory.nic_by_address[address]
            devices[address] = {
                "name": nic.name, "mac": nic.mac, "pf": nic.pf, "rdma": nic.rdma_device,
            }  # fmt: skip
    return devices


class _RecordText(GroupsAllocation, frozen=True, kw_only=True):
    """The annotation as it stands there."""

    version: int
    pod: str
    node: str
    inventory: str = ""
    devices: dict[str, dict[str, str | Int64 | None]] = msgspec.field(default_factory=dict)
    values: dict[str, str] = msgspec.field(default_factory=dict)


def parse_record(text: str) -> Record:
    """Parse the annotation.

    Raises:
        RecordError: it is none, or of a version that does not hold what we know.
    """
    try:
        document = jsontext.decode(text, _RecordText, "allocation")
    except errors.MalformedError as error:
        raise RecordError(f"the allocation cannot be read: {error}") from error
    if document.version != VERSION:
        raise RecordError(f"the allocation is of version {document.version}, not {VERSION}")
    return Record(
        pod=document.pod,
        node=document.node,
        allocation=GroupsAllocation(
            groups=document.groups, misc=document.misc, hugepages=document.hugepages
        ),
        inventory=document.inventory,
        devices=document.devices,
        values=document.values,
    )
