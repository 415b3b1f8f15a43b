"""Who holds what: each resource from its file, and from podresources where that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.node import Holding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.accounting.listed import Listing, Name
    from rte.model.bits import CPUSet, Mask
    from rte.model.kubelet import DeviceHolding, KubeletView, ListedContainer
    from rte.model.node import DevicePool, KubeletConfig, MemoryBlock

#: UID -> container name -> holding.
Holdings = dict[str, dict[str, Holding]]

#: UID and container name.
Key = tuple[str, str]


def read_holdings(
    view: KubeletView,
    config: KubeletConfig,
    listing: Listing | None,
    uids: Mapping[Name, str],
    pools: Mapping[str, DevicePool],
) -> Holdings:
    """All holdings, sorted by UID and container; ``pools`` must know every held device."""
    containers = dict(_listed(listing, uids)) if listing else {}
    cpus, devices = _cpus(view), _devices(view)
    memory = {} if config.memory_policy == "None" else _memory(view)
    if cpus is None:
        # Under CPU policy none old kubelets list the shared CPUs of every container.
        static = config.cpu_policy == "static"
        cpus = {key: item.cpus for key, item in containers.items() if item.cpus and static}
    if memory is None:
        memory = {key: item.memory for key, item in containers.items() if item.memory}
    if devices is None:
        devices = {key: item.devices for key, item in containers.items() if item.devices}
    positions = {
        resource: {name: position for position, name in enumerate(pool.ids)}
        for resource, pool in pools.items()
    }
    holdings: Holdings = {}
    for key in sorted({*cpus, *memory, *devices}):
        holdings.setdefault(key[0], {})[key[1]] = Holding(
            cpus=cpus.get(key, 0),
            memory=memory.get(key, ()),
            devices=_masks(devices.get(key, ()), positions),
        )
    return holdings


def _cpus(view: KubeletView) -> dict[Key, CPUSet] | None:
    if view.cpu is None:
        return None
    return {
        (uid, name): cpus
        for uid, containers in view.cpu.entries.items()
        for name, cpus in containers.items()
    }


def _memory(view: KubeletView) -> dict[Key, tuple[MemoryBlock, ...]] | None:
    if view.memory is None:
        return None
    return {
        (uid, name): blocks
        for uid, containers in view.memory.entries.items()
        for name, blocks in containers.items()
    }


def _devices(view: KubeletView) -> dict[Key, tuple[DeviceHolding, ...]] | None:
    if view.devices is None:
        return None
    return {
        (uid, name): devices
        for uid, containers in view.devices.entries.items()
        for name, devices in containers.items()
    }


def _listed(listing: Listing, uids: Mapping[Name, str]) -> Iterator[tuple[Key, ListedContainer]]:
    for pod in listing.pods:
        for container in pod.containers:
            yield (uids[pod.namespace, pod.name], container.name), container


def _masks(
    holdings: Iterable[DeviceHolding], positions: Mapping[str, Mapping[str, int]]
) -> dict[str, Mask]:
    masks: dict[str, Mask] = {}
    for holding in holdings:
        places = positions[holding.resource]
        mask = bits.of(places[device] for device in holding.devices)
        masks[holding.resource] = masks.get(holding.resource, 0) | mask
    return masks
