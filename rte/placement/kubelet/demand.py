"""The ground of every bound, count and score of zones: what a pod asks of CPU and memory manager
(:class:`Demand`: which containers they serve, and what these ask for), and what a node can still
give exclusively (:class:`Free`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.k8s import podspec
from rte.model import quantity
from rte.model.pod import QOS, ContainerKind
from rte.model.quantity import ZoneAmounts
from rte.model.totals import peak
from rte.placement.kubelet import memory, merge

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rte.model.bits import Mask, ZoneSet
    from rte.model.node import NodeState, ZoneMemory
    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.rules import KubeletRules


def has_pod_level_resources(pod: Pod) -> bool:
    """Whether the pod-level stanza names a resource that it may (IsPodLevelResourcesSet)."""
    if not pod.pod_requests and not pod.pod_limits:
        return False
    return any(
        name in ("cpu", "memory") or name.startswith("hugepages-")
        for stanza in (pod.pod_requests, pod.pod_limits)
        for name in stanza or ()
    )


def qos_class(pod: Pod, rules: KubeletRules) -> QOS:
    """The class that the kubelet itself computes for a pod whose status names none: a static pod
    (GetPodQOS); a class in the status wins.
    """
    requests, limits = pod.pod_requests, pod.pod_limits
    if not rules.stanza_sets_qos:
        requests = limits = None
    elif (requests is not None or limits is not None) and not has_pod_level_resources(pod):
        if not rules.empty_stanza_absent:
            return QOS.BEST_EFFORT
        requests = limits = None
    return podspec.qos_class(pod.containers, requests, limits, by_container=rules.qos_by_container)


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


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """CPUs that a container gets for itself: a whole request in a Guaranteed pod, else 0."""
    milli = container.requests.get("cpu", 0)
    return milli // 1000 if pod.qos is QOS.GUARANTEED and milli % 1000 == 0 else 0


def pod_exclusive_cpus(pod: Pod) -> int:
    """CPUs that the pod needs at its peak."""
    return peak(pod.containers, lambda container: {"cpu": exclusive_cpus(pod, container)}).get(
        "cpu", 0
    )


def is_memory(name: str) -> bool:
    """Memory and huge pages: resources of the memory manager."""
    return name == memory.MEMORY or name.startswith("hugepages-")


def memory_requested(requests: Mapping[str, int]) -> dict[str, int]:
    """The memory and huge pages among the requests of a container or a pod, by resource name."""
    return {name: amount for name, amount in sorted(requests.items()) if is_memory(name)}


def pod_memory_requested(pod: Pod) -> dict[str, int]:
    """Peak of the pod, as for CPUs; resources that only init containers ask for are left out."""
    most = peak(pod.containers, lambda container: memory_requested(container.requests))
    kept = {
        name
        for container in pod.containers
        if container.kind is ContainerKind.APP
        for name in memory_requested(container.requests)
    }
    return {name: most[name] for name in sorted(kept)}


def devices_requested(container: Container, pools: Collection[str]) -> dict[str, int]:
    """Limits on resources that have a device pool, by resource name."""
    return {name: amount for name, amount in sorted(container.limits.items()) if name in pools}


def pod_devices_requested(pod: Pod, pools: Collection[str]) -> dict[str, int]:
    """Peak of the pod, as for CPUs (resource helpers, PodLimits)."""
    most = peak(pod.containers, lambda container: devices_requested(container, pools))
    return dict(sorted(most.items()))


def cpus_of(pod: Pod, container: Container, rules: KubeletRules) -> int:
    """CPUs that a container gets for itself; 0 for one in a shared pool."""
    if rules.cpu is None or not is_served(pod, rules):
        return 0
    if is_pod_level(pod, rules) and not is_eligible(container):
        return 0
    return exclusive_cpus(pod, container)


def by_container(pod: Pod, rules: KubeletRules) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """What each container gets for itself: CPUs, and what it asks of the memory manager."""
    cpus = {each.name: cpus_of(pod, each, rules) for each in pod.containers}
    return cpus, {each.name: memory_of(pod, each, rules) for each in pod.containers}


def cpus_of_pod(pod: Pod, rules: KubeletRules) -> int:
    """CPUs that the pod needs at its peak, or all that its stanza asks for (podGuaranteedCPUs)."""
    if rules.cpu is None or not is_served(pod, rules):
        return 0
    if not is_pod_level(pod, rules):
        return pod_exclusive_cpus(pod)
    milli = pod.pod_requests.get("cpu", 0) if pod.pod_requests else 0
    return 0 if milli % 1000 else milli // 1000


def memory_of(pod: Pod, container: Container, rules: KubeletRules) -> dict[str, int]:
    """What a container asks of the memory manager, by resource name."""
    if not rules.memory or not is_served(pod, rules):
        return {}
    if is_pod_level(pod, rules) and not is_eligible(container):
        return {}
    return memory_requested(container.requests)


def memory_of_pod(pod: Pod, rules: KubeletRules) -> dict[str, int]:
    """Memory that the pod needs at its peak, or all that its stanza asks for."""
    if not rules.memory or not is_served(pod, rules):
        return {}
    if not is_pod_level(pod, rules):
        return pod_memory_requested(pod)
    stanza = memory_requested(pod.pod_requests or {})
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
            **devices_requested(container, self.pools),
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
        asked = {name for box in boxes for name in memory_requested(box.requests)}
        return asked <= pod_memory_requested(self.pod).keys()


def is_eligible(container: Container) -> bool:
    """Whether a container of a pod with pod-level resources can have CPUs and memory of its own:
    CPU and memory are limited to what they request (IsContainerEquivalentQOSGuaranteed).
    """
    return all(
        container.requests.get(name, 0) == container.limits.get(name, 0) > 0
        for name in ("cpu", memory.MEMORY)
    )


@dataclass(frozen=True)
class Free:
    """What is free on a node.

    Attributes:
        zones: id -> what is free there, in id order. CPUs are those that may be assigned; memory is
            what its manager counts; a device on several zones is in each, one without a zone in
            none, and resources of which no device has a zone are not listed.
        devices: resource -> free devices, wherever they are.
        grouped: zones whose memory serves only allocations that take it together with others'.
    """

    zones: Mapping[int, ZoneAmounts]
    devices: Mapping[str, int]
    grouped: ZoneSet

    @property
    def total(self) -> ZoneAmounts:
        """Of all zones together, and of none."""
        return ZoneAmounts(quantity.total(self.zones.values()) | dict(self.devices))

    @property
    def single(self) -> dict[int, ZoneAmounts]:
        """What is free for units of one zone: no memory where zones are grouped."""
        return {
            zone: ZoneAmounts({n: 0 if is_memory(n) else amount for n, amount in amounts.items()})
            if self.grouped >> zone & 1
            else amounts
            for zone, amounts in self.zones.items()
        }


def free_of(state: NodeState) -> Free:
    """What is free on a node in this state."""
    assignable = state.shared & ~state.reserved
    unused = unused_devices(state)
    zonal = {name: mask for name, mask in unused.items() if any(state.devices[name].by_zones)}
    zones, grouped = {}, 0
    for zone, cpus in state.topology.zone_cpus.items():
        amounts = {"cpu": (cpus & assignable).bit_count()}
        row = state.memory.get(zone)
        if row is not None:
            amounts |= {name: each.free for name, each in row.amounts.items()}
            grouped |= is_grouped(row) << zone
        for name, mask in zonal.items():
            amounts[name] = (state.devices[name].in_zone(zone) & mask).bit_count()
        zones[zone] = ZoneAmounts(amounts)
    return Free(zones, {name: mask.bit_count() for name, mask in unused.items()}, grouped)


def times(free: Mapping[str, int], unit: Mapping[str, int]) -> int:
    """How many such units it holds; resources that it does not know bound nothing."""
    most = quantity.MOST
    for name, amount in unit.items():
        if name in free:
            most = min(most, free[name] // amount)
    return most


def unused_devices(state: NodeState) -> dict[str, Mask]:
    """Resource -> its devices that are healthy and that nobody holds."""
    if not state.devices:
        return {}
    held: dict[str, Mask] = {}
    for containers in state.holdings.values():
        for holding in containers.values():
            for name, mask in holding.devices.items():
                held[name] = held.get(name, 0) | mask
    return {name: pool.healthy & ~held.get(name, 0) for name, pool in state.devices.items()}


def is_grouped(row: ZoneMemory) -> bool:
    """Whether the zone's memory serves only allocations that take it together with others."""
    return row.group & (row.group - 1) != 0
