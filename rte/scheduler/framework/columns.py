"""All nodes as columns: labels, taints, images, and amounts; a rule is asked of all at once.

A row stands for a node (:attr:`rte.scheduler.framework.node.NodeEntry.row`); rows may be unused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rte.k8s.tolerations import HARD_EFFECTS, UNSCHEDULABLE, tolerates
from rte.scheduler.framework.outlook import UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from rte.k8s.selectors import NodeSelection, NodeTerm, Requirement
    from rte.k8s.wire import Taint, Toleration
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import NodeInfo

    Mask: TypeAlias = NDArray[np.bool_]
    Column: TypeAlias = NDArray[np.int64]
    Rows: TypeAlias = NDArray[np.intp]

_FIRST_ROWS = 64


class Labels:
    """One label key over all nodes.

    Attributes:
        numbers: value -> its number, from 1.
        of_row: the number of the value that each row has, 0 for none.
    """

    def __init__(self, rows: int) -> None:
        self.numbers: dict[str, int] = {}
        self.of_row = np.zeros(rows, dtype=np.int32)

    def moved(self, counts: NDArray[np.float64], row: int, number: int) -> NDArray[np.float64]:
        """These counts by number of the value, with so many more in that row's domain."""
        out = counts.copy()
        if domain := self.of_row[row]:
            out[domain] += number
        return out

    def put(self, row: int, value: str | None) -> None:
        """The node of that row has this value."""
        self.of_row[row] = (
            0 if value is None else self.numbers.setdefault(value, len(self.numbers) + 1)
        )

    def sums(self, rows: Rows, amounts: Column) -> NDArray[np.float64]:
        """By number of the value, the sum of these amounts over the rows that have it; 0: none."""
        count = len(self.numbers) + 1
        weights = amounts.astype(np.float64)
        out: NDArray[np.float64] = np.bincount(self.of_row[rows], weights, count).astype(np.float64)
        out[0] = 0
        return out

    def accepting(self, requirement: Requirement) -> Mask:
        """Rows whose value the requirement accepts."""
        mask: Mask
        if requirement.operator in ("In", "NotIn"):
            meant = np.zeros(len(self.numbers) + 1, dtype=np.bool_)
            meant[[self.numbers[v] for v in requirement.values if v in self.numbers]] = True
            mask = meant[self.of_row]
            return mask if requirement.operator == "In" else ~mask
        if requirement.operator == "Exists":
            mask = self.of_row > 0
            return mask
        verdicts = [requirement.accepts(None), *map(requirement.accepts, self.numbers)]
        mask = np.array(verdicts, dtype=np.bool_)[self.of_row]
        return mask


