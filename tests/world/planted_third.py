"""Planted faults of a third sort: what a careless change of one of the machines does.

See :mod:`tests.world.planted`.
"""

from __future__ import annotations

from typing import Any

from tests.world.plant import (
    Plant,
    answers,
    async_nothing,
    does_nothing,
    unless,
    with_arguments,
    with_result,
)


def _from_the_answer_on(right: Any) -> Any:
    """The Lease is counted from its answer on, not from its request."""

    async def once(self: Any) -> None:
        await right(self)
        if self._active and self._until > self._clock():
            self._until = self._clock() + self._lease_s

    return once


def _what_is_lacking_stays(right: Any) -> Any:
    def replace(self: Any, items: Any, *_guard: Any) -> None:
        for item in items:
            self.update(item)
        self.listed = True

    return replace


def _loses_every(number: int) -> Any:
    """Each so manyth change is not told by a watch."""

    def make(right: Any) -> Any:
        counter = [0]

        def read_event(line: Any) -> Any:
            event = right(line)
            counter[0] += event is not None and event.kind == "MODIFIED"
            is_lost = event is not None and event.kind == "MODIFIED" and not counter[0] % number
            return None if is_lost else event

        return read_event

    return make


def _takes_more(right: Any) -> Any:
    """What a pod took stays taken once it has left."""

    def drop(self: Any, uid: str) -> Any:
        before = dict(self.used)
        pod = right(self, uid)
        self.used.update(before)
        return pod

    return drop


def _youngest_first(right: Any) -> Any:
    def order(self: Any) -> Any:
        return (-self.pod.priority, "", -self.arrival)

    return property(order)


def _least_first(right: Any) -> Any:
    def order(self: Any) -> Any:
        return (self.pod.priority, self.pod.created, self.arrival)

    return property(order)


THIRD: tuple[Plant, ...] = (
    # --- lost wake-ups, starvation ---
    Plant("one of those who sleep is never asked", "lost wake-up",
          "rte.scheduler.queue.sleepers:Sleepers.worth_asking", with_result(
              lambda groups: groups[:-1])),
    Plant("a pod of another key keeps its group", "lost wake-up",
          "rte.scheduler.queue.queue:SchedulingQueue.regroup", does_nothing),
    Plant("a bind that failed keeps its room", "starvation",
          "rte.scheduler.cache.cluster:Cluster.forget", does_nothing),
    Plant("what has left a node stays counted", "starvation",
          "rte.scheduler.framework.node:NodeEntry.drop", _takes_more),
    Plant("the youngest go first", "starvation",
          "rte.scheduler.queue.waiting:Waiting.order", _youngest_first),
    Plant("the least urgent go first", "starvation",
          "rte.scheduler.queue.waiting:Waiting.order", _least_first,
          unseen="who is urgent evicts others when the queue is empty, which is soon"),
    Plant("nobody is preempted", "starvation",
          "rte.scheduler.cache.cluster:Cluster.has_lower", answers(False)),
    # --- stale reads ---
    Plant("a watch loses each seventh change", "stale read",
          "rte.kube.watch:read_event", _loses_every(7)),
    Plant("pods that a list lacks stay with the agent", "stale read",
          "rte.accounting.liveness:PodTable.replace", _what_is_lacking_stays),
    Plant("pods that the API does not know are never doubted", "stale read",
          "rte.accounting.liveness:PodTable.doubtful", answers(frozenset())),
    Plant("what is remembered of a node outlives its change", "stale read",
          "rte.scheduler.framework.node:NodeEntry.touch", does_nothing),
    Plant("files of one moment count for those of another", "torn read",
          "rte.agent.observer.files:FilesReading.have_same_devices", answers(True)),
    Plant("the publisher does not see what others write", "stale read",
          "rte.agent.publisher.machine:Publisher._noticed", does_nothing),
    Plant("the publisher never reads its report afresh", "stale read",
          "rte.agent.publisher.machine:Publisher._forget", does_nothing),
    # --- trust ---
    Plant("a silent agent is alive", "trust",
          "rte.scheduler.cache.cluster:Cluster.set_alive",
          unless(lambda self, name, alive: alive is False)),
    Plant("an observer that doubts publishes all the same", "trust",
          "rte.agent.observer.machine:Observer._distrust", does_nothing),
    Plant("the Lease is renewed while the report is behind", "trust",
          "rte.agent.publisher.machine:Publisher.behind_since", answers(None)),
    Plant("the Lease is renewed whether or not the kubelet lives", "trust",
          "rte.agent.publisher.renewals:Renewals.probed", with_arguments(
              lambda self, behind, now, *, alive: ((self, None, now), {"alive": True}))),
    # --- two binders ---
    Plant("a Lease is counted from its answer on", "two binders",
          "rte.scheduler.shell.leader:Leader._once", _from_the_answer_on),
    Plant("a bind begins with any rest of the Lease", "two binders",
          "rte.scheduler.shell.leader:Leader.left_s", lambda _: lambda self: (
              self._until - self._clock() + 30.0 if self._active else 0.0)),
    # --- lost and doubled ---
    Plant("a bind without an answer is not read back", "lost write",
          "rte.scheduler.shell.binder:Binder.read_back", async_nothing),
    Plant("the claims of a bind that failed stay", "leak",
          "rte.scheduler.framework.claims.devices:Devices.release", does_nothing),
    Plant("gangs that are over stay", "leak",
          "rte.scheduler.cache.gangs:GangBook.on_pod", lambda right: lambda self, before, after: (
              right(self, before, after) if after is not None else None)),
)  # fmt: skip
