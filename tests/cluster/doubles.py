"""Real kubelets and their simulated doubles, held against each other pod by pod.

Each real node has a double: a simulated kubelet on the same hardware, with the same configuration
and release. Both get the same random pods. Before a pod is admitted its fate is predicted from what
the double holds; afterwards real kubelet, prediction and double must agree on verdict and reason,
CPU by CPU and byte by byte, and on all that the kubelet tells in files and over its socket.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors, placement, sysfs
from rte.kubelet import statefiles
from rte.kubelet.podresources import PodResources
from rte.model import bits, podspec
from rte.model.node import DevicePool
from rte.placement.kubelet import admission as kubelet_admission
from rte.placement.kubelet import outcome
from rte.sim.apiserver import API
from rte.sim.kubelet import Kubelet, views
from tests.cluster import pods, random_pods
from tests.cluster.test_differential_api import comparable, unlike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rte.model.kubelet import CPUManagerState, DeviceCheckpoint, ListedPod, MemoryManagerState
    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement import Admission
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

#: Reasons of the managers; all others come from the kubelet's predicates, after the managers.
_BY_MANAGERS = {
    outcome.TOPOLOGY_AFFINITY_ERROR,
    outcome.SMT_ALIGNMENT_ERROR,
    outcome.UNEXPECTED_ADMISSION_ERROR,
    "EmptyPodSharedPoolError",
}
_BREAKS = {outcome.KUBELET_HANGS, outcome.KUBELET_PANICS}
_MEMORY_TYPE = re.compile(r"(?<=container )hugepages-\w+(?= requests)|(?<=no )hugepages-\w+")
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
    #: What the real kubelet has made of the pod that the double is to admit next.
    _admitted: bool = False
    _classes: Mapping[str, Classes] = field(default_factory=dict)

    def execute(self, state: NodeState, pod: Pod) -> Admission:
        """The double's answer: the possible one with the devices that the real kubelet picked."""
        first = placement.execute(state, pod)
        tried = itertools.islice(kubelet_admission._executions(state, pod), _MOST_EXECUTIONS)
        for admission, _ in tried:
            got = {
                name: self.classes_of(held.devices)
                for name, held in admission.holdings.items()
                if held.devices
            }
            if admission.admitted == self._admitted and got == self._classes:
                return admission
        return first

    def follow(self, real: Object) -> None:
        """Take note of what the real kubelet did with a pod."""
        path = self.real.root / "device-plugins/kubelet_internal_checkpoint"
        entries = statefiles.parse_device_checkpoint(path.read_bytes()).entries
        held = entries.get(real["metadata"]["uid"], {})
        self._admitted = real["status"].get("reason", "") not in _BY_MANAGERS
        self._classes = {
            name: sum((self._classes_by_id(h.resource, h.devices) for h in holdings), Counter())
            for name, holdings in held.items()
        }

    def classes_of(self, masks: Mapping[str, int]) -> Classes:
        return Counter(
            (resource, self.devices[resource].zones[place])
            for resource, mask in masks.items()
            for place in bits.members(mask)
        )

    def _classes_by_id(self, resource: str, ids: Mapping[str, object]) -> Classes:
        pool = self.devices[resource]
        return Counter((resource, pool.zones[pool.ids.index(device)]) for device in ids)

    def plainly(
        self,
        cpu: CPUManagerState,
        memory: MemoryManagerState,
        checkpoint: DeviceCheckpoint,
        listed: Sequence[ListedPod],
    ) -> Object:
        """What a kubelet holds and tells, comparable between the two."""
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
            # The kubelet walks a Go map: the order of a container's blocks means nothing.
            "blocks": {
                named[uid]: {name: sorted(blocks, key=str) for name, blocks in held.items()}
                for uid, held in memory.entries.items()
            },
            "pod blocks": {
                named[uid]: sorted(blocks, key=str) for uid, blocks in memory.pod_entries.items()
            },
            "devices": {
                named[uid]: {
                    name: sum((self._classes_by_id(h.resource, h.devices) for h in got), Counter())
                    for name, got in held.items()
                }
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
                        sum(
                            (self._classes_by_id(h.resource, h.devices) for h in item.devices),
                            Counter(),
                        ),
                    )
                    for item in pod.containers
                }
                for pod in listed
            },
        }


