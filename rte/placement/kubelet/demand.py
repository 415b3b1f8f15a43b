"""What CPU and memory manager see of a pod: which containers they serve, and what these ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.pod import QOS, ContainerKind
from rte.model.quantity import ZoneAmounts
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


@dataclass(frozen=True, eq=False)
class Demand:
    """What a pod asks of the managers of a kubelet: the ground of every bound and count of zones.

    Attributes:
        pod: that asks.
        rules: of the kubelet.
        pools: resources that have a device pool.
    """

    pod: Pod
    rules: KubeletRules
    pools: Collection[str]

    def of(self, container: Container) -> ZoneAmounts:
        """What a container asks for: CPUs (whole), bytes and devices."""
        wanted = {
            **devices.requested(container, self.pools),
            **memory_of(self.pod, container, self.rules),
            "cpu": cpus_of(self.pod, container, self.rules),
        }
        return ZoneAmounts({name: amount for name, amount in wanted.items() if amount})

    @property
    def each(self) -> list[ZoneAmounts]:
        """What each container asks for, in the order in which they are served."""
        return [self.of(container) for container in self.pod.containers]

    @property
    def peak(self) -> ZoneAmounts:
        """What the pod holds at once at the least, wherever it is."""
        return ZoneAmounts(peak(self.pod.containers, self.of))

    @property
    def asking(self) -> list[Container]:
        """Containers for which the managers have anything to do."""
        if self.rules.memory and is_served(self.pod, self.rules):
            return list(self.pod.containers)
        return [container for container in self.pod.containers if self.of(container)]

    @property
    def units(self) -> list[ZoneAmounts] | None:
        """What has to be found at once each, in the order in which it is served: containers, or the
        pod under pod scope; None where that is not all that its admission looks at.
        """
        if is_pod_level(self.pod, self.rules):
            return None
        asking = self.asking
        if any(container.kind is ContainerKind.INIT for container in asking):
            return None
        units = [self.of(container) for container in asking]
        if not self.rules.pod_scope:
            return units
        return [ZoneAmounts(quantity.total(units))] if self.is_seen_whole else None

    @property
    def is_one_unit(self) -> bool:
        """Whether one merge places all that the pod asks for."""
        if is_pod_level(self.pod, self.rules):  # its devices are taken later, one by one
            return False
        if self.rules.pod_scope:
            return self.is_seen_whole
        asking = self.asking
        return len(asking) == 1 and asking[0].kind is not ContainerKind.INIT

    @property
    def is_seen_whole(self) -> bool:
        """Whether a pod-scope merge knows of all memory: it leaves out what no app container asks
        for.
        """
        boxes = self.pod.containers
        asked = {name for box in boxes for name in memory.requested(box.requests)}
        return asked <= memory.pod_requested(self.pod).keys()


def is_eligible(container: Container) -> bool:
    """Whether a container of a pod with pod-level resources can have CPUs and memory of its own:
    CPU and memory are limited to what they request (IsContainerEquivalentQOSGuaranteed).
    """
    return all(
        container.requests.get(name, 0) == container.limits.get(name, 0) > 0
        for name in ("cpu", memory.MEMORY)
    )
