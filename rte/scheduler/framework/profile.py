"""The plugins at work: a node's answer, its surroundings, its score, what an event can end."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from rte.scheduler.framework.events import Help, Kind
from rte.scheduler.framework.outlook import NO_ROOM
from rte.scheduler.framework.plugin import (
    Annotate,
    Clocked,
    Filter,
    NodeFilter,
    Plugin,
    PodChange,
    PreFilter,
    Ranks,
    Reserve,
    RowFilter,
    Score,
)
from rte.scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rte.scheduler.framework.columns import Column, NodeAmounts, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.framework.plugin import Candidate, RowRefusal, Snapshot
    from rte.scheduler.framework.shape import Shape

    #: What the rules that look around have prepared for one pod.
    Around = Sequence[tuple[Filter, Any]]

_P = TypeVar("_P", bound=Plugin)

#: Answers kept for one state of a node; each holds the node's state after the pod.
_MOST_REMEMBERED = 32


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What pods of one ``spec.schedulerName`` prefer, where they are not served as all others.

    Attributes:
        strategy: name of a strategy of :mod:`rte.scheduler.plugins.scoring_strategy`; empty: none.
        weights: of preferences by name, where they are not the plugin's own; 0: it is not asked.
    """

    strategy: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)


class Profile:
    """A list of plugins in the order in which they are asked, the cheapest first.

    Args:
        plugins: the rules.
        scoring: ``spec.schedulerName`` -> what its pods prefer; all others as the plugins weigh.

    Attributes:
        plugins: all of them.
        scores: those that have preferences.
        reserves: those that hold what a decision takes.
        annotators: those that write on the pod.
        clocked: those that time changes.
        raised: the answer of a node about which a rule raises; by default it raises on.
    """

    def __init__(
        self, plugins: Sequence[Plugin], scoring: Mapping[str, Scoring] | None = None
    ) -> None:
        self.plugins = tuple(plugins)
        self.scores = tuple(p for p in plugins if isinstance(p, Score))
        self._usual = self._weighed(Scoring())
        self._weights = {name: self._weighed(each) for name, each in (scoring or {}).items()}
        self.reserves = tuple(p for p in plugins if isinstance(p, Reserve))
        self.clocked = tuple(p for p in plugins if isinstance(p, Clocked))
        self.annotators = tuple(p for p in plugins if isinstance(p, Annotate))
        self._pre_filters = tuple(p for p in plugins if isinstance(p, PreFilter))
        self._node_filters = tuple(p for p in plugins if isinstance(p, NodeFilter))
        self._by_object = tuple(takewhile(attrgetter("by_object"), self._node_filters))
        base = NodeFilter.is_told
        self._partly_told = {p for p in self._node_filters if type(p).is_told is not base}
        self._by_state = self._node_filters[len(self._by_object) :]
        self._masks: OrderedDict[bytes, tuple[object, list[tuple[NodeFilter, RowRefusal]]]]
        self._masks = OrderedDict()
        self._ranking = tuple(p for p in plugins if isinstance(p, Ranks))
        self._filters = tuple(p for p in plugins if isinstance(p, Filter))
        self._looking_around = tuple(p for p in plugins if isinstance(p, Filter | PreFilter))
        self._by_kinds: dict[int, list[Filter | PreFilter]] = {}
        self._by_name = {plugin.name: plugin for plugin in plugins}
        #: Rules that have nothing to do with pods of a shape.
        self._silent: WeakKeyDictionary[Shape, frozenset[Plugin]] = WeakKeyDictionary()
        self.raised: Callable[[NodeEntry, Exception, Shape | None], Status] = _raise_on

    def _asked(self, plugins: Iterable[_P], shape: Shape) -> list[_P]:
        """Those of the plugins that pods of this shape may concern."""
        silent = self._silent.get(shape)
        if silent is None:
            silent = frozenset(each for each in self.plugins if not each.concerns(shape))
            self._silent[shape] = silent
        return [each for each in plugins if each not in silent]

    def problem(self, pod: PodView, snapshot: Snapshot) -> Status:
        """Why the pod can go nowhere, whatever the node; no reason when it may."""
        if pod.shape.malformed:
            return Status(reason=pod.shape.malformed)
        for plugin in self._asked(self._pre_filters, pod.shape):
            why = plugin.pre_filter(pod, snapshot)
            if why:
                return Status(reason=why, plugin=plugin.name)
        return SUCCESS

    def event_for(self, problem: Status) -> str:
        """Reason of the event that tells of such a problem."""
        return next(
            (plugin.tells for plugin in self._pre_filters if plugin.name == problem.plugin),
            PreFilter.tells,
        )

    def annotations(self, pod: PodView, node: NodeEntry, status: Status) -> dict[str, str]:
        """What the bind writes on the pod."""
        out: dict[str, str] = {}
        for plugin in self._asked(self.annotators, pod.shape):
            out |= plugin.annotations(pod, node, status)
        return out

    def check(self, shape: Shape, node: NodeEntry) -> Status:
        """Everything that depends on this node alone; remembered until the node changes."""
        known = node.remembered.get(shape.key)
        if known is None:
            if len(node.remembered) >= _MOST_REMEMBERED:
                node.forget_answers()
            try:
                known = self.evaluate(shape, node)
            except Exception as error:  # noqa: BLE001 - one node is put aside for the pod
                known = self.raised(node, error, shape)
            node.remembered[shape.key] = known
        return known

    def evaluate(self, shape: Shape, node: NodeEntry) -> Status:
        """:meth:`check` afresh; whatever a rule raises is raised."""
        if node.info is None:
            return Status(reason="node(s) that have no Node object")
        standing = node.standing
        status = standing.get(shape.key)
        if status is None:
            if len(standing) >= _MOST_REMEMBERED:
                standing.clear()
            status = standing[shape.key] = self._judge(self._by_object, shape, node, SUCCESS)
        return status if status.reason else self._judge(self._by_state, shape, node, status)

    def _judge(
        self, plugins: Iterable[NodeFilter], shape: Shape, node: NodeEntry, status: Status
    ) -> Status:
        for plugin in self._asked(plugins, shape):
            status = plugin.filter_node(shape, node, status)
            if status.reason:
                return replace(status, plugin=plugin.name)
        return status

    def allows(self, shape: Shape, node: NodeEntry) -> bool:
        """Whether the node would do if it had room enough."""
        return node.info is not None and not any(
            plugin.filter_node(shape, node, SUCCESS).reason
            for plugin in self._asked(self._node_filters, shape)
            if not plugin.about_room
        )

    def lacks_room(self, shape: Shape, node: NodeEntry) -> NodeFilter | None:
        """A rule by which amounts alone show that the node refuses the pod; None: it may do."""
        asked = self._asked(self._node_filters, shape)
        lacks = (each for each in asked if each.about_room and each.lacks_room(shape, node))
        return next(lacks, None)

    def ruled_out(
        self,
        shape: Shape,
        amounts: NodeAmounts,
        rows: Rows | slice = slice(None),
        *,
        about_room: bool = False,
    ) -> Iterator[tuple[NodeFilter, RowRefusal]]:
        """Rules and whom of these rows they refuse for certain, in the order in which they are
        asked; ``about_room``: only those that refuse for want of room.
        """
        if not about_room:
            yield from self._ruled_out_by_object(shape, amounts)
        told = True
        for plugin in self._asked(self._by_state, shape):
            if about_room and not plugin.about_room:
                continue
            for refusal in plugin.rules_out(shape, amounts, rows):
                # One that was asked before may have another reason.
                yield plugin, refusal if told else refusal._replace(reason="")
            told = told and (plugin not in self._partly_told or plugin.is_told(shape))

    def _ruled_out_by_object(
        self, shape: Shape, amounts: NodeAmounts
    ) -> list[tuple[NodeFilter, RowRefusal]]:
        """Likewise, by rules that read Node objects alone, of all rows."""
        version = (amounts.columns.version, amounts.columns.rows)
        known = self._masks.pop(shape.key, None)
        if known is None or known[0] != version:
            asked = self._asked(self._by_object, shape)
            every = slice(None)
            known = version, [(p, r) for p in asked for r in p.rules_out(shape, amounts, every)]
        self._masks[shape.key] = known
        if len(self._masks) > _MOST_REMEMBERED:
            self._masks.popitem(last=False)
        return known[1]

    def ranks(self, shape: Shape, amounts: NodeAmounts, rows: Rows) -> Column:
        """The order in which these rows are asked, the smaller the sooner."""
        out = np.zeros(len(rows), dtype=np.int64)
        for plugin in self._asked(self._ranking, shape):
            part = plugin.ranks(shape, amounts, rows)
            if part is not None:
                out += part
        return out

    def around(self, pod: PodView, snapshot: Snapshot) -> Around:
        """What the rules that look at other nodes or objects say of the pod."""
        asked = self._asked(self._filters, pod.shape)
        prepared = [(plugin, plugin.prepare(pod, snapshot)) for plugin in asked]
        return [(plugin, what) for plugin, what in prepared if what is not None]

    def refused_around(self, around: Around, pod: PodView, node: NodeEntry) -> Status:
        """Why such a rule keeps the pod off the node; no reason when none does."""
        for plugin, prepared in around:
            try:
                why = plugin.filter(prepared, pod, node)
            except Exception as error:  # noqa: BLE001 - likewise
                return self.raised(node, error, pod.shape)
            if isinstance(why, Status):
                return replace(why, plugin=plugin.name)
            if why:
                return Status(reason=why, plugin=plugin.name)
        return SUCCESS

    def changed(self, around: Around, changes: Sequence[PodChange]) -> Around:
        """What such rules say with pods more or fewer on nodes."""
        return [(plugin, plugin.changed(prepared, changes)) for plugin, prepared in around]

    def beside(self, around: Around, pods: Iterable[PodView], node: str) -> Around:
        """What rules that look at pods say once these have come to the node as well."""
        changes = [PodChange(pod, node, 1) for pod in pods]
        return self.changed([each for each in around if each[0].by_pods], changes)

    def joins(self, around: Around, pod: PodView, other: PodView) -> bool:
        """Whether the pod may need that other one where it goes."""
        return any(plugin.joins(prepared, pod, other) for plugin, prepared in around)

    def refusals(self, around: Around) -> Iterator[tuple[Plugin, RowRefusal]]:
        """Plugins and what they refuse, of those that answer for all nodes at once."""
        for plugin, prepared in around:
            if isinstance(plugin, RowFilter):
                for refusal in prepared.everywhere:
                    yield plugin, refusal

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,
        preferences: Mapping[Score, float] | None = None,
    ) -> list[float]:
        """The weighted sum of all preferences, the higher the better.

        ``preferences``: of the pod, where the caller knows them.
        """
        parts = self.scores_by_rule(pod, candidates, snapshot, preferences).values()
        return [sum(column) for column in zip(*parts, strict=True)] or [0.0] * len(candidates)

    def scores_by_rule(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,
        preferences: Mapping[Score, float] | None = None,
    ) -> dict[str, list[float]]:
        """Of each preference that tells nodes apart, its weighted score of each candidate."""
        found = {}
        if preferences is None:
            preferences = self.preferences(pod, snapshot)
        for plugin, weight in preferences.items():
            part = plugin.score(pod, candidates, snapshot)
            if part is not None:
                found[plugin.name] = [weight * each for each in part]
        return found

    def preferences(self, pod: PodView, snapshot: Snapshot) -> dict[Score, float]:
        """Those that could tell nodes apart for the pod, and their weights in its profile."""
        given = self._weights.get(pod.scheduler, self._usual)
        asked = {
            plugin: given[plugin]
            for plugin in self._asked(given, pod.shape)
            if plugin.is_concerned(pod, snapshot)
        }
        return {plugin: w for plugin, w in asked.items() if plugin.decides} or asked

    def reserving(self, shape: Shape) -> list[Reserve]:
        """Those that may hold what a decision about such a pod takes."""
        return self._asked(self.reserves, shape)

    def timing(self, shape: Shape) -> list[Clocked]:
        """Those that may remember when such pods start and end."""
        return self._asked(self.clocked, shape)

    def _weighed(self, scoring: Scoring) -> dict[Score, float]:
        """The preferences that count, and their weights."""
        weighed = {each: scoring.weights.get(each.name, each.weight) for each in self.scores}
        return {plugin: weight for plugin, weight in weighed.items() if weight}

    def kinds(self, names: Iterable[str]) -> Kind:
        """Of events that can end refusals by these plugins."""
        out = Kind(0)
        for name in names:
            if name in self._by_name:
                out |= self._by_name[name].helped_by
        return out

    def rooms(
        self, event: ClusterEvent, refused_by: Collection[str], snapshot: Snapshot
    ) -> Sequence[Room] | None:
        """All of them hold a pod of which :meth:`helps` is true; None: that is open."""
        asked = [p for p in self._concerned(event, refused_by) if not _names(event, p)]
        if not asked:
            return [NO_ROOM]
        if not all(plugin.bounds for plugin in asked):
            return None
        return [plugin.room(event, snapshot) for plugin in asked]

    def helps(
        self, event: ClusterEvent, pod: PodView, refused_by: Collection[str], snapshot: Snapshot
    ) -> Help:
        """What an event can do about refusals by these plugins."""
        asked = self._concerned(event, refused_by)
        if event.claims:
            if any(_names(event, plugin) for plugin in asked) and event.is_named_by(pod):
                return Help.NAMED
            asked = [plugin for plugin in asked if not _names(event, plugin)]
        bounding = [plugin for plugin in asked if plugin.bounds]
        helped = all(p.helps(event, pod, snapshot) for p in bounding) and any(
            p.may_have_refused(event, pod, snapshot) for p in bounding
        )
        for plugin in asked:
            if not plugin.bounds and plugin.helps(event, pod, snapshot):
                if isinstance(plugin, Filter | PreFilter) and plugin.spreads(event):
                    return Help.ANY
                helped = True
        return Help.NODE if helped else Help.NONE

    def helps_anywhere(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> Help:
        """What an event can do about refusals of other nodes than its own, by whatever plugins."""
        kinds = event.kind.value
        asked = self._by_kinds.get(kinds)
        if asked is None:
            asked = [plugin for plugin in self._looking_around if kinds & plugin.helped_by.value]
            self._by_kinds[kinds] = asked
        named = [plugin for plugin in asked if _names(event, plugin)]
        if named and event.is_named_by(pod):
            return Help.NAMED
        rest = (plugin for plugin in asked if plugin not in named and plugin.spreads(event))
        helped = any(plugin.helps(event, pod, snapshot) for plugin in rest)
        return Help.ANY if helped else Help.NONE

    def _concerned(self, event: ClusterEvent, refused_by: Collection[str]) -> list[Plugin]:
        """Those of these plugins that events of the kind can help."""
        # As plain numbers: this is asked for many sleeping shapes and every event.
        kinds = event.kind.value
        named = (self._by_name.get(name) for name in refused_by)
        return [p for p in named if p is not None and kinds & p.helped_by.value]


def _names(event: ClusterEvent, plugin: Plugin) -> bool:
    """Whether the event helps the plugin's pods only if they name the claims that it is about."""
    return bool(event.claims and event.kind.value & plugin.named.value)


def _raise_on(_node: NodeEntry, error: Exception, _shape: Shape | None) -> Status:
    raise error
