"""Nodes with reports and pods, as files hold them."""

from rte import nrt, placement
from rte.model.machine import CPU, Machine, Zone
from rte.model.node import CPUInfo, KubeletConfig, NodeReading, PodRef, Topology, ZoneInfo
from rte.model.pod import QOS, Container, Pod

GIB = 2**30


def pod_yaml(name, *cpus, memory="1Gi", **spec):
    containers = [
        {"name": f"c{place}", "resources": {"limits": {"cpu": str(count), "memory": memory}}}
        for place, count in enumerate(cpus)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


def node_objects(name, held=(), version="v1.35.4"):
    """A Node of 2 zones x 8 CPUs and its NRT; ``held`` are CPU counts of pods that run there."""
    topology = Topology(
        cpus=tuple(
            CPUInfo(cpu, cpu % 8, cpu % 8 // 4, cpu % 8 // 4, cpu % 8 // 4) for cpu in range(16)
        ),
        zones=tuple(
            ZoneInfo(id=zone, memory_bytes=16 * GIB, distances=(10, 21)) for zone in (0, 1)
        ),
        sockets=2,
    )
    config = KubeletConfig(
        topology_policy="single-numa-node",
        cpu_policy="static",
        reserved_cpus=1,
        cpu_reservation_milli=1000,
    )
    state = placement.initial_state(topology, config, {}, version)
    pods, refs = [], []
    for place, count in enumerate(held):
        amounts = {"cpu": 1000 * count, "memory": GIB}
        pod = Pod(
            uid=f"default/{name}-{place}",
            qos=QOS.GUARANTEED,
            containers=(Container(name="c0", requests=amounts, limits=amounts),),
        )
        admission = placement.admit(state, pod)
        assert admission.admitted
        state = admission.state
        refs.append(
            PodRef(uid=pod.uid, namespace="default", name=f"{name}-{place}", exclusive=True)
        )
        bound = pod_yaml(f"{name}-{place}", count, nodeName=name)
        bound["status"] = {"phase": "Running"}
        pods.append(bound)
    machine = Machine(
        cpus=tuple(
            CPU(id=i.cpu, core=i.core, die=0, socket=i.socket, zone=i.zone) for i in topology.cpus
        ),
        zones=tuple(Zone(id=z, cpus=topology.zone_cpus[z], memory_bytes=16 * GIB) for z in (0, 1)),
    )
    reading = NodeReading(node_name=name, machine=machine, state=state, pods=tuple(refs))
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "15", "memory": "32Gi", "pods": "110"}},
    }
    return [node, nrt.encode(reading), *pods]
