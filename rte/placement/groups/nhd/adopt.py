"""What a pod holds that NHD has placed: read from the file that NHD wrote into its annotation.

Source: NHD ``NHDScheduler.py`` ``ClaimPodResources``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.placement.groups.allocation import (
    NO_ZONE,
    GivenCPUs,
    GivenNIC,
    GroupAllocation,
    GroupCPUs,
    GroupsAllocation,
    QueueCPUs,
)
from rte.placement.groups.document import follow
from rte.placement.groups.nhd.export import NETWORK_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.placement.groups.inventory import GroupInventory
    from rte.placement.groups.nhd.libconfig import Value
    from rte.placement.groups.nhd.triad import Triad
    from rte.placement.groups.request import GroupWish

#: The pod's annotation with the file.
ANNOTATION = "sigproc.viasat.io/nhd_config"


class AdoptionError(errors.RteError):
    """The file names something that the node does not have."""


def adopt(placed: Triad, inventory: GroupInventory) -> GroupsAllocation:
    """The allocation of a pod.

    Args:
        placed: the file as NHD has written it.
        inventory: the node's; GPUs are found by their index, NICs by their MAC.

    Raises:
        RequestError: the file asks for what no request can.
        AdoptionError: it names a GPU or a NIC that is not there.
    """
    request = placed.request
    ids = {what: follow(placed.settings, path) for path, what in placed.fields.items()}
    network = placed.settings.get(NETWORK_CONFIG, ())
    allocation = GroupsAllocation(
        groups=tuple(
            _group(wish, f"groups[{i}]", ids, network, inventory)
            for i, wish in enumerate(request.groups)
        ),
        misc=GivenCPUs(cpus=tuple(ids[f"misc[{i}]"] for i in range(request.misc.count))),
        hugepages={size: {NO_ZONE: count} for size, count in request.hugepages.items()},
    )
    cpus = [cpu for group in allocation.groups for cpu in group.cpus.all()]
    if any(not 0 <= cpu <= bits.MAX_ID for cpu in (*cpus, *allocation.misc.cpus)):
        raise AdoptionError("the file has no CPUs yet")
    return allocation


def _group(
    wish: GroupWish, at: str, ids: dict[str, int], network: Value, inventory: GroupInventory
) -> GroupAllocation:
    queues = tuple(
        QueueCPUs(ids[f"{at}.queues[{n}].rx"], ids[f"{at}.queues[{n}].tx"])
        for n in range(len(wish.queues))
    )
    by_index = {gpu.index: gpu.address for gpu in inventory.gpus if gpu.index is not None}
    numbers = [ids[f"{at}.gpus[{n}]"] for n in range(len(wish.gpus))]
    if lost := [number for number in numbers if number not in by_index]:
        raise AdoptionError(f"{wish.name}: there is no GPU {lost[0]}")
    return GroupAllocation(
        name=wish.name,
        cpus=GroupCPUs(
            feeders=tuple(
                tuple(ids[f"{at}.feeders[{n}][{k}]"] for k in range(gpu.feeders))
                for n, gpu in enumerate(wish.gpus)
            ),
            queues=queues,
            workers=tuple(ids[f"{at}.workers[{n}]"] for n in range(wish.workers)),
            helpers=tuple(ids[f"{at}.helpers[{n}]"] for n in range(wish.helpers.count)),
        ),
        gpus=tuple(by_index[number] for number in numbers),
        nics=tuple(_nics(wish, queues, network, inventory)),
    )


def _nics(
    wish: GroupWish, queues: tuple[QueueCPUs, ...], network: Value, inventory: GroupInventory
) -> Iterator[GivenNIC]:
    """The function whose entry has the group's cores; NHD gives a group one."""
    by_mac = {nic.mac.lower(): nic.address for nic in inventory.nics if nic.mac}
    for entry in wish.nics:
        macs = {
            str(told.get("mac", "")).lower()
            for told in _list(network)
            if isinstance(told, dict)
            and any(queue.rx in _list(told.get("rxCores")) for queue in queues)
        }
        if len(macs) != 1 or not macs <= set(by_mac):
            raise AdoptionError(f"{wish.name}: {NETWORK_CONFIG} names no NIC of the node for it")
        yield GivenNIC(by_mac[macs.pop()], entry.rx, entry.tx)


def _list(value: Value | None) -> Sequence[Value]:
    """What is a list; nothing where the file has something else in its place."""
    return value if isinstance(value, list | tuple) else ()
