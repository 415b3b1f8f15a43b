"""Small clusters with DRA devices for the tests of their allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.placement.dra import (
    CEL,
    ClaimNode,
    ClaimVerdict,
    DeviceInventory,
    DeviceSupply,
    Features,
    Usage,
    allocate,
    decode,
)

if TYPE_CHECKING:
    from rte.placement.dra.objects import DeviceClass, ResourceClaim, ResourceSlice

GPU = "gpu.example.com"
NIC = "nic.example.com"
NODE = ClaimNode(name="n0", labels={"rack": "r1"})


def gpu(name: str, zone: int | None = None, root: str | None = None, **more: Any) -> dict[str, Any]:
    """A device of a slice as JSON."""
    attributes: dict[str, Any] = {"type": {"string": "gpu"}}
    if zone is not None:
        attributes["resource.kubernetes.io/numaNode"] = {"int": zone}
    if root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": root}
    return {"name": name, "attributes": attributes | more.pop("attributes", {}), **more}


def slice_of(
    devices: list[dict[str, Any]],
    name: str = "s0",
    driver: str = GPU,
    pool: str = "n0",
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> ResourceSlice:
    place = spec if spec.keys() & {"allNodes", "nodeSelector", "perDeviceNodeSelection"} else None
    return decode.resource_slice(
        {
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                "devices": devices,
                **({"nodeName": "n0"} if place is None else {}),
                **spec,
            },
        }
    )


def class_of(name: str = "gpu", *expressions: str, **spec: Any) -> DeviceClass:
    texts = expressions or (f'device.driver == "{GPU}"',)
    selectors = [{"cel": {"expression": text}} for text in texts]
    return decode.device_class(
        {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
    )


def request(
    name: str = "r", count: int = 1, class_name: str = "gpu", **more: Any
) -> dict[str, Any]:
    exactly = {
        "deviceClassName": class_name,
        "allocationMode": "ExactCount",
        "count": count,
        **more,
    }
    if exactly["allocationMode"] == "All":
        del exactly["count"]
    return {"name": name, "exactly": exactly}


def claim_of(
    *requests: dict[str, Any], name: str = "c0", status: Any = None, **devices: Any
) -> ResourceClaim:
    return decode.resource_claim(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"devices": {"requests": list(requests), **devices}},
            "status": status or {},
        }
    )


def allocation(*devices: str, driver: str = GPU, pool: str = "n0", **more: Any) -> dict[str, Any]:
    """The status of a claim that holds devices."""
    results = [
        {"request": "r", "driver": driver, "pool": pool, "device": name, **more} for name in devices
    ]
    return {"allocation": {"devices": {"results": results}}}


def supply_of(
    *slices: ResourceSlice,
    classes: tuple[DeviceClass, ...] = (class_of(),),
    held: tuple[ResourceClaim, ...] = (),
    node: ClaimNode = NODE,
    features: Features | None = None,
) -> DeviceSupply:
    inventory = DeviceInventory(features)
    for one in slices:
        inventory.put_slice(one)
    usage = Usage()
    for claim in held:
        assert claim.status.allocation is not None
        usage.add(claim.status.allocation)
    return DeviceSupply(
        pools=inventory.pools(node),
        classes={one.metadata.name: one for one in classes},
        usage=usage,
        expressions=CEL(),
        features=features or Features(),
    )


def devices_of(verdict: ClaimVerdict) -> list[str]:
    """The names of all devices of all claims, in order."""
    assert verdict.fits, verdict.message
    return [result.device for one in verdict.allocations.values() for result in one.devices.results]


def place(
    supply: DeviceSupply, *claims: ResourceClaim, node: ClaimNode = NODE, **options: Any
) -> ClaimVerdict:
    return allocate(node, claims, supply, **options)
