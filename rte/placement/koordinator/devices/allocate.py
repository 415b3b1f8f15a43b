"""The devices of a pod on a node.

Source: Koordinator ``pkg/scheduler/plugins/deviceshare/device_allocator.go``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.placement.koordinator.devices.gpus import choose_gpus
from rte.placement.koordinator.devices.node import fits
from rte.placement.koordinator.devices.outcome import DeviceRefusal, GivenDevice, KoordinatorDevices
from rte.placement.koordinator.devices.request import (
    APPLY_FOR_ALL,
    DEVICE_LEVEL,
    FPGA,
    FPGA_RESOURCE,
    GPU,
    RDMA,
    RDMA_RESOURCE,
    REQUESTS_AS_COUNT,
    selects,
)
from rte.placement.koordinator.devices.scores import score_device
from rte.placement.koordinator.devices.switches import on_same_switches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.k8s.wire import LabelSelector
    from rte.placement.koordinator.devices.node import DeviceInfo, SharedDevices
    from rte.placement.koordinator.devices.request import Amounts, DeviceShareRequest

JOINT_VIOLATION = "node(s) Device Joint-Allocate rules violation"

_RESOURCES = {RDMA: RDMA_RESOURCE, FPGA: FPGA_RESOURCE}


def allocate_devices(
    request: DeviceShareRequest,
    node: SharedDevices,
    *,
    zones: frozenset[int] | None = None,
    strategy: str = "",
) -> KoordinatorDevices:
    """Choose the devices of a pod.

    Args:
        request: what it asks for.
        node: the devices of the node.
        zones: where the pod is confined to, None = nowhere.
        strategy: ``LeastAllocated``, ``MostAllocated`` or ``""`` (lowest minor first).

    Raises:
        DeviceRefusal: the node does not have them.
    """
    try:
        return KoordinatorDevices(devices=_Allocator(request, node, zones, strategy).allocate())
    except DeviceRefusal as refusal:
        searched = refusal.resolvable and _is_plain(request, node, zones)
        found = on_same_switches(request, node) if searched else None
        if found is None:
            raise
    return KoordinatorDevices(devices=found, beyond_koordinator=True)


def _is_plain(
    request: DeviceShareRequest, node: SharedDevices, zones: frozenset[int] | None
) -> bool:
    """Whole GPUs and NICs of the same switches, and nothing else that restricts the choice."""
    return (
        request.same_pcie
        and request.joint == (GPU, RDMA)
        and request.gpus is not None
        and not request.gpus.shared
        and set(request.amounts) == {GPU, RDMA}
        and not request.hints
        and request.partition is None
        and node.partitions is None
        and not node.honours_partitions
        and zones is None
    )


class _Allocator:
    def __init__(
        self,
        request: DeviceShareRequest,
        node: SharedDevices,
        zones: frozenset[int] | None,
        strategy: str,
    ) -> None:
        self._request = request
        self._all = node
        self._strategy = strategy
        self._node = self._confine(zones)
        self._each: dict[str, Amounts] = {}
        self._counts: dict[str, int] = {}

    def allocate(self) -> dict[str, tuple[GivenDevice, ...]]:
        request = self._request
        for kind in request.amounts:
            self._count(kind)
        for kind in request.amounts:
            has_vfs = any(info.vfs for info in self._all.infos.get(kind, ()))
            if self._vf_selector(kind) is not None and not has_vfs:
                raise DeviceRefusal(f"Insufficient {kind} VirtualFunctions", resolvable=False)
        devices: dict[str, tuple[GivenDevice, ...]] = {}
        if len(request.amounts) > 1 and request.joint:
            devices = self._jointly()
        for kind in request.amounts:
            if kind not in devices:
                devices[kind] = self._of_kind(kind, self._counts[kind], frozenset())
        return devices

    def _confine(self, zones: frozenset[int] | None) -> SharedDevices:
        """The node with the devices only that zones and selectors leave."""
        node, hints = self._all, self._request.hints
        if zones is None and not any(hint.selector is not None for hint in hints.values()):
            return node
        total = {}
        for kind in self._request.amounts:
            selector = hints[kind].selector if kind in hints else None
            total[kind] = {
                info.minor: node.total[kind][info.minor]
                for info in node.infos.get(kind, ())
                if selects(selector, info.labels) and _is_within(info, zones)
            }
        used = {
            kind: {minor: held for minor, held in minors.items() if minor in total.get(kind, {})}
            for kind, minors in node.used.items()
        }
        return replace(node, total=total, used=used)

    def _count(self, kind: str) -> None:
        """How many devices of a type, and what of each."""
        request = self._request
        total = self._all.total.get(kind, {})
        none = DeviceRefusal(f"Insufficient {kind} devices", resolvable=False)
        if not total:
            raise none
        if kind == GPU and request.gpus is not None:
            self._each[kind], self._counts[kind] = request.gpus.each, request.gpus.count
            return
        name = _RESOURCES[kind]
        amount, count = request.amounts[kind][name], 1
        hint = request.hints.get(kind)
        if amount > 100 and amount % 100 == 0:
            amount, count = 100, amount // 100
        elif hint is not None and hint.allocate_strategy == APPLY_FOR_ALL:
            count = len(total)
            if hint.selector is not None:
                infos = self._all.infos.get(kind, ())
                count = sum(selects(hint.selector, info.labels) for info in infos)
            if not count:
                raise none
        elif hint is not None and hint.allocate_strategy == REQUESTS_AS_COUNT:
            amount, count = 100 if hint.exclusive_policy == DEVICE_LEVEL else 1, amount
        self._each[kind], self._counts[kind] = {name: amount}, count

    def _jointly(self) -> dict[str, tuple[GivenDevice, ...]]:
        """The leading type first, the others on its switches as far as they have room."""
        request = self._request
        leader, *others = request.joint
        leading = self._of_kind(leader, self._counts[leader], frozenset())
        switches = self._switches(leader, leading)
        devices = {leader: leading}
        for kind in others:
            count = self._counts[kind]
            if request.same_pcie:
                count = max(count, len(switches))
            devices[kind] = self._of_kind(kind, count, switches)
        if request.same_pcie and any(
            self._switches(kind, devices[kind]) != switches for kind in others
        ):
            raise DeviceRefusal(JOINT_VIOLATION)
        return devices

    def _switches(self, kind: str, given: tuple[GivenDevice, ...]) -> frozenset[str]:
        minors = {device.minor for device in given}
        return frozenset(
            info.pcie
            for info in self._all.infos.get(kind, ())
            if info.minor in minors and info.pcie is not None
        )

    def _of_kind(self, kind: str, count: int, preferred: frozenset[str]) -> tuple[GivenDevice, ...]:
        """At least ``count`` devices (where there is room, one for each preferred switch)."""
        if kind == GPU and self._request.gpus is not None:
            chosen = choose_gpus(
                self._request, self._request.gpus, self._node, self._all, self._strategy
            )
            if chosen is not None:
                return tuple(GivenDevice(minor=minor, amounts=self._each[kind]) for minor in chosen)
            preferred = frozenset()
        return self._one_by_one(kind, count, preferred)

    def _one_by_one(
        self, kind: str, count: int, preferred: frozenset[str]
    ) -> tuple[GivenDevice, ...]:
        wanted, free = self._each[kind], self._node.free(kind)
        infos = {info.minor: info for info in self._node.infos.get(kind, ())}
        selector = self._vf_selector(kind)
        given: list[GivenDevice] = []
        for minor in self._in_order(kind, free, infos, preferred):
            if not any(free[minor].values()) or not fits(wanted, free[minor]):
                continue
            vf = None
            if selector is not None:
                vf = self._free_vf(kind, minor, infos, selector)
                if vf is None:
                    continue
            given.append(GivenDevice(minor=minor, amounts=wanted, vf=vf))
            if len(given) == max(count, len(preferred)):
                break
        if len(given) < count:
            raise DeviceRefusal(f"Insufficient {kind} devices")
        return tuple(given)

    def _in_order(
        self,
        kind: str,
        free: Mapping[int, Amounts],
        infos: Mapping[int, DeviceInfo],
        preferred: frozenset[str],
    ) -> list[int]:
        """Minors by score; first one of each preferred switch, then a second of each, and so on."""
        total = self._node.total.get(kind, {})
        scores = {
            minor: score_device(self._each[kind], total.get(minor, {}), left, self._strategy)
            for minor, left in free.items()
        }
        ranked = sorted(free, key=lambda minor: (-scores[minor], minor))
        rounds: dict[int, int] = {}
        seen: dict[str, int] = {}
        for minor in ranked:
            switch = infos[minor].pcie if minor in infos else None
            if switch is not None and switch in preferred:
                rounds[minor] = seen[switch] = seen.get(switch, 0) + 1
        last = len(ranked) + 1
        return sorted(ranked, key=lambda minor: (rounds.get(minor, last), -scores[minor], minor))

    def _vf_selector(self, kind: str) -> LabelSelector | None:
        """Which VFs will do; None where the device itself is given."""
        hint = self._request.hints.get(kind)
        return None if hint is None else hint.vf_selector

    def _free_vf(
        self,
        kind: str,
        minor: int,
        infos: Mapping[int, DeviceInfo],
        selector: LabelSelector,
    ) -> tuple[str, int] | None:
        if minor not in infos:
            return None
        held = self._node.held_vfs.get(kind, {}).get(minor, frozenset())
        free = [
            (vf.bus_id, vf.minor)
            for vf in infos[minor].vfs
            if vf.bus_id not in held and selects(selector, vf.labels)
        ]
        return min(free, default=None)


def _is_within(info: DeviceInfo, zones: frozenset[int] | None) -> bool:
    """Whether a device is in one of the zones; -1 = its zone is not known, which will do."""
    if zones is None:
        return True
    return info.zone is not None and (info.zone == -1 or info.zone in zones)
