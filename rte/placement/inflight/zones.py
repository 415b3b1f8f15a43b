"""Pods that each belong into single zones, on a node that may be freer than known: the worst case.

Where the topology manager gives a unit (a container, or a pod under pod scope) to one zone, it goes
to the lowest zone that holds it: at the latest to the first that *surely* does, which is one with
room in the state as we know it. So all that can happen is followed zone by zone, as a game against
a kubelet that knows of endings and chooses the order of the pods, and no admission is predicted.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from rte.model import bits, quantity
from rte.placement.inflight.orders import without
from rte.placement.kubelet import devices, merge
from rte.placement.kubelet.admission import settle
from rte.placement.kubelet.cpu import pickers
from rte.placement.kubelet.demand import Demand, free_of, is_grouped
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rte.model.bits import ZoneSet
    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.inflight.orders import StepBudget
    from rte.placement.kubelet.rules import KubeletRules

#: Zones that are followed before a game counts as lost.
MAX_MOVES = 1024

#: Work of a walk that counts as one step of a budget, and that of a question beside its placements.
WORK_PER_STEP, QUESTION = 64, 16

#: More than sums of shares are off by.
_ROUNDING = 1e-9

#: Amounts by resource, in one fixed order.
_Amounts: TypeAlias = tuple[int, ...]
#: Zone -> what the pods so far hold of it.
_Loads: TypeAlias = tuple[_Amounts, ...]
#: What a pod's containers ask of zones, in the order in which they are served.
_Units: TypeAlias = tuple[_Amounts, ...]


def find_zones(
    state: NodeState, pods: Sequence[Pod], endable: Collection[str], *, in_order: bool = True
) -> bool:
    """Whether each container finds a zone, in whatever order the pods come, and whichever endable
    pods end before, between or during their admissions.

    False where this reasoning does not apply, or takes too many moves.

    Args:
        state: of the node, without the pods.
        pods: that come.
        endable: UIDs of held pods.
        in_order: they go to the lowest zone that holds them; False: some came while the node was
            fuller, so nobody knows where they are.
    """
    rules = rules_of(state.config, state.kubelet_version)
    if not goes_to_one_zone(state, rules):
        return False
    if not in_order and rules.policy == merge.BEST_EFFORT:
        # On a fuller node they may have spread over zones.
        return False
    wanted = []
    for pod in pods:
        units = Demand(pod, rules, state.devices).units
        if units is None:
            return False
        wanted.append(units)
    free = free_of(state)
    room = list(free.zones.values())
    everything = quantity.total(unit for units in wanted for unit in units)
    for name, pool in state.devices.items():
        if not devices.has_zones(pool) and everything.get(name, 0) > free.devices[name]:
            return False
    present = frozenset(state.holdings) | state.admitted
    freest = free_of(settle(state, present.difference(endable))).zones.values()
    names = [name for name in everything if name in room[0]]
    kinds = Counter(tuple(_row(unit, names) for unit in units) for units in wanted)
    rows = [_row(row, names) for row in room]
    if is_ample([unit for kind in kinds.elements() for unit in kind], rows):
        return True
    game = _Game(
        tuple(kinds),
        rows,
        [_row(row, names) for row in freest],
        in_order=in_order and takes_lowest_zone(state, rules),
    )
    return game.is_won(tuple(kinds.values()), ((0,) * len(names),) * len(room))


def is_ample(units: Collection[_Amounts], room: Sequence[_Amounts]) -> bool:
    """Whether each of the units finds a zone wherever all the others are: these cannot fill up
    every zone for it.

    A zone is filled up by what it has of a resource that the unit asks for, less the unit, and one
    more. As shares of what the others hold, that adds up to 1 at most for each resource.
    """
    total = [sum(amounts) for amounts in zip(*units, strict=True)]
    return not any(_can_be_filled_up(unit, total, room) for unit in set(units))


def _can_be_filled_up(unit: _Amounts, total: Sequence[int], room: Sequence[_Amounts]) -> bool:
    spent, open_zones = 0.0, 0
    by_resource: dict[int, list[float]] = {}
    for zone in room:
        if any(free < asked for free, asked in zip(zone, unit, strict=True)):
            continue
        shares = {
            resource: (free - asked + 1) / (whole - asked)
            for resource, (free, asked, whole) in enumerate(zip(zone, unit, total, strict=True))
            if asked and free < whole
        }
        if not shares:
            return False
        open_zones += 1
        spent += min(shares.values())
        for resource, share in shares.items():
            by_resource.setdefault(resource, []).append(share)
    if spent >= len(by_resource) + _ROUNDING:
        return False
    filled = sum(
        sum(share <= 1 + _ROUNDING for share in accumulate(sorted(shares)))
        for shares in by_resource.values()
    )
    return filled >= open_zones


class ZoneWalk:
    """Pods in any order on a node where nothing ends: their zones, and no admission is predicted.

    The same question as :class:`rte.placement.inflight.orders.Orders` answers, for pods that each
    belong into single zones. What a set of pods may lead to is remembered; kinds that ask zones for
    the same are one class there.

    Args:
        state: of the node; nothing on it ends.
        kinds: one pod of each kind.
        budget: what asking may cost.
    """

    def __init__(self, state: NodeState, kinds: Sequence[Pod], budget: StepBudget) -> None:
        self._budget = budget
        self._work = 0
        rules = rules_of(state.config, state.kubelet_version)
        follows = prefers_one_zone(state, rules) and takes_lowest_zone(state, rules)
        units = [Demand(pod, rules, state.devices).units if follows else None for pod in kinds]
        free = free_of(state)
        self._devices, room = free.devices, list(free.single.values())
        empty = free_of(settle(state, frozenset())).zones.values()
        names = sorted({name for each in units for unit in each or () for name in unit})
        zonal = [name for name in names if room and name in room[0]]
        self._loose = [name for name in names if name not in zonal]
        self._wanted = [quantity.total(each) if each is not None else {} for each in units]
        asked = [
            None if each is None else tuple(_row(unit, zonal) for unit in each) for each in units
        ]
        #: Class -> its units; None: they are not followed.
        self._units = list(dict.fromkeys(asked))
        self._class = [self._units.index(each) for each in asked]
        self._room = [_row(row, zonal) for row in room]
        self._sums = _sum_of_rows(self._room, len(zonal))
        # What would fit into an empty zone has no wider place that restricted takes.
        rows = [_row(row, zonal) for row in empty]
        none = (0,) * len(zonal)
        self._is_final = [
            rules.policy == merge.SINGLE_NUMA_NODE
            or (
                rules.policy == merge.RESTRICTED
                and all(any(_holds(row, none, unit) for row in rows) for unit in each or ())
            )
            for each in self._units
        ]
        self._known: dict[tuple[int, ...], frozenset[_Loads] | None] = {
            (): frozenset({(none,) * len(room)})
        }

    def admits(self, bundle: Sequence[int]) -> bool | None:
        """Whether these pods (numbers of kinds) are admitted in every order; None: that cannot be
        told here.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        classes = tuple(sorted(self._class[kind] for kind in bundle))
        followed = [units for units in map(self._units.__getitem__, classes) if units is not None]
        if len(followed) < len(classes):
            return None
        for name in self._loose:
            wanted = sum(self._wanted[kind].get(name, 0) for kind in bundle)
            if wanted > self._devices.get(name, 0):
                return None
        self._spend(QUESTION)
        units = [unit for each in followed for unit in each if any(unit)]
        if self._is_enough(units) and (
            is_ample(units, self._room) or self._reach(classes) is not None
        ):
            return True
        return False if all(self._is_final[each] for each in classes) else None

    def _is_enough(self, units: Sequence[_Amounts]) -> bool:
        """Whether all zones together hold the units."""
        return all(
            amount <= free
            for amount, free in zip(_sum_of_rows(units, len(self._sums)), self._sums, strict=True)
        )

    def _spend(self, work: int) -> None:
        steps, self._work = divmod(self._work + work, WORK_PER_STEP)
        self._budget.spend(steps)

    def _reach(self, classes: tuple[int, ...]) -> frozenset[_Loads] | None:
        """Every load that the pods may lead to; None: some order is refused."""
        if classes not in self._known:
            self._known[classes] = self._follow(classes)
        return self._known[classes]

    def _follow(self, classes: tuple[int, ...]) -> frozenset[_Loads] | None:
        reached: set[_Loads] = set()
        for each in dict.fromkeys(classes):
            before = self._reach(without(classes, each))
            if before is None:
                return None
            self._spend(len(before))
            for loads in before:
                after = self._place(self._units[each] or (), loads)
                if after is None:
                    return None
                reached.add(after)
        return frozenset(reached)

    def _place(self, units: _Units, loads: _Loads) -> _Loads | None:
        for unit in units:
            if not any(unit):
                continue
            zone = next(
                (z for z, free in enumerate(self._room) if _holds(free, loads[z], unit)), None
            )
            if zone is None:
                return None
            load = tuple(a + b for a, b in zip(loads[zone], unit, strict=True))
            loads = (*loads[:zone], load, *loads[zone + 1 :])
        return loads


