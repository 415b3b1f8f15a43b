"""Everything known of one waiting pod: it is forgotten by dropping this record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView

#: Room that somebody else makes is kept for so long, from the last word about it.
EXTERNAL_S = 300.0


@dataclass(slots=True)
class Nominated:
    """A node that makes room for the pod.

    Attributes:
        node: its name.
        until: the moment after which it is not believed any more.
        reserved: it drains by itself; else pods were evicted.
        external: somebody else makes room there (``rte defrag --apply``; KEP-5278).
        victims: UIDs of the pods whose end is waited for.
        missing: CPUs that its zones still lacked when it last came nearer (reserved).
    """

    node: str
    until: float
    reserved: bool = False
    external: bool = False
    victims: frozenset[str] = frozenset()
    missing: int = 0


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
        nominated: the node that makes room for it.
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
    key: bytes = b""
    attempts: int = 0
    failures: int = 0
    due: float | None = None
    nominated: Nominated | None = None
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
