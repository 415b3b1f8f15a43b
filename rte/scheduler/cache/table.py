"""All nodes as columns: which can possibly take a pod, and which are the better ones.

A screen is a *necessary* condition, evaluated over all nodes at once: a node that it drops would
be refused by :meth:`rte.scheduler.framework.profile.Profile.check` too, by a rule that is named;
what it lets through is checked there, best candidates first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from rte.model.pod import ContainerKind
from rte.scheduler.framework.node import UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rte.model.pod import Container
    from rte.scheduler.framework.columns import Column, Columns, Mask, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.shape import Shape

#: Stands for "not counted" among CPUs.
_MANY = 1 << 24

#: So many best rows are sorted first; hardly ever more are needed.
_SORTED = 64

#: Of an ordinary pod's score (:mod:`rte.scheduler.plugins.zone_room`), in thousandths.
_HARMLESS, _BALANCE = 750, 250


@dataclass(frozen=True, slots=True)
class Screened:
    """Rows that may take a pod with their keys (the smaller, the better), and who ruled others out.

    ``dropped``: names of plugins.
    """

    rows: Rows
    keys: Column
    dropped: frozenset[str]

    def best_first(self, preference: NDArray[np.float64] | None = None) -> Iterator[int]:
        """The rows in order; ``preference`` (of each, the higher the better) goes before the keys.

        Only the first ones are sorted at once.
        """
        rows, keys = self.rows, self.keys
        if preference is not None:
            yield from rows[np.lexsort((keys, -preference))].tolist()
            return
        if len(rows) > 4 * _SORTED:
            top = np.argpartition(keys, _SORTED)[:_SORTED]
            top = top[np.argsort(keys[top], kind="stable")]
            yield from rows[top].tolist()
            rest = np.ones(len(rows), dtype=np.bool_)
            rest[top] = False
            rows, keys = rows[rest], keys[rest]
        yield from rows[np.argsort(keys, kind="stable")].tolist()


class Table:
    """Room on the nodes as columns.

    Args:
        columns: labels and taints; its rows are the table's.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._rows = 0
        self._totals: dict[str, Column] = {}
        self._allocatable: dict[str, Column] = {}
        self._zoned = np.zeros(0, dtype=np.bool_)
        self._single = np.zeros(0, dtype=np.bool_)
        self._by_pod = np.zeros(0, dtype=np.bool_)
        # One line for each position of a zone: reductions over zones then run along the nodes.
        self._cpus = np.zeros((1, 0), dtype=np.int32)
        self._memory = np.zeros((1, 0), dtype=np.int64)
        self._cpus_together = np.zeros(0, dtype=np.int64)
        self._in_flight = np.zeros(0, dtype=np.int64)
        self._aligning = np.zeros(0, dtype=np.bool_)
        self._broken_up = np.zeros(0, dtype=np.int64)

    def refresh(self, entries: Iterable[NodeEntry]) -> None:
        """Bring the rows of these nodes up to date."""
        self._grow(self._columns.rows)
        for entry in entries:
            if entry.info is not None:
                self._load(entry)

    def screen(self, shape: Shape, around: Iterable[tuple[str, Mask]] = ()) -> Screened:
        """What is left of all nodes, and which rules dropped the others.

        ``around``: name of a plugin that looks around, and rows that it refuses.
        """
        ok = self._columns.present.copy()
        left = int(np.count_nonzero(ok))
        dropped: set[str] = set()
        refused = ((name, ~mask) for name, mask in around)
        for name, mask in chain(self._rules(shape), refused):
            ok &= mask
            now = int(np.count_nonzero(ok))
            if now < left:
                dropped.add(name)
                left = now
            if not now:
                break
        rows = np.flatnonzero(ok)
        return Screened(rows, self._preference(shape, rows), frozenset(dropped))

    def _rules(self, shape: Shape) -> Iterator[tuple[str, Mask]]:
        yield "NodeUnschedulable", self._columns.schedulable(shape.tolerations)
        if shape.nodes.labels or shape.nodes.terms is not None:
            yield "NodeAffinity", self._columns.selected(shape.nodes)
        yield "TaintToleration", self._columns.tolerated(shape.tolerations)
        for name, amount in shape.totals.items():
            column = self._totals.get(name)
            if column is None:
                column = np.zeros(self._rows, dtype=np.int64)
            yield "NodeResourcesFit", column >= amount
        if shape.may_need_zone and any(shape.exclusive_cpus):
            yield "NodeResourceTopology", self._fits_zones(shape)

    # --- order -----------------------------------------------------------------------------------

    def _preference(self, shape: Shape, rows: Rows) -> Column:
        """Of each of these rows; the smaller, the better."""
        keys = self._zones_key(shape, rows) if shape.may_need_zone else self._harm(shape, rows)
        disliked = self._columns.disliked(shape.tolerations)
        if disliked is not None:
            keys = keys + (disliked[rows] << 56)
        return keys

    def _zones_key(self, shape: Shape, rows: Rows) -> Column:
        """Best fit: free CPUs of the tightest zone that holds the largest container, then of the
        node. A node with a pod in flight costs more predictions and may have to wait for it; one
        without a report comes last.
        """
        need = np.int32(max(shape.exclusive_cpus, default=0))
        over = (self._cpus[:, rows] - need).view(np.uint32)  # too small becomes very large
        tightest = np.minimum(over.min(axis=0), 1 << 16).astype(np.int64)
        cpu = self._totals.get("cpu")
        left = np.zeros(len(rows), dtype=np.int64) if cpu is None else cpu[rows]
        left = np.clip(left, 0, (1 << 24) - 1)
        in_flight = np.minimum(self._in_flight[rows], 255)
        bare = (~self._zoned[rows]).astype(np.int64)
        keys: Column = (bare << 52) | (in_flight << 44) | (tightest << 24) | left
        return keys

    def _harm(self, shape: Shape, rows: Rows) -> Column:
        """What :mod:`rte.scheduler.plugins.zone_room` gives an ordinary pod, turned round."""
        milli = shape.totals.get("cpu", 0)
        harmless = np.full(len(rows), 100.0)
        cpu = self._totals.get("cpu")
        if cpu is not None:
            ample = cpu[rows] - milli >= 1000 * self._cpus_together[rows]
            inside = np.where(ample, 90.0, self._broken_up[rows] / 1e6)
            harmless = np.where(self._aligning[rows], inside, harmless)
        parts = []
        for name in ("cpu", "memory"):
            total, left = self._allocatable.get(name), self._totals.get(name)
            if total is None or left is None:
                continue
            after = np.maximum(left[rows] - shape.totals.get(name, 0), 0)
            parts.append(100.0 * after / np.maximum(total[rows], 1))
        balance = sum(parts) / len(parts) if parts else np.zeros(len(rows))
        score = _HARMLESS * harmless + _BALANCE * balance
        return np.rint((1e5 - score) * 1e6).astype(np.int64)

    # --- zones -----------------------------------------------------------------------------------

    def _fits_zones(self, shape: Shape) -> Mask:
        """Rows where single-numa-node could hold each container, or the pod, in one zone."""
        pairs = list(zip(shape.pod.containers, shape.exclusive_cpus, strict=True))
        each: Mask = np.ones(self._rows, dtype=np.bool_)
        for container, cpus in pairs:
            if cpus:
                each = each & self._one_zone(cpus, _bytes(container))
        running = [(box, cpus) for box, cpus in pairs if box.kind is not ContainerKind.INIT]
        together = sum(cpus for _, cpus in running)
        whole = self._one_zone(together, sum(_bytes(box) for box, _ in running))
        total: Mask = self._cpus_together >= together
        single: Mask = (whole & each) | (each & ~self._by_pod)
        fits: Mask = np.where(self._single, total & single, total)
        return fits | ~self._zoned

    def _one_zone(self, cpus: int, memory: int) -> Mask:
        both = (self._cpus >= cpus) & (self._memory >= memory)
        found: Mask = np.logical_or.reduce(both, axis=0)
        return found

    # --- loading ---------------------------------------------------------------------------------

    def _grow(self, rows: int) -> None:
        if rows <= self._rows:
            return
        more = rows - self._rows
        for name in ("_zoned", "_single", "_by_pod", "_aligning"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more, dtype=np.bool_)))
        for name in ("_in_flight", "_cpus_together", "_broken_up"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more, dtype=np.int64)))
        pad = ((0, 0), (0, more))
        self._cpus = np.pad(self._cpus, pad)
        self._memory = np.pad(self._memory, pad)
        for table in (self._totals, self._allocatable):
            for name, column in table.items():
                table[name] = np.append(column, np.zeros(more, dtype=np.int64))
        self._rows += more

    def _load(self, entry: NodeEntry) -> None:
        row = entry.row
        for table in (self._totals, self._allocatable):
            for column in table.values():
                column[row] = 0
        for name, amount in entry.allocatable().items():
            if name not in self._totals:
                self._totals[name] = np.zeros(self._rows, dtype=np.int64)
                self._allocatable[name] = np.zeros(self._rows, dtype=np.int64)
            self._totals[name][row] = amount - entry.used[name]
            self._allocatable[name][row] = amount
        self._load_zones(entry)

    def _load_zones(self, entry: NodeEntry) -> None:
        row = entry.row
        zones, view = entry.free_by_zone(), entry.outlook()
        self._zoned[row] = zones is not None
        self._in_flight[row] = len(view.in_flight) if view else 0
        self._cpus[:, row], self._memory[:, row] = 0, 0
        self._cpus_together[row], self._aligning[row] = 0, False
        if zones is None or view is None:
            return
        config = view.base.config
        self._single[row] = config.topology_policy == "single-numa-node"
        self._by_pod[row] = config.topology_scope == "pod"
        self._aligning[row] = config.cpu_policy == "static" and config.topology_policy != "none"
        if len(zones) > self._cpus.shape[0]:
            pad = ((0, len(zones) - self._cpus.shape[0]), (0, 0))
            self._cpus, self._memory = np.pad(self._cpus, pad), np.pad(self._memory, pad)
        for position, (_, cpus, memory) in enumerate(zones):
            self._cpus[position, row] = min(cpus, _MANY)
            self._memory[position, row] = min(memory, UNBOUNDED)
        self._cpus_together[row] = self._cpus[:, row].sum(dtype=np.int64)
        self._broken_up[row] = _brokenness(zones, view.base.topology.zone_cpus.values())


def _brokenness(zones: Iterable[tuple[int, int, int]], sizes: Iterable[int]) -> int:
    """80 where no zone has a free CPU, 0 where one is empty (in millionths)."""
    size = max((cpus.bit_count() for cpus in sizes), default=0)
    most = min(size, max((cpus for _, cpus, _ in zones), default=0))
    return round(1e6 * 80.0 * (1.0 - most / size)) if size else 90_000_000


def _bytes(container: Container) -> int:
    return container.requests.get("memory", 0)
