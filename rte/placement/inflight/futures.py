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

from rte.model import bits
from rte.model.node import Holding, MemoryBlock, ZoneMemory
from rte.model.pod import ContainerKind
from rte.placement.inflight.orders import Budget, CutOff, Orders
from rte.placement.kubelet import demand, devices, layout, memory, merge, outcome
from rte.placement.kubelet.admission import (
    admit,
    possible_states,
    settle,
    start_containers,
    takes_devices_at_start,
)
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.node import NodeState
    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.outcome import Admission
    from rte.placement.kubelet.rules import Rules

#: Endings that are tried one by one, where no rule says that they do no harm.
MAX_ENDINGS = 64
#: Zones that are followed before a game counts as lost.
MAX_MOVES = 4096
#: More pods than this are not looked at together: each costs an admission.
MOST_TOGETHER = 8
#: Admissions that following their orders may cost.
MAX_STEPS = 128


def certain_under_endings(state: NodeState, pod: Pod, endable: Collection[str]) -> bool:
    """Whether the pod is admitted now, and also when any of the endable pods have ended.

    ``endable`` are UIDs of held pods that may be gone before the API shows it. False also where
    this cannot be told: no rule covers the case, and there are too many sets of endings to try. A
    pod that takes its devices only at its start must find them there too, if it starts at once.
    """
    admission = admit(state, pod)
    if not admission.admitted:
        return False
    if is_monotone(state, pod, admission) or finds_zones(state, pod, endable):
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
    asking = _asking(state, pod, rules)
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
    if not alone and not (rules.pod_scope and merge_sees_all(pod)):
        return False
    return all(
        merged.best[1] and (merged.providers[2] or merged.container not in ("*", *pinned))
        for merged in admission.merges
    )


def finds_zones(state: NodeState, pod: Pod, endable: Collection[str]) -> bool:
    """Whether each container finds a zone, whichever endable pods end before or between them.

    Answers without trying endings where each container (or the pod, under pod scope) belongs into a
    single zone: it goes to the lowest zone that holds it, so at the latest to the first that
    *surely* does, which is one with room in the state as we know it. All zones up to there are
    followed. False where this reasoning does not apply.
    """
    rules = rules_of(state.config, state.kubelet_version)
    if demand.is_pod_level(pod, rules) or not goes_to_one_zone(state, rules):
        return False
    asking = _asking(state, pod, rules)
    if any(container.kind is ContainerKind.INIT for container in asking):
        return False
    if rules.pod_scope and not merge_sees_all(pod):
        return False
    units: list[Mapping[str, int]] = [
        _zonal_demand(state, pod, container, rules) for container in asking
    ]
    if rules.pod_scope:
        units = [_sum(units)]
    everywhere = _sum(units)
    room = _room(state)
    for name, pool in state.devices.items():
        if not devices.has_zones(pool) and everywhere.get(name, 0) > room[-1].get(name, 0):
            return False
    freest = _room(settle(state, (frozenset(state.holdings) | state.admitted).difference(endable)))
    game = _Game(units, room[:-1], freest[:-1], in_order=not rules.prefer_closest)
    return game.is_won(0, [{} for _ in room[:-1]])


def fit_together(state: NodeState, pods: Sequence[Pod], *, steady: bool = False) -> bool:
    """Whether all the pods are admitted in any order, whatever zones each of them takes.

    This is the question for pods in flight: the kubelet may be freer than ``state``, or may have
    been fuller when it admitted some of them, so nobody knows where they are. Each is tried against
    a node where all the others hold their share in **every** zone. That leaves less than any real
    outcome, so what is admitted there stands if its admission is monotone or finds zones whatever
    is free beyond (:func:`is_monotone`, :func:`finds_zones`). False where no rule says so, where
    outcomes do not differ by zone alone, and for too many pods.

    ``steady``: nothing has ended and nothing can, so only the order is open: then all states that
    the pods can lead to are walked, where the rule says no.
    """
    if len(pods) > MOST_TOGETHER:
        return False
    if is_zonewise(state) and _fit_by_rule(state, pods):
        return True
    if not steady:
        return False
    try:
        orders = Orders([state], pods, Budget(MAX_STEPS))
        return orders.refusal(tuple(range(len(pods)))) is None
    except CutOff:
        return False


