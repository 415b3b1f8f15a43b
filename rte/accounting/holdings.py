"""Who holds what: each resource from its file, and from podresources where that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rte.model import bits
from rte.model.node import Holding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.accounting.listed import Listing, Name
    from rte.model.bits import CPUSet, Mask
    from rte.model.kubelet import (
        DeviceHolding,
        KubeletView,
        ListedContainer,
    )
    from rte.model.node import DevicePool, KubeletConfig, MemoryBlock

_T = TypeVar("_T")

#: UID -> container name -> holding.
Holdings = dict[str, dict[str, Holding]]


def read_pod_holdings(
    view: KubeletView, listing: Listing | None, uids: Mapping[Name, str]
) -> dict[str, Holding]:
    """What pods hold as a whole, sorted by UID: from the files, else as podresources lists it."""
    listed = {uids[pod.namespace, pod.name]: pod for pod in (listing.pods if listing else ())}
    cpus: Mapping[str, CPUSet] = (
        view.cpu.pod_entries
        if view.cpu
        else {uid: pod.cpus for uid, pod in listed.items() if pod.cpus}
    )
    memory: Mapping[str, tuple[MemoryBlock, ...]] = (
        view.memory.pod_entries
        if view.memory
        else {uid: pod.memory for uid, pod in listed.items() if pod.memory}
    )
    return {
        uid: Holding(cpus=cpus.get(uid, 0), memory=memory.get(uid, ()))
        for uid in sorted({*cpus, *memory})
    }


def read_holdings(
    view: KubeletView,
    config: KubeletConfig,
    listing: Listing | None,
    uids: Mapping[Name, str],
    pools: Mapping[str, DevicePool],
) -> Holdings:
    """All holdings, sorted by UID and container; ``pools`` must know every held device."""
    cpus = view.cpu.entries if view.cpu else None
    memory = view.memory.entries if view.memory else None
    devices = view.devices.entries if view.devices else None
    if config.memory_policy == "None":
        memory = {}
    listed = _listed(listing, uids) if cpus is None or memory is None or devices is None else {}
    if cpus is None:
        # Under CPU policy none old kubelets list the shared CPUs of every container.
        static = config.cpu_policy == "static"
        cpus = _pick(listed, lambda container: container.cpus if static else 0)
    if memory is None:
        memory = _pick(listed, lambda container: container.memory)
    if devices is None:
        devices = _pick(listed, lambda container: container.devices)
    positions = {
        resource: {name: position for position, name in enumerate(pool.ids)}
        for resource, pool in pools.items()
    }
    holdings: Holdings = {}
    for uid in sorted({*cpus, *memory, *devices}):
        own_cpus, own_memory = cpus.get(uid, {}), memory.get(uid, {})
        own_devices = devices.get(uid, {})
        if names := {*own_cpus, *own_memory, *own_devices}:
            holdings[uid] = {
                name: Holding(
                    cpus=own_cpus.get(name, 0),
                    memory=own_memory.get(name, ()),
                    devices=_masks(own_devices.get(name, ()), positions),
                )
                for name in sorted(names)
            }
    return holdings


def counted_holdings(
    holdings: Mapping[str, Mapping[str, Holding]], pod_holdings: Mapping[str, Holding]
) -> list[Holding]:
    """The CPUs and memory that add up: of pods as a whole, and of containers of all other pods."""
    return [
        *pod_holdings.values(),
        *(
            holding
            for uid, containers in holdings.items()
            if uid not in pod_holdings
            for holding in containers.values()
        ),
    ]


def _listed(
    listing: Listing | None, uids: Mapping[Name, str]
) -> dict[str, dict[str, ListedContainer]]:
    """UID -> container name -> what podresources lists."""
    listed: dict[str, dict[str, ListedContainer]] = {}
    for pod in listing.pods if listing else ():
        for container in pod.containers:
            listed.setdefault(uids[pod.namespace, pod.name], {})[container.name] = container
    return listed


def _pick(
    listed: Mapping[str, Mapping[str, ListedContainer]], held: Callable[[ListedContainer], _T]
) -> dict[str, dict[str, _T]]:
    """What is held of one kind, where that is anything."""
    return {
        uid: {name: value for name, container in items.items() if (value := held(container))}
        for uid, items in listed.items()
    }


def _masks(
    holdings: Iterable[DeviceHolding], positions: Mapping[str, Mapping[str, int]]
) -> dict[str, Mask]:
    masks: dict[str, Mask] = {}
    for holding in holdings:
        places = positions[holding.resource]
        mask = bits.of(places[device] for device in holding.devices)
        masks[holding.resource] = masks.get(holding.resource, 0) | mask
    return masks