class Columns:
    """The columns; :meth:`load` keeps them up to date.

    Attributes:
        rows: so many there are, the unused ones included.
        present: rows that stand for a node which exists.
        pool: labels of the nodes on which we place, None: all.
        images: name -> bytes (as the first node told), and the rows that have it.
        version: grows with each change.
        has_avoided: some node may have a PreferNoSchedule taint.
    """

    def __init__(self, pool: NodeTerm | None = None) -> None:
        self.rows = 0
        self.pool = pool
        self.present: Mask = np.zeros(0, dtype=np.bool_)
        self.images: dict[str, tuple[int, set[int]]] = {}
        self._nodes: list[NodeInfo | None] = []
        self._row_of: dict[str, int] = {}
        self._labels: dict[str, Labels] = {}
        #: Label key -> nodes that have it. Pods may name any others: those share one column.
        self._having: Counter[str] = Counter()
        self._absent = Labels(0)
        self._taint_sets: dict[tuple[bool, tuple[Taint, ...]], int] = {}
        self._taints = np.zeros(0, dtype=np.int32)
        self.version = 0
        self.has_avoided = False

    def grow(self, rows: int) -> None:
        """There are at least so many rows."""
        if rows <= self.rows:
            return
        self.version += 1
        more = max(_FIRST_ROWS, rows, 2 * self.rows) - self.rows
        self.present = np.append(self.present, np.zeros(more, dtype=np.bool_))
        self._taints = np.append(self._taints, np.zeros(more, dtype=np.int32))
        for labels in (*self._labels.values(), self._absent):
            labels.of_row = np.append(labels.of_row, np.zeros(more, dtype=np.int32))
        self._nodes += [None] * more
        self.rows += more

    def load(self, row: int, info: NodeInfo | None) -> None:
        """The node of that row is this one now; None: there is none."""
        self.version += 1
        before = self._nodes[row]
        if before is not None:
            del self._row_of[before.name]
            self._having.subtract(before.labels.keys())
        self._nodes[row] = info
        self.present[row] = info is not None
        if info is not None:
            self._row_of[info.name] = row
            self._having.update(info.labels.keys())
        for key in before.labels if before is not None else ():
            if not self._having[key]:
                del self._having[key]
                self._labels.pop(key, None)
        for key, column in list(self._labels.items()):
            column.put(row, info.labels.get(key) if info else None)
            if len(column.numbers) > 2 * self.rows:
                # Most of its values are those of nodes that are gone.
                del self._labels[key]
        self._put_images(row, before, info)
        self._put_taints(row, info)
        if len(self._taint_sets) > 2 * self.rows:
            self._taint_sets.clear()
            self.has_avoided = False
            for other, node in enumerate(self._nodes):
                self._put_taints(other, node)

    def _put_images(self, row: int, before: NodeInfo | None, info: NodeInfo | None) -> None:
        """As kube-scheduler's cache: a size stays as long as some node has the image."""
        for name in before.images if before else ():
            held = self.images[name][1]
            held.discard(row)
            if not held:
                del self.images[name]
        for name, size in info.images.items() if info else ():
            self.images.setdefault(name, (size, set()))[1].add(row)

    def _put_taints(self, row: int, info: NodeInfo | None) -> None:
        taints = (info.unschedulable, info.taints) if info else (False, ())
        self.has_avoided |= any(each.effect == "PreferNoSchedule" for each in taints[1])
        self._taints[row] = self._taint_sets.setdefault(taints, len(self._taint_sets))

    def labels(self, key: str) -> Labels:
        """The column of one label key."""
        if key not in self._having:
            return self._absent
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = Labels(self.rows)
            for row, info in enumerate(self._nodes):
                if info is not None:
                    column.put(row, info.labels.get(key))
        return column

    def row_of(self, name: str) -> int | None:
        """The row of a node, None where there is none of that name."""
        return self._row_of.get(name)

    # --- rules over labels and taints ------------------------------------------------------------

    def tolerated(self, tolerations: Iterable[Toleration]) -> Mask:
        """Rows without a NoSchedule or NoExecute taint that is not tolerated."""
        given = tuple(tolerations)
        return self._by_taints(
            all(taint.effect not in HARD_EFFECTS or tolerates(given, taint) for taint in taints)
            for _, taints in self._taint_sets
        )

    def untolerated(self, tolerations: Iterable[Toleration]) -> Iterator[tuple[str, Mask]]:
        """Keys of taints that keep a pod away, and the rows where that taint is the first such."""
        given = tuple(tolerations)
        first = [
            next(
                (t.key for t in taints if t.effect in HARD_EFFECTS and not tolerates(given, t)),
                None,
            )
            for _, taints in self._taint_sets
        ]
        for key in dict.fromkeys(key for key in first if key is not None):
            yield key, self._by_taints(each == key for each in first)

    def cordoned(self, tolerations: Iterable[Toleration]) -> Mask | None:
        """Rows that are cordoned, where that is not tolerated; None: there is none."""
        cordons = [cordoned for cordoned, _ in self._taint_sets]
        if not any(cordons) or tolerates(tuple(tolerations), UNSCHEDULABLE):
            return None
        return self._by_taints(cordons)

    def _by_taints(self, verdicts: Iterable[bool]) -> Mask:
        known = np.array(list(verdicts), dtype=np.bool_)
        mask: Mask = known[self._taints] if len(known) else np.ones(self.rows, dtype=np.bool_)
        return mask

    def disliked(self, tolerations: Iterable[Toleration]) -> Column | None:
        """Of each row the PreferNoSchedule taints not tolerated; None where there are none."""
        given = tuple(tolerations)
        counts = [
            sum(
                taint.effect == "PreferNoSchedule" and not tolerates(given, taint)
                for taint in taints
            )
            for _, taints in self._taint_sets
        ]
        if not any(counts):
            return None
        column: Column = np.array(counts, dtype=np.int64)[self._taints]
        return column

    def pooled(self) -> Mask:
        """Rows on which we place."""
        return self.meant(self.pool) if self.pool else np.ones(self.rows, dtype=np.bool_)

    def declaring(self, features: frozenset[str]) -> Mask:
        """Rows whose kubelets declare all of these features."""
        ok = (n is not None and n.declared_features.issuperset(features) for n in self._nodes)
        return np.fromiter(ok, dtype=np.bool_, count=self.rows)

    def selected(self, asked: NodeSelection) -> Mask:
        """Rows whose labels and name a pod asks for."""
        ok = np.ones(self.rows, dtype=np.bool_)
        for key, value in asked.labels:
            column = self.labels(key)
            ok &= column.of_row == column.numbers.get(value, -1)
        if asked.terms is None:
            return ok
        some = np.zeros(self.rows, dtype=np.bool_)
        for term in asked.terms:
            some |= self.meant(term)
        return ok & some

    def meant(self, term: NodeTerm) -> Mask:
        """Rows that one node selector term matches; an empty one matches nothing."""
        if not term.expressions and not term.fields:
            return np.zeros(self.rows, dtype=np.bool_)
        ok = np.ones(self.rows, dtype=np.bool_)
        for item in term.expressions:
            ok &= self.labels(item.key).accepting(item)
        for item in term.fields:
            ok &= self._named(item)
        return ok

    def _named(self, item: Requirement) -> Mask:
        mask = np.zeros(self.rows, dtype=np.bool_)
        if item.key != "metadata.name":
            return mask
        if item.operator == "In":
            mask[[self._row_of[name] for name in item.values if name in self._row_of]] = True
            return mask
        for name, row in self._row_of.items():
            mask[row] = item.accepts(name)
        return mask


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

    def short_of(self, totals: Mapping[str, int], rows: Rows | slice) -> dict[str, Mask]:
        """Resource -> which of these rows have less left than that."""
        return {name: self.of(name, rows) < amount for name, amount in totals.items()}

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
