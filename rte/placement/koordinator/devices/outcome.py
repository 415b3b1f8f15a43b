"""The answer of DeviceShare for one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.placement.koordinator.devices.request import GPU_MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.koordinator.devices.request import Amounts
    from rte.reader.json import JsonObject


class DeviceRefusal(Exception):  # noqa: N818 - an answer on its way up, not a failure
    """Why not; ``resolvable``: preempting pods could help."""

    def __init__(self, reason: str, *, resolvable: bool = True) -> None:
        self.reason, self.resolvable = reason, resolvable
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenDevice:
    """One device and what is held of it; ``vf``: bus id and minor of the VF given."""

    minor: int
    amounts: Amounts
    vf: tuple[str, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KoordinatorDevices:
    """The devices of a pod by type.

    Attributes:
        beyond_koordinator: Koordinator's own search would have refused the pod.
    """

    devices: Mapping[str, tuple[GivenDevice, ...]] = field(default_factory=dict)
    beyond_koordinator: bool = False

    def document(self) -> dict[str, list[JsonObject]]:
        """The ``device-allocated`` annotation, as JSON values."""
        return {
            kind: [_device_document(device) for device in devices]
            for kind, devices in self.devices.items()
        }


def _device_document(device: GivenDevice) -> JsonObject:
    document: JsonObject = {
        "minor": device.minor,
        "resources": {name: _text(name, amount) for name, amount in device.amounts.items()},
    }
    if device.vf is not None:
        bus_id, minor = device.vf
        document["extension"] = {"vfs": [({"minor": minor} if minor else {}) | {"busID": bus_id}]}
    return document


def _text(name: str, amount: int) -> str:
    """Memory with binary suffixes, all else as it is."""
    if name == GPU_MEMORY and amount:
        for suffix, shift in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
            if amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
    return str(amount)
