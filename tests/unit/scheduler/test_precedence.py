"""Pods with devices that leave a node to others of their priority, for a bounded time."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.test_dynamic_resources import Site

PATIENCE = 30.0


def crowded(**options: Any) -> tuple[Site, str]:
    """A node of 2 x 8 CPUs whose zone 0 is taken by a job, and zone 1 by another pod."""
    site = Site(patience=PATIENCE, **options)
    site.node("n", state(machine(zones=2, cpus=8)))
    site.gpus("n", 0, 0, 1, 1)
    site.claim("first", 2)
    first = site.user("first", "7")
    site.admit(first)
    site.claim("second", 2)
    second = site.user("second", "8")
    site.admit(second)
    assert site.where(first) == site.where(second) == "n"
    return site, first


def end(site: Site, uid: str) -> None:
    """A pod is gone, and the controller has taken back its claim."""
    name = site.view(uid).name
    site.end(uid)
    site.delete("device-claims", f"default/{name}")


def test_the_pod_that_opens_the_next_zone_goes_before_an_older_one() -> None:
    """Zone 0 becomes free: with the small pod there, nobody would reach zone 1 later."""
    site, first = crowded()
    site.claim("small", 2)
    small = site.user("small", "2")
    site.claim("large", 1)
    large = site.user("large", "7")
    assert not site.where(small)
    assert not site.where(large)
    end(site, first)
    assert site.where(large) == "n"
    assert not site.where(small)


def test_pods_of_higher_priority_do_not_wait_for_others() -> None:
    site, first = crowded()
    site.claim("small", 2)
    small = site.user("small", "2", priority=10)
    site.claim("large", 1)
    large = site.user("large", "7")
    end(site, first)
    assert site.where(small) == "n"
    assert not site.where(large)


def test_when_the_better_one_is_gone_the_other_has_its_turn() -> None:
    site, first = crowded()
    site.claim("small", 1)
    small = site.user("small", "2")
    site.claim("large", 1)
    large = site.user("large", "7")
    site.answers = False
    end(site, first)
    assert [bind.pod.name for bind in site.binds] == ["large"]
    site.delete("pods", large)
    site.answers = True
    site.bind(site.binds.pop())
    assert site.where(small) == "n"


@settings(max_examples=30, deadline=None)
@given(
    some.lists(
        some.tuples(some.integers(1, 8), some.integers(1, 2), some.sampled_from(["", "required"])),
        min_size=2,
        max_size=6,
    )
)
def test_every_pod_that_fits_alone_is_placed_in_its_time(jobs: list[tuple[int, int, str]]) -> None:
    """Nobody starves: pods end one by one, and each waiting pod comes to its turn."""
    site = Site(patience=PATIENCE)
    site.node("n", state(machine(zones=2, cpus=8)))
    site.gpus("n", 0, 0, 1, 1)
    waiting = []
    for number, (cpus, devices, wish) in enumerate(jobs):
        site.claim(f"j{number}", devices)
        waiting.append(site.user(f"j{number}", str(cpus), wish=wish))
    for _ in jobs:
        site.run_all()
        site.pass_time(PATIENCE + 1)
        site.run_all()
        for uid in [uid for uid in waiting if site.where(uid)]:
            end(site, uid)
            waiting.remove(uid)
        site.pass_time(1)
    assert not waiting
