"""Whether a pod leaves a node to another waiting pod that uses it better (pure)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from rte.scheduler.framework.plugin import Candidate, Queued

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rte.scheduler.framework.devices import Devices
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Precedence
    from rte.scheduler.framework.profile import Around, Profile
    from rte.scheduler.framework.status import Status
    from rte.scheduler.queue.queue import Group, Queue

#: Nodes for which one decision asks whether others use them better; any further one is taken.
_MOST_NODES = 16

#: Waiting pods that one decision looks at, the oldest first.
_MOST_RIVALS = 64


def rivals(queue: Queue, devices: Devices, group: Group, behind: Collection[str]) -> list[Queued]:
    """The group, then pods with devices of the same priority that no node took so far, in order.

    ``behind``: UIDs of pods that wait for the group's first pod to go before them.
    """
    pod = group.first()
    if not devices.concerns(pod.shape):
        return []
    found = []
    for each in queue.groups():
        head = each.head()
        if (
            head is not None
            and each is not group
            and head.attempts
            and head.pod.priority == pod.priority
            and head.pod.gang is None
            and head.pod.uid not in behind
            and devices.concerns(head.pod.shape)
        ):
            found.append((head.order, Queued(head.pod, len(each.pods))))
    first = heapq.nsmallest(_MOST_RIVALS, found, key=lambda one: one[0])
    return [Queued(pod, len(group.pods)), *(queued for _, queued in first)]


class Deferrals:
    """Who has left a node to whom, by UIDs, until either has had another turn.

    Nobody leaves a node to a pod that waits for it, whoever stands between them, so some pod of
    those that wait for each other always goes first.
    """

    def __init__(self) -> None:
        self._left: dict[str, set[str]] = {}

    def add(self, uid: str, *, to: str) -> None:
        """A pod leaves a node to another."""
        self._left.setdefault(to, set()).add(uid)

    def forget(self, uid: str) -> None:
        """The pod is decided about anew."""
        for left in self._left.values():
            left.discard(uid)

    def behind(self, uid: str) -> frozenset[str]:
        """Pods that wait for it, or for such a pod."""
        found: set[str] = set()
        ahead = [uid]
        while ahead:
            new = self._left.get(ahead.pop(), set()) - found
            found |= new
            ahead += new
        return frozenset(found)

    def goes_first(self, uid: str) -> str:
        """A pod to which it has left a node; empty: none."""
        return next((other for other, left in self._left.items() if uid in left), "")

    def left_queue(self, uid: str) -> Iterable[str]:
        """The pod has a place, or waits no more; those that have left a node to it."""
        return self._left.pop(uid, ())


class Rules(Protocol):
    """What a contest asks of a :class:`rte.scheduler.loop.cycle.Cycle`."""

    profile: Profile

    def problem(self, pod: PodView) -> Status:
        """Why the pod can go nowhere."""

    def around(self, pod: PodView) -> Around:
        """What the rules that look at other nodes or objects say of the pod."""

    def check(self, entry: NodeEntry, pod: PodView, around: Around = ()) -> Status:
        """One node's answer."""


class Contest:
    """One decision about a pod that may still wait.

    Args:
        rules: the scheduler's.
        pod: that is decided about.
        rivals: the pod and those it may leave a node to; asked for once, when some node takes it.
    """

    def __init__(self, rules: Rules, pod: PodView, rivals: Callable[[], Sequence[Queued]]) -> None:
        self._rules = rules
        self._pod = pod
        self._ask = rivals
        self._rivals: Sequence[Queued] | None = None
        self._around: dict[str, Around] = {}
        self._nodes = 0
        self._winners: set[str] = set()

    @property
    def winners(self) -> frozenset[str]:
        """UIDs of the pods that nodes were left to."""
        return frozenset(self._winners)

    def is_lost(self, candidate: Candidate) -> bool:
        """Whether a rival that the node takes as well uses it better; of equal ones the first."""
        return any(self._loses(plugin, candidate) for plugin in self._rules.profile.precedences)

    def _loses(self, plugin: Precedence, candidate: Candidate) -> bool:
        if self._rivals is None:
            self._rivals = self._ask()
        if len(self._rivals) < 2 or self._nodes >= _MOST_NODES:
            return False
        self._nodes += 1
        own = plugin.precedence(self._pod, candidate, self._rivals)
        if own is None:
            return False
        for rival in self._rivals[1:]:
            theirs = self._theirs(plugin, rival.pod, candidate, self._rivals)
            if theirs is not None and theirs > own:
                self._winners.add(rival.pod.uid)
                return True
        return False

    def _theirs(
        self, plugin: Precedence, rival: PodView, candidate: Candidate, waiting: Sequence[Queued]
    ) -> float | None:
        """What the rule says of a rival on the node; None where the node does not take it."""
        if self._rules.problem(rival).reason:
            return None
        if rival.uid not in self._around:
            self._around[rival.uid] = self._rules.around(rival)
        status = self._rules.check(candidate.node, rival, self._around[rival.uid])
        if status.reason:
            return None
        return plugin.precedence(rival, Candidate(candidate.node, status), waiting)
