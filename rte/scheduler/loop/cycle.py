"""One decision: which node a pod goes to, or why none takes it (pure).

The same at every size: the exact check goes down the order of candidates (``candidates.py``) until
it has found enough to choose from, and the best of these by exact scores is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rte.placement.dra import AlignmentWish
from rte.scheduler.framework.claims.devices import wish_of
from rte.scheduler.framework.events import ANY, Help, Kind
from rte.scheduler.framework.plugin import Candidate
from rte.scheduler.framework.status import Status
from rte.scheduler.loop.candidates import Candidates
from rte.scheduler.plugins import registry
from rte.scheduler.plugins.dynamic_resources import DynamicResources
from rte.scheduler.plugins.node_resources_fit import lacking
from rte.scheduler.plugins.zone_room import ZoneRoom

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.columns import Rows, ZonesShort
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.framework.plugin import Score
    from rte.scheduler.framework.profile import Around
    from rte.scheduler.plugins.registry import RuleOptions
    from rte.scheduler.queue.waiting import EquivalenceClass

#: Rules that say more than those of their name in kube-scheduler.
_BEYOND = frozenset({DynamicResources.name})

#: Stand for the plugin of a refusal for the sake of a pod that waits there, and of one by something
#: that passes by itself.
NOMINATED, WAITS = "Nominated", "Waits"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The node, or None.

    Attributes:
        node: where the pod goes.
        status: that node's answer.
        score: of the node.
        waits: only unconfirmed pods or reservations stand in the way.
        waits_on: the nodes where they do.
        hopes: some of that may end with a place for the pod; what is promised to others does not.
        second_best: some node would do, though not well.
        withheld: some node would do at need, and was not taken for the sake of these hopes.
        refused_by: names of the plugins whose events may end the refusal.
    """

    node: str | None = None
    status: Status = field(default_factory=Status)
    score: float = 0.0
    waits: bool = False
    waits_on: frozenset[str] = frozenset()
    hopes: bool = False
    second_best: bool = False
    withheld: bool = False
    refused_by: frozenset[str] = frozenset()


