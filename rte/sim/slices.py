"""ResourceSlices for the PCI devices of a simulated machine (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.model.machine import Machine, PCIDevice

#: Driver -> kind of device (``PCIDevice.kind``).
DRIVERS = {"gpu.testbed.rte.dev": "gpu", "nic.testbed.rte.dev": "nic"}
#: Devices in a slice (``ResourceSliceMaxDevices``).
MAX_DEVICES = 128


def slices_of(
    machine: Machine,
    node: dict[str, Any],
    driver: str,
    *,
    without: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """The slices of a driver's pool on a node, owned by the Node object.

    ``without`` are attributes not to publish, as drivers that know less: ``numaNode``,
    ``pcieRoot``.
    """
    kind = DRIVERS[driver]
    devices = [
        _device(machine, number, one, frozenset(without))
        for number, one in enumerate(each for each in machine.pci if each.kind == kind)
    ]
    parts = [devices[at : at + MAX_DEVICES] for at in range(0, len(devices), MAX_DEVICES)] or [[]]
    name = node["metadata"]["name"]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{name}-{kind}-{place}",
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": name,
                        "uid": node["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "driver": driver,
                "nodeName": name,
                "pool": {
                    "name": name,
                    "generation": 1,
                    "resourceSliceCount": len(parts),
                },
                "devices": part,
            },
        }
        for place, part in enumerate(parts)
    ]


def class_of(driver: str) -> dict[str, Any]:
    """The device class of a driver; its name is the kind of device."""
    expression = f'device.driver == "{driver}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVERS[driver]},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _device(
    machine: Machine, number: int, device: PCIDevice, without: frozenset[str]
) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "index": {"int": number},
        "vendor": {"string": device.vendor},
        "resource.kubernetes.io/pciBusID": {"string": device.address},
    }
    root = machine.pci_zones.root_of(device.address)
    if root is not None and "pcieRoot" not in without:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": root}
    if device.zone is not None and "numaNode" not in without:
        attributes["resource.kubernetes.io/numaNode"] = {"int": device.zone}
    made: dict[str, Any] = {"name": f"{device.kind}-{number}", "attributes": attributes}
    if device.kind == "gpu":
        made["capacity"] = {"memory": {"value": "80Gi"}}
    return made
