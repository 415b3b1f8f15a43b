"""Scores of single devices.

Source: Koordinator ``pkg/scheduler/plugins/deviceshare/scoring.go``, with the resources that its
default configuration weighs, all alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.koordinator.devices.request import (
    FPGA_RESOURCE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA_RESOURCE,
)

if TYPE_CHECKING:
    from rte.placement.koordinator.devices.request import Amounts

_WEIGHED = (GPU_MEMORY_RATIO, GPU_MEMORY, RDMA_RESOURCE, FPGA_RESOURCE)


def score_device(wanted: Amounts, total: Amounts, free: Amounts, strategy: str) -> int:
    """0 to 100, the higher the better for the strategy; 0 without one."""
    if not strategy:
        return 0
    scores = []
    for name in _WEIGHED:
        capacity = total.get(name, 0)
        if not capacity:
            continue
        requested = capacity
        if capacity >= free.get(name, 0):
            requested = capacity - free.get(name, 0) + wanted.get(name, 0)
        if strategy == "MostAllocated":
            scores.append(min(requested, capacity) * 100 // capacity)
        else:
            scores.append((capacity - requested) * 100 // capacity if requested <= capacity else 0)
    return sum(scores) // len(scores) if scores else 0
