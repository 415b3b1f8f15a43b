"""Who waits: single pods, and what they have in common with those that share their fate."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rte.scheduler.framework.events import Kind

if TYPE_CHECKING:
    from rte.k8s.gang import GangKey
    from rte.scheduler.framework.objects import PodView

Order = tuple[int, str, int]


class UnitKey(NamedTuple):
    """Pods with equal keys share their fate: they are placed together, or one is tried for all.

    Attributes:
        gang: they are placed together; nothing else counts.
        shape: the key of their shape.
        preempts: others may be evicted for them.
        alone: UID of one for which a node makes room, not for its likes.
        devices: what their claims ask for, or were given.
        labels: those that the terms of others look at.
    """

    gang: GangKey | None = None
    shape: bytes = b""
    preempts: bool = True
    alone: str = ""
    devices: bytes = b""
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """A few words for logs."""
        if self.gang is not None:
            return f"gang {self.gang.namespace}/{self.gang.name}"
        return self.shape[:40].decode(errors="replace")


@dataclass(eq=False, slots=True)
class Waiting:
    """One pod that waits for us, from the moment it is seen until it is bound or gone.

    Times are seconds of the machine's clock.

    Attributes:
        pod: the latest view of it.
        since: when it was seen first.
        arrival: number of its arrival.
        key: of its group in the queue.
        attempts: decisions so far.
        failures: binds that have failed.
        due: while it backs off, when that ends; else None.
        evicting: evictions for it are being carried out.
        avoid: node -> until when no victims are looked for there.
        preempt_after: until then nobody is evicted for it.
        looked_at: when all nodes were last asked again whom it may evict.
        lapsed: when a reservation of it came to nothing; ``turns``: how often that was.
        drained: nodes that were drained in thought for it, since all were.
        refused_since: since when a verdict stands that was not told; None: it was, or there is
            none.
        second_best_since: since when some node would take it, though not well; None: none did yet.
        told: the verdict that users were told, and ``told_at`` when.
        explained_at: when it was last found out.
    """

    pod: PodView
    since: float
    arrival: int
    key: UnitKey = field(default_factory=UnitKey)
    attempts: int = 0
    failures: int = 0
    due: float | None = None
    evicting: bool = False
    avoid: dict[str, float] = field(default_factory=dict)
    preempt_after: float = 0.0
    looked_at: float = 0.0
    lapsed: float | None = None
    turns: int = 0
    drained: int = 0
    refused_since: float | None = None
    second_best_since: float | None = None
    told: str = ""
    told_at: float = 0.0
    explained_at: float = 0.0

    @property
    def order(self) -> tuple[int, str, int]:
        """Its place in the queue: by priority, then by age."""
        return (-self.pod.priority, self.pod.created, self.arrival)


@dataclass(eq=False)
class EquivalenceClass:
    """Waiting pods of one kind, first come first served.

    Attributes:
        key: what they have in common.
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

    key: UnitKey
    heap: list[tuple[Order, str]] = field(default_factory=list)
    pods: dict[str, Waiting] = field(default_factory=dict)
    seen: int = -1
    helped: set[str] = field(default_factory=set)
    refused_by: frozenset[str] = frozenset()
    waits_on: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    kinds: Kind = Kind(0)  # noqa: RUF009 - it never changes
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
