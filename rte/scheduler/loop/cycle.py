"""One decision: which node a pod goes to, or why none takes it (pure).

The same at every size: a screen over all nodes at once gives an order by what all rules prefer, the
exact check goes down that order until it has found enough to choose from, and the best of these by
exact scores is taken. A pod that was refused by every node is remembered as such, so only nodes
that have changed since are looked at again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rte.placement.dra import Wish
from rte.scheduler.cache.cluster import Backlog
from rte.scheduler.cache.table import Table
from rte.scheduler.framework.devices import wish_of
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Candidate, RowScore
from rte.scheduler.framework.status import SUCCESS, Status
from rte.scheduler.plugins import default_preemption, node_resources_fit, registry
from rte.scheduler.plugins.dynamic_resources import DynamicResources
from rte.scheduler.plugins.node_resource_topology import NodeResourceTopology
from rte.scheduler.plugins.node_resources_fit import NodeResourcesFit, lacking
from rte.scheduler.plugins.taint_toleration import TaintToleration
from rte.scheduler.plugins.zone_room import ZoneRoom

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.cache.table import ZonesShort
    from rte.scheduler.framework.budgets import Budget
    from rte.scheduler.framework.columns import Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Score
    from rte.scheduler.framework.profile import Around
    from rte.scheduler.framework.room import Room
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.plugins.default_preemption import Plan
    from rte.scheduler.plugins.registry import Options
    from rte.scheduler.queue.group import Group

#: Preferences that the order of the screen has in it.
_IN_THE_KEYS = frozenset({ZoneRoom.name, TaintToleration.name})

#: Rules that say more than those of their name in kube-scheduler.
_BEYOND = frozenset({DynamicResources.name})

#: Nodes that take the pod, out of which the best is chosen.
ENOUGH = 4

#: So many nodes are checked without a screen.
_FEW = 4

#: Of more nodes than these the columns tell sooner which have room.
_MANY = 8

#: Stand for the plugin of a refusal for the sake of a pod that waits there, and of one by something
#: that passes by itself.
NOMINATED, WAITS = "Nominated", "Waits"

#: Kinds of events after which a node may hold both, or is promised no more.
_PROMISE_ENDS = (
    Kind.NOMINATION
    | Kind.POD_GONE
    | Kind.POD_CHANGED
    | Kind.REPORT
    | Kind.NODE_ADDED
    | Kind.NODE_ALLOCATABLE
)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The node, or None.

    Attributes:
        node: where the pod goes.
        status: that node's answer.
        score: of the node.
        waits: only unconfirmed pods or reservations stand in the way.
        waits_on: the nodes where they do.
        second_best: some node would do, though not well.
        withheld: some node would do at need, and was not taken because of ``waits_on``.
        refused_by: names of the plugins whose events may end the refusal.
    """

    node: str | None = None
    status: Status = field(default_factory=Status)
    score: float = 0.0
    waits: bool = False
    waits_on: frozenset[str] = frozenset()
    second_best: bool = False
    withheld: bool = False
    refused_by: frozenset[str] = frozenset()


