"""What each group of a pod gets, and the annotation that records it.

Written before the bind, read after a restart. Old and new releases read each other's records: what
a reader does not know it leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from rte import errors
from rte.model import bits
from rte.reader import jsontext
from rte.reader.jsontext import MOST_INT, Int64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.k8s.wire import Condition
    from rte.placement.groups.inventory import GroupInventory

#: The zone of pages of which only the node is known: those of pods that NHD has placed.
NO_ZONE = -1

#: For the application. Whoever may patch the pod may write it as well, unless a policy forbids it.
ANNOTATION = "topology.rte.dev/allocation"
#: The condition of the pod whose message is the same text: ``status`` is out of a pod author's
#: reach, so this is what counts.
CONDITION = "topology.rte.dev/Allocated"
VERSION = 1


def recorded(conditions: Iterable[Condition]) -> str:
    """What the scheduler has recorded in a pod's ``status.conditions``, ``""`` = nothing."""
    texts = (it.message for it in conditions if it.type == CONDITION and it.status == "True")
    return next(texts, None) or ""


#: Less than nothing would give others more than there is.
Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_INT)]
#: Size -> zone -> pages.
PagesByZone: TypeAlias = dict[str, dict[bits.Id, Amount]]


class GivenNIC(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function and what is held of it, in Mb/s.

    Attributes:
        backup: a second function, which holds the same.
        exclusive: no other pod may hold them.
    """

    address: str
    rx: Amount
    tx: Amount
    backup: str | None = None
    exclusive: bool = False

    def addresses(self) -> tuple[str, ...]:
        """The function, and its back-up if it has one."""
        return (self.address, self.backup) if self.backup else (self.address,)


class QueueCPUs(msgspec.Struct, frozen=True):
    """The CPUs of a queue, the same one twice where it serves both directions."""

    rx: bits.Id
    tx: bits.Id


class GroupCPUs(msgspec.Struct, frozen=True, kw_only=True):
    """The CPUs of a group by what they are for; ``feeders`` are those of each GPU."""

    feeders: tuple[tuple[bits.Id, ...], ...] = ()
    queues: tuple[QueueCPUs, ...] = ()
    workers: tuple[bits.Id, ...] = ()
    helpers: tuple[bits.Id, ...] = ()

    def of_feeders(self) -> tuple[int, ...]:
        """Those of all GPUs."""
        return tuple(cpu for cpus in self.feeders for cpu in cpus)

    def of_queues(self) -> tuple[int, ...]:
        """Those of all queues, each once."""
        return tuple(cpu for queue in self.queues for cpu in dict.fromkeys((queue.rx, queue.tx)))

    def all(self) -> tuple[int, ...]:
        """All of them, in the order of hand-out."""
        return (*self.of_feeders(), *self.of_queues(), *self.workers, *self.helpers)


class GroupAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """What one group gets.

    Attributes:
        zone: id of its zone, None without alignment.
        gpus, nics: each belongs to the wish in its place, as the feeders do.
    """

    name: str
    zone: bits.Id | None = None
    cpus: GroupCPUs = GroupCPUs()
    gpus: tuple[str, ...] = ()
    nics: tuple[GivenNIC, ...] = ()
    hugepages: PagesByZone = {}

    def functions(self) -> Iterator[str]:
        """Addresses of its network functions, back-ups too."""
        return (address for nic in self.nics for address in nic.addresses())


class GivenCPUs(msgspec.Struct, frozen=True):
    """The misc CPUs of a pod; zone None where they have none or need none."""

    zone: bits.Id | None = None
    cpus: tuple[bits.Id, ...] = ()


class GroupsAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod gets; ``hugepages`` are its own and those of groups without alignment."""

    groups: tuple[GroupAllocation, ...] = ()
    misc: GivenCPUs = GivenCPUs()
    hugepages: PagesByZone = {}

    def all_pages(self) -> Iterator[tuple[str, int, int]]:
        """Size, zone and number of all its pages."""
        for pages in (self.hugepages, *(group.hugepages for group in self.groups)):
            for size, by_zone in pages.items():
                yield from ((size, zone, count) for zone, count in by_zone.items())

    def document(self) -> dict[str, object]:
        """As JSON values."""
        told: dict[str, object] = msgspec.to_builtins(self, str_keys=True)
        return told

    def cpu_mask(self) -> bits.CPUSet:
        """All CPUs of the pod."""
        mask = bits.of(self.misc.cpus)
        for group in self.groups:
            mask |= bits.of(group.cpus.all())
        return mask


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
