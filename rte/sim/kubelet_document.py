"""KubeletConfigurations that a kubelet would start with on a given machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.placement.kubelet import merge, releases, rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine

_MIB = 1 << 20
_EVICTION = 100 * _MIB
_RESERVED = 512 * _MIB


def kubelet_document(
    machine: Machine,
    *,
    policy: str = merge.SINGLE_NUMA_NODE,
    scope: str = "container",
    cpu_policy: str = "static",
    memory_policy: str | None = None,
    reserved_cpus: str = "0",
    topology_options: Mapping[str, str] | None = None,
    cpu_options: Mapping[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A configuration with 512 MiB reserved on the first zone that has memory (the kubelet insists
    that reserved memory = system and kube reservation + hard eviction threshold).

    On machines of many zones the topology manager is told that there may be so many, and memory is
    managed only as far as a kubelet gets its combinations of zones done.
    """
    zones = len(machine.zones)
    if memory_policy is None:
        memory_policy = "Static" if zones <= merge.MAX_ZONES else "None"
    if topology_options is None and zones > rules.DEFAULT_MAX_ZONES and policy != merge.NONE:
        topology_options = {releases.MAX_ZONES: str(zones)}
    document: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "topologyManagerPolicyOptions": dict(topology_options or {}),
        "cpuManagerPolicy": cpu_policy,
        "cpuManagerPolicyOptions": dict(cpu_options or {}),
        "cpuManagerReconcilePeriod": "10s",
        "memoryManagerPolicy": memory_policy,
        "reservedSystemCPUs": reserved_cpus,
        "systemReserved": {"memory": f"{(_RESERVED - _EVICTION) // _MIB}Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "maxPods": 250,
    }
    if memory_policy == "Static":
        zone = next((zone.id for zone in machine.zones if zone.memory_bytes), 0)
        limits = {"memory": f"{_RESERVED // _MIB}Mi"}
        document["reservedMemory"] = [{"numaNode": zone, "limits": limits}]
    return document | fields