class Cycle:
    """Decides for one cluster; keeps the columns.

    Attributes:
        profile: the rules.
        zone_room: remembers what was asked for lately.
    """

    def __init__(self, cluster: Cluster, options: Options | None = None) -> None:
        self._cluster = cluster
        self.zone_room = ZoneRoom()
        self.profile = registry.profile(
            cluster.storage, cluster.devices, self.zone_room, options or registry.Options()
        )
        self._table = Table(cluster.columns)
        self._backlog = Backlog(cluster)

    def decide(
        self,
        pod: PodView,
        seen: int = -1,
        helped: Collection[str] = (),
        *,
        settles: bool = True,
    ) -> Decision:
        """Where the pod goes.

        Args:
            pod: that waits.
            seen: nodes that have not changed since are known to refuse it, -1: none is ...
            helped: ... but for these.
            settles: it goes where it is second best when no node does better.
        """
        refused_by: set[str] = set()
        changed = self._changed(pod, seen, helped, refused_by)
        if changed == []:
            return Decision(refused_by=frozenset(refused_by))
        problem = self.problem(pod)
        if problem.reason:
            return Decision(status=problem, refused_by=frozenset((problem.plugin,)))
        around = self.profile.around(pod, self._cluster)
        found: list[Candidate] = []
        last_resort: list[Candidate] = []
        waits_on: set[str] = set()
        candidates, enough = self._candidates(pod, around, changed, refused_by)
        for entry in candidates:
            status = self.check(entry, pod, around)
            if not status.reason:
                found.append(Candidate(entry, status))
                if len(found) >= enough:
                    break
                continue
            refused_by.add(status.plugin)
            if status.uncertain or status.second_best:
                last_resort.append(Candidate(entry, status))
            if status.waits:
                waits_on.add(entry.name)
        if not found and last_resort and not waits_on:
            found = [
                each
                for each in last_resort
                if (settles or not each.status.second_best) and self._will_do(around, pod, each)
            ]
        if not found:
            if waits_on:
                refused_by.add(WAITS)
            second_best = any(each.status.second_best for each in last_resort)
            return Decision(
                waits=bool(waits_on) or second_best,
                waits_on=frozenset(waits_on),
                second_best=second_best,
                withheld=bool(waits_on and last_resort),
                refused_by=frozenset(refused_by),
            )
        score, best = self._best(pod, found)
        return Decision(node=best.node.name, status=best.status, score=score)

    def _will_do(self, around: Around, pod: PodView, candidate: Candidate) -> bool:
        """Whether the rules that look around allow what is not the best."""
        refusal = self.profile.refused_around(around, pod, candidate.node)
        return not refusal.reason or refusal.second_best

    def _best(self, pod: PodView, found: Sequence[Candidate]) -> tuple[float, Candidate]:
        if len(found) == 1:
            return 0.0, found[0]
        scores = self.profile.score(pod, found, self._cluster)
        # The first of equal ones: they are in the order of the screen.
        best = max(range(len(found)), key=lambda index: (scores[index], -index))
        return scores[best], found[best]

    def problem(self, pod: PodView) -> Status:
        """Why the pod can go nowhere, whatever the node; no reason when it may."""
        return self.profile.problem(pod, self._cluster)

    def around(self, pod: PodView) -> Around:
        """What the rules that look at other nodes or objects say of the pod."""
        return self.profile.around(pod, self._cluster)

    def alone(self, pod: PodView) -> Around:
        """What kube-scheduler does not know of such rules: behind it they are asked all the same.

        That is where devices have to be; which they are it decides itself.
        """
        if wish_of(pod.shape) is not Wish.REQUIRED:
            return ()
        return [(rule, what) for rule, what in self.around(pod) if rule.name in _BEYOND]

    def check_node(self, entry: NodeEntry, shape: Shape) -> Status:
        """The answer of the rules that depend on this node alone."""
        return self.profile.check(shape, entry)

    def check(self, entry: NodeEntry, pod: PodView, around: Around = ()) -> Status:
        """One node's answer, with what was promised to others.

        ``around``: what :meth:`around` says; without it the rules that look around are left out
        (behind kube-scheduler they are its own).
        """
        ahead = entry.ahead_of(pod)
        status = self.profile.check(pod.shape, entry.beside(ahead) if ahead else entry)
        if (status.reason and ahead and not self.profile.check(pod.shape, entry).reason) or (
            not status.reason and any(_crowds(pod, entry, each) for each in entry.reserved_for(pod))
        ):
            status = _promised()
        if status.reason:
            return status
        refusal = self.profile.refused_around(around, pod, entry)
        if refusal.second_best:
            return replace(status, reason=refusal.reason, plugin=refusal.plugin, second_best=True)
        return refusal if refusal.reason else status

    def score(self, pod: PodView, candidates: Sequence[Candidate]) -> list[float]:
        """What all preferences give each candidate, the higher the better."""
        return self.profile.score(pod, candidates, self._cluster)

    def reasons(self, pod: PodView) -> Counter[str]:
        """Reason -> number of nodes that refuse the pod for it, over all nodes."""
        problem = self.problem(pod)
        if problem.reason:
            number = sum(1 for entry in self._cluster.nodes.values() if entry.info)
            return Counter({problem.reason: number})
        counts, _ = self._tally(pod)
        return counts

    def why(self, pod: PodView) -> tuple[Counter[str], ZonesShort | None]:
        """:meth:`reasons`, and what zones lack for the largest container where that is known."""
        problem = self.problem(pod)
        if problem.reason:
            return self.reasons(pod), None
        counts, short = self._tally(pod)
        cpus = max(pod.shape.exclusive_cpus, default=0)
        memory = max((box.requests.get("memory", 0) for box in pod.shape.pod.containers), default=0)
        if not cpus or not len(short):
            return counts, None
        return counts, self._table.zones_short(short, cpus, memory)

    def _tally(self, pod: PodView) -> tuple[Counter[str], Rows]:
        """Reasons by number of nodes, and rows whose managers refuse, or admit, the pod."""
        cluster = self._cluster
        self.catch_up()
        around = self.around(pod)
        promised = {cluster.nodes[name].row for name in cluster.nominations.values()}
        refusals = (refusal for _, refusal in self.profile.refusals(around))
        counts, rest, short = self._table.tally(pod.shape, refusals, sorted(promised))
        judged = []
        for row in rest.tolist():
            entry = cluster.rows[row]
            counts[self.check(entry, pod, around).reason] += 1
            if self.check_node(entry, pod.shape).verdict is not None:
                judged.append(row)
        return counts, np.append(short, np.array(judged, dtype=np.intp))

    def catch_up(self, most: int | None = None) -> int:
        """Load so many of the nodes that have changed, None: all; how many are left.

        A decision over all nodes loads them itself. After a first list they are all of them, and
        that would take long.
        """
        known = self._cluster.nodes
        self._table.refresh(known[name] for name in self._backlog.take(most) if name in known)
        return len(self._backlog)

    def helps(self, event: ClusterEvent, group: Group) -> bool | None:
        """Whether an event can end these refusals; None: any node may have changed its answer."""
        pod = group.first()
        said = self.profile.helps(event, pod, group.refused_by, self._cluster)
        if said is not False:
            return said
        if event.node in group.waits_on and event.kind.value & _PROMISE_ENDS.value:
            return True
        return bool(event.kind.value & Kind.NODE_ADDED.value)

    def rooms(self, event: ClusterEvent, refused_by: frozenset[str]) -> Sequence[Room] | None:
        """All of them hold a pod of which :meth:`helps` is true; None: that is open.

        What a group waits for on the node (``waits_on``) is left out.
        """
        if not refused_by or event.kind.value & Kind.NODE_ADDED.value:
            return None
        return self.profile.rooms(event, refused_by, self._cluster)

    def kinds(self, refused_by: Iterable[str]) -> Kind:
        """Of events that can end refusals by these plugins."""
        names = frozenset(refused_by)
        ends = _PROMISE_ENDS if names & {NOMINATED, WAITS} else Kind(0)
        return Kind.NODE_ADDED | ends | self.profile.kinds(names)

    def placed(self, pod: PodView) -> None:
        """The pod was given a place: others like it may come."""
        self.zone_room.placed(pod.shape)

    # --- making room -----------------------------------------------------------------------------

    def plans(
        self, pod: PodView, avoid: frozenset[str] = frozenset()
    ) -> Iterator[Plan | NodeEntry | None]:
        """Whom to evict for the pod, node by node; the caller takes the cheapest.

        A generator, so that the caller may attend to other things between nodes; None is yielded
        where a node offers nothing, and the node where it is not known yet what it offers. Empty
        when evictions cannot help the pod, or when it needs
        none: some node takes it, or will when a pod in flight is confirmed.

        Args:
            pod: that fits nowhere.
            avoid: nodes whose pods did not end when they should have.
        """
        if self.problem(pod).reason:
            return
        around = self.around(pod)
        able = []
        for number, entry in enumerate(list(self._cluster.nodes.values())):
            if number % 64 == 63:
                yield None
            if entry.info is None:
                continue
            status = self.check(entry, pod, around)
            alone = self.profile.check(pod.shape, entry).verdict
            if not status.reason or (alone is not None and alone.waits):
                return
            if (
                entry.name not in avoid
                and default_preemption.could_make_room(pod, entry, status)
                and self._may_make_room(around, pod, entry)
            ):
                able.append(entry)
        for entry in default_preemption.cheapest_first(pod, able):
            if default_preemption.is_settled(entry):
                yield self.plan_on(pod, entry, around=around)
            else:
                yield entry

    def _may_make_room(self, around: Around, pod: PodView, entry: NodeEntry) -> bool:
        """Whether the rules that look around allow the node, or would if pods left it."""
        refusal = self.profile.refused_around(around, pod, entry)
        return not refusal.reason or refusal.resources

    def plan_on(
        self,
        pod: PodView,
        entry: NodeEntry,
        budgets: Sequence[Budget] | None = None,
        *,
        around: Around = (),
    ) -> Plan | None:
        """Whom to evict on one node for the pod; ``around``: what :meth:`around` says."""
        if budgets is None:
            budgets = list(self._cluster.budgets.values())
        companions = self._cluster.gangs.companions
        return default_preemption.plan_for(
            pod, entry, budgets, self.profile, companions, around=around
        )

    def is_possible(self, pod: PodView, entry: NodeEntry) -> bool:
        """Whether the node would take the pod once all that ends by itself there has ended."""
        if entry.info is None:
            return False
        ends = frozenset(
            uid for uid, p in entry.pods.items() if p.deleting or not (p.mirror or p.lasting)
        )
        drained = entry.without(ends)
        if self.profile.check(pod.shape, drained).reason:
            return False
        return not self.profile.refused_around(self.around(pod), pod, entry).reason

    # --- candidates ------------------------------------------------------------------------------

    def _changed(
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
        roomy = self._table.roomy(pod.shape, [entry.row for entry in changed])
        refused_by |= roomy.dropped
        left = set(roomy.rows.tolist())
        return [entry for entry in changed if entry.row in left or entry.held_off]

    def _is_too_small(self, shape: Shape, entry: NodeEntry, refused_by: set[str]) -> bool:
        """Whether the node refuses the pod by amounts alone; by which rule is added."""
        if entry.held_off:
            return False
        if not node_resources_fit.left(entry).holds(shape.needs):
            refused_by.add(NodeResourcesFit.name)
        elif not entry.zone_bound().lets(shape.needs):
            refused_by.add(NodeResourceTopology.name)
        else:
            return False
        return True

    def _candidates(
        self, pod: PodView, around: Around, changed: list[NodeEntry] | None, refused_by: set[str]
    ) -> tuple[Iterable[NodeEntry], int]:
        """Nodes in the order in which they are checked, and out of how many the best is chosen."""
        cluster = self._cluster
        if changed is not None and len(changed) <= _FEW:
            return changed, ENOUGH
        self.catch_up()
        screened = self._table.screen(pod.shape, self.profile.refusals(around))
        if changed is not None:
            screened = screened.among([entry.row for entry in changed])
        refused_by |= screened.dropped
        concerned = [
            plugin
            for plugin in self.profile.preferences(pod, cluster)
            if plugin.name not in _IN_THE_KEYS
        ]
        asked = [plugin for plugin in concerned if not plugin.exact]
        preference = self._preference(pod, screened.rows, asked) if asked else None
        entries = (cluster.rows[row] for row in screened.best_first(preference))
        # The keys of an ordinary pod are its scores: the first that takes it is the best.
        decided = bool(concerned) and all(plugin.decides for plugin in concerned)
        enough = 1 if decided or not (concerned or pod.shape.may_need_zone) else ENOUGH
        return entries, enough

    def _preference(
        self, pod: PodView, rows: Rows, asked: Sequence[Score]
    ) -> NDArray[np.float64] | None:
        """What these rules, and taints, prefer among the rows; None: nothing."""
        decided = all(plugin.decides for plugin in asked)
        if len(rows) <= (1 if decided else ENOUGH):
            return None
        total = np.zeros(len(rows))
        taints = (p for p in self.profile.scores if p.name == TaintToleration.name and not decided)
        for plugin in (*asked, *taints):
            if isinstance(plugin, RowScore):
                part = plugin.score_rows(pod, rows, self._cluster)
            else:
                candidates = [Candidate(self._cluster.rows[row], SUCCESS) for row in rows.tolist()]
                scores = plugin.score(pod, candidates, self._cluster)
                part = None if scores is None else np.asarray(scores)
            if part is not None:
                total += plugin.weight * part
        return total if total.any() else None


def _promised() -> Status:
    why = "node(s) reserved for a pod that waits"
    return Status(reason=why, plugin=NOMINATED, waits=True)


def _crowds(pod: PodView, entry: NodeEntry, other: PodView) -> bool:
    """Whether an ordinary pod takes of a draining node what the pod that it drains for will need.

    Other ordinary pods stay; what needs a zone is taken to have ended by then.
    """
    stays = frozenset(
        uid for uid, each in entry.pods.items() if each.lasting or not each.shape.may_need_zone
    )
    drained = entry.without(frozenset(entry.pods.keys() - stays))
    drained.add(replace(pod, node=entry.name))
    return bool(lacking(other.shape.totals, drained))
