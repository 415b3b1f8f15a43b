"""Kubelet configurations for nodes of the test bed."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from rte.model import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB = 1 << 20
_HARD_EVICTION = 100 * _MIB

#: What keeps a kubelet away from the host and from decisions that would spoil a measurement.
_BASE: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "address": "127.0.0.1",
    "healthzPort": 0,
    "readOnlyPort": 0,
    # Containers are records only: no cgroup may be made for them, on cgroups v1 or v2.
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failCgroupV1": False,
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "makeIPTablesUtilChains": False,
    "oomScoreAdj": 0,
    # A small test disk must not taint the node.
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "0%",
        "imagefs.available": "0%",
        "nodefs.inodesFree": "0%",
    },
    # The kubelet's own limit on pulls would delay a burst of pods.
    "registryPullQPS": 0,
    "maxPods": 250,
    "syncFrequency": "10s",
    "nodeStatusUpdateFrequency": "5s",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
}

#: Options below GA need a gate; beta gates are on by default, the alpha ones are not.
_ALPHA_GATES = {
    "cpuManagerPolicyOptions": "CPUManagerPolicyAlphaOptions",
    "topologyManagerPolicyOptions": "TopologyManagerPolicyAlphaOptions",
}


def kubelet_config(
    *,
    policy: str = "single-numa-node",
    scope: str = "container",
    topology_options: Mapping[str, str] | None = None,
    cpu_policy: str = "static",
    cpu_options: Mapping[str, str] | None = None,
    reserved_cpus: str = "0",
    memory_policy: str = "Static",
    reserved_memory: Mapping[int, Mapping[str, str]] | None = None,
    feature_gates: Mapping[str, bool] | None = None,
    reconcile: str = "10s",
    **fields: Any,
) -> dict[str, Any]:
    """A KubeletConfiguration; ``fields`` are further ones of it, by their own names.

    Args:
        reserved_cpus: explicit list; ``""`` for none (give ``systemReserved`` a cpu then).
        reserved_memory: zone -> resource -> quantity for the Static memory manager. By default
            512Mi on the lowest zone with memory. ``systemReserved.memory`` is made to match, since
            the kubelet insists on reserved memory = system + kube reserved + hard eviction.
        reconcile: ``cpuManagerReconcilePeriod``.
    """
    config = deepcopy(_BASE)
    config |= {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "topologyManagerPolicyOptions": dict(topology_options or {}),
        "cpuManagerPolicy": cpu_policy,
        "cpuManagerPolicyOptions": dict(cpu_options or {}),
        "cpuManagerReconcilePeriod": reconcile,
        "memoryManagerPolicy": memory_policy,
    }
    if reserved_cpus:
        config["reservedSystemCPUs"] = reserved_cpus
    gates = {_ALPHA_GATES[key]: True for key in _ALPHA_GATES if config[key]}
    gates |= feature_gates or {}
    if gates:
        config["featureGates"] = gates
    if reserved_memory:
        config["reservedMemory"] = [
            {"numaNode": zone, "limits": dict(limits)} for zone, limits in reserved_memory.items()
        ]
    return _merge(config, fields)


def complete(config: Mapping[str, Any], memory_zones: list[int]) -> dict[str, Any]:
    """Settle the memory reservation of a configuration for a machine."""
    done = deepcopy(dict(config))
    system = dict(done.get("systemReserved") or {})
    static = done.get("memoryManagerPolicy") == "Static"
    if static and "reservedMemory" not in done:
        done["reservedMemory"] = [{"numaNode": memory_zones[0], "limits": {"memory": "512Mi"}}]
    if static and "memory" not in system:
        total = sum(
            quantity.parse_resource("memory", row["limits"].get("memory", "0"))
            for row in done["reservedMemory"]
        )
        kube = (done.get("kubeReserved") or {}).get("memory", "0")
        system["memory"] = str(total - _HARD_EVICTION - quantity.parse_resource("memory", kube))
    elif "memory" not in system:
        system["memory"] = "412Mi"
    done["systemReserved"] = system
    return done


def _merge(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged
