"""One decision: which node a pod goes to, or why none takes it (pure).

Few nodes: each is checked and the best one taken. Many nodes: a screen over all of them at once
gives an order, and the exact check goes down that order until it has found enough to choose from.
A shape that was refused by every node is remembered as such, so only nodes that have changed since
are looked at again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.placement.fleet.scores import NextFit
from rte.scheduler.cache.table import Table
from rte.scheduler.framework.node import Check, NodeEntry
from rte.scheduler.plugins import preferences, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.queue.queue import Group

#: Up to this many nodes every one is looked at and compared.
FEW_NODES = 64

#: With more, the first that takes the pod is chosen, in the order of the screen; a pod with soft
#: rules of its own chooses among so many.
ENOUGH, ENOUGH_SOFT = 1, 64

#: Lately placed shapes that the choice of a place has in mind.
SHAPES_IN_MIND = 12


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The node, or None. ``waits``: only unconfirmed pods or reservations stand in the way."""

    node: str | None = None
    check: Check = field(default_factory=Check)
    score: float = 0.0
    waits: bool = False


class Cycle:
    """Decides for one cluster; keeps the columns and a memory of what was asked for lately.

    Attributes:
        next_fit: scores a place by the room that it leaves to shapes placed lately.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = Table()
        self._loaded = 0
        self._lately: Counter[bytes] = Counter()
        self._samples: dict[bytes, PodView] = {}
        self.next_fit = NextFit()

    def decide(self, pod: PodView, group: Group | None = None) -> Decision:
        """Where the pod goes. With ``group``, nodes known to refuse it are not asked again."""
        if self.problem(pod):
            return Decision()
        around = self.around(pod)
        found: list[tuple[NodeEntry, Check]] = []
        last_resort: list[tuple[NodeEntry, Check]] = []
        waits = False
        enough = self._enough(pod)
        for entry in self._candidates(pod, group):
            check = self.check(entry, pod, around)
            if not check.reason:
                found.append((entry, check))
                if len(found) >= enough:
                    break
            elif check.uncertain:
                last_resort.append((entry, check))
            waits = waits or check.waits
        if not found and last_resort and not waits:
            found = last_resort
        if not found:
            return Decision(waits=waits)
        if len(found) == 1:
            return Decision(node=found[0][0].name, check=found[0][1])
        score, entry, check = preferences.rank(pod, found, self._cluster, self.next_fit)[0]
        return Decision(node=entry.name, check=check, score=score)

    def problem(self, pod: PodView) -> str:
        """Why the pod can go nowhere, whatever the node; empty when it may."""
        if pod.shape.malformed or pod.shape.unsupported:
            return pod.shape.malformed or pod.shape.unsupported
        if not pod.shape.claims:
            return ""
        return self._cluster.storage.problem(pod) or self._cluster.claims_in_use(pod)

    def check(
        self, entry: NodeEntry, pod: PodView, around: surroundings.Surroundings | None = None
    ) -> Check:
        """One node's answer, with what was promised to others and inter-pod rules."""
        ahead = entry.ahead_of(pod)
        check = (entry.beside(ahead) if ahead else entry).check(pod.shape)
        if check.reason:
            if ahead and not entry.check(pod.shape).reason:
                return Check(reason="node(s) reserved for a pod that waits", waits=True)
            return check
        why = self.refuses_company(entry, pod, around)
        return Check(reason=why) if why else check

    def around(self, pod: PodView) -> surroundings.Surroundings | None:
        """What inter-pod rules say of the pod, None when none concerns it."""
        if surroundings.needed(pod, self._cluster):
            return surroundings.Surroundings(pod, self._cluster)
        return None

    def refuses_company(
        self, entry: NodeEntry, pod: PodView, around: surroundings.Surroundings | None
    ) -> str:
        """Why inter-pod rules or volumes keep the pod off the node, empty when nothing does."""
        why = around.refuses(entry) if around else None
        if why is None and pod.shape.claims and entry.info is not None:
            found = self._cluster.storage.on_node(pod, entry.info)
            why = found if isinstance(found, str) else None
        return why or ""

    def reasons(self, pod: PodView) -> Counter[str]:
        """Reason -> number of nodes that refuse the pod for it, over all nodes."""
        problem = self.problem(pod)
        if problem:
            return Counter({problem: sum(1 for e in self._cluster.nodes.values() if e.info)})
        around = self.around(pod)
        counts: Counter[str] = Counter()
        for entry in self._cluster.nodes.values():
            if entry.info is not None:
                counts[self.check(entry, pod, around).reason] += 1
        return counts

    def placed(self, pod: PodView) -> None:
        """The pod was given a place: others like it may come."""
        key = pod.shape.key
        self._lately[key] += 1
        self._samples[key] = pod
        if len(self._lately) > 4 * SHAPES_IN_MIND:
            kept = self._lately.most_common(2 * SHAPES_IN_MIND)
            self._lately = Counter({name: max(1, count // 2) for name, count in kept})
            self._samples = {name: self._samples[name] for name, _ in kept}
        self.next_fit = NextFit(
            [
                (self._samples[name].shape.pod, float(count))
                for name, count in self._lately.most_common(SHAPES_IN_MIND)
                if self._samples[name].shape.may_need_zone
            ]
        )

    def _enough(self, pod: PodView) -> int:
        if len(self._cluster.nodes) <= FEW_NODES:
            return len(self._cluster.nodes) + 1
        return ENOUGH_SOFT if preferences.is_soft(pod, self._cluster) else ENOUGH

    def _candidates(self, pod: PodView, group: Group | None) -> Iterable[NodeEntry]:
        cluster = self._cluster
        if group is not None and group.seen >= 0:
            wide = bool(pod.shape.claims) or surroundings.needed(pod, cluster)
            if not (wide and group.pod_seen < cluster.pod_sequence):
                return [e for e in cluster.changed_since(group.seen) if e.info is not None]
        if len(cluster.nodes) <= FEW_NODES:
            return [entry for entry in cluster.nodes.values() if entry.info is not None]
        return self._screened(pod)

    def _screened(self, pod: PodView) -> Iterator[NodeEntry]:
        cluster = self._cluster
        self._table.refresh(cluster.changed_since(self._loaded))
        self._loaded = cluster.sequence
        for row in self._table.best_first(pod.shape):
            entry = cluster.rows[row]
            if cluster.nodes.get(entry.name) is entry:
                yield entry