def _fit_by_rule(state: NodeState, pods: Sequence[Pod]) -> bool:
    by_room = _fit_by_room(state, pods)
    return _fit_by_admissions(state, pods) if by_room is None else by_room


def _fit_by_room(state: NodeState, pods: Sequence[Pod]) -> bool | None:
    """:func:`_fit_by_admissions` where that comes down to sums, else None.

    It does where each pod is one unit that must go into a single zone and does whenever one has
    room: then the zone that is left to it beside the shares of all others is all that counts.
    """
    try:
        rules = rules_of(state.config, state.kubelet_version)
    except outcome.Unpredictable:
        return None
    if (
        rules.policy != merge.SINGLE_NUMA_NODE
        or (rules.cpu is not None and rules.cpu.full_pcpus_only)
        or not goes_to_one_zone(state, rules)
    ):
        return None
    units = []
    for pod in pods:
        if (
            not is_one_unit(state, pod, rules)
            or any(box.kind is ContainerKind.INIT for box in pod.containers)
            or any(devices.requested(box, state.devices) for box in pod.containers)
        ):
            return None
        unit = _most_held(state, pod)
        if not unit or (rules.memory and memory.MEMORY not in unit):
            return None
        units.append(unit)
    rooms = _room(state)[:-1]
    if any(name not in room for unit in units for name in unit for room in rooms):
        return None
    total = _sum(units)
    return all(
        any(all(room[name] >= total[name] for name in unit) for room in rooms) for unit in units
    )


def _fit_by_admissions(state: NodeState, pods: Sequence[Pod]) -> bool:
    if not all(admit(state, pod).admitted for pod in pods):
        return False
    shares = [_most_held(state, pod) for pod in pods]
    for index, pod in enumerate(pods):
        crowded = state
        for other, share in enumerate(shares):
            if other != index:
                crowded = _hold_everywhere(crowded, f"together-{other}", share)
        admission = admit(crowded, pod)
        if not admission.admitted:
            return False
        if not is_monotone(crowded, pod, admission) and not finds_zones(
            crowded, pod, crowded.holdings.keys()
        ):
            return False
    return True


class _Game:
    """Containers in turn against a kubelet that may be freer than known."""

    def __init__(
        self,
        units: Sequence[Mapping[str, int]],
        room: Sequence[Mapping[str, int]],
        freest: Sequence[Mapping[str, int]],
        *,
        in_order: bool,
    ) -> None:
        self.units = units
        self.room = room
        self.freest = freest
        self.in_order = in_order
        self.moves = MAX_MOVES

    def is_won(self, turn: int, loads: list[Mapping[str, int]]) -> bool:
        """Whether all units from this one on find a zone, whatever the kubelet knows."""
        if turn == len(self.units):
            return True
        unit = self.units[turn]
        zonal = {name: amount for name, amount in unit.items() if name in self.room[0]}
        if not zonal:
            return self.is_won(turn + 1, loads)
        sure = [place for place, free in enumerate(self.room) if _holds(free, loads[place], zonal)]
        if not sure:
            return False
        for place, free in enumerate(self.freest):
            if self.in_order and place > sure[0]:
                break
            self.moves -= 1
            if self.moves < 0:
                return False
            if _holds(free, loads[place], zonal):
                after = list(loads)
                after[place] = _sum([loads[place], zonal])
                if not self.is_won(turn + 1, after):
                    return False
        return True


def _holds(free: Mapping[str, int], load: Mapping[str, int], unit: Mapping[str, int]) -> bool:
    return all(free.get(name, 0) - load.get(name, 0) >= amount for name, amount in unit.items())


