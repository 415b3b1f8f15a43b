"""What a pod counts for on node level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.pod import ContainerKind
from rte.model.quantity import ResourceList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.model.pod import Container, Pod


def peak(
    containers: Iterable[Container], asked: Callable[[Container], Mapping[str, int]]
) -> dict[str, int]:
    """The most that a pod has at once of what its containers ask for (KEP-753).

    Its long-running containers, or an ordinary init container together with the sidecars that were
    started before it. Sums beyond int64 are capped.
    """
    apps: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in containers:
        wanted = asked(container)
        if container.kind is ContainerKind.APP:
            quantity.add(apps, wanted)
        elif container.kind is ContainerKind.SIDECAR:
            quantity.add(sidecars, wanted)
        else:
            for name, amount in wanted.items():
                beside = quantity.capped(sidecars.get(name, 0) + amount)
                most[name] = max(most.get(name, 0), beside)
    quantity.add(apps, sidecars)
    return {name: max(apps.get(name, 0), most.get(name, 0)) for name in {**apps, **most}}


def totals_of(pod: Pod) -> ResourceList:
    """What a pod's requests count for on node level, ``pods`` included.

    The rule of k8s.io/component-helpers/resource.PodRequests (KEP-753, KEP-2837): sidecars run
    beside what comes after them, ordinary init containers one at a time; the pod-level stanza
    replaces the sum; overhead comes on top. Sums beyond int64 are capped.
    """
    total = peak(pod.containers, lambda container: container.requests)
    # Other resources cannot be asked for on pod level (resource.IsSupportedPodLevelResource).
    total.update(
        (name, amount)
        for name, amount in (pod.pod_requests or {}).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    )
    quantity.add(total, pod.overhead)
    total["pods"] = 1
    return ResourceList({name: amount for name, amount in sorted(total.items()) if amount})
