"""Labels, taints and images of all nodes as columns: a rule about them is asked of all at once.

A row stands for a node (:attr:`rte.scheduler.framework.node.NodeEntry.row`); rows may be unused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rte.k8s.tolerations import HARD_EFFECTS, UNSCHEDULABLE, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rte.k8s.selectors import NodeSelection, NodeTerm, Requirement
    from rte.k8s.wire import Taint, Toleration
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

    def schedulable(self, tolerations: Iterable[Toleration]) -> Mask:
        """Rows that are not cordoned, or whose cordon is tolerated."""
        all_the_same = tolerates(tuple(tolerations), UNSCHEDULABLE)
        return self._by_taints(all_the_same or not cordoned for cordoned, _ in self._taint_sets)

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
