"""Device pools and who holds which device, from all that tells a part of it.

* ``GetAllocatableResources`` lists healthy devices with their zones, but none whose topology has
  no zones (cm/container_manager.go); the checkpoint's ``RegisteredDevices`` lists those too.
* Unhealthy devices are shown by nobody. They count for the width of hints, so what was seen
  before is remembered; the Node's capacity tells whether that is all of them, and when some are
  gone for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.node import DevicePool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.bits import ZoneSet
    from rte.model.kubelet import DeviceHolding, KubeletView

#: Device id -> its zones.
Zones = dict[str, "ZoneSet | None"]


def device_pools(
    view: KubeletView, previous: Mapping[str, DevicePool], capacity: Mapping[str, int]
) -> dict[str, DevicePool]:
    """All devices that the kubelet knows, by resource.

    ``previous`` are the pools of an earlier reading of the same running kubelet; ``capacity`` is
    the Node's (healthy and unhealthy devices), empty where unknown.
    """
    healthy = _by_resource(view.allocatable.devices) if view.allocatable else None
    registered = view.devices.registered if view.devices else None
    if healthy is not None and not view.coherent:
        registered = None  # of another moment: the difference to the list would tell nothing
    held = _held(view)
    names = {*(healthy or ()), *(registered or ()), *held}
    if registered is None and healthy is None:
        names |= set(previous)
    return {
        name: _pool(
            None if healthy is None else healthy.get(name, {}),
            None if registered is None else registered.get(name, frozenset()),
            held.get(name, {}),
            previous.get(name),
            capacity.get(name),
        )
        for name in sorted(names)
    }


def _pool(
    healthy: Zones | None,
    registered: frozenset[str] | None,
    held: Zones,
    previous: DevicePool | None,
    capacity: int | None,
) -> DevicePool:
    before = dict(zip(previous.ids, previous.zones, strict=True)) if previous else {}
    zones: Zones = {**before, **{name: at for name, at in held.items() if at is not None}}
    for name in held:
        zones.setdefault(name, None)
    if healthy is None:
        alive = set(registered or ())
        # A free device of which nobody told the zones: what it can serve is not known.
        unplaced = bool(alive - zones.keys())
        zones |= dict.fromkeys(alive - zones.keys())
    else:
        # Registered as healthy and yet not listed: its topology has no zones. One that was listed
        # before has just been lost, and the checkpoint is about to say so.
        zoneless = {
            name
            for name in (registered or frozenset()) - healthy.keys()
            if before.get(name, 0) == 0
        }
        zones |= healthy | dict.fromkeys(zoneless, 0)
        alive = healthy.keys() | zoneless
        unplaced = False
    # Without the Node's word, new devices are taken for what the lost ones have become (MIG).
    renewed = capacity is None and bool(before) and not alive <= before.keys()
    if renewed or (capacity is not None and len(alive | held.keys()) >= capacity):
        zones = {name: at for name, at in zones.items() if name in alive or name in held}
    complete = not unplaced and (
        len(zones) == capacity
        if capacity is not None
        else previous is not None and previous.complete and not renewed
    )
    ids = tuple(sorted(zones))
    return DevicePool(
        ids=ids,
        zones=tuple(zones[name] for name in ids),
        healthy=bits.of(position for position, name in enumerate(ids) if name in alive),
        complete=complete,
    )


def _held(view: KubeletView) -> dict[str, Zones]:
    holdings: list[DeviceHolding] = []
    if view.devices:
        for containers in view.devices.entries.values():
            for listed in containers.values():
                holdings += listed
    for pod in view.pods or ():
        for container in pod.containers:
            holdings += container.devices
    return _by_resource(holdings)


def _by_resource(holdings: Iterable[DeviceHolding]) -> dict[str, Zones]:
    table: dict[str, Zones] = {}
    for holding in holdings:
        known = table.setdefault(holding.resource, {})
        for name, zones in holding.devices.items():
            known[name] = zones if known.get(name) is None else known[name]
    return table
