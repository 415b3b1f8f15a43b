"""The whole agent in this process, without a socket: files that are damaged, observer and publisher."""

# ruff: noqa: E501 - documents read best in one line

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.agent.observer import messages
from rte.agent.observer.machine import Observer
from rte.agent.publisher import messages as published
from rte.agent.publisher.machine import Publisher
from rte.agent.settings import AgentSettings
from rte.agent.sources import NodeReader
from rte.kubelet import PLUGIN_DIR, podresources
from rte.kubelet._pb import podresources_pb2 as pb
from rte.model.node import ConfigSource, KubeletConfig
from rte.nrt import decode
from rte.sysfs import read_machine
from rte.telemetry.effects import Said
from tests.fuzz import memory
from tests.fuzz.scheduler import CPU_S, Finding
from tests.fuzz.values import ODD, TEXTS, damaged, document, keys, varied
from tests.unit.agent.kubelets import FIXTURES, FakeKubelet
from tests.unit.agent.test_pods import pod

if TYPE_CHECKING:
    from rte.model.kubelet import Allocatable, ListedPod

BATCH = 40
_MACHINE = FIXTURES / "16-2s-hugepages"
_FILES = (
    "cpu_manager_state",
    "allocated_pods_state",
    "memory_manager_state",
    f"{PLUGIN_DIR}/kubelet_internal_checkpoint",
)


class Agent:
    """Observer and publisher of one node, and the kubelet that they look at."""

    def __init__(self, root: Path) -> None:
        hardware = read_machine(_MACHINE / "sys", _MACHINE / "proc")
        self.kubelet = _Kubelet(root, hardware.online)
        self.kubelet.start()
        settings = AgentSettings(
            node_name="n0", kubelet_state_dir=root, device_plugin_dir=root / PLUGIN_DIR
        )
        self.sources = NodeReader(
            machine=lambda: hardware,
            learner=self._learn,
            state_dir=root,
            plugin_dir=root / PLUGIN_DIR,
            podresources=self.kubelet,
            socket=self.kubelet.socket,
        )
        self.observer = Observer(settings.scope(pods=True), quarantine=self.sources.quarantine)
        self.publisher = Publisher()
        self.faults: list[str] = []
        self.objects: list[dict[str, Any]] = []
        self.now = 1000.0
        self.feed(messages.PodsListed(()))
        self.feed(messages.MachineRead(hardware))
        self.look()

    async def _learn(self, _memory: int, _patient: bool) -> Any:
        raise errors.KubeletError("unused")

    def feed(self, event: Any) -> None:
        for effect in self.observer.handle(event, self.now):
            match effect:
                case messages.ReadFiles():
                    self.feed(self.sources.read_files(effect))
                case messages.Ask():
                    self.feed(asyncio.run(self.sources.ask(effect)))
                case messages.Learn():
                    config = KubeletConfig(
                        cpu_policy="static", reserved_cpus=1, source=ConfigSource.CONFIGZ
                    )
                    facts = messages.NodeObjectFacts(uid="u", version="v1.35.4")
                    self.feed(messages.Learnt(effect.epoch, config, facts))
                case messages.Publish():
                    self.objects.append(effect.observation.object)
                    self.publish(published.Offered(effect.observation))
                case Said(level="error"):
                    self.faults.append(effect.text)

    def publish(self, event: Any) -> None:
        for effect in self.publisher.handle(event, self.now):
            match effect:
                case published.Get():
                    self.publish(published.WriteRefused(errors.KubeError("none", status=404)))
                case published.AskOwner():
                    self.publish(published.OwnerKnown("u"))
                case published.WriteReport():
                    metadata = {**effect.body["metadata"], "resourceVersion": str(self.now)}
                    self.publish(published.Stored({**effect.body, "metadata": metadata}))
                case Said(level="error"):
                    self.faults.append(effect.text)

    def look(self) -> None:
        """Some seconds go by; whatever is due is done."""
        self.feed(
            messages.Noticed(messages.KubeletChange.FILES | messages.KubeletChange.PODS, self.now)
        )
        for _ in range(12):
            self.now += 1.0
            self.feed(messages.Tick())
            self.publish(published.Tick())


def run(cases: int, seed: int, most: int = 1) -> list[Finding]:
    """Play so many cases; the first findings."""
    found: list[Finding] = []
    for first in range(0, cases, BATCH):
        with tempfile.TemporaryDirectory() as folder:
            found += _batch(Path(folder) / "kubelet", seed, first, min(BATCH, cases - first))
        if len(found) >= most:
            break
    return found


