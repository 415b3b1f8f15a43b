"""What an event costs while many wait for many things: ``python -m bench.scheduler_events``.

The machine without its I/O: nodes that are almost full, and pods that wait in shapes of every kind
(zones, volumes that can be reached from one full node, any free volume, soft affinity), gangs, and
claims. Each kind of event is played twice, with nobody waiting (the baseline) and with all of them.
Printed are the CPU milliseconds of an event with all decisions that it leads to (median, 99 %,
most), the ratio of the medians, decisions per event, and the longest step of all. What the solver
of gangs takes, beside the decisions in a thread, is left out.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import statistics
from typing import TYPE_CHECKING, Any

from bench.scheduler_load import Driver, _changed, _tell_longest, pods_that_wait, running_pods
from bench.scheduler_scale import objects_of, pod_object
from rte.scheduler.loop import messages
from rte.scheduler.loop.messages import Bind, Gone, Seen, Solve
from rte.telemetry.effects import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rte.scheduler.loop.messages import Event

    #: The events of one kind, without end.
    Kinds = dict[str, Callable[[], Iterator[Event]]]

HOST = "kubernetes.io/hostname"


class Site(Driver):
    """A driver that counts decisions, answers the solver's questions, and gives new versions."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = 0
        self.version = 10**8

    def work(self) -> list[Bind]:
        binds: list[Bind] = []
        while self.machine.has_work():
            questions = []
            for effect in self.feed(messages.Turn()):
                if isinstance(effect, Bind):
                    binds.append(effect)
                    self.came_true(effect)
                elif isinstance(effect, Solve):
                    questions.append(effect)
                elif isinstance(effect, Measured) and effect.metric == "attempts":
                    self.decisions += 1
            for asked in questions:
                self.feed(messages.Solved(asked.number, asked.question.find_out()))
        return binds

    def newer(self, obj: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        """The object as it is written again."""
        self.version += 1
        changed = {**obj["metadata"], **metadata, "resourceVersion": str(self.version)}
        return {**obj, "metadata": changed}


def volume(number: int, node: str, claim: str = "") -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}]
    spec: dict[str, Any] = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "5Gi"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}
    metadata = {"name": f"v{number}", "uid": f"uid-v{number}"}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Bound" if claim else "Available"},
    }


def pvc(name: str, volume_name: str = "", namespace: str = "default") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
    }
    if volume_name:
        spec["volumeName"] = volume_name
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"phase": "Bound" if volume_name else "Pending"},
    }