class Doubles:
    """All pairs of a test, fed with the same kinds of pods."""

    def __init__(self, cluster: Cluster, pairs: Sequence[Pair], kinds: random_pods.Kinds) -> None:
        self.cluster = cluster
        self.pairs = pairs
        self.kinds = kinds
        self.api = API()
        self.runner = asyncio.Runner()

    @property
    def agreeing(self) -> list[Pair]:
        """Pairs without a difference so far."""
        return [pair for pair in self.pairs if not pair.differences]

    def round(self, number: int) -> None:
        """One more pod for each node, after some others have gone."""
        self._let_go()
        arrived = [(pair, *self._arrive(pair, number)) for pair in self.agreeing]
        for pair, sent, created in arrived:
            self._judge(pair, sent, created)
        for pair, *_ in arrived:
            self._compare(pair, f"after {number}")

    def _let_go(self) -> None:
        leaving = [
            (pair, pair.alive.pop(pair.chooser.choice(sorted(pair.alive))))
            for pair in self.agreeing
            if len(pair.alive) > 4 and pair.chooser.random() < 0.6
        ]
        for _, pod in leaving:
            self.cluster.api.delete(pods.path(pod))
            self.api.delete("pods", pod["metadata"]["name"], "default")
        for _, pod in leaving:
            self.cluster.wait_pod(pod, lambda obj: obj is None)
            self._settle(pod["metadata"]["name"], lambda obj: obj is None)

    def _arrive(self, pair: Pair, number: int) -> tuple[Object, Object]:
        """Create a pod that the real kubelet will survive, and that will not wait for devices when
        it starts; as sent and as stored.
        """
        name = f"{pair.real.name}-p{number}"
        while True:
            pod = random_pods.draw(pair.chooser, self.kinds, name=name, node=pair.real.name)
            predicted = self._predict(pair, podspec.parse_pod(pod))
            if predicted.reason in _BREAKS or _starves(predicted, podspec.parse_pod(pod)):
                continue
            return pod, self.cluster.create_pod(pod)

    def _predict(self, pair: Pair, pod: Pod) -> Admission:
        active = frozenset(uid for uid, name in pair.names.items() if name in pair.alive)
        return placement.admit(placement.settle(pair.double.state, active), pod)

    def _judge(self, pair: Pair, sent: Object, created: Object) -> None:
        """Hold prediction and double against the real kubelet's answer."""
        name = created["metadata"]["name"]
        predicted = self._predict(pair, podspec.parse_pod(created))
        real = self.cluster.wait_pod(created, told)
        pair.follow(real)
        stored = self.api.create("pods", sent, "default")
        pair.names |= {obj["metadata"]["uid"]: name for obj in (created, stored)}
        self._settle(name, told)
        double = self.api.get("pods", name, "default")
        refused = real["status"]["phase"] == "Failed"
        pair.counts.update(pods=1, refused=refused, uncertain=predicted.verdict == "uncertain")
        found = list(unlike(_kept(created), _kept(stored)))
        if verdict(real) != verdict(double):
            found.append(f"    real {verdict(real)}, double {verdict(double)}")
        expected = (predicted.verdict, predicted.reason)
        got = ("admitted", "") if pair._admitted else ("refused", real["status"].get("reason"))
        if predicted.verdict != "uncertain" and expected != got:
            found.append(f"    real {got}, predicted {expected}: {predicted.message}")
        if not refused and not found:
            pair.alive[name] = self.cluster.wait_pod(real, _all_started)
            self._settle(name, _all_started)
        pair.history.append(f"{name}: {verdict(real)} {_asked(created)}")
        if found:
            pair.differences += [*pair.history[-3:], *found]

    def _compare(self, pair: Pair, when: str) -> None:
        if pair.differences:
            return
        root, double = pair.real.root, pair.double
        real_tells = pair.plainly(
            statefiles.parse_cpu_state((root / statefiles.CPU_STATE).read_bytes()),
            statefiles.parse_memory_state((root / statefiles.MEMORY_STATE).read_bytes()),
            statefiles.parse_device_checkpoint(
                (root / "device-plugins/kubelet_internal_checkpoint").read_bytes()
            ),
            self.runner.run(_listed(pair.real)),
        )
        double_tells = pair.plainly(
            views.cpu_state(double.state),
            views.memory_state(double.state),
            views.device_checkpoint(double.state),
            double.listed(),
        )
        found = [
            f"{pair.real.name} {when}: {part}:\n    real   {real_tells[part]}\n"
            f"    double {double_tells[part]}"
            for part in real_tells
            if real_tells[part] != double_tells[part]
        ]
        if found:
            pair.differences += [*pair.history[-3:], *found]

    def _settle(self, name: str, done: Callable[[Object | None], bool]) -> None:
        """Let the doubles work until a pod is as wanted."""

        async def work() -> None:
            async with asyncio.timeout(5):
                while not done(self.api.store.get("pods", ("default", name))):
                    await asyncio.sleep(0)

        self.runner.run(work())


