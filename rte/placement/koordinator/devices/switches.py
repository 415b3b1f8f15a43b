"""GPUs and RDMA NICs on the same PCIe switches, where there is any such choice.

Koordinator takes the GPUs first and then looks for NICs beside them, so it refuses pods although
another choice of GPUs has its NICs. This looks at the switches as a whole: the pod's GPUs may come
from any set of switches of which each gives at least one GPU and one NIC.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rte.placement.koordinator.devices.node import fits
from rte.placement.koordinator.devices.outcome import GivenDevice
from rte.placement.koordinator.devices.request import GPU, RDMA, RDMA_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.placement.koordinator.devices.node import SharedDevices
    from rte.placement.koordinator.devices.request import Amounts, DeviceShareRequest


def on_same_switches(
    request: DeviceShareRequest, node: SharedDevices
) -> dict[str, tuple[GivenDevice, ...]] | None:
    """Choose whole GPUs and NICs on the fewest switches; None where there is no choice."""
    if request.gpus is None:
        return None
    amount = request.amounts[RDMA][RDMA_RESOURCE]
    nics, each = (amount // 100, 100) if amount > 100 else (1, amount)
    amounts = {GPU: request.gpus.each, RDMA: {RDMA_RESOURCE: each}}
    have = {kind: _by_switch(node, kind, wanted) for kind, wanted in amounts.items()}
    for switches in _sets(
        {s: (len(have[GPU][s]), len(have[RDMA][s])) for s in have[GPU] if s in have[RDMA]}
    ):
        wanted_nics = max(nics, len(switches))
        if len(switches) <= request.gpus.count <= sum(
            len(have[GPU][s]) for s in switches
        ) and wanted_nics <= sum(len(have[RDMA][s]) for s in switches):
            return {
                GPU: _take(have[GPU], switches, request.gpus.count, amounts[GPU]),
                RDMA: _take(have[RDMA], switches, wanted_nics, amounts[RDMA]),
            }
    return None


def _by_switch(node: SharedDevices, kind: str, wanted: Amounts) -> dict[str, list[int]]:
    """Switch -> minors that have what is wanted."""
    free = node.free(kind)
    found: dict[str, list[int]] = {}
    for info in sorted(node.infos.get(kind, ()), key=lambda it: it.minor):
        left = free.get(info.minor, {})
        if info.pcie is not None and any(left.values()) and fits(wanted, left):
            found.setdefault(info.pcie, []).append(info.minor)
    return found


def _sets(offers: dict[str, tuple[int, int]]) -> Iterator[tuple[str, ...]]:
    """Sets of switches, small ones first; switches with the same to offer count as one kind."""
    kinds: dict[tuple[int, int], list[str]] = {}
    for switch in sorted(offers):
        kinds.setdefault(offers[switch], []).append(switch)
    members = sorted(kinds.items())
    choices = itertools.product(*(range(len(switches) + 1) for _, switches in members))
    for counts in sorted(choices, key=lambda counts: (sum(counts), counts)):
        if any(counts):
            yield tuple(
                switch
                for (_, switches), count in zip(members, counts, strict=True)
                for switch in switches[:count]
            )


def _take(
    have: dict[str, list[int]], switches: tuple[str, ...], count: int, amounts: Amounts
) -> tuple[GivenDevice, ...]:
    """One of each switch, then the lowest of the rest."""
    chosen = [have[switch][0] for switch in switches]
    rest = sorted(minor for switch in switches for minor in have[switch][1:])
    minors = sorted(chosen + rest[: count - len(chosen)])
    return tuple(GivenDevice(minor=minor, amounts=amounts) for minor in minors)
