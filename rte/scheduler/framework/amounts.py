"""Room on all nodes as columns: what rules about amounts are asked of, for all nodes at once.

Rows are those of :class:`rte.scheduler.framework.columns.Columns`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rte.scheduler.framework.room import UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Column, Columns, Rows
    from rte.scheduler.framework.node import NodeEntry

#: Resources that plain load balancing looks at.
SCORED = ("cpu", "memory")

#: Stands for "not counted" among CPUs.
MANY = 1 << 24

#: Questions whose answers for all rows are kept.
_ANSWERS = 64

#: Columns of one value for each node; see :class:`NodeAmounts`.
_FLAGS = ("zoned", "single", "by_pod", "aligning", "plain")
_NUMBERS = ("bound", "tied", "together", "in_flight", "zone_count", "broken_up")


class ZonesShort(NamedTuple):
    """Of so many zones those that lack CPUs, memory, both; the most CPUs that one has."""

    zones: int
    cpus: int
    memory: int
    both: int
    largest: int


class NodeAmounts:
    """The columns; :meth:`refresh` keeps them up to date.

    Args:
        columns: labels and taints of the same nodes.

    Attributes:
        columns: the same.
        rows: so many there are, the unused ones included.
        left: resource -> what node totals leave (millicores, bytes, units).
        allocatable: resource -> the totals.
        scored: millicores and bytes that scores count as used.
        cpus: zone by zone, one line for each position of a zone (reductions then run along the
            nodes): free exclusive CPUs.
        memory: likewise, free bytes.
        zoned: the zones are known exactly.
        single: each unit must go to one zone.
        by_pod: a pod is one unit.
        bound: under restricted, whoever asks for so many CPUs must go to one zone ...
        tied: ... or for so many bytes.
        together: free exclusive CPUs of all zones.
        in_flight: pods that the kubelet has not admitted yet.
        aligning: the kubelet binds exclusive CPUs to zones.
        plain: zones without room are all that the managers can say against a pod there.
        zone_count: number of zones.
        broken_up: in millionths, 80 where no zone has a free CPU, 0 where one is empty.
    """

    zoned: NDArray[np.bool_]
    single: NDArray[np.bool_]
    by_pod: NDArray[np.bool_]
    aligning: NDArray[np.bool_]
    plain: NDArray[np.bool_]
    bound: Column
    tied: Column
    together: Column
    in_flight: Column
    zone_count: Column
    broken_up: Column

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = 0
        self.left: dict[str, Column] = {}
        self.allocatable: dict[str, Column] = {}
        self.scored = {name: np.zeros(0, dtype=np.int64) for name in SCORED}
        self.cpus = np.zeros((1, 0), dtype=np.int32)
        self.memory = np.zeros((1, 0), dtype=np.int64)
        for name in _FLAGS:
            setattr(self, name, np.zeros(0, dtype=np.bool_))
        for name in _NUMBERS:
            setattr(self, name, np.zeros(0, dtype=np.int64))
        # Number of the load that a row is of, and answers row by row with the load they are of.
        self._loads = 0
        self._loaded = np.zeros(0, dtype=np.int64)
        self._answers: OrderedDict[Hashable, tuple[int, NDArray[Any]]] = OrderedDict()

    def refresh(self, entries: Iterable[NodeEntry]) -> None:
        """Bring the rows of these nodes up to date."""
        self._grow(self.columns.rows)
        self._loads += 1
        for entry in entries:
            if entry.info is not None:
                self._load_totals(entry)
                self._load_zones(entry)
                self._loaded[entry.row] = self._loads

    def of(self, name: str, rows: Rows | slice) -> Column:
        """What node totals leave of a resource in these rows."""
        column = self.left.get(name)
        if column is None:
            column = np.zeros(self.rows, dtype=np.int64)
        return column[rows]

    def kept(
        self, key: Hashable, rows: Rows | slice, answer: Callable[[Rows | slice], NDArray[Any]]
    ) -> NDArray[Any]:
        """An answer for each of these rows that depends on the row alone; the caller leaves it as
        it is.

        Waiting and repeated pods ask about all rows again and again: only those loaded since are
        answered anew.
        """
        if not isinstance(rows, slice):
            return answer(rows)
        at, known = self._answers.pop(key, (-1, None))
        if known is None or len(known) != self.rows:
            known = answer(slice(None))
        elif len(changed := np.flatnonzero(self._loaded > at)):
            known[changed] = answer(changed)
        self._answers[key] = self._loads, known
        if len(self._answers) > _ANSWERS:
            self._answers.popitem(last=False)
        return known

    def zones_short(self, rows: Rows, cpus: int, memory: int) -> ZonesShort:
        """What the zones of these rows lack for a container."""
        there = np.arange(self.cpus.shape[0])[:, None] < self.zone_count[rows]
        free = self.cpus[:, rows]
        few, little = there & (free < cpus), there & (self.memory[:, rows] < memory)
        both = int(np.count_nonzero(few & little))
        return ZonesShort(
            int(there.sum()),
            int(np.count_nonzero(few)) - both,
            int(np.count_nonzero(little)) - both,
            both,
            int(free[there].max(initial=0)),
        )

    def _grow(self, rows: int) -> None:
        if rows <= self.rows:
            return
        more = rows - self.rows
        for name in (*_FLAGS, *_NUMBERS, "_loaded"):
            old = getattr(self, name)
            setattr(self, name, np.append(old, np.zeros(more, dtype=old.dtype)))
        self._pad_zones(((0, 0), (0, more)))
        for table in (self.left, self.allocatable, self.scored):
            for name, column in table.items():
                table[name] = np.append(column, np.zeros(more, dtype=np.int64))
        self.rows += more

    def _pad_zones(self, pad: tuple[tuple[int, int], tuple[int, int]]) -> None:
        self.cpus, self.memory = np.pad(self.cpus, pad), np.pad(self.memory, pad)

    def _load_totals(self, entry: NodeEntry) -> None:
        row = entry.row
        for table in (self.left, self.allocatable):
            for column in table.values():
                column[row] = 0
        for name, amount in entry.allocatable().items():
            if name not in self.left:
                self.left[name] = np.zeros(self.rows, dtype=np.int64)
                self.allocatable[name] = np.zeros(self.rows, dtype=np.int64)
            self.left[name][row] = max(amount - entry.used[name], -UNBOUNDED)
            self.allocatable[name][row] = amount
        for name, column in self.scored.items():
            column[row] = min(entry.scored[name], UNBOUNDED)

    def _load_zones(self, entry: NodeEntry) -> None:
        row = entry.row
        zones, view = entry.free_by_zone(), entry.outlook()
        self.zoned[row] = zones is not None
        self.in_flight[row] = len(view.in_flight) if view else 0
        self.cpus[:, row], self.memory[:, row] = 0, 0
        self.together[row], self.aligning[row], self.plain[row] = 0, False, False
        self.zone_count[row] = len(zones or ())
        if zones is None or view is None:
            return
        config = view.base.config
        self.single[row] = config.topology_policy == "single-numa-node"
        self.plain[row] = not (
            view.in_flight
            or config.topology_policy not in ("single-numa-node", "restricted")
            or config.cpu_options
            or entry.held_off
            or entry.distrust()
        )
        self.by_pod[row] = config.topology_scope == "pod"
        bound = entry.zone_bound()
        self.bound[row] = bound.size if bound.size < UNBOUNDED else 0
        self.tied[row] = bound.memory
        self.aligning[row] = config.cpu_policy == "static" and config.topology_policy != "none"
        if len(zones) > self.cpus.shape[0]:
            self._pad_zones(((0, len(zones) - self.cpus.shape[0]), (0, 0)))
            self._answers.clear()
        for position, (_, cpus, memory) in enumerate(zones):
            self.cpus[position, row] = min(cpus, MANY)
            self.memory[position, row] = min(memory, UNBOUNDED)
        self.together[row] = self.cpus[:, row].sum(dtype=np.int64)
        self.broken_up[row] = round(1e6 * entry.broken_up())
