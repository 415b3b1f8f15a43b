"""The nodes that a decision looks at, and in which order (pure).

A screen is a *necessary* condition, evaluated over all nodes at once: a node that it drops would
be refused by :meth:`rte.scheduler.framework.profile.Profile.check` too, by a rule that is named;
what it lets through is checked there, best candidates first. The conditions and the order are the
rules' own (``rules_out`` and ``ranks``): nothing here knows any of them. A pod that was refused by
every node is remembered as such, so only nodes that have changed since are looked at again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rte.scheduler.framework.columns import NodeAmounts
from rte.scheduler.framework.plugin import Candidate, Ranks, RowScore
from rte.scheduler.framework.status import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.columns import Column, Columns, Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Plugin, RowRefusal, Score
    from rte.scheduler.framework.profile import Around, Profile
    from rte.scheduler.framework.shape import Shape

#: Nodes that take the pod, out of which the best is chosen.
ENOUGH = 4

#: So many nodes are checked without a screen.
_FEW = 4

#: Of more nodes than these the columns tell sooner which have room.
_MANY = 8

#: So many best rows are sorted first; hardly ever more are needed.
_SORTED = 64


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
        return chain.from_iterable(self._in_parts(preference))

    def _in_parts(self, preference: NDArray[np.float64] | None) -> Iterator[list[int]]:
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
            yield rows[top].tolist()
            rest = np.ones(len(rows), dtype=np.bool_)
            rest[top] = False
            rows, ranks = rows[rest], ranks[rest]
        yield rows[np.argsort(ranks, kind="stable")].tolist()


class RefusalTally(NamedTuple):
    """Refusals by reason, rows still to be asked, and those counted whose zones lack room."""

    counts: Counter[str]
    rest: Rows
    short: Rows


class Table(NodeAmounts):
    """The columns, and what the rules say of all nodes by them.

    Args:
        columns: labels and taints; its rows are the table's.
        profile: the rules.
    """

    def __init__(self, columns: Columns, profile: Profile) -> None:
        super().__init__(columns)
        self._profile = profile

    def screen(self, shape: Shape, around: Iterable[tuple[Plugin, RowRefusal]] = ()) -> Screened:
        """What is left of all nodes, and which rules dropped the others.

        ``around``: plugins that look around, and what they refuse.
        """
        ok = self.columns.present.copy()
        left = int(np.count_nonzero(ok))
        dropped: set[str] = set()
        for rule, refusal in chain(self._profile.ruled_out(shape, self), around):
            np.greater(ok, refusal.rows, out=ok)
            now = int(np.count_nonzero(ok))
            if now < left:
                dropped.add(rule.name)
                left = now
            if not now:
                break
        rows = np.flatnonzero(ok)
        return Screened(rows, self._profile.ranks(shape, self, rows), frozenset(dropped))

    def roomy(self, shape: Shape, rows: Sequence[int]) -> Screened:
        """Which of these rows do not refuse a pod for want of room; they are in no order."""
        some, dropped = np.array(rows, dtype=np.intp), set()
        ok = np.ones(len(some), dtype=np.bool_)
        for rule, refusal in self._profile.ruled_out(shape, self, some, about_room=True):
            if np.any(ok & refusal.rows):
                dropped.add(rule.name)
                ok &= ~refusal.rows
        left = some[ok]
        return Screened(left, np.zeros(len(left), dtype=np.int64), frozenset(dropped))

    def left_of(self, name: str) -> Column:
        """What is left of a resource on each node."""
        return self.of(name, np.flatnonzero(self.columns.present[: self.rows]))

    def tally(
        self, shape: Shape, around: Iterable[RowRefusal], exact: Sequence[int]
    ) -> RefusalTally:
        """Why nodes refuse a pod, as far as the columns tell in the words of the exact check.

        Args:
            shape: of the pod.
            around: what rules that look around refuse; they count where no other rule is known to
                refuse the pod.
            exact: rows to be asked one by one in any case.
        """
        left, rest = self.columns.present.copy(), np.zeros(self.rows, dtype=np.bool_)
        rest[list(exact)] = left[list(exact)]
        left &= ~rest
        counts: Counter[str] = Counter()
        short = np.zeros(self.rows, dtype=np.bool_)
        for _, refusal in self._profile.ruled_out(shape, self):
            refused = left & refusal.rows
            left &= ~refusal.rows
            if not refusal.reason:
                rest |= refused
                continue
            if refusal.sure is not None:
                rest |= refused & ~refusal.sure
                refused &= refusal.sure
                short |= refused
            if number := int(np.count_nonzero(refused)):
                counts[refusal.reason] += number
        rest |= left
        for refusal in around:
            refused = rest & refusal.rows
            refused[list(exact)] = False
            if number := int(np.count_nonzero(refused)):
                counts[refusal.reason] += number
                rest &= ~refused
        return RefusalTally(counts, np.flatnonzero(rest), np.flatnonzero(short))


class Backlog:
    """Nodes that have changed since a reader took them, the latest first; ``len``: how many."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = 0
        self._names: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._names)

    def take(self, most: int | None = None) -> list[str]:
        """Names of so many of them, None: of all; a node may be gone since."""
        changed = self._cluster.changed_since(self._seen)
        self._seen = self._cluster.sequence
        self._names.update(dict.fromkeys(entry.name for entry in changed))
        taken = list(islice(self._names, most))
        for name in taken:
            del self._names[name]
        return taken


