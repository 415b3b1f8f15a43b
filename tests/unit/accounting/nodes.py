"""A machine, and a kubelet on it by the rules of rte.placement that writes as a real one does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import placement
from rte.accounting import kubelet_topology
from rte.model import bits
from rte.model.kubelet import (
    Allocatable,
    AllocatedPods,
    CPUManagerState,
    DeviceCheckpoint,
    DeviceHolding,
    KubeletView,
    ListedContainer,
    ListedPod,
    MemoryManagerState,
    NodePod,
)
from rte.model.machine import CPU, Machine, Zone
from rte.model.node import DevicePool, Holding, KubeletConfig, MemoryBlock, NodeState
from rte.model.pod import QOS, Container, ContainerKind, Pod

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

GIB = 1 << 30
GPU = "example.com/gpu"

STATIC = KubeletConfig(
    topology_policy="best-effort",
    cpu_policy="static",
    reserved_cpus=0b1,
    cpu_reservation_milli=1000,
    memory_policy="Static",
    reserved_memory={0: {"memory": GIB}},
    node_reserved={"cpu": 1000, "memory": GIB},
)


def build_machine(zones: int = 2, cores: int = 4) -> Machine:
    """One socket per zone, two threads per core, siblings half of all CPUs apart."""
    total = zones * cores
    cpus = tuple(
        CPU(
            id=cpu,
            core=cpu % total % cores,
            die=0,
            socket=cpu % total // cores,
            zone=cpu % total // cores,
            l3=cpu % total // cores,
            siblings=1 << cpu % total | 1 << cpu % total + total,
        )
        for cpu in range(2 * total)
    )
    return Machine(
        cpus=cpus,
        zones=tuple(
            Zone(
                id=zone,
                cpus=bits.of(cpu.id for cpu in cpus if cpu.zone == zone),
                memory_bytes=16 * GIB,
                hugepages={2 << 20: 1024, GIB: 0},
                distances={other: 10 if other == zone else 20 for other in range(zones)},
            )
            for zone in range(zones)
        ),
        memory_bytes=zones * 16 * GIB,
    )


def gpus(zones: int = 2) -> dict[str, DevicePool]:
    """Two devices per zone, one over all zones, one of none."""
    placed: dict[str, int | None] = {
        f"gpu{zone}{letter}": 1 << zone for zone in range(zones) for letter in "ab"
    }
    placed |= {"wide": (1 << zones) - 1, "zoneless": 0}
    names = tuple(sorted(placed))
    return {
        GPU: DevicePool(
            ids=names,
            zones=tuple(placed[name] for name in names),
            healthy=(1 << len(names)) - 1,
        )
    }


def container(
    name: str, cpus: int = 0, *, kind: str = "app", memory: int = GIB, devices: int = 0
) -> Container:
    amounts = {"cpu": cpus * 1000 or 100, "memory": memory}
    if devices:
        amounts[GPU] = devices
    return Container(name=name, kind=ContainerKind(kind), requests=amounts, limits=amounts)


def guaranteed(name: str, *containers: Container) -> Pod:
    return Pod(uid=f"uid-{name}", name=name, qos=QOS.GUARANTEED, containers=containers)


class Kubelet:
    """A kubelet that admits and forgets lazily: what has ended stays until the next admission."""

    def __init__(
        self, config: KubeletConfig = STATIC, machine: Machine | None = None, *, version: str = ""
    ) -> None:
        self.machine = machine or build_machine()
        self.version = version or "v1.35.4"
        self.pods: dict[str, Pod] = {}
        self.ended: set[str] = set()
        self.state: NodeState = replace(
            placement.initial_state(
                kubelet_topology(self.machine), config, gpus(len(self.machine.zones)), self.version
            ),
            epoch="1",
        )

    def admit(self, pod: Pod) -> bool:
        """Clean up, then admit; a refused pod leaves its residues and fails."""
        self.state = placement.settle(self.state, frozenset(self.active))
        admission = placement.execute(self.state, pod)
        self.state = admission.state
        self.pods[pod.uid] = pod
        if not admission.admitted:
            self.ended.add(pod.uid)
        return admission.admitted

    def end(self, uid: str) -> None:
        self.ended.add(uid)

    def run(self, uid: str) -> None:
        self.state = placement.start(self.state, self.pods[uid])

    @property
    def active(self) -> set[str]:
        return self.pods.keys() - self.ended

    @property
    def truth(self) -> NodeState:
        """What it holds at its next admission."""
        return placement.settle(self.state, frozenset(self.active))

    def api(self) -> list[NodePod]:
        return [
            NodePod(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                terminal=uid in self.ended,
                admitted=uid in self.state.admitted,
            )
            for uid, pod in self.pods.items()
        ]

    def view(self, *, files: bool = True, podresources: bool = True) -> KubeletView:
        state = self.state
        view = KubeletView(config=state.config, version=self.version, epoch="1")
        if files:
            view = replace(
                view,
                cpu=CPUManagerState("static", state.shared, _cpus(state)),
                memory=MemoryManagerState("Static", state.memory, _memory(state)),
                allocated=AllocatedPods(dict.fromkeys(state.admitted, frozenset())),
                devices=DeviceCheckpoint(_devices(state), {GPU: frozenset(self._healthy())}),
            )
        if podresources:
            view = replace(view, pods=tuple(self._listed()), allocatable=self._allocatable())
        return view

    def _healthy(self) -> dict[str, int | None]:
        pool = self.state.devices[GPU]
        return {
            name: zones
            for position, (name, zones) in enumerate(zip(pool.ids, pool.zones, strict=True))
            if pool.healthy >> position & 1
        }

    def _allocatable(self) -> Allocatable:
        listed = {name: zones for name, zones in self._healthy().items() if zones != 0}
        return Allocatable(
            cpus=self.state.topology.all_cpus & ~self.state.reserved,
            memory=tuple(
                MemoryBlock(resource, 1 << zone, amounts.allocatable)
                for zone, row in self.state.memory.items()
                for resource, amounts in row.amounts.items()
                if amounts.allocatable
            ),
            devices=(DeviceHolding(GPU, listed),),
        )

    def _listed(self) -> Iterator[ListedPod]:
        devices = _devices(self.state)
        for uid in sorted(self.active):
            pod = self.pods[uid]
            held = self.state.holdings.get(uid, {})
            yield ListedPod(
                namespace=pod.namespace,
                name=pod.name,
                containers=tuple(
                    ListedContainer(
                        name=item.name,
                        cpus=held.get(item.name, Holding()).cpus,
                        memory=held.get(item.name, Holding()).memory,
                        devices=devices.get(uid, {}).get(item.name, ()),
                    )
                    for item in pod.containers
                    if item.kind is not ContainerKind.INIT
                ),
            )


def _cpus(state: NodeState) -> dict[str, dict[str, int]]:
    return _present(
        {
            uid: {name: held.cpus for name, held in containers.items() if held.cpus}
            for uid, containers in state.holdings.items()
        }
    )


def _memory(state: NodeState) -> dict[str, dict[str, tuple[MemoryBlock, ...]]]:
    return _present(
        {
            uid: {name: held.memory for name, held in containers.items() if held.memory}
            for uid, containers in state.holdings.items()
        }
    )


def _devices(state: NodeState) -> dict[str, dict[str, tuple[DeviceHolding, ...]]]:
    def named(resource: str, mask: int) -> DeviceHolding:
        pool = state.devices[resource]
        return DeviceHolding(
            resource,
            {pool.ids[position]: pool.zones[position] or None for position in bits.members(mask)},
        )

    return _present(
        {
            uid: {
                name: tuple(named(resource, mask) for resource, mask in held.devices.items())
                for name, held in containers.items()
                if held.devices
            }
            for uid, containers in state.holdings.items()
        }
    )


def _present(table: dict) -> dict:  # type: ignore[type-arg]
    return {uid: containers for uid, containers in table.items() if containers}


def random_pod(rng: random.Random, name: str) -> Pod:
    """Pinned or not, with or without devices, init containers and sidecars of every kind."""
    containers = [
        container(
            f"{kind}-{position}",
            rng.choice([0, 1, 2, 2, 3, 4]),
            kind=kind,
            memory=rng.choice([1, 1, 2, 5, 14, 20]) * GIB,
            devices=rng.choice([0, 0, 0, 1, 2]),
        )
        for position, kind in enumerate(
            [*rng.choices(["init", "sidecar"], k=rng.choice([0, 0, 0, 1, 2])), "app"]
        )
    ]
    if rng.random() < 0.3:
        containers.append(container("app-more", rng.choice([0, 2])))
    return guaranteed(name, *containers)