class Cycle:
    """Decides for one cluster.

    Attributes:
        profile: the rules.
        candidates: chooses the nodes that are looked at.
        zone_room: remembers what was asked for lately.
    """

    def __init__(self, cluster: Cluster, options: RuleOptions | None = None) -> None:
        self._cluster = cluster
        self.zone_room = ZoneRoom()
        self.profile = registry.profile(
            cluster.storage, cluster.devices, self.zone_room, options or registry.RuleOptions()
        )
        self.candidates = Candidates(cluster, self.profile)

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
        changed = self.candidates.changed(pod, seen, helped, refused_by)
        if changed == []:
            return Decision(refused_by=frozenset(refused_by))
        problem = self.problem(pod)
        if problem.reason:
            return Decision(status=problem, refused_by=frozenset((problem.plugin,)))
        around = self.profile.around(pod, self._cluster)
        found: list[Candidate] = []
        last_resort: list[Candidate] = []
        waits_on: set[str] = set()
        hopes = False
        candidates, enough, preferences = self.candidates.ordered(pod, around, changed, refused_by)
        for entry in candidates:
            if around or entry.nominated:
                status = self.check(entry, pod, around)
            else:
                status = self.profile.check(pod.shape, entry)
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
                hopes = hopes or status.plugin != NOMINATED
        if not found and last_resort and not hopes:
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
                hopes=hopes or second_best,
                second_best=second_best,
                withheld=bool(hopes and last_resort),
                refused_by=frozenset(refused_by),
            )
        score, best = self._best(pod, found, preferences)
        return Decision(node=best.node.name, status=best.status, score=score)

    def _will_do(self, around: Around, pod: PodView, candidate: Candidate) -> bool:
        """Whether the rules that look around allow what is not the best."""
        refusal = self.profile.refused_around(around, pod, candidate.node)
        return not refusal.reason or refusal.second_best

    def _best(
        self, pod: PodView, found: Sequence[Candidate], preferences: Mapping[Score, float]
    ) -> tuple[float, Candidate]:
        if len(found) == 1:
            return 0.0, found[0]
        scores = self.profile.score(pod, found, self._cluster, preferences)
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
        if wish_of(pod.shape) is not AlignmentWish.REQUIRED:
            return ()
        return [(rule, what) for rule, what in self.around(pod) if rule.name in _BEYOND]

    def check(self, entry: NodeEntry, pod: PodView, around: Around = ()) -> Status:
        """One node's answer, with what was promised to others.

        ``around``: what :meth:`around` says; without it the rules that look around are left out
        (behind kube-scheduler they are its own).
        """
        ahead = entry.ahead_of(pod) if entry.nominated else ()
        beside = entry.beside(ahead) if ahead else entry
        status = self.profile.check(pod.shape, beside)
        if status.reason and ahead and not self.profile.check(pod.shape, entry).reason:
            return _promised(resources=status.resources)
        if status.reason:
            return status
        if entry.nominated and any(_crowds(pod, entry, x) for x in entry.reserved_for(pod)):
            return _promised()
        if not around:
            return status
        refusal = self.profile.refused_around(around, pod, entry)
        if ahead and (not refusal.reason or refusal.second_best):
            # Who is to come counts, and is not counted on (RunFilterPluginsWithNominatedPods).
            later = self.profile.beside(around, ahead, entry.name)
            then = self.profile.refused_around(later, pod, beside)
            if then.reason and not then.second_best:
                return _promised(resources=then.resources)
        if refusal.second_best:
            return replace(status, reason=refusal.reason, plugin=refusal.plugin, second_best=True)
        return refusal if refusal.reason else status

    def score(self, pod: PodView, candidates: Sequence[Candidate]) -> list[float]:
        """What all preferences give each candidate, the higher the better."""
        return self.profile.score(pod, candidates, self._cluster)

    def scores(self, pod: PodView, candidates: Sequence[Candidate]) -> dict[str, list[float]]:
        """What each preference that tells nodes apart gives each candidate."""
        return self.profile.scores_by_rule(pod, candidates, self._cluster)

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
        return counts, self.candidates.table.zones_short(short, cpus, memory)

    def _tally(self, pod: PodView) -> tuple[Counter[str], Rows]:
        """Reasons by number of nodes, and rows whose managers refuse, or admit, the pod."""
        cluster = self._cluster
        self.candidates.catch_up()
        around = self.around(pod)
        promised = {cluster.nodes[name].row for name in cluster.nominations.values()}
        refusals = (refusal for _, refusal in self.profile.refusals(around))
        counts, rest, short = self.candidates.table.tally(pod.shape, refusals, sorted(promised))
        judged = []
        for row in rest.tolist():
            entry = cluster.rows[row]
            counts[self.check(entry, pod, around).reason] += 1
            if self.profile.check(pod.shape, entry).verdict is not None:
                judged.append(row)
        return counts, np.append(short, np.array(judged, dtype=np.intp))

    def helps(self, event: ClusterEvent, group: EquivalenceClass) -> Help:
        """What an event can do about these refusals."""
        said = self.profile.helps(event, group.first(), group.refused_by, self._cluster)
        # A node that is waited for may hold both now; or it is certain that it does not, and room
        # has to be made.
        if said or not (event.node in group.waits_on or event.kind.value & Kind.NODE_ADDED.value):
            return said
        return Help.NODE

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
        waits = ANY if names & {NOMINATED, WAITS} else Kind(0)
        return Kind.NODE_ADDED | waits | self.profile.kinds(names)


def _promised(*, resources: bool = False) -> Status:
    why = "node(s) reserved for a pod that waits"
    return Status(reason=why, plugin=NOMINATED, waits=True, resources=resources)


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