class Candidates:
    """Chooses among the nodes of one cluster; keeps the columns.

    Attributes:
        table: what is known of all nodes, in columns.
    """

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster, self._profile = cluster, profile
        self.table = Table(cluster.columns, profile)
        self._backlog, self._caught_up = Backlog(cluster), -1
        #: As of a sequence: less the CPU that is left on each node, the most first; its sums.
        self._left = (-1, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def catch_up(self, most: int | None = None) -> int:
        """Load so many of the nodes that have changed, None: all; how many are left.

        A decision over all nodes loads them itself. After a first list they are all of them, and
        that would take long.
        """
        if self._caught_up == self._cluster.sequence:
            return 0
        known = self._cluster.nodes
        for name in self._backlog.take(most):
            if name in known:
                try:
                    self.table.refresh((known[name],))
                except Exception as error:  # noqa: BLE001 - this node alone is put aside
                    self._profile.raised(known[name], error, None)
        if not (left := len(self._backlog)):
            self._caught_up = self._cluster.sequence
        return left

    def changed(
        self, pod: PodView, seen: int, helped: Collection[str], refused_by: set[str]
    ) -> list[NodeEntry] | None:
        """Nodes that are worth a look, the latest first; None: all. Who refuses the rest is added.

        Of the many that an event wakes few get what it has freed: the others cost little more than
        this.
        """
        if seen < 0:
            return None
        changed = self._cluster.changed_since(seen)
        known = {entry.name for entry in changed}
        others = (self._cluster.nodes.get(name) for name in helped if name not in known)
        changed += [entry for entry in others if entry is not None]
        changed = [entry for entry in changed if entry.info is not None]
        if len(changed) <= _MANY:
            return [e for e in changed if not self._is_too_small(pod.shape, e, refused_by)]
        self.catch_up()
        roomy = self.table.roomy(pod.shape, [entry.row for entry in changed])
        refused_by |= roomy.dropped
        left = set(roomy.rows.tolist())
        return [entry for entry in changed if entry.row in left or entry.held_off]

    def roomy(self, shapes: Iterable[Shape]) -> list[NodeEntry]:
        """Nodes that may have room for some of the shapes, and those where room is promised."""
        self.catch_up()
        cluster = self._cluster
        every = [entry.row for entry in cluster.nodes.values() if entry.info is not None]
        rows = {cluster.nodes[p.places[uid]].row for uid, p in cluster.promises.items()}
        rows.update(*(self.table.roomy(shape, every).rows.tolist() for shape in shapes))
        return [cluster.rows[row] for row in sorted(rows)]

    def milli_left(self, least: int) -> int:
        """Millicores that are left on all nodes together on which at least so many are."""
        if self._left[0] != self._cluster.sequence:
            self.catch_up()
            ascending = np.sort(-self.table.left_of("cpu"))
            self._left = self._cluster.sequence, ascending, np.cumsum(-ascending)
        _, ascending, sums = self._left
        nodes = int(np.searchsorted(ascending, -least, side="right"))
        return int(sums[nodes - 1]) if nodes else 0

    def _is_too_small(self, shape: Shape, entry: NodeEntry, refused_by: set[str]) -> bool:
        """Whether the node refuses the pod by amounts alone; by which rule is added."""
        rule = None if entry.held_off else self._profile.lacks_room(shape, entry)
        if rule is not None:
            refused_by.add(rule.name)
        return rule is not None

    def ordered(
        self, pod: PodView, around: Around, changed: list[NodeEntry] | None, refused_by: set[str]
    ) -> tuple[Iterable[NodeEntry], int, Mapping[Score, float]]:
        """Nodes in the order in which they are checked, out of how many the best is chosen, and by
        which preferences.
        """
        cluster = self._cluster
        preferences = self._profile.preferences(pod, cluster)
        if changed is not None and len(changed) <= _FEW:
            return changed, ENOUGH, preferences
        self.catch_up()
        screened = self.table.screen(pod.shape, self._profile.refusals(around))
        if changed is not None:
            screened = screened.among([entry.row for entry in changed])
        refused_by |= screened.dropped
        concerned = [plugin for plugin in preferences if not isinstance(plugin, Ranks)]
        preference = self._preference(pod, screened.rows, preferences)
        entries = map(cluster.rows.__getitem__, screened.best_first(preference))
        # The keys of an ordinary pod are its scores: the first that takes it is the best.
        decided = bool(concerned) and all(plugin.decides for plugin in concerned)
        enough = 1 if decided or not (concerned or pod.shape.may_need_zone) else ENOUGH
        return entries, enough, preferences

    def _preference(
        self, pod: PodView, rows: Rows, preferences: Mapping[Score, float]
    ) -> NDArray[np.float64] | None:
        """What these rules prefer among the rows; None: nothing that the keys do not tell."""
        asked = {plugin: w for plugin, w in preferences.items() if not plugin.exact}
        decided = all(plugin.decides for plugin in asked)
        if all(isinstance(p, Ranks) for p in asked) or len(rows) <= (1 if decided else ENOUGH):
            return None
        total = np.zeros(len(rows))
        for plugin, weight in asked.items():
            if isinstance(plugin, RowScore):
                part = plugin.score_rows(pod, rows, self._cluster)
            else:
                candidates = [Candidate(self._cluster.rows[row], SUCCESS) for row in rows.tolist()]
                scores = plugin.score(pod, candidates, self._cluster)
                part = None if scores is None else np.asarray(scores)
            if part is not None:
                total += weight * part
        return total if total.any() else None
