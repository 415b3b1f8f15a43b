"""Configurations of kubelets for benchmarks without any."""

from __future__ import annotations

from typing import Any

from rte.model.node import KubeletConfig

GIB = 1 << 30


def static_config(**settings: Any) -> KubeletConfig:
    """Static CPU and memory manager, single-numa-node by container; a CPU and 1 GiB are reserved.

    ``settings``: what differs.
    """
    usual: dict[str, Any] = {
        "topology_policy": "single-numa-node",
        "cpu_policy": "static",
        "reserved_cpus": 1,
        "cpu_reservation_milli": 1000,
        "memory_policy": "Static",
        "reserved_memory": {0: {"memory": GIB}},
        "node_reserved": {"cpu": 1000, "memory": GIB},
    }
    return KubeletConfig(**{**usual, **settings})
