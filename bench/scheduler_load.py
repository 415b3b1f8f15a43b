"""A large cluster with many that wait, in process: ``python -m bench.scheduler_load``.

The machine without its I/O, fed as watches would: nodes that are almost full, 30 pods on each, and
pods of a thousand shapes that fit nowhere. Printed are the first list, the longest step after it
(an event, or a decision), what one report costs, how soon a pod is bound to a node that has become
empty while reports keep coming, and memory. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import resource
import time
from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.scheduler_scale import confirm, machine, objects_of, pod_object, stored
from rte import nrt, placement
from rte.model.node import NodeReading
from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.loop.messages import Bind, Gone, Listed, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.scheduler.loop.messages import Effect, Event


#: Of a cluster of 5,000 nodes; one in so many is of a node whose pods have all ended.
REPORTS_PER_S, EMPTY_EVERY = 300, 30


class Driver:
    """Feeds the machine and keeps the longest step of each kind."""

    def __init__(self) -> None:
        self.machine = SchedulerMachine("rte-scheduler")
        self.machine.handle(messages.Leading(active=True), 0.0)
        self.now = 0.0
        self.longest: dict[str, float] = defaultdict(float)
        self.spent = 0.0

    def feed(self, event: Event) -> list[Effect]:
        """One step."""
        begin = time.process_time()
        effects = self.machine.handle(event, self.now)
        took = time.process_time() - begin
        self.spent += took
        kind = type(event).__name__
        if isinstance(event, Seen):
            kind += f" {event.collection}"
        self.longest[kind] = max(self.longest[kind], took)
        return effects

    def work(self) -> list[Bind]:
        """Decide until there is nothing to decide; each bind comes true, and is confirmed."""
        binds = []
        while self.machine.has_work():
            for effect in self.feed(messages.Turn()):
                if isinstance(effect, Bind):
                    binds.append(effect)
                    self.came_true(effect)
        return binds

    def came_true(self, bind: Bind) -> None:
        """The API shows the pod bound, and the kubelet has admitted it."""
        self.feed(messages.Bound(bind.pod.uid, messages.Outcome.BOUND))
        confirm(self.machine.cluster, bind.pod)

    def seconds(self, number: float) -> None:
        """Time passes."""
        end = self.now + number
        while (due := self.machine.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(messages.Tick())
            self.work()
        self.now = end


class Rush:
    """Reports that come whether or not the machine keeps up; some are of a node that is empty now.

    The clock is the machine's own CPU time, and what it idles until the next event. Whoever is
    bound is followed by another who waits.

    Attributes:
        clock: seconds since the beginning.
        worked: of these, how many it did not idle.
        delays: of each node that became empty, seconds until a pod was bound there.
    """

    def __init__(
        self,
        driver: Driver,
        names: list[str],
        rng: random.Random,
        waiting: Iterator[dict[str, Any]],
        version: int,
    ) -> None:
        self._driver, self._names, self._rng = driver, names, rng
        self._waiting, self._version = waiting, version
        self._empty: dict[str, float] = {}
        self.clock = self.worked = 0.0
        self.delays: list[float] = []

    def run(self, reports: int) -> None:
        """So many reports; a second of the clock is a second of the machine."""
        begin = self._driver.now
        due = deque(
            (number / REPORTS_PER_S, number % EMPTY_EVERY == 0) for number in range(reports)
        )
        while due or self._driver.machine.has_work():
            self._driver.now = begin + self.clock
            deadline = self._driver.machine.deadline()
            if due and due[0][0] <= self.clock:
                self._report(*due.popleft())
            elif deadline is not None and deadline <= self._driver.now:
                self._feed(messages.Tick())
            elif self._driver.machine.has_work():
                self._feed(messages.Turn())
            else:
                self.clock = due[0][0]
        if self._empty:
            raise SystemExit(f"nobody was placed on {', '.join(self._empty)}, which is empty")

    def _feed(self, event: Event) -> None:
        before = self._driver.spent
        effects = self._driver.feed(event)
        self._passes(before)
        for bind in (effect for effect in effects if isinstance(effect, Bind)):
            since = self._empty.pop(bind.node, None)
            if since is not None:
                self.delays.append(self.clock - since)
            before = self._driver.spent
            self._driver.came_true(bind)
            self._passes(before)
            self._feed(Seen("pods", next(self._waiting)))

    def _passes(self, before: float) -> None:
        self.clock += self._driver.spent - before
        self.worked += self._driver.spent - before

    def _report(self, at: float, empty: bool) -> None:
        name = self._rng.choice(self._names)
        self._version += 1
        report = _changed(self._driver, name, self._rng, self._version, empty=empty)
        if empty:
            self._empty[name] = at
            for uid in list(self._driver.machine.cluster.nodes[name].pods):
                self._feed(Gone("pods", uid))
        self._feed(Seen("reports", report))


def pods_that_wait(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Each of a shape of its own."""
    for number in itertools.count():
        obj = stored(pod_object(number, [(rng.randint(6, 32), 256 + number)]), number)
        obj["spec"]["priority"] = 0  # nobody is there to be evicted for it
        yield obj