def store(site: Site, names: list[str], volumes: int, claims: int) -> None:
    """Half of the claims are bound to a volume of one node; most volumes are of others."""
    local = {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    site.feed(Seen("classes", local))
    for number in range(volumes):
        owner = f"c{number}" if number < claims and number % 2 else ""
        owner = owner or ("" if number < claims else f"other-{number}")
        site.feed(Seen("volumes", volume(number, names[number % 8], owner)))
    for number in range(claims):
        site.feed(Seen("claims", pvc(f"c{number}", f"v{number}" if number % 2 else "")))


def waiting(rng: random.Random, pods: int, shapes: int, gangs: int, claims: int) -> Iterator[Event]:
    """Pods that wait, and fit nowhere."""
    number = itertools.count(10**5)
    kinds = list(itertools.islice(pods_that_wait(rng), shapes))
    for turn in range(pods):
        each = kinds[turn % shapes]
        uid = next(number)
        metadata = {**each["metadata"], "name": f"p{uid}", "uid": f"uid-{uid}"}
        spec = dict(each["spec"])
        which = turn % shapes
        if which < claims:
            # A large one, so that the node of its volume is full for it.
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{which}"}}]
        elif which % 4 == 0:
            term = {"labelSelector": {"matchLabels": {"app": f"a{which}"}}, "topologyKey": HOST}
            weighted = [{"weight": 1, "podAffinityTerm": term}]
            soft = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
            spec["affinity"] = {"podAntiAffinity": soft}
        yield Seen("pods", {**each, "metadata": metadata, "spec": spec})
    for gang in range(gangs):
        policy = {"schedulingPolicy": {"gang": {"minCount": 8}}}
        metadata = {"namespace": "default", "name": f"g{gang}"}
        yield Seen("podgroups", {"metadata": metadata, "spec": policy})
        for _ in range(8):
            made = pod_object(next(number), [(12, 1024 + gang)])
            made["spec"]["schedulingGroup"] = {"podGroupName": f"g{gang}"}
            yield Seen("pods", made)


def events(
    site: Site, names: list[str], running: list[dict[str, Any]], rng: random.Random
) -> Kinds:
    """What happens all the time."""

    def ends() -> Iterator[Event]:
        for obj in running:
            yield Gone("pods", obj["metadata"]["uid"])

    def endless(make: Callable[[int], Event]) -> Callable[[], Iterator[Event]]:
        return lambda: map(make, itertools.count())

    def report(_: int) -> Event:
        site.version += 1
        return Seen("reports", _changed(site, rng.choice(names), rng, site.version))

    def strange(kind: str, obj: dict[str, Any]) -> Callable[[], Iterator[Event]]:
        return endless(lambda n: Seen(kind, site.newer(obj, annotations={"n": str(n)})))

    device_claim = {
        "metadata": {"namespace": "other", "name": "d", "uid": "uid-d"},
        "spec": {"devices": {"requests": []}},
    }
    return {
        "a small pod ends": ends,
        "a report": endless(report),
        "a claim of others": strange("claims", pvc("x", namespace="other")),
        "a claim that a pod names": strange("claims", pvc("c1", "v1")),
        "a volume of others": strange("volumes", volume(10**6, names[0], "other-x")),
        "a free volume": strange("volumes", volume(10**6 + 1, names[0])),
        "a claim of devices": strange("device-claims", device_claim),
    }


def play(site: Site, kinds: Kinds, count: int) -> dict[str, tuple[list[float], float]]:
    """CPU milliseconds of each event with its decisions, and decisions per event."""
    found = {}
    for what, make in kinds.items():
        site.seconds(20)
        taken, before = [], site.decisions
        for event in itertools.islice(make(), count):
            spent = site.spent
            site.feed(event)
            site.work()
            taken.append(1e3 * (site.spent - spent))
        found[what] = sorted(taken), (site.decisions - before) / count
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=2000)
    parser.add_argument("--gangs", type=int, default=200)
    parser.add_argument("--volumes", type=int, default=6000)
    parser.add_argument("--claims", type=int, default=1000)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    site = Site()
    items, residents = objects_of(args.nodes, rng, full=True)
    names = [info["metadata"]["name"] for info, _ in items]
    for info, report in items:
        site.feed(Seen("nodes", info))
        site.feed(Seen("reports", report))
    small = list(running_pods(names, 2 * args.events))
    for obj in [*residents, *small]:
        obj["status"]["phase"] = "Running"
        site.feed(Seen("pods", obj))
    store(site, names, args.volumes, args.claims)
    site.work()
    gc.collect()
    gc.freeze()
    baseline = play(site, events(site, names, small[: args.events], rng), args.events)

    for event in waiting(rng, args.waiting, args.shapes, args.gangs, args.claims):
        site.feed(event)
    binds = site.work()
    site.seconds(20)
    number = sum(1 for _ in site.machine.queue)
    print(f"{number} pods wait, {len(binds)} were bound at the beginning")
    gc.collect()
    gc.freeze()
    site.longest.clear()
    loaded = play(site, events(site, names, small[args.events :], rng), args.events)
    for what, (taken, decided) in loaded.items():
        middle, alone = statistics.median(taken), statistics.median(baseline[what][0])
        late = taken[int(0.99 * len(taken))]
        print(
            f"{what}: median {middle:.2f} ms ({middle / alone:.1f} times the baseline), 99 % "
            f"{late:.1f} ms, at most {taken[-1]:.1f} ms, {decided:.1f} decisions"
        )
    every = sorted(each for taken, _ in loaded.values() for each in taken)
    print(f"all kinds: median {statistics.median(every):.2f} ms")
    _tell_longest(site)


if __name__ == "__main__":
    main()
