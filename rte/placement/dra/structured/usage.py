"""Which devices are in use (``allocateddevices.go``, ``allocatedstate.go``)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rte.placement.dra.structured.pools import DeviceID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.dra.objects import AllocationResult


class Usage:
    """What allocated claims hold, pending ones included. Admin access holds nothing.

    Adding an allocation and removing it again leaves no trace; both cost its own size. Without
    ``shares`` (gate DRAConsumableCapacity off) a share counts as the whole device.
    """

    def __init__(self, *, shares: bool = True) -> None:
        self._knows_shares = shares
        self._whole: dict[DeviceID, int] = {}
        self._shares: dict[DeviceID, int] = {}
        self._capacity: dict[DeviceID, dict[str, int]] = {}

    def add(self, allocation: AllocationResult) -> None:
        """Count an allocation in."""
        self._count(allocation, 1)

    def remove(self, allocation: AllocationResult) -> None:
        """Take out an allocation that was added."""
        self._count(allocation, -1)

    def is_taken(self, device: DeviceID) -> bool:
        """Whether somebody has the device for himself."""
        return device in self._whole

    def is_shared(self, device: DeviceID) -> bool:
        """Whether somebody has a share of it."""
        return device in self._shares

    def is_allocated(self, device: DeviceID) -> bool:
        """Whether somebody has it or a share of it."""
        return device in self._whole or device in self._shares

    def consumed(self, device: DeviceID) -> Mapping[str, int]:
        """What its shares take of its capacities."""
        return self._capacity.get(device, {})

    def _count(self, allocation: AllocationResult, sign: int) -> None:
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = DeviceID(result.driver, result.pool, result.device)
            if result.share_id is None or not self._knows_shares:
                _step(self._whole, device, sign)
                continue
            _step(self._shares, device, sign)
            amounts = self._capacity.setdefault(device, defaultdict(int))
            for name, amount in (result.consumed_capacity or {}).items():
                amounts[name] += sign * amount
            if device not in self._shares:
                del self._capacity[device]


def _step(counts: dict[DeviceID, int], device: DeviceID, sign: int) -> None:
    count = counts.get(device, 0) + sign
    if count:
        counts[device] = count
    else:
        counts.pop(device, None)