def running_pods(nodes: list[str], count: int) -> Iterable[dict[str, Any]]:
    """Small pods of some thousand deployments, as an API server stores them."""
    for number in range(count):
        obj = stored(pod_object(2 * 10**6 + number, [(0, 64)], nodes[number % len(nodes)]), number)
        asked = {"cpu": "10m", "memory": "64Mi"}
        obj["spec"]["containers"][0]["resources"] = {"requests": asked}
        obj["spec"].pop("affinity", None)
        obj["metadata"]["labels"] = {
            "app": f"d{number % 3000}",
            "pod-template-hash": f"{number % 3000:x}",
        }
        yield obj


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--reports", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    items, residents = objects_of(args.nodes, rng, full=True)
    driver = Driver()
    names = [info["metadata"]["name"] for info, _ in items]
    version = 10**7

    begin = time.process_time()
    for info, report in items:
        driver.feed(Seen("nodes", info))
        driver.feed(Seen("reports", {**report, "metadata": {**report["metadata"]}}))
    uids = set()
    for obj in [*residents, *running_pods(names, args.pods)]:
        obj["status"]["phase"] = "Running"
        driver.feed(Seen("pods", obj))
        uids.add(obj["metadata"]["uid"])
    driver.feed(Listed("pods", frozenset(uids), version))
    gc.collect()
    gc.freeze()
    listed = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{args.nodes} nodes, {len(uids)} pods: first list {listed:.1f} s, peak {peak} MiB")

    driver.longest.clear()
    begin = time.process_time()
    waiting = pods_that_wait(rng)
    for obj in itertools.islice(waiting, args.waiting):
        driver.feed(Seen("pods", obj))
    binds = driver.work()
    driver.seconds(5)
    took = time.process_time() - begin
    print(f"{args.waiting} shapes that fit nowhere: {took:.2f} s, {len(binds)} bound")
    _tell_longest(driver)

    driver.longest.clear()
    driver.spent = 0.0
    reports = [_changed(driver, rng.choice(names), rng, version + n) for n in range(args.reports)]
    for number, report in enumerate(reports):
        driver.feed(Seen("reports", report))
        driver.work()
        if number % 300 == 299:
            driver.seconds(1)
    each = driver.spent / args.reports
    print(f"a report: {1e3 * each:.2f} ms, so 300 a second take {300 * each:.0%} of a core")
    _tell_longest(driver)

    driver.longest.clear()
    rush = Rush(driver, names, rng, waiting, 2 * version)
    rush.run(args.reports)
    delays = sorted(rush.delays)
    middle, late = (delays[int(share * len(delays))] for share in (0.5, 0.99))
    print(
        f"{len(delays)} nodes become empty, until a pod is bound there: median {1e3 * middle:.1f} "
        f"ms, 99 % {1e3 * late:.1f} ms, at most {1e3 * delays[-1]:.1f} ms; "
        f"{rush.worked / rush.clock:.0%} of a core"
    )
    _tell_longest(driver)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak {peak} MiB")


def _tell_longest(driver: Driver) -> None:
    steps = sorted(driver.longest.items(), key=lambda item: -item[1])[:4]
    print("  longest steps:", ", ".join(f"{name} {1e3 * took:.1f} ms" for name, took in steps))


def _changed(
    driver: Driver, name: str, rng: random.Random, version: int, *, empty: bool = False
) -> dict[str, Any]:
    """A report of the node after one of its pods has moved within it, or after all have ended."""
    entry = driver.machine.cluster.nodes[name]
    if entry.report is None or entry.report.state is None:
        raise SystemExit(f"{name} has no report")
    state = entry.report.state
    held = sorted(state.holdings)
    if empty:
        state = placement.settle(state, frozenset())
    elif held:
        uid = rng.choice(held)
        pod = entry.pods[uid].shape.as_pod(uid)
        freed = placement.settle(state, state.admitted - {uid})
        after = placement.admit(freed, pod)
        state = replace(after.state, admitted=after.state.admitted | {uid})
    report = nrt.encode(NodeReading(node_name=name, machine=machine(state.topology), state=state))
    report["metadata"]["resourceVersion"] = str(version)
    return report


if __name__ == "__main__":
    main()
