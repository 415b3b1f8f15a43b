"""The nodes that a decision looks at, and in which order (pure).

A screen over all nodes at once gives an order by what all rules prefer. A pod that was refused by
every node is remembered as such, so only nodes that have changed since are looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.cache.cluster import Backlog
from rte.scheduler.cache.table import Table
from rte.scheduler.framework.plugin import Candidate, Ranks, RowScore
from rte.scheduler.framework.status import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.columns import Rows
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Score
    from rte.scheduler.framework.profile import Around, Profile
    from rte.scheduler.framework.shape import Shape

#: Nodes that take the pod, out of which the best is chosen.
ENOUGH = 4

#: So many nodes are checked without a screen.
_FEW = 4

#: Of more nodes than these the columns tell sooner which have room.
_MANY = 8


class Candidates:
    """Chooses among the nodes of one cluster; keeps the columns.

    Attributes:
        table: what is known of all nodes, in columns.
    """

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster, self._profile = cluster, profile
        self.table = Table(cluster.columns, profile)
        self._backlog = Backlog(cluster)
        #: As of a sequence: less the CPU that is left on each node, the most first; its sums.
        self._left = (-1, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def catch_up(self, most: int | None = None) -> int:
        """Load so many of the nodes that have changed, None: all; how many are left.

        A decision over all nodes loads them itself. After a first list they are all of them, and
        that would take long.
        """
        known = self._cluster.nodes
        for name in self._backlog.take(most):
            if name in known:
                try:
                    self.table.refresh((known[name],))
                except Exception as error:  # noqa: BLE001 - this node alone is put aside
                    self._profile.raised(known[name], error, None)
        return len(self._backlog)

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
