"""What podresources lists: cleaned of the shared pool, and brought together with UIDs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from rte.model.kubelet import WHOLE_POD, ListedContainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.kubelet import (
        DeviceHolding,
        KubeletView,
        ListedPod,
        NodePod,
    )
    from rte.model.node import ClaimedDevice, MemoryBlock

#: Namespace and name.
Name: TypeAlias = "tuple[str, str]"

#: What a container holds, comparable: CPUs, memory blocks, device ids by resource.
Content: TypeAlias = "tuple[CPUSet, frozenset[MemoryBlock], frozenset[tuple[str, frozenset[str]]]]"
_NOTHING: Content = (0, frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Listing:
    """The listed pods, exclusive CPUs only, and the shared pool where the kubelet lists it."""

    pods: tuple[ListedPod, ...]
    shared: CPUSet = 0


def read_listing(view: KubeletView, reference: tuple[str, str, str] | None) -> Listing | None:
    """Subtract the reference container's CPUs everywhere; None where nothing was listed.

    Kubelets before 1.21 list shared CPUs for ordinary containers too (kubernetes #97415): what a
    container shows that asks for no exclusive CPUs is the shared pool. Newer ones show none.
    """
    if view.pods is None:
        return None
    shared = 0
    for pod in view.pods if reference else ():
        for container in pod.containers:
            if (pod.namespace, pod.name, container.name) == reference:
                shared |= container.cpus
    if not shared:
        return Listing(view.pods)
    return Listing(
        tuple(
            structs.replace(
                pod,
                containers=tuple(
                    structs.replace(container, cpus=container.cpus & ~shared)
                    for container in pod.containers
                ),
            )
            for pod in view.pods
        ),
        shared,
    )


def claimed_devices(
    view: KubeletView, uids: Mapping[Name, str]
) -> dict[str, dict[str, tuple[ClaimedDevice, ...]]]:
    """UID -> container -> its devices of DRA, as podresources lists them."""
    found: dict[str, dict[str, tuple[ClaimedDevice, ...]]] = {}
    for pod in view.pods or ():
        held = {one.name: one.claimed for one in pod.containers if one.claimed}
        if held and (pod.namespace, pod.name) in uids:
            found[uids[pod.namespace, pod.name]] = held
    return found


def uids_of(
    view: KubeletView, listing: Listing | None, pods: Sequence[NodePod] | None
) -> dict[Name, str]:
    """The UID of every listed pod: the API's, else that of the state files' entry with the same
    content, else ``namespace/name`` (for a reading without either).
    """
    uids = {(pod.namespace, pod.name): pod.uid for pod in pods or () if not pod.terminal}
    if listing is None:
        return uids
    unknown = [pod for pod in listing.pods if (pod.namespace, pod.name) not in uids]
    if not unknown:
        return uids
    contents = _contents(view)
    owners: dict[tuple[str, Content], list[str]] = {}
    for uid in sorted(contents):
        for item in contents[uid].items():
            owners.setdefault(item, []).append(uid)
    taken = set(uids.values())
    for pod in unknown:
        wanted = _wanted(view, pod)
        first = next((item for item in wanted.items() if any(item[1])), ("", _NOTHING))
        uid = next(
            (
                uid
                for uid in owners.get(first, ())
                if uid not in taken and _agrees(contents[uid], wanted)
            ),
            f"{pod.namespace}/{pod.name}",
        )
        taken.add(uid)
        uids[pod.namespace, pod.name] = uid
    return uids


def _contents(view: KubeletView) -> dict[str, dict[str, Content]]:
    """UID -> container -> what the files say that it holds."""
    cpus = view.cpu.entries if view.cpu else {}
    memory = view.memory.entries if view.memory else {}
    devices = view.devices.entries if view.devices else {}
    contents = {
        uid: {
            name: (
                cpus.get(uid, {}).get(name, 0),
                frozenset(memory.get(uid, {}).get(name, ())),
                _named(devices.get(uid, {}).get(name, ())),
            )
            for name in {*cpus.get(uid, ()), *memory.get(uid, ()), *devices.get(uid, ())}
        }
        for uid in {*cpus, *memory, *devices}
    }
    pod_cpus = view.cpu.pod_entries if view.cpu else {}
    pod_memory = view.memory.pod_entries if view.memory else {}
    for uid in {*pod_cpus, *pod_memory}:
        whole: Content = (pod_cpus.get(uid, 0), frozenset(pod_memory.get(uid, ())), frozenset())
        contents.setdefault(uid, {})[WHOLE_POD] = whole
    return contents


def _wanted(view: KubeletView, pod: ListedPod) -> dict[str, Content]:
    """The same of a listed pod.

    Of a pod that holds something as a whole, containers that share it are listed with nothing
    (cm/container_manager_linux.go, GetCPUs).
    """
    listed = {item.name: _content(view, item) for item in pod.containers}
    whole = _content(view, pod)
    if not any(whole):
        return listed
    return {WHOLE_POD: whole} | {name: content for name, content in listed.items() if any(content)}


def _content(view: KubeletView, item: ListedContainer | ListedPod) -> Content:
    """What it holds, as far as there are files to compare with."""
    devices = item.devices if isinstance(item, ListedContainer) else ()
    return (
        item.cpus if view.cpu else 0,
        frozenset(item.memory if view.memory else ()),
        _named(devices if view.devices else ()),
    )


def _named(holdings: Iterable[DeviceHolding]) -> frozenset[tuple[str, frozenset[str]]]:
    return frozenset((holding.resource, frozenset(holding.devices)) for holding in holdings)


def _agrees(held: Mapping[str, Content], wanted: Mapping[str, Content]) -> bool:
    """Whether every listed container holds just that; ordinary init containers are not listed."""
    return all(held.get(name, _NOTHING) == content for name, content in wanted.items())
