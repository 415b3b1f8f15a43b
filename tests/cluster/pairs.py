"""A real node and its simulated double: what they hold and tell, in words that compare."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors, placement
from rte.kubelet import statefiles
from rte.kubelet.podresources import PodResources
from rte.model import bits
from rte.model.node import DevicePool
from rte.placement.kubelet import admission as kubelet_admission
from rte.placement.kubelet import outcome
from rte.sim.kubelet import views

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.kubelet import (
        CPUManagerState,
        DeviceCheckpoint,
        DeviceHolding,
        ListedPod,
        MemoryManagerState,
    )
    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement import Admission
    from rte.sim.kubelet import Kubelet
    from tests.cluster.api import Object
    from tests.cluster.node import Node

#: Reasons of the managers; all others come from the kubelet's predicates, after the managers.
_BY_MANAGERS = {
    outcome.TOPOLOGY_AFFINITY_ERROR,
    outcome.SMT_ALIGNMENT_ERROR,
    outcome.UNEXPECTED_ADMISSION_ERROR,
    outcome.EMPTY_POD_SHARED_POOL_ERROR,
}
_MEMORY_TYPE = re.compile(r"(?<=container )hugepages-\w+(?= requests)|(?<=no )hugepages-\w+")
_DEVICES_LACKING = re.compile(r"devices unavailable for \S+ Requested: \d+, Available: \d+")
#: Executions that are looked through for the one that a real kubelet has chosen.
_MOST_EXECUTIONS = 2000

#: How many devices of each resource and zones a container has: which of them is a matter of chance.
Classes = Counter[tuple[str, object]]


@dataclass
class Pair:
    """A real node and its double, and the pods that both have.

    Attributes:
        alive: admitted pods by name, as the real API server shows them.
        names: UID on either side -> pod name.
        counts: of pods, refusals and predictions that were uncertain.
        differences: what they did not agree on; after the first one their ways part.
        history: what became of each pod, one line each.
        start_error: why neither of them started again, or was asked to.
        refusals: how many the double had told before it was restarted.
    """

    real: Node
    chooser: random.Random
    devices: Mapping[str, DevicePool]
    double: Kubelet = field(init=False)
    alive: dict[str, Object] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    start_error: str = ""
    refusals: int = 0
    #: What the real kubelet's managers have made of the pod that the double is to admit next.
    admitted: bool = False
    classes: Mapping[str, Classes] = field(default_factory=dict)

    def execute(self, state: NodeState, pod: Pod) -> Admission:
        """The double's answer: the possible one with the devices that the real kubelet picked."""
        first = placement.execute(state, pod)
        tried = itertools.islice(kubelet_admission._executions(state, pod), _MOST_EXECUTIONS)
        for admission, _ in tried:
            got = {
                name: self._classes_of(held.devices)
                for name, held in admission.holdings.items()
                if held.devices
            }
            if admission.admitted == self.admitted and got == self.classes:
                return admission
        return first

    def follow(self, real: Object) -> None:
        """Take note of what the real kubelet did with a pod."""
        path = self.real.root / "device-plugins/kubelet_internal_checkpoint"
        entries = statefiles.parse_device_checkpoint(path.read_bytes()).entries
        held = entries.get(real["metadata"]["uid"], {})
        self.admitted = real["status"].get("reason", "") not in _BY_MANAGERS
        self.classes = {name: self._classes_by_id(holdings) for name, holdings in held.items()}

    def real_tells(self, listed: Sequence[ListedPod]) -> Object:
        """What the real kubelet's files and its podresources say."""
        root = self.real.root
        return self._plainly(
            statefiles.parse_cpu_state((root / statefiles.CPU_STATE).read_bytes()),
            statefiles.parse_memory_state((root / statefiles.MEMORY_STATE).read_bytes()),
            statefiles.parse_device_checkpoint(
                (root / "device-plugins/kubelet_internal_checkpoint").read_bytes()
            ),
            listed,
        )

    def double_tells(self) -> Object:
        """What its double says."""
        state = self.double.state
        return self._plainly(
            views.cpu_state(state),
            views.memory_state(state),
            views.device_checkpoint(state),
            self.double.listed(),
        )

    def _classes_of(self, masks: Mapping[str, int]) -> Classes:
        return Counter(
            (resource, self.devices[resource].zones[place])
            for resource, mask in masks.items()
            for place in bits.members(mask)
        )

    def _classes_by_id(self, holdings: Iterable[DeviceHolding]) -> Classes:
        pools = self.devices
        return Counter(
            (held.resource, pools[held.resource].zones[pools[held.resource].ids.index(device)])
            for held in holdings
            for device in held.devices
        )

    def _plainly(
        self,
        cpu: CPUManagerState,
        memory: MemoryManagerState,
        checkpoint: DeviceCheckpoint,
        listed: Sequence[ListedPod],
    ) -> Object:
        named = self.names
        return {
            "shared": bits.format_list(cpu.default),
            "cpus": {
                named[uid]: {name: bits.format_list(cpus) for name, cpus in held.items()}
                for uid, held in cpu.entries.items()
            },
            "pod cpus": {
                named[uid]: bits.format_list(cpus) for uid, cpus in cpu.pod_entries.items()
            },
            "rows": dict(memory.zones),
            # The kubelet walks a Go map: the order of a container's blocks means nothing. Under the
            # gate, 1.36 also writes down that a container has none.
            "blocks": {
                named[uid]: {
                    name: sorted(blocks, key=str) for name, blocks in held.items() if blocks
                }
                for uid, held in memory.entries.items()
                if any(held.values())
            },
            "pod blocks": {
                named[uid]: sorted(blocks, key=str) for uid, blocks in memory.pod_entries.items()
            },
            "devices": {
                named[uid]: {name: self._classes_by_id(got) for name, got in held.items()}
                for uid, held in checkpoint.entries.items()
                # Others are gone; the device manager writes for the next pod with a device only.
                if named.get(uid) in self.alive
            },
            "podresources": {
                pod.name: {"": (bits.format_list(pod.cpus), sorted(pod.memory, key=str))}
                | {
                    item.name: (
                        bits.format_list(item.cpus),
                        sorted(item.memory, key=str),
                        self._classes_by_id(item.devices),
                    )
                    for item in pod.containers
                }
                for pod in listed
            },
        }