def goes_to_one_zone(state: NodeState, rules: Rules) -> bool:
    """Whether a unit that some zone holds gets its resources from exactly one zone."""
    return (
        rules.policy != merge.NONE
        and bool(state.topology.zones)
        and not (rules.cpu is not None and rules.cpu.align_by_socket)
        and picks_always_succeed(state, rules, alone=False)
        and all(row.group == 1 << zone for zone, row in state.memory.items())
        and not any(
            zones is not None and zones & (zones - 1)
            for pool in state.devices.values()
            for zones in pool.zones
        )
    )


def is_one_unit(state: NodeState, pod: Pod, rules: Rules) -> bool:
    """Whether one merge places all that the pod asks for."""
    if demand.is_pod_level(pod, rules):  # its devices are taken later, container by container
        return False
    asking = _asking(state, pod, rules)
    if rules.pod_scope:
        return merge_sees_all(pod)
    return len(asking) == 1 and asking[0].kind is not ContainerKind.INIT


def _zonal_demand(state: NodeState, pod: Pod, container: Container, rules: Rules) -> dict[str, int]:
    wanted = {
        **devices.requested(container, state.devices),
        **demand.memory_of(pod, container, rules),
        "cpu": demand.cpus_of(pod, container, rules),
    }
    return {name: amount for name, amount in wanted.items() if amount}


def _room(state: NodeState) -> list[dict[str, int]]:
    """What is free in each zone; last, devices that belong to none."""
    assignable = state.shared & ~state.reserved
    rows = []
    for zone in state.topology.zones:
        amounts = state.memory[zone.id].amounts if state.memory else {}
        row = {name: part.free for name, part in amounts.items()}
        row["cpu"] = (state.topology.zone_cpus[zone.id] & assignable).bit_count()
        rows.append(row)
    rows.append({})
    places = {zone.id: row for zone, row in zip(state.topology.zones, rows, strict=False)}
    for name, pool in state.devices.items():
        unused = pool.healthy & ~devices.held(state, name)
        if not devices.has_zones(pool):
            rows[-1][name] = unused.bit_count()
            continue
        for row in places.values():
            row[name] = 0
        for place in bits.members(unused):
            home = bits.lowest(pool.zones[place] or 0)
            if home in places:
                places[home][name] += 1
    return rows


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def merge_sees_all(pod: Pod) -> bool:
    """Whether the pod-scope merge knows of all memory: it leaves out what no app container asks."""
    asked = {name for box in pod.containers for name in memory.requested(box.requests)}
    return asked <= memory.pod_requested(pod).keys()


def _asking(state: NodeState, pod: Pod, rules: Rules) -> list[Container]:
    """Containers for which the managers have anything to do."""
    asks_memory = rules.memory and demand.is_served(pod, rules)
    return [
        container
        for container in pod.containers
        if devices.requested(container, state.devices)
        or asks_memory
        or demand.cpus_of(pod, container, rules)
    ]


def picks_always_succeed(state: NodeState, rules: Rules, *, alone: bool) -> bool:
    """Whether enough CPUs are all that a pick needs."""
    if rules.cpu is None:
        return True
    machine = layout.of(state.topology)
    if not machine.is_regular:
        return False
    if rules.cpu.across_numa and len(machine.zones) > 4:
        # Slice sharing can make the kubelet use zones that lack the CPUs.
        return False
    if rules.cpu.full_pcpus_only and (rules.cpu.across_numa or not alone):
        return all(
            machine.siblings(part) == part
            for part in (
                state.reserved,
                state.shared,
                *(state.held_cpus(uid) for uid in state.holdings),
            )
        )
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
    return _sum(_zonal_demand(state, pod, container, rules) for container in pod.containers)


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


def is_zonewise(state: NodeState) -> bool:
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
        by_zones: dict[int | None, int] = {}
        for position in bits.members(pool.healthy & ~devices.held(state, name)):
            zones = pool.zones[position]
            if by_zones.get(zones, 0) < count:
                by_zones[zones] = by_zones.get(zones, 0) + 1
                out[name] = out.get(name, 0) | 1 << position
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