@contextmanager
def doubles(
    cluster: Cluster, nodes: Sequence[Node], kinds: random_pods.Kinds, seed: int
) -> Iterator[Doubles]:
    """Doubles of nodes while they run."""
    pairs = []
    for node in nodes:
        pools = {name: _pool(listed) for name, listed in node.devices().items()}
        pairs.append(Pair(node, random.Random(f"{seed} {node.name}"), pools))
    both = Doubles(cluster, pairs, kinds)
    with both.runner:
        try:
            for pair in pairs:
                node = pair.real
                pair.double = Kubelet(
                    both.api,
                    node.name,
                    sysfs.read_machine(node.machine / "sys", node.machine / "proc"),
                    node.config,
                    devices=pair.devices,
                    version=f"v{node.version}",
                    execute=pair.execute,
                )
                both.runner.run(pair.double.start())
            yield both
        finally:
            for pair in pairs:
                both.runner.run(pair.double.stop())


def told(pod: Object | None) -> bool:
    """Whether a kubelet has said yes or no to a pod."""
    return pod is not None and "startTime" in pod["status"]


def verdict(pod: Object) -> tuple[str, str, str]:
    """Admitted or refused, reason and text."""
    shown = pod["status"]
    if shown.get("phase") != "Failed":
        return "admitted", "", ""
    # Which type of memory it names first depends on the order of a Go map.
    text = _MEMORY_TYPE.sub("memory", shown.get("message", ""))
    return "refused", shown.get("reason", ""), text


def _all_started(pod: Object | None) -> bool:
    """Whether all containers run: then the memory of ordinary init containers is free again."""
    if pod is None or pod["status"].get("phase") != "Running":
        return False
    return all("running" in item["state"] for item in pod["status"]["containerStatuses"])


def _kept(stored: Object) -> Object:
    """What both API servers must have made of a pod."""
    spec = stored["spec"]
    parts = {key: spec.get(key) for key in ("containers", "initContainers", "resources")}
    return comparable(parts | {"qosClass": stored["status"]["qosClass"]})


def _asked(pod: Object) -> str:
    """What a pod asks for, container by container."""
    spec = pod["spec"]
    parts = [f"pod {spec['resources']}"] if spec.get("resources") else []
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        kind = " sidecar" if container.get("restartPolicy") else ""
        parts.append(f"{container['name']}{kind} {container['resources']}")
    return "; ".join([pod["status"]["qosClass"], *parts])


def _starves(predicted: Admission, pod: Pod) -> bool:
    """Whether a container would find no devices at its start, and try again for ever."""
    if not predicted.admitted:
        return False
    return bool(placement.start_containers(predicted.state, pod, predicted.hints).failed)


async def _listed(node: Node, tries: int = 20) -> tuple[ListedPod, ...]:
    """Podresources ``List``; a machine under load may take long over a connection."""
    async with PodResources(str(node.podresources_socket)) as client:
        while True:
            try:
                return await client.list()
            except errors.KubeletError:
                tries -= 1
                if not tries:
                    raise


def _pool(listed: Sequence[Mapping[str, Any]]) -> DevicePool:
    rows = sorted((item["id"], item["zones"]) for item in listed)
    return DevicePool(
        ids=tuple(name for name, _ in rows),
        zones=tuple(None if zones is None else bits.of(zones) for _, zones in rows),
        healthy=(1 << len(rows)) - 1,
    )