def told(pod: Object | None) -> bool:
    """Whether a kubelet has said yes or no to a pod."""
    return pod is not None and "startTime" in pod["status"]


def verdict(pod: Object) -> tuple[str, str, str]:
    """Admitted or refused, reason and text.

    Which of several resources a text names depends on the order of a Go map.
    """
    shown, spec = pod["status"], pod["spec"]
    if shown.get("phase") != "Failed":
        return "admitted", "", ""
    text = _MEMORY_TYPE.sub("memory", shown.get("message", ""))
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    limits = [container["resources"].get("limits", {}) for container in containers]
    if any(sum("/" in name for name in names) > 1 for names in limits):
        text = _DEVICES_LACKING.sub("devices unavailable", text)
    return "refused", shown.get("reason", ""), text


def asked(pod: Object) -> str:
    """What a pod asks for, container by container."""
    spec = pod["spec"]
    parts = [f"pod {spec['resources']}"] if spec.get("resources") else []
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        kind = " sidecar" if container.get("restartPolicy") else ""
        parts.append(f"{container['name']}{kind} {container['resources']}")
    return "; ".join([pod["status"]["qosClass"], *parts])


async def listed(node: Node, patience_seconds: float = 60) -> tuple[ListedPod, ...]:
    """Podresources ``List``; a machine under load may take long over a connection."""
    until = time.monotonic() + patience_seconds
    async with PodResources(str(node.podresources_socket)) as client:
        while True:
            try:
                return await client.list()
            except errors.KubeletError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)


def pool_of(listed: Sequence[Mapping[str, Any]]) -> DevicePool:
    rows = sorted((item["id"], item["zones"]) for item in listed)
    return DevicePool(
        ids=tuple(name for name, _ in rows),
        zones=tuple(None if zones is None else bits.of(zones) for _, zones in rows),
        healthy=(1 << len(rows)) - 1,
    )
