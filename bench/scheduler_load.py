"""A large cluster with many that wait, in process: ``python -m bench.scheduler_load``.

The machine without its I/O, fed as watches would: nodes that are almost full, 30 pods on each, and
pods of a thousand shapes that fit nowhere. Printed are the first list, the longest step after it
(an event, or a decision), what one report costs, how soon the pod that one report helps is bound,
and memory. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.scheduler_scale import confirm, machine, objects_of, pod_object, stored
from rte import nrt, placement
from rte.model.node import NodeReading
from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import Machine
from rte.scheduler.loop.messages import Bind, Gone, Listed, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.scheduler.loop.messages import Effect, Event


class Driver:
    """Feeds the machine and keeps the longest step of each kind."""

    def __init__(self) -> None:
        self.machine = Machine("rte-scheduler")
        self.machine.active = True
        self.now = 0.0
        self.longest: dict[str, float] = defaultdict(float)
        self.first_bind = 0.0
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
                    if not binds:
                        self.first_bind = time.process_time()
                    binds.append(effect)
                    self.feed(messages.Bound(effect.pod.uid, messages.Outcome.BOUND))
                    confirm(self.machine.cluster, effect.pod)
        return binds

    def seconds(self, number: float) -> None:
        """Time passes."""
        end = self.now + number
        while (due := self.machine.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(messages.Tick())
            self.work()
        self.now = end


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
    for number in range(args.waiting):
        boxes = [(rng.randint(6, 32), 256 + number)]
        obj = stored(pod_object(number, boxes), number)
        obj["spec"]["priority"] = 0  # nobody is there to be evicted for it
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
    delays = []
    for number in range(20):
        name = rng.choice(names)
        report = _changed(driver, name, rng, 2 * version + number, empty=True)
        for uid in list(driver.machine.cluster.nodes[name].pods):
            driver.feed(Gone("pods", uid))
        start = time.process_time()
        driver.feed(Seen("reports", report))
        binds = driver.work()
        delays.append(driver.first_bind - start)
        if not binds:
            raise SystemExit("a node has become empty, and nobody was placed there")
    print(f"the pod that a report helps: at most {1e3 * max(delays):.0f} ms until its bind")
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