def _row(amounts: Mapping[str, int], names: Sequence[str]) -> _Amounts:
    return tuple(amounts.get(name, 0) for name in names)


def _sum_of_rows(rows: Iterable[_Amounts], width: int) -> _Amounts:
    return tuple(map(sum, zip((0,) * width, *rows, strict=True)))


class _Game:
    """Pods in any order against a kubelet that may be freer than known."""

    def __init__(
        self,
        kinds: Sequence[_Units],
        room: Sequence[_Amounts],
        freest: Sequence[_Amounts],
        *,
        in_order: bool,
    ) -> None:
        self._kinds = kinds
        self._room = room
        self._freest = freest
        self._in_order = in_order
        self._moves = MAX_MOVES
        self._won: set[tuple[tuple[int, ...], _Loads]] = set()

    def is_won(self, left: tuple[int, ...], loads: _Loads) -> bool:
        """Whether so many pods of each kind find their zones beside these loads."""
        if not any(left) or (left, loads) in self._won:
            return True
        for kind, count in enumerate(left):
            if not count:
                continue
            rest = (*left[:kind], count - 1, *left[kind + 1 :])
            after = self._places(self._kinds[kind], loads)
            if after is None or not all(self.is_won(rest, each) for each in after):
                return False
        self._won.add((left, loads))
        return True

    def _places(self, units: _Units, loads: _Loads) -> set[_Loads] | None:
        """All that a pod may lead to; None: some container may find no zone, or moves ran out."""
        reached = {loads}
        for unit in units:
            if not any(unit):
                continue
            after: set[_Loads] = set()
            for before in reached:
                found = self._zones(unit, before)
                if not found:
                    return None
                for zone in found:
                    load = tuple(a + b for a, b in zip(before[zone], unit, strict=True))
                    after.add((*before[:zone], load, *before[zone + 1 :]))
            reached = after
        return reached

    def _zones(self, unit: _Amounts, loads: _Loads) -> list[int]:
        """Where a unit may go; nowhere: it does not surely find a zone."""
        sure = next((z for z, free in enumerate(self._room) if _holds(free, loads[z], unit)), None)
        if sure is None:
            return []
        last = sure + 1 if self._in_order else len(self._room)
        self._moves -= last
        if self._moves < 0:
            return []
        return [z for z in range(last) if _holds(self._freest[z], loads[z], unit)]


