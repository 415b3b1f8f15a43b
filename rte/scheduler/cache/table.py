"""All nodes as columns: which can possibly take a shape, and which are the better ones.

A screen is a *necessary* condition, evaluated over all nodes at once: a node that it drops would
be refused by :meth:`rte.scheduler.framework.node.NodeEntry.check` too; what it lets through is
checked there, best candidates first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rte.model.pod import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rte.model.pod import Container
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.shape import Shape

_FIRST_ROWS = 64

#: Stands for "not counted" among CPUs.
_MANY = 1 << 24

#: So many best rows are sorted first; hardly ever more are needed.
_SORTED = 16


class Table:
    """The columns; rows are those of the entries."""

    def __init__(self) -> None:
        self._rows = 0
        self._totals: dict[str, NDArray[np.int64]] = {}
        self._open: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._present: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._zoned: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._single: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._by_pod: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        # One line for each position of a zone: reductions over zones then run along the nodes.
        self._cpus: NDArray[np.int32] = np.zeros((1, 0), dtype=np.int32)
        self._memory: NDArray[np.int64] = np.zeros((1, 0), dtype=np.int64)
        self._cpus_together: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._left: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._in_flight: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def refresh(self, entries: Iterable[NodeEntry]) -> None:
        """Bring the rows of these nodes up to date."""
        for entry in entries:
            self._grow(entry.row + 1)
            self._load(entry)

    def clear(self, row: int) -> None:
        """The row stands for no node."""
        if row < self._rows:
            self._present[row] = False

    def best_first(self, shape: Shape) -> Iterator[int]:
        """Rows that may take the shape, best first; only the first ones are sorted at once."""
        rows, keys = self._screen(shape)
        if len(rows) > 4 * _SORTED:
            top = np.argpartition(keys, _SORTED)[:_SORTED]
            top = top[np.argsort(keys[top], kind="stable")]
            yield from rows[top].tolist()
            rest = np.ones(len(rows), dtype=np.bool_)
            rest[top] = False
            rows, keys = rows[rest], keys[rest]
        yield from rows[np.argsort(keys, kind="stable")].tolist()

    def _screen(self, shape: Shape) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Rows that may take the shape, and their preference keys (the smaller, the better)."""
        ok: NDArray[np.bool_] = self._present.copy()
        if not (shape.spec.get("tolerations") or shape.spec.get("nodeSelector")):
            ok &= self._open
        for name, amount in shape.totals.items():
            column = self._totals.get(name)
            if column is None:
                return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)
            ok = ok & (column >= amount)
        if shape.may_need_zone and any(shape.exclusive_cpus):
            ok = ok & self._fits_zones(shape)
        rows = np.flatnonzero(ok)
        return rows, self._preference(shape)[rows]

    def _preference(self, shape: Shape) -> NDArray[np.int64]:
        """Of each row; the smaller, the better."""
        if not shape.may_need_zone:
            return -self._left
        # Best fit: free CPUs of the tightest zone that holds the largest container, then of the
        # node. A node with a pod in flight costs more predictions and may have to wait for it.
        need = np.int32(max(shape.exclusive_cpus, default=0))
        over = (self._cpus - need).view(np.uint32)  # what is too small becomes very large
        tightest = np.minimum(over.min(axis=0), 1 << 16).astype(np.int64)
        left = np.minimum(self._left, (1 << 24) - 1)
        keys: NDArray[np.int64] = (self._in_flight << 44) | (tightest << 24) | left
        return keys

    def _fits_zones(self, shape: Shape) -> NDArray[np.bool_]:
        """Rows where single-numa-node could hold each container, or the pod, in one zone."""
        pairs = list(zip(shape.pod.containers, shape.exclusive_cpus, strict=True))
        each: NDArray[np.bool_] = np.ones(self._rows, dtype=np.bool_)
        for container, cpus in pairs:
            if cpus:
                each = each & self._one_zone(cpus, _bytes(container))
        running = [(box, cpus) for box, cpus in pairs if box.kind is not ContainerKind.INIT]
        together = sum(cpus for _, cpus in running)
        whole = self._one_zone(together, sum(_bytes(box) for box, _ in running))
        total: NDArray[np.bool_] = self._cpus_together >= together
        single: NDArray[np.bool_] = (whole & each) | (each & ~self._by_pod)
        fits: NDArray[np.bool_] = np.where(self._single, total & single, total)
        return fits | ~self._zoned

    def _one_zone(self, cpus: int, memory: int) -> NDArray[np.bool_]:
        both = (self._cpus >= cpus) & (self._memory >= memory)
        found: NDArray[np.bool_] = np.logical_or.reduce(both, axis=0)
        return found

    def _grow(self, rows: int) -> None:
        if rows <= self._rows:
            return
        more = max(_FIRST_ROWS, rows, 2 * self._rows) - self._rows
        self._open = np.append(self._open, np.zeros(more, dtype=np.bool_))
        self._present = np.append(self._present, np.zeros(more, dtype=np.bool_))
        self._zoned = np.append(self._zoned, np.zeros(more, dtype=np.bool_))
        self._single = np.append(self._single, np.zeros(more, dtype=np.bool_))
        self._by_pod = np.append(self._by_pod, np.zeros(more, dtype=np.bool_))
        self._left = np.append(self._left, np.zeros(more, dtype=np.int64))
        self._in_flight = np.append(self._in_flight, np.zeros(more, dtype=np.int64))
        self._cpus_together = np.append(self._cpus_together, np.zeros(more, dtype=np.int64))
        pad = ((0, 0), (0, more))
        self._cpus = np.pad(self._cpus, pad)
        self._memory = np.pad(self._memory, pad)
        for name, column in self._totals.items():
            self._totals[name] = np.append(column, np.zeros(more, dtype=np.int64))
        self._rows += more

    def _load(self, entry: NodeEntry) -> None:
        row, info = entry.row, entry.info
        self._present[row] = info is not None
        if info is None:
            return
        hard = any(effect in ("NoSchedule", "NoExecute") for _, _, effect in info.taints)
        self._open[row] = not info.unschedulable and not hard
        for column in self._totals.values():
            column[row] = 0
        for name, amount in info.allocatable.items():
            if name not in self._totals:
                self._totals[name] = np.zeros(self._rows, dtype=np.int64)
            self._totals[name][row] = amount - entry.used.get(name, 0)
        self._load_zones(entry)

    def _load_zones(self, entry: NodeEntry) -> None:
        row = entry.row
        zones = entry.free_by_zone()
        self._zoned[row] = zones is not None
        cpu = self._totals.get("cpu")
        self._left[row] = cpu[row] if cpu is not None else 0
        outlook = entry.outlook()
        self._in_flight[row] = len(outlook.in_flight) if outlook else 0
        if zones is None or entry.report is None or entry.report.state is None:
            return
        config = entry.report.state.config
        self._single[row] = config.topology_policy == "single-numa-node"
        self._by_pod[row] = config.topology_scope == "pod"
        if len(zones) > self._cpus.shape[0]:
            pad = ((0, len(zones) - self._cpus.shape[0]), (0, 0))
            self._cpus, self._memory = np.pad(self._cpus, pad), np.pad(self._memory, pad)
        self._cpus[:, row], self._memory[:, row] = 0, 0
        for position, (_, cpus, memory) in enumerate(zones):
            self._cpus[position, row] = min(cpus, _MANY)
            self._memory[position, row] = memory
        self._cpus_together[row] = self._cpus[:, row].sum(dtype=np.int64)


def _bytes(container: Container) -> int:
    return container.requests.get("memory", 0)
