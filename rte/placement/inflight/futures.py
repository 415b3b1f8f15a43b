"""Predictions when the kubelet may know more than we do (design §8).

A pod that we see may have ended already, and the kubelet is then *freer* than the state we know. An
admission is **monotone** when no such ending can turn it into a refusal. It often is: what is free
only grows, so each provider offers at least the hints it offered, and widths that make a hint
preferred depend on sizes alone. docs/placement.md lists the counter-examples.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

from rte.model import bits, quantity
from rte.model.node import Holding, MemoryBlock, ZoneMemory
from rte.model.pod import ContainerKind
from rte.placement.inflight.orders import CutOff, Orders, StepBudget
from rte.placement.inflight.spread import admits_whatever_ends
from rte.placement.inflight.zones import (
    find_zones,
    goes_to_one_zone,
    picks_always_succeed,
)
from rte.placement.kubelet import demand, devices, memory, merge, outcome
from rte.placement.kubelet.admission import (
    admit,
    possible_states,
    settle,
    shape_key,
    start_containers,
    takes_devices_at_start,
)
from rte.placement.kubelet.demand import Demand, free_of
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.kubelet.outcome import Admission

#: Endings that are tried one by one, where no rule says that they do no harm.
MAX_ENDINGS = 64
#: More pods than this are not looked at together: each costs an admission.
MOST_TOGETHER = 8
#: Admissions that following their orders may cost.
MAX_STEPS = 512


def certain_under_endings(state: NodeState, pod: Pod, endable: Collection[str]) -> bool:
    """Whether the pod is admitted now, and also when any of the endable pods have ended.

    ``endable`` are UIDs of held pods that may be gone before the API shows it. False also where
    this cannot be told: no rule covers the case, and there are too many sets of endings to try. A
    pod that takes its devices only at its start must find them there too, if it starts at once.
    """
    admission = admit(state, pod)
    if not admission.admitted:
        return False
    if is_monotone(state, pod, admission) or find_zones(state, [pod], endable):
        return True
    endings = _endings(state, endable)
    return endings is not None and all(_starts(ended, pod) for ended in endings)


def _starts(state: NodeState, pod: Pod) -> bool:
    admission = admit(state, pod)
    if not admission.admitted:
        return False
    if not takes_devices_at_start(state, pod):
        return True
    return not start_containers(admission.state, pod, admission.hints).failed


def fits_under_every_outcome(
    states: Iterable[NodeState], pod: Pod, endable: Collection[str] = ()
) -> bool:
    """Whether the pod is admitted in each of the states, whichever endable pods end before.

    False when there is no state at all. ``states`` are most often the :func:`outcomes` of the pods
    that were bound before and are not confirmed yet.
    """
    verdicts = [certain_under_endings(state, pod, endable) for state in states]
    return bool(verdicts) and all(verdicts)


def outcomes(
    state: NodeState, pods: Iterable[Pod], endable: Collection[str] = ()
) -> tuple[NodeState, ...] | None:
    """Every state that the pods may leave behind, admitted in this order while any of the endable
    pods end before each of them. None when one of them may be refused, or when there are more
    states than it is worth to list.
    """
    states = [state]
    for pod in pods:
        after: list[NodeState] = []
        for before in states:
            for ended in _endings(before, endable) or (None,):
                possible = possible_states(ended, pod) if ended is not None else None
                if possible is None or len(after) + len(possible) > MAX_ENDINGS:
                    return None
                after += possible
        states = after
    return tuple(states)


def is_monotone(state: NodeState, pod: Pod, admission: Admission) -> bool:
    """Whether a rule says that this admission stands whatever held pods have ended.

    The rule: one merge decides (only one container asks for anything, or pod scope), its result was
    preferred, and the memory manager had an opinion. A freer node then offers the same preferred
    affinities and maybe more, and whichever is best has room for the whole request. Where nothing
    but sums counts, nothing can go wrong either: they only grow. No rule is known for pods with
    pod-level resources under the gate PodLevelResourceManagers.
    """
    rules = rules_of(state.config, state.kubelet_version)
    if demand.is_pod_level(pod, rules):
        return False
    asked = Demand(pod, rules, state.devices)
    asking = asked.asking
    alone = len(asking) <= 1
    # What a later container finds to reuse depends on what was picked for an earlier one.
    reuses = any(container.kind is ContainerKind.INIT for container in asking[:-1])
    pinned = [name for name, holding in admission.holdings.items() if holding.memory]
    if not picks_always_succeed(state, rules, alone=alone):
        return False
    if not alone and reuses:
        return False
    if rules.policy in (merge.NONE, merge.BEST_EFFORT) and not pinned:
        return True
    if rules.policy == merge.NONE:
        return alone
    if not alone and not (rules.pod_scope and asked.is_seen_whole):
        return False
    return all(
        merged.best[1] and (merged.providers[2] or merged.container not in ("*", *pinned))
        for merged in admission.merges
    )


def fit_together(
    state: NodeState, pods: Sequence[Pod], *, steady: bool = False, fuller: bool = True
) -> bool:
    """Whether all the pods are admitted in any order, whatever zones each of them takes.

    This is the question for pods in flight: the kubelet may be freer than ``state``, so nobody
    knows where they are. Where each belongs into single zones, all that can happen is followed
    (:func:`rte.placement.inflight.zones.find_zones`); where nobody is refused for zones, amounts
    decide (:func:`rte.placement.inflight.spread.admits_whatever_ends`). Else each is tried against
    a node where all the others hold their share in **every** zone. That leaves less than any real
    outcome, so what is admitted there stands if its admission is monotone or finds zones whatever
    is free beyond (:func:`is_monotone`). False where no rule says so, where outcomes do not differ
    by zone alone, and for too many pods.

    Args:
        state: of the node, without the pods.
        pods: that come, or have come already.
        steady: nothing has ended and nothing can, so only the order is open: then all states that
            the pods can lead to are walked, where the rules say no.
        fuller: the node may have been fuller when it admitted some of them.
    """
    zonewise = len(pods) <= MOST_TOGETHER and _is_zonewise(state)
    if zonewise and _fit_by_room(state, pods):
        return True
    kinds = {shape_key(pod): pod for pod in pods}
    if not all(admit(state, pod).admitted for pod in kinds.values()):
        return False
    if find_zones(state, pods, state.holdings, in_order=not fuller) or (
        not fuller and admits_whatever_ends(state, pods)
    ):
        return True
    if len(pods) > MOST_TOGETHER:
        return False
    if zonewise and _fit_by_rule(state, pods):
        return True
    if not steady:
        return False
    try:
        orders = Orders([state], pods, StepBudget(MAX_STEPS))
        return orders.refusal(tuple(range(len(pods)))) is None
    except CutOff:
        return False


def _fit_by_room(state: NodeState, pods: Sequence[Pod]) -> bool:
    """:func:`_fit_by_rule` where that comes down to sums; False where it does not.

    It does where each pod is one unit that must go into a single zone and does whenever one has
    room: then the zone that is left to it beside the shares of all others is all that counts.
    """
    try:
        rules = rules_of(state.config, state.kubelet_version)
    except outcome.Unpredictable:
        return False
    if (
        rules.policy != merge.SINGLE_NUMA_NODE
        or (rules.cpu is not None and rules.cpu.full_pcpus_only)
        or not goes_to_one_zone(state, rules)
    ):
        return False
    units = []
    for pod in pods:
        if (
            not Demand(pod, rules, state.devices).is_one_unit
            or any(box.kind is ContainerKind.INIT for box in pod.containers)
            or any(demand.devices_requested(box, state.devices) for box in pod.containers)
        ):
            return False
        unit = _most_held(state, pod)
        if not unit or (rules.memory and memory.MEMORY not in unit):
            return False
        units.append(unit)
    rooms = free_of(state).zones.values()
    if any(name not in room for unit in units for name in unit for room in rooms):
        return False
    total = quantity.total(units)
    return all(
        any(all(room[name] >= total[name] for name in unit) for room in rooms) for unit in units
    )


def _fit_by_rule(state: NodeState, pods: Sequence[Pod]) -> bool:
    shares = [_most_held(state, pod) for pod in pods]
    for index, pod in enumerate(pods):
        crowded = state
        for other, share in enumerate(shares):
            if other != index:
                crowded = _hold_everywhere(crowded, f"together-{other}", share)
        admission = admit(crowded, pod)
        if not admission.admitted:
            return False
        if not is_monotone(crowded, pod, admission) and not find_zones(
            crowded, [pod], crowded.holdings.keys()
        ):
            return False
    return True


def _endings(state: NodeState, endable: Collection[str]) -> list[NodeState] | None:
    """The state after each set of endings, the empty one included; None when they are too many."""
    held = sorted(uid for uid in endable if state.holdings.get(uid))
    if 1 << len(held) > MAX_ENDINGS:
        return None
    present = frozenset(state.holdings) | state.admitted
    return [
        settle(state, present.difference(gone))
        for count in range(len(held) + 1)
        for gone in combinations(held, count)
    ]


def _most_held(state: NodeState, pod: Pod) -> dict[str, int]:
    """What the pod may come to hold at most: no container reuses anything of another."""
    rules = rules_of(state.config, state.kubelet_version)
    return quantity.total(Demand(pod, rules, state.devices).each)


def _hold_everywhere(state: NodeState, uid: str, share: Mapping[str, int]) -> NodeState:
    """The node as if a pod held its share in each zone at once, as far as there is any.

    CPUs are taken whole cores first; memory is taken from every row that has the type.
    """
    taken = 0
    for zone in state.topology.zone_cpus.values():
        free = zone & state.shared & ~state.reserved
        taken |= _whole_cores_first(state, free, share.get("cpu", 0))
    rows, blocks = {}, []
    for zone, row in state.memory.items():
        rows[zone], held = _drained(zone, row, share)
        blocks += held
    ghost = Holding(cpus=taken, memory=tuple(blocks), devices=_free_devices(state, share))
    return replace(
        state,
        shared=state.shared & ~taken,
        memory=rows,
        admitted=state.admitted | {uid},
        holdings={**state.holdings, uid: {"": ghost}},
    )


def _is_zonewise(state: NodeState) -> bool:
    """Whether outcomes differ by zone only: a memory manager that may bind zones into groups makes
    outcomes that "every zone" does not cover.
    """
    return (
        state.config.memory_policy != "Static"
        or state.config.topology_policy == "single-numa-node"
        or len(state.topology.zones) == 1
    )


def _whole_cores_first(state: NodeState, free: CPUSet, count: int) -> CPUSet:
    """``count`` free CPUs (all where there are less), those of wholly free cores first.

    They are what a kubelet with ``full-pcpus-only`` needs.
    """
    cores: dict[int, CPUSet] = {}
    for info in state.topology.cpus:
        if free >> info.cpu & 1:
            cores[info.core] = cores.get(info.core, 0) | 1 << info.cpu
    ordered = sorted(cores.values(), key=lambda core: -core.bit_count())
    return bits.of(islice((cpu for core in ordered for cpu in bits.members(core)), count))


def _free_devices(state: NodeState, wanted: Mapping[str, int]) -> dict[str, int]:
    """For each resource, that many free devices of each exact zone set, as far as there are."""
    out: dict[str, int] = {}
    for name, pool in state.devices.items():
        count = wanted.get(name, 0)
        unused = pool.healthy & ~devices.held(state, name)
        for group in pool.by_zones.values():
            if taken := bits.first(group & unused, count):
                out[name] = out.get(name, 0) | taken
    return out


def _drained(
    zone: int, row: ZoneMemory, wanted: Mapping[str, int]
) -> tuple[ZoneMemory, list[MemoryBlock]]:
    """The row with the amounts reserved, as far as they are free, and the blocks of whom they
    are reserved for.
    """
    amounts = dict(row.amounts)
    blocks = []
    for name, old in row.amounts.items():
        part = min(wanted.get(name, 0), old.free)
        if name in wanted:
            amounts[name] = replace(old, reserved=old.reserved + part, free=old.free - part)
            blocks.append(MemoryBlock(name, 1 << zone, part))
    return replace(row, assignments=row.assignments + len(blocks), amounts=amounts), blocks
