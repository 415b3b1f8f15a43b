"""Decisions in force: from the moment the cluster assumes them until the API has answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.framework.writes import NOTHING
from rte.scheduler.loop.messages import Bind, Due, Post
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Reserve
    from rte.scheduler.framework.writes import Reserved
    from rte.scheduler.loop.cycle import Cycle, Decision
    from rte.scheduler.loop.messages import Effect, Timers
    from rte.scheduler.queue.queue import SchedulingQueue
    from rte.scheduler.queue.waiting import UnitKey
    from rte.scheduler.report.predictions import Predictions

    #: What plugins hold for a decision.
    Held = Sequence[tuple[Reserve, Reserved]]


@dataclass(frozen=True, slots=True)
class InForce:
    """A decision that the API has not confirmed yet, and what its plugins hold for it."""

    pod: PodView
    node: str
    at: float
    held: Held


class Binding:
    """Puts decisions in force, and ends them.

    Args:
        cluster: what is known.
        cycle: the rules.
        queue: who waits.
        predictions: what is expected of kubelets.
        timers: deadlines.
        names: ``spec.schedulerName`` of our pods.
        key: of the group to which a pod belongs.

    Attributes:
        in_force: the decisions, by UID.
    """

    def __init__(
        self,
        cluster: Cluster,
        cycle: Cycle,
        queue: SchedulingQueue,
        predictions: Predictions,
        timers: Timers,
        names: Collection[str],
        key: Callable[[PodView], UnitKey],
    ) -> None:
        self._cluster, self._cycle, self._queue = cluster, cycle, queue
        self._predictions, self._timers = predictions, timers
        self._names, self._key = names, key
        self.in_force: dict[str, InForce] = {}

    def place(self, pod: PodView, decision: Decision, now: float, pods_seen: int) -> list[Effect]:
        """Assume the pod where it was decided to go, and have it bound.

        ``pods_seen``: the version of the cluster's pods that the decision knew.

        Raises:
            ValueError: the decision names no node that is known.
        """
        node = decision.node
        entry = self._cluster.nodes.get(node or "")
        if node is None or entry is None:
            raise ValueError(f"no decision for {pod.key}")
        # For a pod of kube-scheduler (the extender binds it) that has written what is needed.
        held = self.reserve(pod, entry) if pod.scheduler in self._names else ()
        if held is None:
            if pod.uid in self._queue.records:
                self.again(pod, now)
            return [Said("warning", f"{node} cannot hold what {pod.key} needs")]
        before = self.in_force.pop(pod.uid, None)
        if before is not None:
            self.unreserve(before.held)
        self.in_force[pod.uid] = InForce(pod, node, now, held)
        try:
            return self._enforce(self.in_force[pod.uid], entry, decision, pods_seen)
        except Exception:
            self.revoke(pod.uid)
            raise

    def revoke(self, uid: str) -> None:
        """The decision is as if it had not been made; nothing of it was carried out."""
        decision = self.answered(uid)
        if decision is not None:
            self._cluster.forget(uid)
            self.came_to_nothing(decision)
        pod = self._cluster.pods.get(uid)
        if pod is not None and uid in self._queue.records:
            self._queue.push(pod, self._key(pod))

    def _enforce(
        self, force: InForce, entry: NodeEntry, decision: Decision, pods_seen: int
    ) -> list[Effect]:
        pod, node, now = force.pod, force.node, force.at
        self._queue.decided(pod.uid)
        record = self._queue.records.get(pod.uid)
        if record is not None:
            record.refused_since = None
        self._predictions.expect(entry, pod, decision.status)
        annotations = self._cycle.profile.annotations(pod, entry, decision.status)
        timing = self._cycle.profile.timing(pod.shape)
        self._cluster.assume(pod.uid, node, annotations)
        for plugin in timing:
            plugin.started(pod, entry, now)
        self._cycle.zone_room.placed(pod.shape)
        self._cluster.nodes[node].awaited[pod.kubelet_uid] = now
        extra = {"pod": pod.key, "uid": pod.uid, "node": node, "pods_seen": pods_seen}
        writes = tuple(write for _, reserved in force.held for write in reserved.writes)
        return [Said("debug", "decided", extra), Bind(pod, node, annotations, writes)]

    def reserve(self, pod: PodView, entry: NodeEntry) -> Held | None:
        """Have plugins take what the pod needs on the node; None: it is not there any more."""
        held: list[tuple[Reserve, Reserved]] = []
        for plugin in self._cycle.profile.reserving(pod.shape):
            try:
                reserved = plugin.reserve(pod, entry)
            except Exception:
                self.unreserve(held)
                raise
            if reserved is None:
                self.unreserve(held)
                return None
            if reserved is not NOTHING:
                held.append((plugin, reserved))
        return tuple(held)

    def unreserve(self, held: Held) -> None:
        """What was taken is free again, or shown by the API."""
        for plugin, reserved in reversed(held):
            plugin.unreserve(reserved)

    def answered(self, uid: str) -> InForce | None:
        """The API has answered: nothing is held for the decision any more."""
        decision = self.in_force.pop(uid, None)
        if decision is not None:
            self.unreserve(decision.held)
        return decision

    def came_to_nothing(self, decision: InForce) -> None:
        """The kubelet will not meet the pod."""
        entry = self._cluster.nodes.get(decision.node)
        if entry is not None:
            entry.awaited.pop(decision.pod.kubelet_uid, None)
        self._predictions.forget(decision.node, decision.pod.kubelet_uid)
        for plugin in self._cycle.profile.timing(decision.pod.shape):
            plugin.undone(decision.pod, decision.node)

    def came_true(
        self, uid: str, pod: PodView | None, decision: InForce | None, now: float
    ) -> list[Effect]:
        """The pod is bound: it does not wait any more."""
        record = self._queue.remove(uid)
        started = now if decision is None else decision.at
        attempts = str(min(16, max(1, record.attempts if record else 1)))
        since = record.since if record else started
        effects: list[Effect] = [
            Measured("bind_seconds", now - started, how="observe"),
            Measured("sli_seconds", now - since, (attempts,), how="observe"),
        ]
        if pod is not None and decision is not None:
            note = f"Successfully assigned {pod.key} to {decision.node}"
            effects.append(Post(pod, "Normal", "Scheduled", note, "Binding"))
        return effects

    def again(self, pod: PodView, now: float) -> None:
        """The pod waits for a while, and is decided again then."""
        self._timers.at(self._queue.back_off(pod, self._key(pod), now), Due.RELEASE)
