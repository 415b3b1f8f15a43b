"""Waiting pods of one kind, which share their fate."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.queue.waiting import Waiting

Order = tuple[int, str, int]

_NONE = Kind(0)


@dataclass(eq=False)
class EquivalenceClass:
    """Waiting pods of one kind, first come first served.

    Attributes:
        key: shape, priority and labels where they matter.
        heap: (order, UID).
        pods: UID -> record.
        seen: cluster sequence number up to which all nodes but those in ``helped`` are known to
            refuse it; -1: none.
        helped: nodes that may take it since something happened there.
        refused_by: names of the plugins that have refused it.
        waits_on: nodes where only what passes by itself stands in the way.
        names: claims that its head names, when it fell asleep.
        kinds: of events that can end that.
        sleeping: no node takes its pods as things are.
        was_refused: ever; ``refusals``: how often since one of its pods was given a place.
        rests_until: what may help it, though nobody can say so, is not looked at before.
        resting: it was woken before that.
        told: the explanation, and the sequence number of the cluster that it is of.
    """

    key: bytes
    heap: list[tuple[Order, str]] = field(default_factory=list)
    pods: dict[str, Waiting] = field(default_factory=dict)
    seen: int = -1
    helped: set[str] = field(default_factory=set)
    refused_by: frozenset[str] = frozenset()
    waits_on: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    kinds: Kind = _NONE
    sleeping: bool = False
    was_refused: bool = False
    refusals: int = 0
    rests_until: float = 0.0
    resting: bool = False
    told: tuple[int, str] = (-1, "")

    def unite(self, other: EquivalenceClass) -> None:
        """Pods of the other, which sleeps, share the fate of these, which sleep or are new."""
        self.seen = min(self.seen, other.seen) if self.was_refused else other.seen
        self.helped |= other.helped
        self.refused_by |= other.refused_by
        self.waits_on |= other.waits_on
        self.kinds |= other.kinds
        self.was_refused = True
        self.refusals = max(self.refusals, other.refusals)
        self.rests_until = max(self.rests_until, other.rests_until)

    def head(self) -> Waiting | None:
        """The pod whose turn it is."""
        while self.heap and self.heap[0][1] not in self.pods:
            heapq.heappop(self.heap)
        return self.pods[self.heap[0][1]] if self.heap else None

    def first(self) -> PodView:
        """The pod at the head, which is there."""
        head = self.head()
        if head is None:
            raise LookupError("the group has no pods")
        return head.pod

    def order(self) -> Order:
        """Place of the head in the queue."""
        return self.heap[0][0]
