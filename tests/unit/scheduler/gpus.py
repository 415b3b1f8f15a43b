"""GPUs and NICs of DRA for tests: slices, classes, claims, and pods that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
ALIGNMENT = "topology.rte.dev/device-alignment"
NUMA = "resource.kubernetes.io/numaNode"


def device(name: str, zone: int | None, **more: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {"model": {"string": "H100"}}
    if zone is not None:
        attributes[NUMA] = {"int": zone}
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
        **more,
    }


def slice_of(
    node: str, zones: Iterable[int | None] = (0, 0, 1, 1), *, count: int = 1, **more: Any
) -> dict[str, Any]:
    """A slice with one GPU for each of the zones."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": pool,
            "devices": [device(f"gpu-{place}", zone, **more) for place, zone in enumerate(zones)],
        },
    }


def gpu_class(**spec: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": selectors, **spec},
    }


def claim(
    name: str, count: int = 1, *, expression: str = "", uid: str = "", **metadata: Any
) -> dict[str, Any]:
    exactly: dict[str, Any] = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
    }
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            **({"uid": uid} if uid else {}),
            **metadata,
        },
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


def uses(*claims: str, wish: str = "") -> dict[str, Any]:
    """What a pod's object has more when it uses these claims."""
    more: dict[str, Any] = {
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims]
    }
    if wish:
        more["annotations"] = {ALIGNMENT: wish}
    return more


def held(claim: dict[str, Any]) -> list[str]:
    """Devices that a claim holds."""
    allocation = (claim.get("status") or {}).get("allocation") or {"devices": {"results": []}}
    return [one["device"] for one in allocation["devices"]["results"]]


def consumers(claim: dict[str, Any]) -> list[str]:
    """Pods that may use a claim."""
    return [one["name"] for one in (claim.get("status") or {}).get("reservedFor") or ()]
