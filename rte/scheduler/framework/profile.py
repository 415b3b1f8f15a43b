"""The plugins at work: a node's answer, its surroundings, its score, what an event can end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import (
    Annotate,
    Clocked,
    Filter,
    NodeFilter,
    PreFilter,
    Reserve,
    RowFilter,
    Score,
)
from rte.scheduler.framework.room import NO_ROOM
from rte.scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Plugin, Refusal, Snapshot
    from rte.scheduler.framework.room import Room
    from rte.scheduler.framework.shape import Shape

    #: What the rules that look around have prepared for one pod.
    Around = Sequence[tuple[Filter, Any]]

#: Answers kept for one state of a node; each holds the node's state after the pod.
_MOST_REMEMBERED = 32


class Profile:
    """A list of plugins in the order in which they are asked, the cheapest first.

    Attributes:
        plugins: all of them.
        scores: those that have preferences.
        reserves: those that hold what a decision takes.
        annotators: those that write on the pod.
        clocked: those that time changes.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self.scores = tuple(p for p in plugins if isinstance(p, Score))
        self.reserves = tuple(p for p in plugins if isinstance(p, Reserve))
        self.clocked = tuple(p for p in plugins if isinstance(p, Clocked))
        self.annotators = tuple(p for p in plugins if isinstance(p, Annotate))
        self._pre_filters = tuple(p for p in plugins if isinstance(p, PreFilter))
        self._node_filters = tuple(p for p in plugins if isinstance(p, NodeFilter))
        self._filters = tuple(p for p in plugins if isinstance(p, Filter))
        self._by_name = {plugin.name: plugin for plugin in plugins}

    def problem(self, pod: PodView, snapshot: Snapshot) -> Status:
        """Why the pod can go nowhere, whatever the node; no reason when it may."""
        if pod.shape.malformed:
            return Status(reason=pod.shape.malformed)
        for plugin in self._pre_filters:
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
        for plugin in self.annotators:
            out |= plugin.annotations(pod, node, status)
        return out

    def check(self, shape: Shape, node: NodeEntry) -> Status:
        """Everything that depends on this node alone; remembered until the node changes."""
        known = node.remembered.get(shape.key)
        if known is None:
            if len(node.remembered) >= _MOST_REMEMBERED:
                node.forget_answers()
            known = node.remembered[shape.key] = self._check(shape, node)
        return known

    def _check(self, shape: Shape, node: NodeEntry) -> Status:
        if node.info is None:
            return Status(reason="node(s) that have no Node object")
        status = SUCCESS
        for plugin in self._node_filters:
            status = plugin.filter_node(shape, node, status)
            if status.reason:
                return replace(status, plugin=plugin.name)
        return status

    def allows(self, shape: Shape, node: NodeEntry) -> bool:
        """Whether the node would do if it had room enough."""
        return node.info is not None and not any(
            plugin.filter_node(shape, node, SUCCESS).reason
            for plugin in self._node_filters
            if not plugin.about_room
        )

    def around(self, pod: PodView, snapshot: Snapshot) -> Around:
        """What the rules that look at other nodes or objects say of the pod."""
        prepared = ((plugin, plugin.prepare(pod, snapshot)) for plugin in self._filters)
        return [(plugin, what) for plugin, what in prepared if what is not None]

    def refused_around(self, around: Around, pod: PodView, node: NodeEntry) -> Status:
        """Why such a rule keeps the pod off the node; no reason when none does."""
        for plugin, prepared in around:
            why = plugin.filter(prepared, pod, node)
            if isinstance(why, Status):
                return replace(why, plugin=plugin.name)
            if why:
                return Status(reason=why, plugin=plugin.name)
        return SUCCESS

    def refused_without(
        self, around: Around, pod: PodView, node: NodeEntry, gone: Sequence[PodView]
    ) -> bool:
        """Whether such a rule keeps the pod off the node once these pods are gone from it."""
        for plugin, prepared in around:
            why = plugin.filter_without(prepared, pod, node, gone)
            if why.reason and not why.second_best if isinstance(why, Status) else why:
                return True
        return False

    def refusals(self, around: Around) -> Iterator[tuple[str, Refusal]]:
        """Name of a plugin and what it refuses, of those that answer for all nodes at once."""
        for plugin, prepared in around:
            if isinstance(plugin, RowFilter):
                for refusal in prepared:
                    yield plugin.name, refusal

    def score(
        self, pod: PodView, candidates: Sequence[Candidate], snapshot: Snapshot
    ) -> list[float]:
        """The weighted sum of all preferences, the higher the better."""
        total = [0.0] * len(candidates)
        for plugin in self.preferences(pod, snapshot):
            part = plugin.score(pod, candidates, snapshot)
            if part is not None:
                total = [a + plugin.weight * b for a, b in zip(total, part, strict=True)]
        return total

    def preferences(self, pod: PodView, snapshot: Snapshot) -> list[Score]:
        """Those that could tell nodes apart for the pod."""
        asked = [plugin for plugin in self.scores if plugin.is_concerned(pod, snapshot)]
        return [plugin for plugin in asked if plugin.decides] or asked

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
        asked = self._concerned(event, refused_by)
        if not asked:
            return [NO_ROOM]
        if not all(plugin.bounds for plugin in asked):
            return None
        return [plugin.room(event, snapshot) for plugin in asked]

    def helps(
        self, event: ClusterEvent, pod: PodView, refused_by: Collection[str], snapshot: Snapshot
    ) -> bool | None:
        """Whether an event can end refusals by these plugins.

        None: by a rule that looks around, so the answer of any node may have changed.
        """
        asked = self._concerned(event, refused_by)
        bounding = [plugin for plugin in asked if plugin.bounds]
        helped = bool(bounding) and all(p.helps(event, pod, snapshot) for p in bounding)
        for plugin in asked:
            if not plugin.bounds and plugin.helps(event, pod, snapshot):
                if isinstance(plugin, Filter | PreFilter) and plugin.spreads(event):
                    return None
                helped = True
        return helped

    def _concerned(self, event: ClusterEvent, refused_by: Collection[str]) -> list[Plugin]:
        """Those of these plugins that events of the kind can help."""
        # As plain numbers: this is asked for many sleeping shapes and every event.
        kinds = event.kind.value
        named = (self._by_name.get(name) for name in refused_by)
        return [p for p in named if p is not None and kinds & p.helped_by.value]
