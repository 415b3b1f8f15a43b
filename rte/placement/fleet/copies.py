"""How many copies of one pod each node admits, one after the other: by arrays, where that is exact.

A container (the whole pod, under pod scope) that has to lie in one zone goes to the lowest zone
with room for all of it; where only sums count there is nothing to choose. So counting needs no
prediction where no container reuses what another one held, every pick of free CPUs succeeds, and no
device or memory group spans zones. Elsewhere the answer is :data:`UNKNOWN`, and
:func:`rte.placement.admit` has to be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rte.model import quantity
from rte.model.pod import QOS, ContainerKind
from rte.placement.fleet.screen import ABSENT, MUCH
from rte.placement.kubelet import demand, merge
from rte.placement.kubelet.demand import Demand, has_pod_level_resources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.pod import Pod
    from rte.placement.fleet.screen import Array, NodeTable, Treatment, Unit

#: Where an answer needs the prediction.
UNKNOWN = -1


def count_by_totals(table: NodeTable, wanted: Mapping[str, int]) -> Array:
    """For each row the copies that node totals allow.

    ``wanted``: what one copy counts for on node level.
    """
    out = np.full(len(table.names), MUCH, dtype=np.int64)
    for name, amount in wanted.items():
        if amount:
            free = table.room.get(name, np.zeros(len(out), dtype=np.int64))[: len(out)]
            out = np.minimum(out, free // min(amount, quantity.MOST))
    return out


def count_copies(table: NodeTable, pod: Pod, wanted: Mapping[str, int]) -> Array:
    """For each row the copies that the kubelet admits, or :data:`UNKNOWN`.

    Args:
        table: the nodes.
        pod: what is copied.
        wanted: what one copy counts for on node level.
    """
    out = np.full(len(table.names), UNKNOWN, dtype=np.int64)
    reuses = any(container.kind is ContainerKind.INIT for container in pod.containers)
    if reuses or has_pod_level_resources(pod):
        return out
    totals = count_by_totals(table, wanted)
    for treatment, rows in table.alike(np.arange(len(out))):
        if treatment.counts:
            found = _count(table, treatment, rows, pod, totals[rows])
            out[rows] = np.where(found == UNKNOWN, UNKNOWN, np.minimum(found, totals[rows]))
    for name in {name for each in pod.containers for name in each.limits}:
        out[list(table.pools.get(name, ()))] = UNKNOWN
    return out


def _count(table: NodeTable, treatment: Treatment, rows: Array, pod: Pod, totals: Array) -> Array:
    rules = treatment.rules
    asked = Demand(pod, rules, table.pools)
    units: Sequence[Unit] = asked.each
    unknown = np.full(len(rows), UNKNOWN, dtype=np.int64)
    if any(unit.get("cpu", 0) % treatment.threads for unit in units):
        return unknown
    asks_memory = rules.memory and pod.qos is QOS.GUARANTEED
    if asks_memory and not all(demand.memory_requested(each.requests) for each in pod.containers):
        # The memory manager also refuses containers that ask it for nothing.
        return unknown
    if rules.policy in (merge.NONE, merge.BEST_EFFORT):
        return unknown if asks_memory else _by_sums(table, rows, quantity.total(units))
    if rules.pod_scope:
        if asks_memory and not asked.is_seen_whole:
            return unknown
        units = [quantity.total(units)]
    return _by_zones(table, rows, units, totals, sizes_matter=rules.policy == merge.RESTRICTED)


def _by_sums(table: NodeTable, rows: Array, wanted: Unit) -> Array:
    """Whatever zones the parts come from."""
    out = np.full(len(rows), MUCH, dtype=np.int64)
    for name, amount in wanted.items():
        free = table.sums[name][rows]
        out = np.where(free == ABSENT, out, np.minimum(out, free // amount))
    return out


def _by_zones(
    table: NodeTable, rows: Array, units: Sequence[Unit], totals: Array, *, sizes_matter: bool
) -> Array:
    """Each unit in one zone, the lowest that has room for it."""
    out = np.full(len(rows), MUCH, dtype=np.int64)
    known = np.ones(len(rows), dtype=bool)
    sized: dict[str, Array] = {}
    for name, amount in quantity.total(units).items():
        sums = table.sums[name][rows] if name in table.sums else np.full(len(rows), ABSENT)
        here = sums != ABSENT
        known &= here | (not demand.is_memory(name))
        if name in table.sizes:
            # A resource without zones has one size, 0: its devices may come from anywhere.
            size = np.where(here, table.sizes[name][rows], 0)
            out = np.where(here & (size == 0), np.minimum(out, sums // amount), out)
            if sizes_matter:
                sized[name] = np.where(size > 0, size, ABSENT)
    wanted = [unit for unit in units if unit]
    if len(wanted) == 1:
        copies = table.copies_by_zone(wanted[0], rows)
        out = np.minimum(out, np.minimum(copies.sum(axis=1), MUCH))
    elif wanted:
        out = np.minimum(out, _in_turn(table, rows, wanted, np.minimum(out, totals)))
    refused = np.zeros(len(rows), dtype=bool)
    for unit in units:
        narrow, wide = _widths(unit, sized, len(rows))
        known &= ~wide
        # Restricted wants the fewest zones of every manager, and they differ.
        refused |= narrow & wide
    return np.where(refused, 0, np.where(known, out, UNKNOWN))


def _in_turn(table: NodeTable, rows: Array, units: Sequence[Unit], most: Array) -> Array:
    """Copies of several units, each in the lowest zone with room, one after the other."""
    free = {
        name: np.where(table.sizes[name][rows][:, None] > 0, table.zones[name][rows], MUCH)
        for name in quantity.total(units)
        if name in table.zones
    }
    units = [{name: amount for name, amount in unit.items() if name in free} for unit in units]
    units = [unit for unit in units if unit]
    out = np.zeros(len(most), dtype=np.int64)
    active = np.flatnonzero(most > 0)
    while len(active):
        fits = np.ones(len(active), dtype=bool)
        for unit in units:
            room = np.logical_and.reduce(
                [free[name][active] >= amount for name, amount in unit.items()]
            )
            zone = room.argmax(axis=1)
            fits &= room[np.arange(len(active)), zone]
            for name, amount in unit.items():
                free[name][active, zone] -= amount
        out[active[fits]] += 1
        active = active[fits & (out[active] < most[active])]
    return out


def _widths(unit: Unit, sizes: Mapping[str, Array], rows: int) -> tuple[Array, Array]:
    """For each row whether some manager's fewest zones are one, and whether some need several.

    Args:
        unit: what is asked for.
        sizes: resource -> size of the largest zone, :data:`ABSENT` where zones do not matter.
        rows: their number.
    """
    narrow, wide = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
    # The memory manager counts zones that are large enough for all its resources at once.
    is_joint = sum(map(demand.is_memory, unit)) > 1
    for name, amount in unit.items():
        if name in sizes:
            zoned = sizes[name] != ABSENT
            wide |= zoned & (sizes[name] < amount)
            if not (is_joint and demand.is_memory(name)):
                narrow |= zoned & (sizes[name] >= amount)
    return narrow, wide
