"""Seeded lists of jobs. A job is a pod that holds its resources for a while, then ends."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tests.cluster import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.cluster.api import Object

Resources = dict[str, str]

#: Who places a job's pod: the scheduler under test, another one, or nobody (created on a node).
Placer = Literal["subject", "other", "foreign"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job.

    Attributes:
        number: its place in the list.
        containers: requests of each, equal to its limits unless ``burstable``.
        seconds: from Running to its end.
        kind: what it is bound by, for the report.
        placer: who places it; ``node`` is set for a foreign one.
        at: seconds after the start at which it is created.
        init: requests of ordinary init containers; ``sidecars``: of restartable ones.
    """

    number: int
    containers: tuple[Resources, ...]
    seconds: float
    kind: str = "pinned"
    placer: Placer = "subject"
    node: str = ""
    at: float = 0.0
    burstable: bool = False
    init: tuple[Resources, ...] = ()
    sidecars: tuple[Resources, ...] = ()

    @property
    def cpus(self) -> float:
        """CPUs that it holds while it runs."""
        return sum(_cpus(item) for item in (*self.containers, *self.sidecars))

    def pod(self, attempt: int, scheduler: str) -> Object:
        """The pod of the job's n-th attempt."""
        main = [
            pods.container(**_keywords(item), **({"limits": {}} if self.burstable else {}))
            for item in self.containers
        ]
        before = [pods.container(**_keywords(item), command=["sleep", "0.5"]) for item in self.init]
        before += [pods.container(**_keywords(item), sidecar=True) for item in self.sidecars]
        return pods.pod(
            *main,
            init=before,
            node=self.node or None,
            scheduler="" if self.placer == "foreign" else scheduler,
            name=f"j{self.number}-{attempt}",
            labels={"job": str(self.number)},
        )


def _cpus(resources: Mapping[str, str]) -> float:
    text = resources.get("cpu", "0")
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _keywords(resources: Mapping[str, str]) -> dict[str, Any]:
    return {key.replace("hugepages-", "hugepages_"): value for key, value in resources.items()}


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What a list is drawn from.

    Attributes:
        jobs: length of the list.
        sizes, memory: CPUs and GiB of a container.
        two: share of pods with two containers.
        seconds: shortest and longest duration.
        kinds: share of jobs that are not plain pinned pods: ``memory`` (few CPUs, much memory),
            ``device``, ``hugepages``, ``shared`` (Burstable), ``init``, ``sidecar``.
        foreign, other: share of jobs that nobody or another scheduler places.
        bursts, gap: jobs arrive in so many groups, seconds apart (1: all at once).
        resource: the device that ``device`` jobs ask for.
    """

    jobs: int = 60
    sizes: Sequence[int] = (2, 4, 6, 8, 12, 16, 20, 24)
    memory: Sequence[int] = (1, 2, 4, 8, 16)
    two: float = 0.3
    seconds: tuple[float, float] = (6, 14)
    kinds: Mapping[str, float] = field(default_factory=dict)
    foreign: float = 0.0
    other: float = 0.0
    bursts: int = 1
    gap: float = 10.0
    resource: str = "example.com/gpu"


def draw(
    mix: Mix,
    seed: int,
    nodes: Sequence[str] = (),
    fits: Callable[[Job, str], bool] = lambda _job, _node: True,
) -> list[Job]:
    """The list of a seed. ``nodes``: where foreign pods may be created, if the job ``fits`` there.

    Sizes, memory and durations come from a generator of their own, so the plain list of a seed is
    the same whatever else is asked for.
    """
    plain = random.Random(seed)
    extra = random.Random(f"{seed}/mix")
    jobs = []
    for number in range(mix.jobs):
        count = 2 if plain.random() < mix.two else 1
        containers = tuple(
            {"cpu": str(plain.choice(mix.sizes)), "memory": f"{plain.choice(mix.memory)}Gi"}
            for _ in range(count)
        )
        job = Job(number=number, containers=containers, seconds=plain.uniform(*mix.seconds))
        job = replace(job, at=number * mix.bursts // mix.jobs * mix.gap)
        jobs.append(_vary(job, mix, extra, lambda job: [n for n in nodes if fits(job, n)]))
    return jobs


def _vary(job: Job, mix: Mix, extra: random.Random, hosts: Callable[[Job], Sequence[str]]) -> Job:
    """Turn a plain job into one of another kind or placer, by the mix's shares."""
    chance, kind = extra.random(), "pinned"
    for name, share in mix.kinds.items():
        if chance < share:
            kind = name
            break
        chance -= share
    first, *rest = job.containers
    if kind == "memory":
        first = {"cpu": str(extra.choice((1, 2))), "memory": f"{extra.choice((24, 32, 48))}Gi"}
        rest = []
    elif kind == "device":
        first = {**first, "cpu": str(extra.choice((2, 4))), mix.resource: str(extra.choice((1, 2)))}
    elif kind == "hugepages":
        first = {**first, "hugepages-2Mi": f"{extra.choice((64, 128, 256))}Mi"}
    elif kind == "shared":
        first = {"cpu": f"{extra.choice((500, 1500, 3500))}m", "memory": first["memory"]}
        rest = []
    job = replace(job, kind=kind, containers=(first, *rest), burstable=kind == "shared")
    if kind == "init":
        job = replace(job, init=({"cpu": str(extra.choice(mix.sizes)), "memory": "1Gi"},))
    elif kind == "sidecar":
        job = replace(job, sidecars=({"cpu": "2", "memory": "1Gi"},))
    chance = extra.random()
    if chance < mix.foreign and (nodes := hosts(job)):
        return replace(job, placer="foreign", node=extra.choice(nodes))
    if chance < mix.foreign + mix.other:
        return replace(job, placer="other")
    return job
