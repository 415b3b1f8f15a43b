"""Who holds what: each resource from its file, and from podresources where that is not there.

What podresources lists is cleaned of the shared pool and brought together with UIDs; where it
contradicts the files that is told, one line each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import structs

from rte.accounting.machine import is_strict
from rte.model import bits
from rte.model.kubelet import WHOLE_POD, ListedContainer
from rte.model.node import Holding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rte.model.bits import CPUSet, Mask
    from rte.model.kubelet import DeviceHolding, KubeletView, ListedPod, NodePod
    from rte.model.node import ClaimedDevice, DevicePool, KubeletConfig, MemoryBlock, NodeState

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


def disagreements(
    state: NodeState, view: KubeletView, listing: Listing | None, uids: Mapping[Name, str]
) -> list[str]:
    """What podresources says differently from the files, when both are of the same moment."""
    if not view.coherent or view.cpu is None or state.config.cpu_policy != "static":
        return []
    lines = list(_reserved(state))
    if view.allocatable and view.allocatable.cpus:
        lines += _differ(
            "podresources' allocatable CPUs",
            view.allocatable.cpus,
            "its configuration",
            state.topology.all_cpus & ~state.reserved,
        )
    if listing is None:
        return lines
    if listing.shared:
        lines += _differ(
            "the shared pool of the reference container",
            listing.shared,
            "cpu_manager_state",
            view.cpu.default,
        )
    for pod in listing.pods:
        uid, name = uids[pod.namespace, pod.name], f"{pod.namespace}/{pod.name}"
        whole = view.cpu.pod_entries.get(uid, 0)
        if pod.cpus:  # kubelets before 1.37 do not list it
            lines += _differ(f"podresources' CPUs of {name}", pod.cpus, "cpu_manager_state", whole)
        entries = view.cpu.entries.get(uid, {})
        for container in pod.containers:
            known = entries.get(container.name, 0)
            if whole and not container.cpus:
                continue  # it shares those of its pod
            if container.cpus != known:
                lines += _differ(
                    f"podresources' CPUs of {name}/{container.name}",
                    container.cpus,
                    "cpu_manager_state",
                    known,
                )
    return lines


def _reserved(state: NodeState) -> Iterator[str]:
    """As validateState in policy_static.go; the running kubelet may have an older configuration."""
    reserved = state.reserved
    if is_strict(state.config):
        wrong = reserved & state.shared
        if wrong:
            yield f"reserved CPUs {bits.format_list(wrong)} are in the shared pool all the same"
    elif reserved & ~state.shared:
        wrong = reserved & ~state.shared
        yield f"reserved CPUs {bits.format_list(wrong)} are not in the shared pool"


def _differ(what: str, told: CPUSet, other: str, known: CPUSet) -> Iterator[str]:
    if told != known:
        yield (
            f"{what}: {bits.format_list(told) or 'none'}; by {other}: "
            f"{bits.format_list(known) or 'none'}"
        )
