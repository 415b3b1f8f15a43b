"""What podresources lists: cleaned of the shared pool, and brought together with UIDs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.kubelet import KubeletView, ListedPod, NodePod

#: Namespace and name.
Name: TypeAlias = "tuple[str, str]"


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
    for pod in view.pods:
        for container in pod.containers:
            if (pod.namespace, pod.name, container.name) == reference:
                shared |= container.cpus
    if not shared:
        return Listing(view.pods)
    return Listing(
        tuple(
            replace(
                pod,
                containers=tuple(
                    replace(container, cpus=container.cpus & ~shared)
                    for container in pod.containers
                ),
            )
            for pod in view.pods
        ),
        shared,
    )


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
    owners: dict[object, list[str]] = {}
    for uid, key in _file_keys(view):
        owners.setdefault(key, []).append(uid)
    taken = set(uids.values())
    for pod in unknown:
        candidates = (uid for key in _listed_keys(pod) for uid in sorted(owners.get(key, ())))
        uid = next((uid for uid in candidates if uid not in taken), f"{pod.namespace}/{pod.name}")
        taken.add(uid)
        uids[pod.namespace, pod.name] = uid
    return uids


def active_uids(
    view: KubeletView,
    listing: Listing | None,
    pods: Sequence[NodePod] | None,
    uids: Mapping[Name, str],
    *,
    drop_unknown: bool,
) -> frozenset[str]:
    """The UIDs, of those that the state files name, whose pods the kubelet takes for active.

    The API rules: it shows a pod terminal or gone only after the kubelet has let go of it. What it
    does not show may still be alive where podresources lists its very CPUs (a static pod without a
    mirror). Without the API, podresources of the same moment tells.
    """
    named = _named(view) | set(uids.values())
    shown = set() if listing is None or not view.coherent else _listed_uids(listing, uids)
    if pods is None:
        if listing is None or not view.coherent:
            return frozenset(named)
        return frozenset(uid for uid in named if uid in shown or _is_undecided(view, listing, uid))
    alive = {pod.uid for pod in pods if not pod.terminal}
    ended = {pod.uid for pod in pods if pod.terminal}
    return frozenset(
        uid
        for uid in named
        if uid in alive or (uid not in ended and (uid in shown or not drop_unknown))
    )


def _named(view: KubeletView) -> set[str]:
    named: set[str] = set()
    if view.cpu:
        named |= view.cpu.entries.keys()
    if view.memory:
        named |= view.memory.entries.keys()
    if view.devices:
        named |= view.devices.entries.keys()
    if view.allocated:
        named |= view.allocated.pods.keys()
    return named


def _listed_uids(listing: Listing, uids: Mapping[Name, str]) -> set[str]:
    return {uids[pod.namespace, pod.name] for pod in listing.pods}


def _is_undecided(view: KubeletView, listing: Listing, uid: str) -> bool:
    """Whether a pod may be alive although podresources shows nothing of what it holds.

    Ordinary init containers are never listed, and a pod that holds nothing shows nothing.
    """
    holders: set[str] = set()
    for entries in (
        view.cpu.entries if view.cpu else {},
        view.memory.entries if view.memory else {},
        view.devices.entries if view.devices else {},
    ):
        holders |= entries.get(uid, {}).keys()
    known = view.allocated.pods.get(uid) if view.allocated else None
    if known is None:
        return not holders
    return any(
        names and names <= known and not names & holders
        for names in ({container.name for container in pod.containers} for pod in listing.pods)
    )


def _file_keys(view: KubeletView) -> Iterator[tuple[str, object]]:
    if view.cpu:
        for uid, containers in view.cpu.entries.items():
            for name, cpus in containers.items():
                yield uid, ("cpu", name, cpus)
    if view.devices:
        for uid, holders in view.devices.entries.items():
            for name, holdings in holders.items():
                for holding in holdings:
                    yield uid, ("device", name, holding.resource, frozenset(holding.devices))
    if view.memory:
        for uid, owners in view.memory.entries.items():
            for name, blocks in owners.items():
                yield uid, ("memory", name, frozenset(blocks))


def _listed_keys(pod: ListedPod) -> Iterator[object]:
    """What tells whose entry it is, the unmistakable first."""
    for container in pod.containers:
        if container.cpus:
            yield "cpu", container.name, container.cpus
        for holding in container.devices:
            yield "device", container.name, holding.resource, frozenset(holding.devices)
    for container in pod.containers:
        if container.memory:
            yield "memory", container.name, frozenset(container.memory)
