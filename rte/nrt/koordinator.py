"""The four annotations that Koordinator's scheduler and koordlet read from an NRT.

Keys, JSON and semantics: koordinator-sh/koordinator ``apis/extension`` (``node.go``) and koordlet's
``states_noderesourcetopology.go``. What needs pod labels (CPUs that Koordinator itself gave out)
is koordlet's own and not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rte.accounting.topology import kubelet_topology
from rte.model import bits
from rte.model.node import PodRef
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.node import CPUInfo, NodeReading, NodeState

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
CPU_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
ANNOTATIONS = (CPU_TOPOLOGY, CPU_SHARED_POOLS, POD_CPU_ALLOCS, CPU_MANAGER_POLICY)


def encode(reading: NodeReading) -> dict[str, str]:
    """The four annotations of a node."""
    cpus = _cpus(reading)
    held = _held_cpus(reading.state)
    exclusive = 0
    for mask in held.values():
        exclusive |= mask
    documents = {
        CPU_TOPOLOGY: {
            "detail": [
                {"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "node": cpu.zone}
                for cpu in cpus
            ]
        },
        CPU_SHARED_POOLS: _shared_pools(cpus, exclusive),
        POD_CPU_ALLOCS: _pod_cpu_allocs(reading, held),
        CPU_MANAGER_POLICY: _cpu_manager_policy(reading.state),
    }
    return {key: orjson.dumps(document).decode() for key, document in documents.items()}


def _cpus(reading: NodeReading) -> Sequence[CPUInfo]:
    """The CPUs as the kubelet knows them, or as it would."""
    return (reading.state.topology if reading.state else kubelet_topology(reading.machine)).cpus


def _held_cpus(state: NodeState | None) -> dict[str, int]:
    """UID -> CPUs that the pod holds, without pods that hold none."""
    if state is None:
        return {}
    held = {uid: state.held_cpus(uid) for uid in (*state.holdings, *state.pod_holdings)}
    return {uid: cpus for uid, cpus in held.items() if cpus}


def _shared_pools(cpus: Sequence[CPUInfo], exclusive: int) -> list[dict[str, Any]]:
    """CPUs that no pod holds, by zone; reserved ones stay in, as koordlet has it."""
    pools: dict[int, tuple[int, int]] = {}
    for cpu in cpus:
        if not exclusive >> cpu.cpu & 1:
            first_socket, mask = pools.get(cpu.zone, (cpu.socket, 0))
            pools[cpu.zone] = (first_socket, mask | 1 << cpu.cpu)
    return [
        {"socket": socket, "node": zone, "cpuset": bits.format_list(mask)}
        for socket, zone, mask in sorted(
            (socket, zone, mask) for zone, (socket, mask) in pools.items()
        )
    ]


def _pod_cpu_allocs(
    reading: NodeReading, held: Mapping[str, int]
) -> list[dict[str, str | bool]] | None:
    """Who holds which CPUs, sorted by UID; null when nobody does."""
    if not held:
        return None
    pods = {pod.uid: pod for pod in reading.pods}
    allocs: list[dict[str, str | bool]] = []
    for uid in sorted(held):
        pod = pods.get(uid)
        names = {"namespace": pod.namespace, "name": pod.name} if pod else {}
        allocs.append(
            {
                **names,
                "uid": uid,
                "cpuset": bits.format_list(held[uid]),
                "managedByKubelet": True,
            }
        )
    return allocs


def holders(annotations: Mapping[str, str]) -> tuple[PodRef, ...]:
    """The pods that ``pod-cpu-allocs`` names; none where it is absent or malformed."""
    try:
        allocs = jsontext.load(annotations.get(POD_CPU_ALLOCS) or "null", POD_CPU_ALLOCS) or []
        return tuple(
            PodRef(uid=item["uid"], namespace=item["namespace"], name=item["name"], exclusive=True)
            for item in allocs
            if "name" in item
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def _cpu_manager_policy(state: NodeState | None) -> dict[str, Any]:
    """Empty members are left out; reserved CPUs are told under the static policy alone."""
    if state is None:
        return {"policy": "none"}
    document: dict[str, Any] = {"policy": state.config.cpu_policy}
    if state.config.cpu_options:
        document["options"] = dict(sorted(state.config.cpu_options.items()))
    if state.config.cpu_policy == "static" and state.reserved:
        document["reservedCPUs"] = bits.format_list(state.reserved)
    return document
