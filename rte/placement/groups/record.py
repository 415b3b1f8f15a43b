"""The annotation that records an allocation: written before the bind, read after a restart.

Old and new releases read each other's records: what a reader does not know it leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from rte import errors
from rte.model import bits
from rte.placement.groups.allocation import VERSION, Allocation, GivenNIC, GroupAllocation
from rte.reader import jsontext
from rte.reader.budget import MOST_INT, Int64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.inventory import Inventory


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
    allocation: Allocation
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
    allocation: Allocation, inventory: Inventory
) -> dict[str, Mapping[str, str | int | None]]:
    """What is said about each device given, by address."""
    gpus = {gpu.address: gpu for gpu in inventory.gpus}
    devices: dict[str, Mapping[str, str | int | None]] = {}
    for group in allocation.groups:
        for address in group.gpus:
            gpu = gpus[address]
            devices[address] = {"uuid": gpu.uuid, "model": gpu.model, "index": gpu.index}
        for given in group.nics:
            for address in given.addresses():
                nic = inventory.nic_by_address[address]
                devices[address] = {
                    "name": nic.name, "mac": nic.mac, "pf": nic.pf, "rdma": nic.rdma_device,
                }  # fmt: skip
    return devices


#: Less than nothing would give others more than there is.
_Amount = Annotated[int, msgspec.Meta(ge=0, le=MOST_INT)]


class _Queue(msgspec.Struct, frozen=True):
    rx: int
    tx: int


class _CPUs(msgspec.Struct, frozen=True):
    feeders: tuple[tuple[int, ...], ...] = ()
    queues: tuple[_Queue, ...] = ()
    workers: tuple[int, ...] = ()
    helpers: tuple[int, ...] = ()


class _NIC(msgspec.Struct, frozen=True):
    address: str
    rx: _Amount = 0
    tx: _Amount = 0
    backup: str | None = None
    exclusive: bool = False


class _Group(msgspec.Struct, frozen=True):
    name: str
    zone: bits.Id | None = None
    cpus: _CPUs = _CPUs()
    gpus: tuple[str, ...] = ()
    nics: tuple[_NIC, ...] = ()
    hugepages: dict[str, dict[bits.Id, _Amount]] = {}


class _Misc(msgspec.Struct, frozen=True):
    zone: bits.Id | None = None
    cpus: tuple[int, ...] = ()


class _Document(msgspec.Struct, frozen=True):
    version: int
    pod: str
    node: str
    inventory: str = ""
    groups: tuple[_Group, ...] = ()
    misc: _Misc = _Misc()
    hugepages: dict[str, dict[bits.Id, _Amount]] = {}
    devices: dict[str, dict[str, str | Int64 | None]] = {}
    values: dict[str, str] = {}


def parse_record(text: str) -> Record:
    """Parse the annotation.

    Raises:
        RecordError: it is none, or of a version that does not hold what we know.
    """
    try:
        document = jsontext.decode(text, _Document, "allocation")
    except errors.MalformedError as error:
        raise RecordError(f"the allocation cannot be read: {error}") from error
    if document.version != VERSION:
        raise RecordError(f"the allocation is of version {document.version}, not {VERSION}")
    cpus = [cpu for group in document.groups for cpu in _all_cpus(group)]
    if any(not 0 <= cpu <= bits.MAX_ID for cpu in (*cpus, *document.misc.cpus)):
        raise RecordError("the allocation names a CPU that cannot be")
    return Record(
        pod=document.pod,
        node=document.node,
        allocation=Allocation(
            groups=tuple(_group(group) for group in document.groups),
            misc_zone=document.misc.zone,
            misc=document.misc.cpus,
            pages=document.hugepages,
        ),
        inventory=document.inventory,
        devices=document.devices,
        values=document.values,
    )


def _all_cpus(group: _Group) -> tuple[int, ...]:
    fed = [cpu for cpus in group.cpus.feeders for cpu in cpus]
    queued = [cpu for queue in group.cpus.queues for cpu in (queue.rx, queue.tx)]
    return (*fed, *queued, *group.cpus.workers, *group.cpus.helpers)


def _group(group: _Group) -> GroupAllocation:
    return GroupAllocation(
        name=group.name,
        zone=group.zone,
        feeders=group.cpus.feeders,
        queues=tuple((queue.rx, queue.tx) for queue in group.cpus.queues),
        workers=group.cpus.workers,
        helpers=group.cpus.helpers,
        gpus=group.gpus,
        nics=tuple(
            GivenNIC(nic.address, nic.rx, nic.tx, nic.backup, nic.exclusive) for nic in group.nics
        ),
        pages=group.hugepages,
    )
