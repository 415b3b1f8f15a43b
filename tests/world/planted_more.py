"""More planted faults; see :mod:`tests.world.planted`."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.world.plant import (
    Plant,
    answers,
    async_nothing,
    does_nothing,
    unless,
    value,
    with_arguments,
    with_result,
)


def _async_answers(answer: Any) -> Any:
    def make(right: Any) -> Any:
        async def wrong(*_args: Any, **_kwargs: Any) -> Any:
            return answer

        return wrong

    return make


def _without_uid(right: Any) -> Any:
    """Whoever bears the name is taken for the pod."""

    def judge(found: Any, pod: Any, node: str) -> Any:
        metadata = {**(found.get("metadata") or {}), "uid": pod.uid}
        return right({**found, "metadata": metadata}, pod, node)

    return judge


def _always_alive(right: Any) -> Any:
    async def probe(self: Any) -> Any:
        pulse = await right(self)
        return dataclasses.replace(pulse, problem=None)

    return probe


def _swallows_first(right: Any) -> Any:
    """Every third change is lost."""
    counter = [0]

    def add(self: Any, change: Any) -> None:
        counter[0] += 1
        if counter[0] % 3:
            right(self, change)

    return add


def _none_deleted(right: Any) -> Any:
    """A watch does not tell of deletions."""

    def read_event(line: Any) -> Any:
        event = right(line)
        return None if event is not None and event.kind == "DELETED" else event

    return read_event


def _keeps_ended(right: Any) -> Any:
    """The node keeps what it knows of pods that were dropped."""

    def drop(self: Any, uid: str) -> Any:
        pod = right(self, uid)
        if pod is not None:
            self.__dict__.setdefault("kept", []).append(pod)
        return pod

    return drop


def _never_ends(right: Any) -> Any:
    """The process ends at the first error of the API server."""

    def is_transient(error: Any) -> bool:
        return False

    return is_transient


def _no_difference(right: Any) -> Any:
    """A report is written whether or not it differs."""

    def difference(stored: Any, wanted: Any, published: Any, **kwargs: Any) -> Any:
        found = right(stored, wanted, published, **kwargs)
        return found or {"zones": wanted.get("zones")}

    return difference


def _older(right: Any) -> Any:
    """The state of the kubelet as it was at the last reading but one."""
    last: list[Any] = []

    def offer(self: Any, observation: Any) -> None:
        last.append(observation)
        right(self, last[-2] if len(last) > 1 else observation)
        del last[:-1]

    return offer


def _one_cpu_more(right: Any) -> Any:
    """Reserved CPUs are not left out."""

    def read(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(right(*args, **kwargs), reserved=0)

    return read


def _once(right: Any) -> Any:
    counts: dict[int, int] = {}

    async def once(self: Any) -> None:
        counts[id(self)] = counts.get(id(self), 0) + 1
        if counts[id(self)] <= 3:
            await right(self)

    return once


MORE: tuple[Plant, ...] = (
    # --- lost wake-ups ---
    Plant("a third of the changes of files is lost", "lost wake-up",
          "rte.agent.follow:Signals.add", _swallows_first),
    Plant("a deadline of the observer is missed", "lost wake-up",
          "rte.agent.observer.files:Looking.deadline", answers(float("inf"))),
    Plant("a retry of the publisher is missed", "lost wake-up",
          "rte.agent.publisher.machine:Publisher._refused", does_nothing),
    Plant("timers of the scheduler are forgotten", "lost wake-up",
          "rte.scheduler.loop.timers:Timers.at", does_nothing),
    Plant("a namespace's claim wakes nobody", "lost wake-up",
          "rte.scheduler.framework.claims.devices:Devices.set_claim", with_result(lambda _: False)),
    Plant("helped nodes are not looked at", "lost wake-up",
          "rte.scheduler.cache.cluster:Cluster.changed_since", answers([])),
    Plant("a new node wakes nobody", "lost wake-up",
          "rte.scheduler.cache.cluster:Cluster.told", unless(
              lambda _, event, *a: "NODE" in str(getattr(event, "kinds", event)))),
    # --- stale reads ---
    Plant("a watch does not tell of deletions", "stale read",
          "rte.kube.watch:read_event", _none_deleted),
    Plant("a restored server's list counts as a late one", "stale read",
          "rte.scheduler.cache.intake:Intake.restored", does_nothing),
    Plant("the report is one reading late", "stale read",
          "rte.agent.publishing:Publishing.offer", _older),
    Plant("reports are never read afresh", "stale read",
          "rte.scheduler.shell.feeds:Feeds.resync_node", async_nothing),
    Plant("an answer of another start of the kubelet counts", "stale read",
          "rte.agent.sources:*._check_epoch", does_nothing),
    Plant("files that change are taken as they are", "torn read",
          "rte.agent.observer.files:*.admission_under_way", answers(0.0)),
    Plant("tombstones are not made", "stale read",
          "rte.scheduler.framework.node:NodeEntry.bury", does_nothing),
    # --- double promises ---
    Plant("a namesake is taken for the pod", "double promise",
          "rte.scheduler.shell.binder:_judge", _without_uid),
    Plant("one outcome of what is in flight is enough", "double promise",
          "rte.scheduler.framework.outlook:judge", with_result(
              lambda verdict: dataclasses.replace(verdict, admitted=True)
              if hasattr(verdict, "admitted") else verdict)),
    Plant("promises are taken back at once", "double promise",
          "rte.scheduler.framework.claims.devices:Devices.promise", lambda right: (
              lambda self, key, allocation: None)),
    Plant("reserved CPUs are free", "double promise",
          "rte.nrt.node_state:decode", _one_cpu_more),
    Plant("a decision is forgotten when the API has not answered", "double promise",
          "rte.scheduler.cache.cluster:Cluster._as_decided", lambda _: (
              lambda self, pod, name: pod)),
    # --- two binders, Leases ---
    Plant("a replica that loses the Lease goes on", "two binders",
          "rte.scheduler.shell.leader:Leader._set", unless(
              lambda self, *, active: not active)),
    Plant("the Lease is not given up at the end", "liveness",
          "rte.scheduler.shell.leader:Leader._release", async_nothing,
          unseen="the other one takes over when it runs out, which is soon enough"),
    Plant("the Lease is taken once", "liveness",
          "rte.scheduler.shell.leader:Leader._once", _once),
    # --- dead ones are trusted; live ones are not ---
    Plant("every sign of life is good", "trust",
          "rte.agent.sources:*.probe", _always_alive),
    Plant("what is published is trusted for ever", "trust",
          "rte.agent.observer.machine:Observer.trusted_until", answers(float("inf"))),
    Plant("an agent's Lease is never renewed", "trust",
          "rte.kube.lease:Heartbeat.renew", async_nothing),
    Plant("the agent that stops leaves its Lease", "trust",
          "rte.kube.lease:Heartbeat.release", async_nothing,
          unseen="trust ends 40 s later all the same, which the rule allows"),
    Plant("an unsynced report is trusted", "trust",
          "rte.scheduler.framework.node:NodeEntry.distrust", answers("")),
    Plant("a node that is gone stays", "trust",
          "rte.scheduler.cache.cluster:Cluster.remove_node", does_nothing),
    # --- writes ---
    Plant("a report is written whether or not it differs", "needless write",
          "rte.agent.publisher.ownership:difference", _no_difference),
    Plant("what was written is never known to be", "needless write",
          "rte.agent.publisher.machine:Publisher._confirm", does_nothing),
    Plant("a failed bind is not tried again", "lost write",
          "rte.kube.retry:is_transient", _never_ends),
    Plant("writes before a bind are not undone", "leak",
          "rte.scheduler.shell.writer:*.undo", _async_answers(())),
    Plant("the owner of a report is never learnt", "stale read",
          "rte.agent.publisher.ownership:owned_by", lambda _: lambda uid, obj: obj),
    # --- leaks ---
    Plant("a node keeps the pods that it dropped", "leak",
          "rte.scheduler.framework.node:NodeEntry.drop", _keeps_ended),
    Plant("shapes that no pod has are kept", "leak",
          "rte.scheduler.cache.cluster:Cluster.collect", does_nothing),
    Plant("nominations stay", "leak",
          "rte.scheduler.cache.cluster:Cluster.unnominate", does_nothing),
    Plant("awaited pods stay", "leak",
          "rte.scheduler.loop.kubelets:*.reported", answers([])),
    # --- starvation ---
    Plant("the gangs never get a turn", "starvation",
          "rte.scheduler.loop.gangs.gangs:Gangs.urgent", answers(())),
    Plant("a group that has placed one sleeps", "starvation",
          "rte.scheduler.queue.queue:SchedulingQueue.placed", does_nothing),
    # --- wrong units ---
    Plant("CPUs in milli-CPUs", "wrong unit",
          "rte.k8s.requests:totals", with_result(
              lambda found: {**found, "cpu": found.get("cpu", 0) // 1000})),
    Plant("back-off in milliseconds", "wrong unit",
          "rte.scheduler.queue.queue:MOST_BACKOFF_S", value(10_000.0)),
    Plant("a watch's silence in milliseconds", "wrong unit",
          "rte.kube.watch:_SILENCE_S", value(100_000.0),
          unseen="the constant is bound as a default when the function is made"),
    Plant("the bind timeout in milliseconds", "wrong unit",
          "rte.scheduler.shell.binder:Binder.__init__", with_arguments(
              lambda self, client, **more: (
                  (self, client), {**more, "timeout_s": more["timeout_s"] / 1000}))),
    # --- steps without end ---
    Plant("a refused write is sent again at once", "endless steps",
          "rte.model.backoff:Backoff.failed", answers(0.0)),
)  # fmt: skip