def _batch(root: Path, seed: int, first: int, count: int) -> list[Finding]:
    agent = Agent(root)
    agent.kubelet.admit("a", 0b110)
    agent.kubelet.write_devices("example.com/d")
    agent.feed(messages.PodSeen(pod("a")))
    agent.look()
    sound = {name: (root / name).read_text() for name in _FILES if (root / name).exists()}
    for case in range(first, first + count):
        rng = random.Random(seed * 1_000_003 + case)
        subject = _disturb(agent, root, sound, rng)
        began = time.process_time()
        with memory.bounded():
            agent.look()
        cpu = (time.process_time() - began) / 12
        if agent.faults or cpu > CPU_S:
            return [
                Finding(seed, case, (agent.faults or [f"{cpu * 1000:.0f} ms of CPU"])[0], subject)
            ]
        shown = decode(agent.objects[-1]).state
        if shown is not None and "a" in shown.admitted and shown.holdings["a"]["c"].cpus != 0b110:
            return [Finding(seed, case, "a wrong report was published", subject)]
    for name in _FILES:
        (root / name).unlink(missing_ok=True)
        if name in sound:
            (root / name).write_text(sound[name])
    agent.kubelet.odd = None
    agent.kubelet.admit("good", 0b11000)
    agent.feed(messages.PodsListed((pod("a"), pod("good"))))
    agent.look()
    state = decode(agent.objects[-1]).state
    if state is None or "good" not in state.admitted:
        return [Finding(seed, first, "a correct report is not published any more", agent.faults)]
    return []


class _Kubelet(FakeKubelet):
    """Podresources that may answer anything, as protobuf.

    Attributes:
        odd: what it answers; None: what is true.
    """

    odd: bytes | None = None

    async def list(self) -> tuple[ListedPod, ...]:
        sound = await super().list()
        if self.odd is None:
            return sound
        return podresources.decode_pods(
            podresources.decode(pb.ListPodResourcesResponse, self.odd).pod_resources
        )

    async def allocatable(self) -> Allocatable | None:
        sound = await super().allocatable()
        if self.odd is None:
            return sound
        return podresources.decode_allocatable(
            podresources.decode(pb.AllocatableResourcesResponse, self.odd)
        )


def _answer(rng: random.Random) -> bytes:
    """Pods and devices of ids, amounts and names that no kubelet has, and no message at all."""
    some = rng.choice(((0, 1, 2), (0, 63, 65535), (0, 65536, 2**40, 2**63 - 1, -1)))
    ids = [rng.choice(some) for _ in range(rng.choice((1, 3, 500)))]
    names = ("a", "b", "", "\x00", "x" * 3000, "example.com/d")
    zones = pb.TopologyInfo(
        nodes=[pb.NUMANode(ID=rng.choice(ids)) for _ in range(rng.choice((0, 1, 40)))]
    )
    device = pb.ContainerDevices(
        resource_name=rng.choice(names), device_ids=[rng.choice(names) for _ in ids], topology=zones
    )
    memory = pb.ContainerMemory(
        memory_type=rng.choice(("memory", "hugepages-1Gi", *names)),
        size=rng.choice((0, 1 << 30, 2**64 - 1)),
        topology=zones,
    )
    if rng.random() < 0.3:
        text = pb.AllocatableResourcesResponse(
            devices=[device] * rng.choice((1, 300)), cpu_ids=ids, memory=[memory]
        ).SerializeToString()
    else:
        box = pb.ContainerResources(
            name=rng.choice(("c", *names)),
            cpu_ids=ids,
            devices=[device],
            memory=[memory] * rng.choice((1, 40)),
        )
        one = pb.PodResources(
            name=rng.choice(names), namespace="default", containers=[box] * rng.choice((1, 10))
        )
        text = pb.ListPodResourcesResponse(
            pod_resources=[one] * rng.choice((1, 2, 10))
        ).SerializeToString()
    if rng.random() < 0.3:
        at = rng.randrange(len(text))
        text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
    return text


def _disturb(agent: Agent, root: Path, sound: dict[str, str], rng: random.Random) -> Any:
    """Damage one source; what was done."""
    agent.kubelet.odd = None
    if rng.random() < 0.3:
        good = pod(rng.choice(("b", "c")))
        obj = {**good, "status": varied(rng, {"v": good.get("status") or {}}).get("v")}
        annotations = {key: document(rng, {}) for key in rng.sample(keys(), k=3)}
        obj["metadata"] = {**good["metadata"], "annotations": annotations}
        agent.feed(messages.PodSeen(obj))
        return obj
    if rng.random() < 0.3:
        agent.kubelet.odd = _answer(rng)
        return "podresources", agent.kubelet.odd
    name = rng.choice(_FILES)
    text = rng.choice(TEXTS)
    if name in sound and rng.random() < 0.7:
        try:
            text = json.dumps(damaged(rng, json.loads(sound[name])))
        except ValueError:
            text = str(rng.choice(ODD))
    (root / name).write_text(text)
    return name, text[:500]