def _holds(free: _Amounts, load: _Amounts, unit: _Amounts) -> bool:
    # A loop, for this is asked a thousand times in one game.
    for has, held, asked in zip(free, load, unit, strict=True):  # noqa: SIM110
        if has - held < asked:
            return False
    return True


def goes_to_one_zone(state: NodeState, rules: KubeletRules) -> bool:
    """Whether a unit that some zone holds gets its resources from exactly one zone."""
    return prefers_one_zone(state, rules) and not any(
        is_grouped(row) for row in state.memory.values()
    )


def prefers_one_zone(state: NodeState, rules: KubeletRules) -> bool:
    """The same, but for memory that serves zones together: no unit gets a single one of them."""
    return (
        rules.policy != merge.NONE
        and bool(state.topology.zones)
        and not (rules.cpu is not None and rules.cpu.align_by_socket)
        and picks_always_succeed(state, rules, alone=False)
        and not any(
            zones is not None and zones & (zones - 1)
            for pool in state.devices.values()
            for zones in pool.by_zones
        )
    )


def takes_lowest_zone(state: NodeState, rules: KubeletRules) -> bool:
    """Whether a unit goes to the lowest of the zones that hold it.

    With prefer-closest-numa-nodes it goes to the one that is nearest to itself, under policies that
    look at distances (kubelet: topologymanager/policy.go, NewHintMerger).
    """
    if not rules.prefer_closest or rules.policy == merge.SINGLE_NUMA_NODE:
        return True
    zones = state.topology.zones
    if any(zone.id != index or len(zone.distances) <= index for index, zone in enumerate(zones)):
        return False
    return len({zone.distances[zone.id] for zone in zones}) <= 1


def picks_always_succeed(state: NodeState, rules: KubeletRules, *, alone: bool) -> bool:
    """Whether enough CPUs are all that a pick needs, and hints are over zones that are followed."""
    if _combined_zones(state, rules).bit_count() > merge.MAX_ZONES:
        return False
    if rules.cpu is None:
        return True
    machine = pickers.layout_of(state.topology)
    if not machine.is_regular(by_uncore=rules.cpu.prefer_uncore):
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


def _combined_zones(state: NodeState, rules: KubeletRules) -> ZoneSet:
    """The zones of which hints of this node's kubelet may combine any."""
    zones = bits.of(state.memory) if rules.memory else 0
    if rules.policy == merge.NONE:
        return zones
    if rules.cpu is not None:
        zones |= bits.of(pickers.layout_of(state.topology).zone_ids)
    for pool in filter(devices.has_zones, state.devices.values()):
        if not rules.device_zones_only:
            return zones | state.topology.zone_mask
        for each in pool.by_zones:
            zones |= each or 0
    return zones
