"""Pods on a node whose topology manager refuses nobody (best-effort, none): amounts decide.

There a unit (a container, or a pod under pod scope) that no zone holds is spread over zones, and
the kubelet refuses only what lacks CPUs or devices on the whole node, or memory. The memory manager
serves several zones together only if none of them serves anybody yet (policy_static.go); where at
most one zone that does not hold a unit is unused, every unit gets its memory from a single zone. So
for these nodes no admission has to be predicted, whatever the order of arrival:

* CPUs and devices count as sums;
* a unit finds its memory as long as the others cannot have spoilt every zone that holds it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from rte.model import quantity
from rte.placement.inflight.zones import picks_always_succeed
from rte.placement.kubelet import demand, devices, merge, outcome
from rte.placement.kubelet.admission import settle
from rte.placement.kubelet.cpu import pickers
from rte.placement.kubelet.demand import Demand, free_of, is_grouped, times
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.kubelet.rules import KubeletRules

    #: What has to be found at once: CPUs (whole), bytes and devices by resource.
    Unit = Mapping[str, int]


class InflightSpread:
    """What such a node takes; made by :func:`spread_of`."""

    def __init__(self, state: NodeState, rules: KubeletRules) -> None:
        # Without a policy the scope does not count: each container is served for itself.
        self._rules = replace(rules, pod_scope=rules.pod_scope and rules.policy != merge.NONE)
        self._state = state
        free = free_of(state)
        self._zones, self._sums = list(free.zones.values()), free.total
        self._unused = [
            amounts
            for zone, amounts in free.zones.items()
            if zone in state.memory and not state.memory[zone].assignments
        ]

    def units(self, pod: Pod) -> list[Unit] | None:
        """What is found for the pod at once each; None: it cannot be told by amounts."""
        found = Demand(pod, self._rules, self._state.devices).units
        if found is None or self._splits_cores(pod):
            return None
        pools = self._state.devices.items()
        if any(not pool.complete and any(unit.get(name) for unit in found) for name, pool in pools):
            return None
        units: list[Unit] = [*found]
        if not self._rules.memory or not demand.is_served(pod, self._rules):
            return units
        # The memory manager refuses a spread container that asks it for nothing.
        if not all(any(map(demand.is_memory, box.requests)) for box in pod.containers):
            return None
        # Where some zone is out of reach for CPUs or devices, its memory is too.
        if self._rules.policy == merge.BEST_EFFORT and not self._reaches_all(units):
            return None
        return units

    def _splits_cores(self, pod: Pod) -> bool:
        """Whether a container would get part of a core that nobody may split."""
        rules = self._rules
        if rules.cpu is None or not rules.cpu.full_pcpus_only:
            return False
        threads = pickers.layout_of(self._state.topology).cpus_per_core
        return any(demand.cpus_of(pod, box, rules) % threads for box in pod.containers)

    def _reaches_all(self, units: Sequence[Unit]) -> bool:
        topology = self._state.topology
        if not all(topology.zone_cpus.get(zone.id) for zone in topology.zones):
            return False
        pools = [
            pool
            for name, pool in self._state.devices.items()
            if devices.has_zones(pool) and any(unit.get(name) for unit in units)
        ]
        homes = [set(filter(None, pool.by_zones)) for pool in pools]
        everywhere = {1 << zone.id for zone in topology.zones}
        if not all(each <= everywhere for each in homes):
            return False
        return not self._rules.device_zones_only or all(each == everywhere for each in homes)

    def copies(self, units: Sequence[Unit], most: int) -> int | None:
        """How many pods with these units are admitted one after the other, up to ``most``; None:
        that cannot be told by amounts.
        """
        wanted = quantity.total(units)
        bound = min(
            (self._sums.get(name, 0) // amount for name, amount in wanted.items()), default=most
        )
        bound = min(bound, most)
        if not bound or not any(map(demand.is_memory, wanted)):
            return bound
        if len(units) == 1:
            in_zones = sum(times(row, _memory_of(units[0])) for row in self._zones)
            return min(bound, in_zones) if self._stays_single(units) else None
        return bound if self.admits([units] * bound) else None

    def admits(self, pods: Sequence[Sequence[Unit]]) -> bool | None:
        """Whether pods with these units are admitted in every order; None: that cannot be told."""
        units = [unit for pod in pods for unit in pod]
        total = quantity.total(units)
        if any(amount > self._sums.get(name, 0) for name, amount in total.items()):
            return False
        kinds = [dict(each) for each in Counter(tuple(sorted(unit.items())) for unit in units)]
        asking = [unit for unit in kinds if any(map(demand.is_memory, unit))]
        if not asking:
            return True
        if not self._stays_single(asking) or (len(asking) < len(kinds) and len(self._unused) > 1):
            return None
        return True if all(self._finds_memory(unit, total) for unit in asking) else None

    def _stays_single(self, units: Sequence[Unit]) -> bool:
        """Whether zones never serve memory together: two unused zones would have to be left when
        a unit finds no zone.
        """
        if self._rules.policy == merge.NONE:
            units = [_memory_of(unit) for unit in units]
        return all(sum(not times(row, unit) for row in self._unused) <= 1 for unit in units)

    def _finds_memory(self, unit: Unit, total: Mapping[str, int]) -> bool:
        """Whether the others leave a zone with the unit's memory, wherever they are."""
        own = _memory_of(unit)
        holding = [row for row in self._zones if times(row, own)]
        spoilt = 0
        for name, amount in total.items():
            needed = own.get(name, 0)
            if not needed:
                continue
            costs = sorted(row[name] - needed + 1 for row in holding)
            spoilt += sum(cost <= amount - needed for cost in accumulate(costs))
        return spoilt < len(holding)


def spread_of(state: NodeState) -> InflightSpread | None:
    """The node as amounts; None where they do not decide.

    Args:
        state: settled; nothing on it ends.
    """
    try:
        rules = rules_of(state.config, state.kubelet_version)
    except outcome.Unpredictable:
        return None
    follows = (
        rules.policy in (merge.BEST_EFFORT, merge.NONE)
        and bool(state.topology.zones)
        and not rules.prefer_closest
        and not (rules.cpu is not None and rules.cpu.align_by_socket)
        and picks_always_succeed(state, rules, alone=False)
        and not any(is_grouped(row) for row in state.memory.values())
        and len({frozenset(row.amounts) for row in state.memory.values()}) < 2
    )
    return InflightSpread(state, rules) if follows else None


def admits_whatever_ends(state: NodeState, pods: Sequence[Pod]) -> bool:
    """Whether such a node admits the pods in every order, whichever held pods end meanwhile.

    Amounts that are free only grow. A zone that an ending leaves unused is wholly free, so zones
    serve memory together at no moment if they do not on the empty node. False where that cannot be
    told by amounts.

    Args:
        state: settled, and never fuller when one of the pods came.
        pods: that come.
    """
    for known in (state, settle(state, frozenset())):
        spread = spread_of(known)
        units = [spread.units(pod) if spread else None for pod in pods]
        asked = [each for each in units if each is not None]
        if spread is None or len(asked) < len(units) or not spread.admits(asked):
            return False
    return True


def _memory_of(unit: Unit) -> dict[str, int]:
    return {name: amount for name, amount in unit.items() if demand.is_memory(name)}
