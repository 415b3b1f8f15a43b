"""bench/placement: its lists, its oracle and its bookkeeping."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bench.lib import jobs, oracle, replay
from rte import placement
from rte.model import quantity
from rte.model.node import CPUInfo, KubeletConfig, Topology, ZoneInfo

NODES = ("n0", "n1", "n2", "n3")
GIB = 1 << 30


def test_the_plain_list_is_the_published_one() -> None:
    """Drawn as first published: two containers?, then CPUs and GiB of each, then the duration."""
    source = random.Random(7)
    for job in jobs.draw(jobs.Mix(), 7):
        count = 2 if source.random() < 0.3 else 1
        containers = tuple(
            {
                "cpu": str(source.choice([2, 4, 6, 8, 12, 16, 20, 24])),
                "memory": f"{source.choice([1, 2, 4, 8, 16])}Gi",
            }
            for _ in range(count)
        )
        assert (job.containers, job.seconds) == (containers, source.uniform(6, 14))


@pytest.mark.parametrize(("seed", "seconds"), [(1, 49.3), (2, 52.5), (3, 52.7)])
def test_the_oracle_gives_the_published_times(seed: int, seconds: float) -> None:
    build = oracle.plain_models(NODES, (31, 32), (63, 64))
    assert round(oracle.best_makespan(jobs.draw(jobs.Mix(), seed), build), 1) == seconds


def test_the_exact_oracle_agrees_with_zone_arithmetic_where_both_apply() -> None:
    cpus = tuple(
        CPUInfo(cpu, cpu % 32, cpu % 32 // 16, cpu % 32 // 16, cpu % 32 // 16) for cpu in range(64)
    )
    zones = tuple(
        ZoneInfo(id=zone, memory_bytes=64 * GIB, distances=(10, 21) if zone == 0 else (21, 10))
        for zone in (0, 1)
    )
    config = KubeletConfig(
        topology_policy="single-numa-node",
        cpu_policy="static",
        reserved_cpus=1,
        cpu_reservation_milli=1000,
        memory_policy="Static",
        reserved_memory={0: {"memory": GIB // 2}},
    )
    state = placement.initial_state(
        Topology(cpus=cpus, zones=zones, sockets=2), config, {}, "v1.35.4"
    )
    allocatable = {"cpu": 63000, "memory": 128 * GIB - GIB // 2, "pods": 250}
    exact = dict.fromkeys(NODES, oracle.Kubelet(state, allocatable))
    plain = oracle.plain_models(NODES, (31, 32), (63, 64))(False)
    listed = jobs.draw(jobs.Mix(jobs=20), 5)
    assert oracle.makespan(listed, exact, best=False) == pytest.approx(
        oracle.makespan(listed, plain, best=False)
    )


def test_a_job_that_fits_nowhere_is_named() -> None:
    models = oracle.plain_models(NODES, (4, 4), (8, 8))(True)
    giant = jobs.Job(number=3, containers=({"cpu": "5", "memory": "1Gi"},), seconds=1)
    with pytest.raises(ValueError, match="jobs 3 fit on no node"):
        oracle.makespan([giant], models, best=True)


def test_kinds_and_placers_change_no_plain_job() -> None:
    plain = jobs.draw(jobs.Mix(), 3)
    mix = jobs.Mix(
        kinds={"memory": 0.2, "device": 0.2, "shared": 0.1, "init": 0.1, "sidecar": 0.1},
        foreign=0.1,
        other=0.1,
        bursts=3,
        gap=5,
    )
    mixed = jobs.draw(mix, 3, NODES)
    assert mixed == jobs.draw(mix, 3, NODES)
    assert {job.kind for job in mixed} > {"pinned", "memory", "device"}
    assert {job.placer for job in mixed} == {"subject", "other", "foreign"}
    assert sorted({job.at for job in mixed}) == [0, 5, 10]
    assert all((job.node in NODES) == (job.placer == "foreign") for job in mixed)
    for before, after in zip(plain, mixed, strict=True):
        assert after.seconds == before.seconds
        if after.kind == "pinned":
            assert after.containers == before.containers


def test_pods_ask_for_what_the_job_says() -> None:
    job = jobs.Job(number=4, containers=({"cpu": "2", "memory": "1Gi"},), seconds=1)
    (container,) = job.pod(0, "s")["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    shared = replace(job, burstable=True).pod(1, "s")
    assert shared["spec"]["containers"][0]["resources"]["limits"] == {}
    assert shared["metadata"]["name"] == "j4-1"
    foreign = replace(job, placer="foreign", node="n1").pod(0, "s")
    assert foreign["spec"]["nodeName"] == "n1"
    assert "schedulerName" not in foreign["spec"]


def test_efficiency_counts_only_the_time_in_which_some_job_waited() -> None:
    pair = [
        jobs.Job(number=number, containers=({"cpu": "4", "memory": "1Gi"},), seconds=10)
        for number in (0, 1)
    ]
    progress = [
        replay.Progress(created=0, running=1, ended=11),
        replay.Progress(created=0, running=11, ended=21),
    ]
    outcome = replay.Outcome(pair, progress, 21)
    assert outcome.saturated_efficiency(8) == pytest.approx(0.5)
    assert outcome.waits() == [1, 11]
    assert outcome.done() == 2


def test_quantities_of_jobs_are_readable() -> None:
    for job in jobs.draw(jobs.Mix(kinds={"hugepages": 0.5, "memory": 0.5}), 1):
        for item in job.containers:
            assert all(quantity.parse_resource(name, text) > 0 for name, text in item.items())
