"""The zones that a pod will surely get, whatever the kubelet knows that we do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.inflight.futures import outcomes
from rte.placement.inflight.zones import goes_to_one_zone, takes_lowest_zone
from rte.placement.kubelet.admission import admit, settle
from rte.placement.kubelet.demand import Demand
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rte.model.bits import ZoneSet
    from rte.model.node import Holding, NodeState, Topology
    from rte.model.pod import Pod


def zones_of(holdings: Iterable[Holding], topology: Topology) -> ZoneSet:
    """The zones of the CPUs and memory that containers hold."""
    zones = 0
    for holding in holdings:
        for zone, cpus in topology.zone_cpus.items():
            if holding.cpus & cpus:
                zones |= 1 << zone
        for block in holding.memory:
            zones |= block.zones
    return zones


@dataclass(frozen=True, slots=True)
class ExpectedZones:
    """The zones of a pod's CPUs and memory (0: it gets none of its own, or is refused).

    ``certain``: under every outcome; else they are what comes if nothing happens before.
    """

    zones: ZoneSet
    certain: bool


def expect_zones(
    state: NodeState, pod: Pod, in_flight: Iterable[Pod] = (), endable: Collection[str] = ()
) -> ExpectedZones:
    """The zones that the kubelet will give to the pod's CPUs and memory.

    ``in_flight`` are pods that the kubelet admits before, in this order; ``endable`` are UIDs of
    held pods that may be gone before the API shows it. Not certain too where a pod may be refused,
    or where there are too many outcomes to try and no rule for them.
    """
    before = tuple(in_flight)
    if not before and _one_zone_whatever_ends(state, pod):
        present = frozenset(state.holdings) | state.admitted
        zones = _likely_zones(state, pod)
        if zones.bit_count() == 1:
            freest = settle(state, present.difference(endable))
            return ExpectedZones(zones, zones == _likely_zones(freest, pod))
    states = outcomes(state, (*before, pod), endable)
    if states is None:
        for one in before:
            state = admit(state, one).state
        return ExpectedZones(_likely_zones(state, pod), certain=False)
    found = [zones_of(one.holdings.get(pod.uid, {}).values(), one.topology) for one in states]
    return ExpectedZones(found[0], len(set(found)) == 1)


def _likely_zones(state: NodeState, pod: Pod) -> ZoneSet:
    admission = admit(state, pod)
    return zones_of(admission.holdings.values(), state.topology) if admission.admitted else 0


def _one_zone_whatever_ends(state: NodeState, pod: Pod) -> bool:
    """Whether the pod goes, as one, to the lowest zone that holds it.

    Room in each zone lies between what is known to be free and what is free when all that may end
    has ended. If the lowest zone that holds the pod is the same in both, it is so in between.
    """
    rules = rules_of(state.config, state.kubelet_version)
    return (
        goes_to_one_zone(state, rules)
        and takes_lowest_zone(state, rules)
        and Demand(pod, rules, state.devices).is_one_unit
    )
