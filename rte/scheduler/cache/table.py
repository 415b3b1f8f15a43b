"""All nodes as columns: which can possibly take a pod, and which are the better ones.

A screen is a *necessary* condition, evaluated over all nodes at once: a node that it drops would
be refused by :meth:`rte.scheduler.framework.profile.Profile.check` too, by a rule that is named;
what it lets through is checked there, best candidates first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rte.model.pod import ContainerKind
from rte.scheduler.framework.room import UNBOUNDED
from rte.scheduler.framework.shape import memory_tie
from rte.scheduler.plugins import (
    node_affinity,
    node_declared_features,
    node_pool,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from rte.scheduler.plugins.node_resource_topology import NodeResourceTopology
from rte.scheduler.plugins.node_resources_fit import NodeResourcesFit

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from rte.model.pod import Container
    from rte.scheduler.framework.columns import Column, Columns, Mask, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.plugin import Refusal
    from rte.scheduler.framework.shape import Shape

#: Resources that plain load balancing looks at.
_SCORED = ("cpu", "memory")

#: Stands for "not counted" among CPUs.
_MANY = 1 << 24

#: So many best rows are sorted first; hardly ever more are needed.
_SORTED = 64

#: Questions whose answers for all rows are kept.
_ANSWERS = 64

#: Of an ordinary pod's score (:mod:`rte.scheduler.plugins.zone_room`), in thousandths.
_HARMLESS, _BALANCE = 750, 250


@dataclass(frozen=True, slots=True)
class Screened:
    """Rows that may take a pod, and who ruled others out.

    Attributes:
        rows: their numbers.
        keys: of each, the smaller the better.
        dropped: names of plugins that ruled others out.
    """

    rows: Rows
    keys: Column
    dropped: frozenset[str]

    def among(self, rows: Sequence[int]) -> Screened:
        """What is left of these rows."""
        chosen = np.isin(self.rows, rows)
        return replace(self, rows=self.rows[chosen], keys=self.keys[chosen])

    def best_first(self, preference: NDArray[np.float64] | None = None) -> Iterator[int]:
        """The rows in order; ``preference`` (of each, the higher the better) goes before the keys.

        Only the first ones are sorted at once.
        """
        ranks = self.keys
        if preference is not None:
            order = np.lexsort((self.keys, -preference))
            ranks = np.empty(len(order), dtype=np.int64)
            ranks[order] = np.arange(len(order))
        rows = self.rows
        if len(rows) > 4 * _SORTED:
            last = np.partition(ranks, _SORTED - 1)[_SORTED - 1]
            before = np.flatnonzero(ranks < last)
            # Of equal ones the first rows: what was found out of them is remembered.
            top = np.append(before, np.flatnonzero(ranks == last)[: _SORTED - len(before)])
            top = top[np.argsort(ranks[top], kind="stable")]
            yield from rows[top].tolist()
            rest = np.ones(len(rows), dtype=np.bool_)
            rest[top] = False
            rows, ranks = rows[rest], ranks[rest]
        yield from rows[np.argsort(ranks, kind="stable")].tolist()


class _Rule(NamedTuple):
    """Rows that a plugin does not refuse, and its reason for the others."""

    plugin: str
    ok: Mask
    reason: str


class Tally(NamedTuple):
    """Refusals by reason, rows still to be asked, and those counted whose zones lack room."""

    counts: Counter[str]
    rest: Rows
    short: Rows


class ZonesShort(NamedTuple):
    """Of so many zones those that lack CPUs, memory, both; the most CPUs that one has."""

    zones: int
    cpus: int
    memory: int
    both: int
    largest: int


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
        self._scored = {name: np.zeros(0, dtype=np.int64) for name in _SCORED}
        self._zoned = np.zeros(0, dtype=np.bool_)
        self._single = np.zeros(0, dtype=np.bool_)
        self._by_pod = np.zeros(0, dtype=np.bool_)
        # Under restricted, whoever asks for so many CPUs or so much memory must go to one zone.
        self._bound = np.zeros(0, dtype=np.int64)
        self._tied = np.zeros(0, dtype=np.int64)
        # One line for each position of a zone: reductions over zones then run along the nodes.
        self._cpus = np.zeros((1, 0), dtype=np.int32)
        self._memory = np.zeros((1, 0), dtype=np.int64)
        self._cpus_together = np.zeros(0, dtype=np.int64)
        self._in_flight = np.zeros(0, dtype=np.int64)
        self._aligning = np.zeros(0, dtype=np.bool_)
        # A zone that lacks room is all that the managers can say against a pod there.
        self._plain = np.zeros(0, dtype=np.bool_)
        self._zone_count = np.zeros(0, dtype=np.int64)
        self._broken_up = np.zeros(0, dtype=np.int64)
        # Number of the load that a row is of, and answers row by row with the load they are of.
        self._loads = 0
        self._loaded = np.zeros(0, dtype=np.int64)
        self._answers: OrderedDict[Hashable, tuple[int, NDArray[Any]]] = OrderedDict()

    def refresh(self, entries: Iterable[NodeEntry]) -> None:
        """Bring the rows of these nodes up to date."""
        self._grow(self._columns.rows)
        self._loads += 1
        for entry in entries:
            if entry.info is not None:
                self._load(entry)
                self._loaded[entry.row] = self._loads

    def screen(self, shape: Shape, around: Iterable[tuple[str, Refusal]] = ()) -> Screened:
        """What is left of all nodes, and which rules dropped the others.

        ``around``: name of a plugin that looks around, and what it refuses.
        """
        ok = self._columns.present.copy()
        left = int(np.count_nonzero(ok))
        dropped: set[str] = set()
        rules = ((rule.plugin, rule.ok) for rule in self._rules(shape))
        for name, mask in chain(rules, ((name, ~refusal.rows) for name, refusal in around)):
            ok &= mask
            now = int(np.count_nonzero(ok))
            if now < left:
                dropped.add(name)
                left = now
            if not now:
                break
        rows = np.flatnonzero(ok)
        return Screened(rows, self._preference(shape, rows), frozenset(dropped))

    def roomy(self, shape: Shape, rows: Sequence[int]) -> Screened:
        """Which of these rows do not refuse a pod for want of room; they are in no order."""
        left, dropped = np.array(rows, dtype=np.intp), set()
        for name, amount in shape.totals.items():
            column = self._totals.get(name)
            enough = left[:0] if column is None else left[column[left] >= amount]
            if len(enough) < len(left):
                dropped.add(NodeResourcesFit.name)
            left = enough
        if any(shape.exclusive_cpus):
            enough = left[self._fits_zones(shape, left)]
            if len(enough) < len(left):
                dropped.add(NodeResourceTopology.name)
            left = enough
        return Screened(left, np.zeros(len(left), dtype=np.int64), frozenset(dropped))

    def left(self, name: str) -> Column:
        """What is left of a resource on each node."""
        column = self._totals.get(name)
        if column is None:
            return np.zeros(0, dtype=np.int64)
        return column[self._columns.present[: len(column)]]

    def tally(self, shape: Shape, around: Iterable[Refusal], exact: Sequence[int]) -> Tally:
        """Why nodes refuse a pod, as far as the columns tell in the words of the exact check.

        Args:
            shape: of the pod.
            around: what rules that look around refuse; they count where no other rule is known to
                refuse the pod.
            exact: rows to be asked one by one in any case.
        """
        left, rest = self._columns.present.copy(), np.zeros(self._rows, dtype=np.bool_)
        rest[list(exact)] = left[list(exact)]
        left &= ~rest
        counts: Counter[str] = Counter()
        short = np.zeros(self._rows, dtype=np.bool_)
        for rule in self._rules(shape):
            refused = left & ~rule.ok
            left &= rule.ok
            if rule.plugin == NodeResourceTopology.name:
                # Rules that are asked before may have another reason.
                sure = self._plain if not (shape.ports or shape.disks) else short
                rest |= refused & ~sure
                refused &= sure
                short = refused
            if number := int(np.count_nonzero(refused)):
                counts[rule.reason] += number
        rest |= left
        for refusal in around:
            refused = rest & refusal.rows
            refused[list(exact)] = False
            if number := int(np.count_nonzero(refused)):
                counts[refusal.reason] += number
                rest &= ~refused
        return Tally(counts, np.flatnonzero(rest), np.flatnonzero(short))

    def zones_short(self, rows: Rows, cpus: int, memory: int) -> ZonesShort:
        """What the zones of these rows lack for a container."""
        there = np.arange(self._cpus.shape[0])[:, None] < self._zone_count[rows]
        free = self._cpus[:, rows]
        few, little = there & (free < cpus), there & (self._memory[:, rows] < memory)
        both = int(np.count_nonzero(few & little))
        return ZonesShort(
            int(there.sum()),
            int(np.count_nonzero(few)) - both,
            int(np.count_nonzero(little)) - both,
            both,
            int(free[there].max(initial=0)),
        )

    def _rules(self, shape: Shape) -> Iterator[_Rule]:
        if self._columns.pool is not None:
            yield _Rule("NodePool", self._columns.pooled(), node_pool.WHY)
        ok = self._columns.schedulable(shape.tolerations)
        yield _Rule("NodeUnschedulable", ok, node_unschedulable.WHY)
        if shape.nodes.labels or shape.nodes.terms is not None:
            yield _Rule("NodeAffinity", self._columns.selected(shape.nodes), node_affinity.WHY)
        for key, refused in self._columns.untolerated(shape.tolerations):
            yield _Rule("TaintToleration", ~refused, taint_toleration.why(key))
        if shape.features:
            ok = self._columns.declaring(shape.features)
            yield _Rule("NodeDeclaredFeatures", ok, node_declared_features.WHY)
        for name, amount in shape.totals.items():
            column = self._totals.get(name)
            if column is None:
                column = np.zeros(self._rows, dtype=np.int64)
            yield _Rule(NodeResourcesFit.name, column >= amount, node_resources_fit.why(name))
        if shape.may_need_zone and any(shape.exclusive_cpus):
            ok = self._kept(shape.kubelet_key, lambda some: self._fits_zones(shape, some))
            yield _Rule(NodeResourceTopology.name, ok, "TopologyAffinityError")

    # --- order -----------------------------------------------------------------------------------

    def _preference(self, shape: Shape, rows: Rows) -> Column:
        """Of each of these rows; the smaller, the better."""
        if shape.may_need_zone:
            need = max(shape.exclusive_cpus, default=0)
            keys = self._kept(("zones", need), lambda some: self._zones_key(need, some))[rows]
        else:
            keys = self._harm(shape, rows)
        disliked = self._columns.disliked(shape.tolerations)
        if disliked is not None:
            keys = keys + (disliked[rows] << 56)
        return keys

    def _kept(self, key: Hashable, answer: Callable[[Rows | slice], NDArray[Any]]) -> NDArray[Any]:
        """An answer for each row that depends on the row alone; the caller leaves it as it is.

        Waiting and repeated pods ask again and again: only rows loaded since are answered anew.
        """
        at, known = self._answers.pop(key, (-1, None))
        if known is None or len(known) != self._rows:
            known = answer(slice(None))
        elif len(changed := np.flatnonzero(self._loaded > at)):
            known[changed] = answer(changed)
        self._answers[key] = self._loads, known
        if len(self._answers) > _ANSWERS:
            self._answers.popitem(last=False)
        return known

    def _zones_key(self, need: int, rows: Rows | slice) -> Column:
        """Best fit: free CPUs of the tightest zone that holds the largest container, then of the
        node. A node with a pod in flight costs more predictions and may have to wait for it; one
        without a report comes last.
        """
        # Too small becomes very large.
        over = (self._cpus[:, rows] - np.int32(min(need, 2 * _MANY))).view(np.uint32)
        tightest = np.minimum(over.min(axis=0), 1 << 16).astype(np.int64)
        cpu = self._totals.get("cpu")
        left = np.zeros_like(tightest) if cpu is None else cpu[rows]
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
        for name in _SCORED:
            total, used = self._allocatable.get(name), self._scored[name]
            if total is not None:
                asked = min(shape.scored.get(name, 0), UNBOUNDED)
                after = np.maximum(total[rows] - used[rows] - asked, 0)
                parts.append(100.0 * after / np.maximum(total[rows], 1))
        balance = sum(parts) / len(parts) if parts else np.zeros(len(rows))
        score = _HARMLESS * harmless + _BALANCE * balance
        return np.rint((1e5 - score) * 1e6).astype(np.int64)

    # --- zones -----------------------------------------------------------------------------------

    def _fits_zones(self, shape: Shape, rows: Rows | slice) -> Mask:
        """Rows where each container, or the pod, finds a zone if it must have one.

        It must under single-numa-node, and under restricted where
        :class:`rte.scheduler.framework.room.ZoneBound` says so.
        """
        if shape.pod.pod_requests is not None:
            return np.ones(len(self._zoned[rows]), dtype=np.bool_)
        needs, boxes = shape.needs, shape.pod.containers
        running = sum(_bytes(box) for box in boxes if box.kind is not ContainerKind.INIT)
        whole = self._in_zones(needs.pod_cpus, running, needs.pod_memory, rows)
        each = np.ones_like(whole)
        for box, cpus in zip(boxes, shape.exclusive_cpus, strict=True):
            if cpus:
                each &= self._in_zones(cpus, _bytes(box), memory_tie(box), rows)
        fits: Mask = np.where(self._by_pod[rows], whole, each)
        return (fits & (self._cpus_together[rows] >= needs.pod_cpus)) | ~self._zoned[rows]

    def _in_zones(self, cpus: int, memory: int, tie: int, rows: Rows | slice) -> Mask:
        enough = self._cpus[:, rows] >= cpus
        single = np.logical_or.reduce(enough & (self._memory[:, rows] >= memory), axis=0)
        wide = (self._bound[rows] < cpus) & (self._tied[rows] < tie)
        found: Mask = np.where(self._single[rows], single, wide | enough.any(axis=0))
        return found

    # --- loading ---------------------------------------------------------------------------------

    def _grow(self, rows: int) -> None:
        if rows <= self._rows:
            return
        more = rows - self._rows
        for name in ("_zoned", "_single", "_by_pod", "_aligning", "_plain"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more, dtype=np.bool_)))
        for name in (
            "_in_flight",
            "_cpus_together",
            "_broken_up",
            "_bound",
            "_tied",
            "_zone_count",
            "_loaded",
        ):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more, dtype=np.int64)))
        self._pad_zones(((0, 0), (0, more)))
        for table in (self._totals, self._allocatable, self._scored):
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
            self._totals[name][row] = max(amount - entry.used[name], -UNBOUNDED)
            self._allocatable[name][row] = amount
        for name, column in self._scored.items():
            column[row] = min(entry.scored[name], UNBOUNDED)
        self._load_zones(entry)

    def _pad_zones(self, pad: tuple[tuple[int, int], tuple[int, int]]) -> None:
        for name in ("_cpus", "_memory"):
            setattr(self, name, np.pad(getattr(self, name), pad))

    def _load_zones(self, entry: NodeEntry) -> None:
        row = entry.row
        zones, view = entry.free_by_zone(), entry.outlook()
        self._zoned[row] = zones is not None
        self._in_flight[row] = len(view.in_flight) if view else 0
        self._cpus[:, row], self._memory[:, row] = 0, 0
        self._cpus_together[row], self._aligning[row], self._plain[row] = 0, False, False
        self._zone_count[row] = len(zones or ())
        if zones is None or view is None:
            return
        config = view.base.config
        self._single[row] = config.topology_policy == "single-numa-node"
        self._plain[row] = not (
            view.in_flight
            or config.topology_policy not in ("single-numa-node", "restricted")
            or config.cpu_options
            or entry.held_off
            or entry.distrust()
        )
        self._by_pod[row] = config.topology_scope == "pod"
        bound = entry.zone_bound()
        self._bound[row] = bound.size if bound.size < UNBOUNDED else 0
        self._tied[row] = bound.memory
        self._aligning[row] = config.cpu_policy == "static" and config.topology_policy != "none"
        if len(zones) > self._cpus.shape[0]:
            self._pad_zones(((0, len(zones) - self._cpus.shape[0]), (0, 0)))
            self._answers.clear()
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
