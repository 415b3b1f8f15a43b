"""One load under one setting: pods come, wait, run and go; what the kubelets refuse is counted."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rte.scheduler.loop.cycle import Cycle
from rte.sim import offline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView


class Arrival(NamedTuple):
    """A pod of the load; ``at`` and ``runs`` are seconds (None: it never ends)."""

    pod: PodView
    at: float = 0.0
    runs: float | None = None


@dataclass(kw_only=True)
class LoadResult:
    """What became of a load.

    Attributes:
        placed, unplaced: numbers of pods that a kubelet has run, and that wait to the end.
        rejections: refusals by kubelets, by reason.
        waited: seconds that each placed pod has waited.
        utilisation: share of the allocatable CPU that placed pods ask for, 0 to 1: the average from
            the first arrival until the last event; where all happens at once, that of the end.
        timed: whether time passes at all.
    """

    placed: int = 0
    unplaced: int = 0
    rejections: Counter[str] = field(default_factory=Counter)
    waited: list[float] = field(default_factory=list)
    utilisation: float = 0.0
    timed: bool = False


def shuffled(load: Sequence[Arrival], seed: int) -> list[Arrival]:
    """The load in another order: the pods change places, the times stay. Seed 0 is as given."""
    if not seed:
        return list(load)
    pods = random.Random(seed).sample(load, len(load))
    return [each._replace(at=place.at) for each, place in zip(pods, load, strict=True)]


def play(cluster: Cluster, load: Sequence[Arrival], strategy: str) -> LoadResult:
    """Let the load come to the cluster, which is changed.

    A pod that finds no place is tried again whenever another has ended; the first come first.
    """
    return _Course(cluster, strategy).run(load)


class _Course:
    def __init__(self, cluster: Cluster, strategy: str) -> None:
        self._cluster = cluster
        self._placing = offline.Placing(cluster, Cycle(cluster), strategy)
        self._result = LoadResult()
        self._endings: list[tuple[float, int, PodView]] = []
        self._waiting: list[Arrival] = []
        self._total = sum(
            entry.info.allocatable.get("cpu", 0) for entry in cluster.nodes.values() if entry.info
        )
        self._used = sum(entry.used["cpu"] for entry in cluster.nodes.values() if entry.info)
        self._now = self._area = 0.0

    def run(self, load: Sequence[Arrival]) -> LoadResult:
        begin = self._now = load[0].at if load else 0.0
        for arrival in load:
            self._let_end(arrival.at)
            self._pass(arrival.at)
            if not self._start(arrival):
                self._waiting.append(arrival)
        while self._endings:
            self._let_end(self._endings[0][0])
        lasted = self._now - begin
        self._result.timed = lasted > 0
        used = self._area / lasted if lasted > 0 else self._used
        self._result.utilisation = used / self._total if self._total else 0.0
        self._result.unplaced = len(self._waiting)
        return self._result

    def _pass(self, now: float) -> None:
        self._area += self._used * (now - self._now)
        self._now = now

    def _start(self, arrival: Arrival) -> bool:
        outcome = self._placing.place(arrival.pod)
        self._result.rejections += outcome.rejections
        if not outcome.placed:
            return False
        self._result.placed += 1
        self._result.waited.append(self._now - arrival.at)
        self._used += arrival.pod.shape.totals.get("cpu", 0)
        if arrival.runs is not None:
            end = (self._now + arrival.runs, self._result.placed, arrival.pod)
            heapq.heappush(self._endings, end)
        return True

    def _let_end(self, until: float) -> None:
        """Pods that end until then make room for those that wait."""
        while self._endings and self._endings[0][0] <= until:
            self._pass(self._endings[0][0])
            while self._endings and self._endings[0][0] <= self._now:
                _, _, pod = heapq.heappop(self._endings)
                self._used -= pod.shape.totals.get("cpu", 0)
                self._placing.end(pod)
            refused: set[int] = set()
            left = []
            for arrival in self._waiting:
                # What one pod of a shape does not find, the next does not find either.
                if id(arrival.pod.shape) in refused or not self._start(arrival):
                    refused.add(id(arrival.pod.shape))
                    left.append(arrival)
            self._waiting = left
