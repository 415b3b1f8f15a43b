"""State files as a kubelet of 1.35 writes them (a node of two zones), and builders of more."""

from __future__ import annotations

import json
from typing import Any

from tests.checkpoints import sealed

GIB = 1 << 30

CPU_STATE = sealed(
    {
        "policyName": "static",
        "defaultCpuSet": "0-1,5-7",
        "entries": {"uid-a": {"main": "2-3"}, "uid-b": {"init": "4", "app": "4"}},
    }
)


def memory_row(zone: int, *, reserved: int = 0, assignments: int = 0) -> dict[str, Any]:
    return {
        "numberOfAssignments": assignments,
        "memoryMap": {
            "hugepages-1Gi": table(0, 0, 0),
            "memory": table(16 * GIB, GIB, reserved),
        },
        "cells": [zone],
    }


def table(total: int, system: int, reserved: int) -> dict[str, int]:
    return {
        "total": total,
        "systemReserved": system,
        "allocatable": total - system,
        "reserved": reserved,
        "free": total - system - reserved,
    }


MEMORY_STATE = sealed(
    {
        "policyName": "Static",
        "machineState": {
            "0": memory_row(0, reserved=2 * GIB, assignments=1),
            "1": memory_row(1),
        },
        "entries": {"uid-a": {"main": [{"numaAffinity": [0], "type": "memory", "size": 2 * GIB}]}},
    }
)

ALLOCATED_PODS = sealed(
    {
        "data": json.dumps(
            {
                "entries": {
                    "uid-a": {
                        "ContainerResources": {
                            "main": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
                        },
                        "PodLevelResources": None,
                    },
                    "uid-b": {"ContainerResources": {"init": {}, "app": {}}},
                }
            }
        ),
    }
)

DEVICE_CHECKPOINT = sealed(
    {
        "Data": {
            "PodDeviceEntries": [
                {
                    "PodUID": "uid-a",
                    "ContainerName": "main",
                    "ResourceName": "example.com/gpu",
                    "DeviceIDs": {"0": ["gpu0"], "1": ["gpu0", "gpu1"], "-1": ["gpu2"]},
                    "AllocResp": "CgkKA0ZPTxICYmE=",
                }
            ],
            "RegisteredDevices": {"example.com/gpu": ["gpu1", "gpu3"], "example.com/gone": None},
        },
    }
)

ALL = {
    "cpu_manager_state": CPU_STATE,
    "memory_manager_state": MEMORY_STATE,
    "allocated_pods_state": ALLOCATED_PODS,
    "device-plugins/kubelet_internal_checkpoint": DEVICE_CHECKPOINT,
}
