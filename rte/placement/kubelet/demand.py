"""What CPU and memory manager see of a pod: which containers they serve, and what these ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.pod import QOS, ContainerKind
from rte.model.totals import peak
from rte.placement.kubelet import devices, memory, merge
from rte.placement.kubelet.cpu import static
from rte.placement.kubelet.rules import has_pod_level_resources

if TYPE_CHECKING:
    from collections.abc import Collection

    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.rules import KubeletRules


def is_served(pod: Pod, rules: KubeletRules) -> bool:
    """Whether CPU and memory manager have anything to do with the pod."""
    return pod.qos is QOS.GUARANTEED and not (
        rules.pod_level_ignored and has_pod_level_resources(pod)
    )


def is_pod_level(pod: Pod, rules: KubeletRules) -> bool:
    """Whether the pod is one of those that the gate PodLevelResourceManagers is about."""
    return rules.pod_level_managers and has_pod_level_resources(pod)


def is_one_piece(pod: Pod, rules: KubeletRules) -> bool:
    """Whether CPUs and memory are taken for the pod as a whole, and devices when it starts."""
    return is_pod_level(pod, rules) and rules.pod_scope and rules.policy != merge.NONE


def cpus_of(pod: Pod, container: Container, rules: KubeletRules) -> int:
    """CPUs that a container gets for itself; 0 for one in a shared pool."""
    if rules.cpu is None or not is_served(pod, rules):
        return 0
    if is_pod_level(pod, rules) and not is_eligible(container):
        return 0
    return static.exclusive_cpus(pod, container)


def cpus_of_pod(pod: Pod, rules: KubeletRules) -> int:
    """CPUs that the pod needs at its peak, or all that its stanza asks for (podGuaranteedCPUs)."""
    if rules.cpu is None or not is_served(pod, rules):
        return 0
    if not is_pod_level(pod, rules):
        return static.pod_exclusive_cpus(pod)
    milli = pod.pod_requests.get("cpu", 0) if pod.pod_requests else 0
    return 0 if milli % 1000 else milli // 1000


def memory_of(pod: Pod, container: Container, rules: KubeletRules) -> dict[str, int]:
    """What a container asks of the memory manager, by resource name."""
    if not rules.memory or not is_served(pod, rules):
        return {}
    if is_pod_level(pod, rules) and not is_eligible(container):
        return {}
    return memory.requested(container.requests)


def memory_of_pod(pod: Pod, rules: KubeletRules) -> dict[str, int]:
    """Memory that the pod needs at its peak, or all that its stanza asks for."""
    if not rules.memory or not is_served(pod, rules):
        return {}
    if not is_pod_level(pod, rules):
        return memory.pod_requested(pod)
    stanza = memory.requested(pod.pod_requests or {})
    return {name: amount for name, amount in stanza.items() if amount}


def zonal_demand(
    pod: Pod, container: Container, rules: KubeletRules, pools: Collection[str]
) -> dict[str, int]:
    """What a container asks the managers for: CPUs (whole), bytes and devices.

    ``pools``: resources that have a device pool.
    """
    wanted = {
        **devices.requested(container, pools),
        **memory_of(pod, container, rules),
        "cpu": cpus_of(pod, container, rules),
    }
    return {name: amount for name, amount in wanted.items() if amount}


def asking_containers(pod: Pod, rules: KubeletRules, pools: Collection[str]) -> list[Container]:
    """Containers for which the managers have anything to do."""
    asks_memory = rules.memory and is_served(pod, rules)
    return [
        container
        for container in pod.containers
        if asks_memory or devices.requested(container, pools) or cpus_of(pod, container, rules)
    ]


def units_of(pod: Pod, rules: KubeletRules, pools: Collection[str]) -> list[dict[str, int]] | None:
    """What has to be found at once each, in the order in which it is served: containers, or the pod
    under pod scope; None where that is not all that its admission looks at.
    """
    if is_pod_level(pod, rules):
        return None
    asking = asking_containers(pod, rules, pools)
    if any(container.kind is ContainerKind.INIT for container in asking):
        return None
    units = [zonal_demand(pod, container, rules, pools) for container in asking]
    if not rules.pod_scope:
        return units
    return [quantity.total(units)] if merge_sees_all(pod) else None


def peak_of(pod: Pod, rules: KubeletRules, pools: Collection[str]) -> dict[str, int]:
    """What the pod holds at once at the least, wherever it is."""
    return peak(pod.containers, lambda container: zonal_demand(pod, container, rules, pools))


def merge_sees_all(pod: Pod) -> bool:
    """Whether the pod-scope merge knows of all memory: it leaves out what no app container asks."""
    asked = {name for box in pod.containers for name in memory.requested(box.requests)}
    return asked <= memory.pod_requested(pod).keys()


def is_eligible(container: Container) -> bool:
    """Whether a container of a pod with pod-level resources can have CPUs and memory of its own:
    CPU and memory are limited to what they request (IsContainerEquivalentQOSGuaranteed).
    """
    return all(
        container.requests.get(name, 0) == container.limits.get(name, 0) > 0
        for name in ("cpu", memory.MEMORY)
    )
