"""Small clusters for tests: nodes, reports and pods in one line each."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rte import placement
from rte.model.node import CPUInfo, DevicePool, KubeletConfig, NodeState, Topology, ZoneInfo
from rte.placement.groups import allocation
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import node, objects
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.plugins.registry import RuleOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.scheduler.framework.objects import PodView

GIB = 1 << 30

_numbers = itertools.count(1)


def machine(*, zones: int = 2, cpus: int = 8, gib: int = 16, smt: bool = True) -> Topology:
    """``cpus`` logical CPUs per zone; siblings are neighbours; one socket per zone."""
    width = 2 if smt else 1
    return Topology(
        cpus=tuple(
            CPUInfo(cpu=cpu, core=cpu - cpu % width, socket=zone, zone=zone, uncore=zone)
            for zone in range(zones)
            for cpu in range(zone * cpus, (zone + 1) * cpus)
        ),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=gib * GIB,
                distances=tuple(10 if other == zone else 20 for other in range(zones)),
            )
            for zone in range(zones)
        ),
        sockets=zones,
    )


def state(
    topology: Topology | None = None,
    *,
    policy: str = "single-numa-node",
    scope: str = "container",
    devices: Mapping[str, DevicePool] | None = None,
    **config: Any,
) -> NodeState:
    """A fresh node with static CPU and memory managers; CPU 0 and 1 GiB are reserved."""
    topology = topology or machine()
    settings: dict[str, Any] = {
        "cpu_policy": "static",
        "reserved_cpus": 1,
        "cpu_reservation_milli": 1000,
        "memory_policy": "Static",
        "reserved_memory": {0: {"memory": GIB}},
        "node_reserved": {"cpu": 1000, "memory": GIB},
        **config,
    }
    return placement.initial_state(
        topology,
        KubeletConfig(topology_policy=policy, topology_scope=scope, **settings),
        devices or {},
        "v1.35.4",
    )


def node_object(
    name: str,
    allocatable: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    features: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
        },
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "allocatable": {"pods": "110", **allocatable},
            "declaredFeatures": list(features),
        },
    }


def recorded(text: str) -> list[dict[str, str]]:
    """Conditions of a pod whose bind has recorded this allocation."""
    return [{"type": allocation.CONDITION, "status": "True", "message": text}]


def moment(number: int = 0) -> str:
    """That many seconds of a long day; by default now: pods are created one a second."""
    return (
        f"{datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number or next(_numbers)):%FT%TZ}"
    )


def pod_object(
    name: str = "",
    cpu: str | Sequence[str] = "2",
    mem: str = "1Gi",
    *,
    node_name: str = "",
    guaranteed: bool = True,
    extra: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container for each item of ``cpu``; ``spec`` is merged into its spec."""
    number = next(_numbers)
    name = name or f"p{number}"
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": moment(number),
        "resourceVersion": str(number),
        "labels": spec.pop("labels", {}),
        "annotations": spec.pop("annotations", {}),
        "ownerReferences": spec.pop("owners", []),
    }
    boxes = []
    for index, amount in enumerate([cpu] if isinstance(cpu, str) else cpu):
        asked = {"cpu": amount, "memory": mem, **(extra or {})}
        resources = {"requests": asked, "limits": asked} if guaranteed else {"requests": asked}
        boxes.append({"name": f"c{index}", "resources": resources})
    status = spec.pop("status", {"phase": "Pending"})
    body = {"schedulerName": "rte-scheduler", "containers": boxes, **spec}
    if node_name:
        body["nodeName"] = node_name
    return {"metadata": metadata, "spec": body, "status": status}


class World:
    """A cluster that tests feed by hand; ``kubelet`` plays the node's part."""

    def __init__(self, **options: Any) -> None:
        chosen = RuleOptions(**options)
        self.cluster = Cluster(chosen.pool, images=chosen.reads_images)
        self.cycle = Cycle(self.cluster, chosen)
        self.kubelets: dict[str, NodeState] = {}

    def node(self, name: str, reported: NodeState | None = None, **options: Any) -> None:
        """A node; its report is a fresh state (or none when ``bare``)."""
        bare = options.pop("bare", False)
        reported = None if bare else reported or state()
        cpus = len(reported.topology.cpus) - 1 if reported else 16
        gib = sum(z.memory_bytes for z in reported.topology.zones) // GIB - 1 if reported else 31
        allocatable = {"cpu": str(cpus), "memory": f"{gib}Gi", **options.pop("allocatable", {})}
        for pool_name, pool in (reported.devices if reported else {}).items():
            allocatable[pool_name] = str(pool.healthy.bit_count())
        obj = node_object(name, allocatable, **options)
        self.cluster.set_node(objects.read_node(obj, images=self.cluster.shapes.images))
        if reported is not None:
            self.kubelets[name] = reported
            self.report(name)

    def report(self, name: str, **changes: Any) -> None:
        """The agent publishes what the kubelet has now."""
        reported = replace(self.kubelets[name], **changes)
        self.cluster.set_report(name, node.Report(state=reported), 0.0)

    def pod(self, obj: dict[str, Any] | None = None, **options: Any) -> PodView:
        """A pod that the API shows."""
        obj = obj or pod_object(**options)
        view = objects.read_pod(obj, self.cluster.shapes)
        self.cluster.set_pod(view, 0.0)
        return view

    def place(self, pod: PodView) -> str | None:
        """Decide and assume; the node or None."""
        decision = self.cycle.decide(pod)
        if decision.node:
            entry = self.cluster.nodes[decision.node]
            written = self.cycle.profile.annotations(pod, entry, decision.status)
            self.cluster.assume(pod.uid, decision.node, written)
        return decision.node

    def admit(self, pod: PodView, name: str) -> placement.Admission:
        """The kubelet meets the pod; its report is not published yet."""
        kubelet = self.kubelets[name]
        admission = placement.admit(kubelet, pod.shape.as_pod(pod.kubelet_uid))
        admitted = kubelet.admitted
        if admission.verdict == "admitted":
            admitted = admitted | {pod.kubelet_uid}
        self.kubelets[name] = replace(admission.state, admitted=admitted)
        return admission

    def end(self, pod: PodView, name: str = "") -> None:
        """The pod is deleted; the kubelet has let go of it."""
        self.cluster.remove_pod(pod.uid, 0.0)
        if name:
            kubelet = self.kubelets[name]
            active = kubelet.admitted - {pod.kubelet_uid}
            self.kubelets[name] = replace(placement.settle(kubelet, active), admitted=active)

    def why(self, pod: PodView) -> dict[str, int]:
        return dict(self.cycle.reasons(pod))


def promise(uid: str, name: str, **options: Any) -> node.Promise:
    """Room on a node that is promised to a pod."""
    return node.Promise(places={uid: name}, **options)
