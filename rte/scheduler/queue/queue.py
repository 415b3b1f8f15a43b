"""Who waits, in which order, and who is worth another look.

The queue holds *groups*: all waiting pods of one shape, priority and label set. They share their
fate, so only the first of a group is tried; when it cannot be placed the group sleeps until a node
changes, and then only the changed nodes are looked at again. Nothing polls, so nothing spins.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView

#: Waiting time after a failed bind (not after "does not fit": that waits for an event).
FIRST_BACKOFF_S = 0.1
MOST_BACKOFF_S = 10.0

Order = tuple[int, str, int]


@dataclass(eq=False)
class Group:
    """Waiting pods of one kind, first come first served.

    Attributes:
        key: shape, priority and labels where they matter.
        pods: heap of (order, pod).
        seen: cluster sequence number up to which all nodes are known to refuse it; -1: none.
        pod_seen: likewise for changes that inter-pod rules see.
        sleeping: no node takes its pods as things are.
    """

    key: bytes
    heap: list[tuple[Order, str]] = field(default_factory=list)
    pods: dict[str, PodView] = field(default_factory=dict)
    seen: int = -1
    pod_seen: int = -1
    sleeping: bool = False

    def head(self) -> PodView | None:
        """The pod whose turn it is."""
        while self.heap and self.heap[0][1] not in self.pods:
            heapq.heappop(self.heap)
        return self.pods[self.heap[0][1]] if self.heap else None

    def order(self) -> Order:
        """Place of the head in the queue."""
        return self.heap[0][0]


class Queue:
    """All pods that wait for us: active, sleeping until an event, or backing off."""

    def __init__(self) -> None:
        self._groups: dict[bytes, Group] = {}
        self._of: dict[str, Group] = {}
        self._active: list[tuple[Order, int, Group]] = []
        self._backoff: dict[str, tuple[float, PodView, bytes]] = {}
        self._failures: dict[str, int] = {}
        self._arrivals: dict[str, int] = {}
        self._counter = 0

    def __len__(self) -> int:
        return len(self._of) + len(self._backoff)

    def __contains__(self, uid: str) -> bool:
        return uid in self._of or uid in self._backoff

    def group_of(self, uid: str) -> Group | None:
        """The group in which the pod waits; None while it backs off or does not wait."""
        return self._of.get(uid)

    def sizes(self) -> dict[str, int]:
        """Pods by queue, in kube-scheduler's terms."""
        asleep = sum(len(group.pods) for group in self._groups.values() if group.sleeping)
        return {
            "active": len(self._of) - asleep,
            "backoff": len(self._backoff),
            "unschedulable": asleep,
        }

    def asleep(self) -> list[Group]:
        """Groups that wait for a change."""
        return [group for group in self._groups.values() if group.sleeping and group.head()]

    def push(self, pod: PodView, key: bytes) -> None:
        """A pod waits (again); its place is by priority, then by age. Replaces an older view."""
        known = self._of.get(pod.uid)
        if known is not None and known.key == key:
            known.pods[pod.uid] = pod
            return
        waiting = self._backoff.get(pod.uid)
        if waiting is not None:
            self._backoff[pod.uid] = (waiting[0], pod, key)
            return
        self.remove(pod.uid, forget=False)
        if pod.uid not in self._arrivals:
            self._counter += 1
            self._arrivals[pod.uid] = self._counter
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        before = group.head()
        order = (-pod.priority, pod.created, self._arrivals[pod.uid])
        heapq.heappush(group.heap, (order, pod.uid))
        group.pods[pod.uid] = pod
        self._of[pod.uid] = group
        if not group.sleeping and group.head() is not before:
            self._activate(group)

    def remove(self, uid: str, *, forget: bool = True) -> None:
        """The pod does not wait any more (bound, deleted, or not ours)."""
        if forget:
            self._failures.pop(uid, None)
            self._arrivals.pop(uid, None)
        self._backoff.pop(uid, None)
        group = self._of.pop(uid, None)
        if group is None:
            return
        del group.pods[uid]
        if not group.pods:
            del self._groups[group.key]
        elif not group.sleeping:
            self._activate(group)

    def pop(self) -> Group | None:
        """The active group whose head is first in order; it stays in the queue."""
        while self._active:
            order, _, group = heapq.heappop(self._active)
            current = group.key in self._groups and self._groups[group.key] is group
            if current and not group.sleeping and group.head() and group.order() == order:
                return group
        return None

    def again(self, group: Group) -> None:
        """Keep the group active: its next pod has a turn."""
        if group.head() and not group.sleeping:
            self._activate(group)

    def sleep(self, group: Group) -> None:
        """No node takes the group's pods as things are."""
        group.sleeping = True

    def wake(self) -> None:
        """Something has changed: every sleeping group gets a look at what did."""
        for group in self._groups.values():
            if group.sleeping:
                group.sleeping = False
                self._activate(group)

    def back_off(self, pod: PodView, key: bytes, now: float) -> float:
        """A bind has failed: the pod waits for some time; the moment of its return is returned."""
        failures = self._failures.get(pod.uid, 0)
        self._failures[pod.uid] = failures + 1
        self.remove(pod.uid, forget=False)
        until = now + min(MOST_BACKOFF_S, FIRST_BACKOFF_S * float(1 << min(failures, 16)))
        self._backoff[pod.uid] = (until, pod, key)
        return until

    def release(self, now: float) -> float | None:
        """Pods whose waiting time is over wait normally; when the next one's is, or None."""
        for uid, (until, pod, key) in list(self._backoff.items()):
            if until <= now:
                del self._backoff[uid]
                self.push(pod, key)
        return min((until for until, _, _ in self._backoff.values()), default=None)

    def _activate(self, group: Group) -> None:
        if group.head() is not None:
            self._counter += 1
            heapq.heappush(self._active, (group.order(), self._counter, group))
