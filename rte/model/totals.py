"""What a pod counts for on node level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.pod import ContainerKind

if TYPE_CHECKING:
    from rte.model.pod import Pod


def totals_of(pod: Pod) -> dict[str, int]:
    """What a pod's requests count for on node level, ``pods`` included.

    The rule of k8s.io/component-helpers/resource.PodRequests (KEP-753, KEP-2837): sidecars run
    beside what comes after them, ordinary init containers one at a time; the pod-level stanza
    replaces the sum; overhead comes on top. Sums beyond int64 are capped.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.containers:
        if container.kind is ContainerKind.INIT:
            beside = quantity.total([running, container.requests])
            peak |= {name: max(peak.get(name, 0), beside[name]) for name in container.requests}
            continue
        quantity.add(running, container.requests)
        if container.kind is ContainerKind.SIDECAR:
            for name, amount in running.items():
                peak[name] = max(peak.get(name, 0), amount)
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in {**running, **peak}}
    # Other resources cannot be asked for on pod level (resource.IsSupportedPodLevelResource).
    total.update(
        (name, amount)
        for name, amount in (pod.pod_requests or {}).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    )
    quantity.add(total, pod.overhead)
    total["pods"] = 1
    return {name: amount for name, amount in sorted(total.items()) if amount}
