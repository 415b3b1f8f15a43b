"""Clusters of any size for the page, made of the pure steps alone."""

from __future__ import annotations

import random

from rte import placement
from rte.model.node import CPUInfo, DevicePool, KubeletConfig, Topology, ZoneInfo
from rte.placement.dra import decode
from rte.placement.dra.zones import ZONE_ATTRIBUTES
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import objects
from rte.scheduler.framework.claims.devices import read_claim
from rte.scheduler.framework.events import ClusterEvent, Kind
from rte.scheduler.framework.node import Report
from rte.scheduler.loop.cycle import Cycle

GIB = 1 << 30
GPU = "example.com/gpu"
DRIVER = "gpu.example.com"


class World:
    """What a source reads."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cycle = Cycle(self.cluster)


def topology(zones: int = 2, cpus: int = 16) -> Topology:
    """Two threads a core; first threads are numbered before second ones."""
    cores = zones * cpus // 2
    return Topology(
        cpus=tuple(
            CPUInfo(
                cpu,
                cpu % cores,
                cpu % cores * zones // cores,
                cpu % cores * zones // cores,
                cpu % cores * zones // cores,
            )
            for cpu in range(zones * cpus)
        ),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=64 * GIB,
                distances=tuple(10 if zone == other else 21 for other in range(zones)),
            )
            for zone in range(zones)
        ),
        sockets=zones,
    )


def idle(zones: int = 2, cpus: int = 16, gpus: int = 1, policy: str = "single-numa-node"):
    """The state of a kubelet that has just started."""
    config = KubeletConfig(
        topology_policy=policy,
        cpu_policy="static",
        reserved_cpus=1,
        cpu_reservation_milli=1000,
        memory_policy="Static",
        reserved_memory={0: {"memory": GIB}},
        node_reserved={"memory": GIB},
    )
    places = [zone for zone in range(zones) for _ in range(gpus)]
    pool = DevicePool(
        ids=tuple(f"gpu{number}" for number in range(len(places))),
        zones=tuple(1 << zone for zone in places),
        healthy=(1 << len(places)) - 1,
    )
    return placement.initial_state(
        topology(zones, cpus), config, {GPU: pool} if gpus else {}, "v1.37.1"
    )


def pod_object(name: str, cpus: int, *, node: str = "", gpus: int = 0, **status):
    """A Pod that asks for CPUs of its own."""
    limits = {"cpu": str(cpus), "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "schedulerName": "rte-scheduler",
            "containers": [container],
            **({"nodeName": node} if node else {}),
        },
        "status": status,
    }


def add_node(world: World, name: str, state, pool: str = "") -> None:
    """A node with its report."""
    total = 1000 * (len(state.topology.cpus) - 1)
    labels = {"cloud.google.com/gke-nodepool": pool} if pool else {}
    world.cluster.set_node(
        objects.NodeInfo(
            name=name,
            uid="",
            labels=labels,
            taints=(),
            unschedulable=False,
            allocatable={"cpu": total, "memory": 127 * GIB, "pods": 110, GPU: 9},
        )
    )
    world.cluster.set_report(name, Report(state=state), 0.0)


def place(world: World, node: str, name: str, cpus: int, *, gpus: int = 0) -> bool:
    """A pod that the kubelet admits: its report and the API show it."""
    entry = world.cluster.nodes[node]
    obj = pod_object(name, cpus, node=node, gpus=gpus, phase="Running")
    view = objects.read_pod(obj, world.cluster.shapes)
    admission = placement.execute(entry.report.state, view.shape.as_pod(view.kubelet_uid))
    if not admission.admitted:
        return False
    world.cluster.set_report(node, Report(state=admission.state), 0.0)
    world.cluster.set_pod(view, 0.0)
    return True


def offer(world: World, node: str, zones: dict[str, int | None], *, slices: int = 1) -> None:
    """Devices of DRA on a node: name -> zone, None where the driver does not say; the pool has so
    many slices.
    """
    devices = [
        {"name": name, "attributes": {} if zone is None else {ZONE_ATTRIBUTES[0]: {"int": zone}}}
        for name, zone in zones.items()
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    made = decode.resource_slice({"metadata": {"name": f"{node}-gpus"}, "spec": spec})
    world.cluster.devices.fleet.put_slice(made)
    world.cluster.told(ClusterEvent(Kind.DEVICE_SUPPLY))


def claim(world: World, pod: str, node: str, *devices: str) -> None:
    """Devices that a pod holds by a claim of its own."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": node, "device": name} for name in devices
    ]
    user = {"resource": "pods", "name": pod, "uid": f"uid-{pod}"}
    obj = {
        "metadata": {
            "name": f"{pod}-gpu", "namespace": "default", "uid": f"claim-{pod}",
            "resourceVersion": "1",
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": [user]},
    }  # fmt: skip
    world.cluster.devices.set_claim(read_claim(obj))
    world.cluster.told(ClusterEvent(Kind.DEVICE_SUPPLY))


def gang(world: World, name: str, cpus: int, of: str) -> None:
    """A pod without a node that belongs to a gang."""
    obj = pod_object(name, cpus)
    obj["spec"]["schedulingGroup"] = {"podGroupName": of}
    world.cluster.set_pod(objects.read_pod(obj, world.cluster.shapes), 0.0)


def wait(world: World, name: str, cpus: int, why: str) -> None:
    """A pod without a node."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "message": why,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    obj = pod_object(name, cpus, conditions=[condition])
    world.cluster.set_pod(objects.read_pod(obj, world.cluster.shapes), 0.0)


def filled(nodes: int, *, zones: int = 2, cpus: int = 32, pods: int = 4, seed: int = 1) -> World:
    """Nodes in three pools with some pods each, and pods that wait."""
    chooser = random.Random(seed)
    world = World()
    start = idle(zones, cpus)
    for number in range(nodes):
        name = f"node-{number:04}"
        add_node(world, name, start, pool=f"pool-{number % 3}")
        for count in range(chooser.randint(0, pods)):
            place(world, name, f"job-{number}-{count}", chooser.choice((2, 4, 6, 8)))
    for number in range(5):
        wait(world, f"large-{number}", cpus + 1, "0 nodes are available: TopologyAffinityError.")
    return world
