"""What the machine is told, what it wants done, and what is due when.

Each effect that can fail names the event that tells of it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.k8s.gang import GangKey
    from rte.placement.joint.defrag import DefragPlan, Disruptions, Movable
    from rte.placement.joint.node import JointNode, Member
    from rte.scheduler.framework.objects import ObjectReference, PodView
    from rte.scheduler.framework.writes import RequiredWrite
    from rte.scheduler.report.predictions import Judged

# --- events ---


@dataclass(frozen=True, slots=True)
class Seen:
    """An object as the API shows it.

    ``age_s``: of a Lease, by the wall clock and its own word. ``as_of``: version of the list that
    it was in; 0: it was in none, and its own says how new it is.
    """

    collection: str
    obj: Mapping[str, Any]
    age_s: float = 0.0
    as_of: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """An object that the API does not show any more. ``as_of``: which version of it; 0: unknown."""

    collection: str
    key: str
    as_of: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """A list has ended; each item was Seen. What it lacks is gone."""

    collection: str
    keys: frozenset[str]
    version: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The API is older than what was Seen of it (an etcd was restored); a list follows."""

    collection: str


@dataclass(frozen=True, slots=True)
class Leading:
    """This replica decides from now on (every bind of the one before it was Seen), or does not."""

    active: bool


class Outcome(StrEnum):
    """What became of a decision."""

    BOUND = "bound"  #: the pod is on the node
    ELSEWHERE = "elsewhere"  #: it is on another node
    GONE = "gone"  #: it is deleted, or being deleted
    REFUSED = "refused"  #: the API refuses the bind for good
    FAILED = "failed"  #: the API could not carry it out, and does not any more
    ABANDONED = "abandoned"  #: we are not the active replica any more


@dataclass(frozen=True, slots=True)
class Bound:
    """What became of :class:`Bind`: the pod as it was read back, and the API's words.

    ``written``: the objects of its writes as the API has them now.
    """

    uid: str
    outcome: Outcome
    obj: Mapping[str, Any] | None = None
    message: str = ""
    written: tuple[Seen | Gone, ...] = ()


@dataclass(frozen=True, slots=True)
class Evicted:
    """What became of :class:`Evict`: who is going, and whether all are."""

    uid: str
    victims: tuple[PodView, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Solved:
    """The answer to :class:`Solve`: what its question's ``find_out`` gave, or raised."""

    number: int
    found: Any


@dataclass(frozen=True, slots=True)
class Planned:
    """What :class:`PlanMoves` has found; None: an internal error."""

    uid: str
    plan: DefragPlan | None


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of :class:`EvictPod`; where it is not ``done``, the pod stays where it is."""

    uid: str
    done: bool


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What became of :class:`TakeBack`: the objects as the API has them now."""

    uid: str
    written: tuple[Seen | Gone, ...] = ()


@dataclass(frozen=True, slots=True)
class Reread:
    """:class:`Read` was carried out: the node's report and pods were Seen afresh."""

    node: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline is due."""


@dataclass(frozen=True, slots=True)
class Turn:
    """There is time to decide about one more pod."""


#: What became of effects.
Answer: TypeAlias = Bound | TakenBack | Evicted | Solved | Planned | Moved | Reread

Event: TypeAlias = Seen | Gone | Listed | Restored | Leading | Tick | Turn | Answer

# --- effects ---


@dataclass(frozen=True, slots=True)
class Bind:
    """Carry ``writes`` out side by side, then bind the pod; answered by :class:`Bound`.

    When a write or the bind fails, the writes are undone before that is told.
    """

    pod: PodView
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    writes: tuple[RequiredWrite, ...] = ()


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Undo writes of an attempt before, of a pod that waits; answered by :class:`TakenBack`."""

    pod: PodView
    writes: tuple[RequiredWrite, ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the victims for the pod, one after the other; answered by :class:`Evicted`."""

    pod: PodView
    node: str
    victims: tuple[PodView, ...]


class Question(Protocol):
    """Values, and how the answer is found out from them (the gangs' ``decide.py``)."""

    def find_out(self) -> Any:
        """The answer; it takes long, and leaves the cluster alone."""


@dataclass(frozen=True, slots=True)
class Solve:
    """Find places for pods together; answered by :class:`Solved` of the same number.

    All of it is values: it may be found beside the decisions.
    """

    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class PlanMoves:
    """Find the smallest set of moves (arguments of ``plan_moves``); answered by :class:`Planned`.

    ``uid``: of the pod that waits. All of it is values: it may be found beside the decisions.
    """

    uid: str
    nodes: tuple[JointNode, ...]
    member: Member
    movable: tuple[Movable, ...]
    budgets: tuple[Disruptions, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict ``pod`` as its disruption budgets allow; answered by :class:`Moved`.

    ``uid``: of the pod that waits.
    """

    uid: str
    pod: PodView


@dataclass(frozen=True, slots=True)
class Nominate:
    """Write ``status.nominatedNodeName``; empty: nowhere."""

    pod: PodView
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Tell users why the pod waits: the condition PodScheduled and an event of this reason."""

    pod: PodView
    message: str
    reason: str = "FailedScheduling"


@dataclass(frozen=True, slots=True)
class Post:
    """Post an event about a pod, or another object."""

    pod: PodView | ObjectReference
    kind: str
    reason: str
    note: str
    action: str = "Scheduling"


@dataclass(frozen=True, slots=True)
class ReleaseGang:
    """Delete these pods: their gang cannot be completed. What becomes of it, watches tell."""

    pods: tuple[PodView, ...]
    message: str


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """Say on a PodGroup whether it was scheduled, by a condition of that type."""

    gang: GangKey
    kind: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read the node's report and pods afresh; answered by :class:`Reread`."""

    node: str


@dataclass(frozen=True, slots=True)
class NoteDrift:
    """Note how predictions for pods of the node came out (the drift alarm)."""

    node: str
    judged: tuple[Judged, ...]


#: What is told to users, operators and logs; nothing answers.
Telling: TypeAlias = Nominate | Unschedulable | Post | GroupCondition | Measured | Said

Effect: TypeAlias = (
    Bind
    | TakeBack
    | Evict
    | Solve
    | PlanMoves
    | EvictPod
    | ReleaseGang
    | Read
    | NoteDrift
    | Telling
)

# --- deadlines ---


class Due(StrEnum):
    """What can be due."""

    RELEASE = "release"  #: pods that backed off
    TELL = "tell"  #: a pod's users: why it waits
    PREEMPT = "preempt"  #: another search for victims, for a pod
    PATIENCE = "patience"  #: the end of a pod's wait for a better place
    NOMINATION = "nomination"  #: a look at a pod's nomination
    EVIDENCE = "evidence"  #: the end of what a node's refusal has told
    REREAD = "reread"  #: a node that has refused a pod
    ASIDE = "aside"  #: what was put aside after an internal error
    SECOND = "second"
    MINUTE = "minute"


class Timers:
    """Moments, each with what is due then and for whom; of equal ones the first set comes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due, str]] = []
        self._number = 0

    def at(self, when: float, what: Due, key: str = "") -> None:
        """That is due then."""
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, what, key))

    def next(self) -> float | None:
        """When the first is due; None: nothing is."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[tuple[Due, str]]:
        """Take out what is due, also what is set meanwhile for no later than now."""
        while self._heap and self._heap[0][0] <= now:
            _, _, what, key = heapq.heappop(self._heap)
            yield what, key
