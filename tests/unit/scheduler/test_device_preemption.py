"""Pods with devices for which others are evicted: what these hold is theirs then."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.gpus import uses
from tests.unit.scheduler.test_dynamic_resources import Site


@pytest.fixture
def site() -> Site:
    """Zone 0 of the node has two GPUs, zone 1 two more; pods of no importance hold them."""
    made = Site()
    made.node("n", state(machine(zones=2, cpus=8)))
    made.gpus("n")
    return made


def take(site: Site, name: str, devices: int, cpu: str = "2", priority: int = 0) -> str:
    site.claim(name, devices)
    uid = site.user(name, cpu, priority=priority, wish="none")
    site.admit(uid)
    return uid


def evicted(site: Site) -> list[str]:
    return [victim.name for effect in site.evictions for victim in effect.victims]


def test_the_holder_of_enough_devices_is_evicted(site: Site) -> None:
    site.answers = True
    take(site, "small", 1)
    take(site, "large", 3)
    site.answers = False
    site.claim("p", 2)
    site.user("p", priority=10, wish="none")
    assert evicted(site) == ["large"]


def test_nobody_is_evicted_where_devices_would_not_be_enough(site: Site) -> None:
    take(site, "a", 4)
    site.answers = False
    site.claim("p", 5)
    uid = site.user("p", priority=10, wish="none")
    assert evicted(site) == []
    assert "without free devices" in site.waits(uid)


def test_pods_of_the_same_priority_keep_theirs(site: Site) -> None:
    take(site, "a", 4, priority=10)
    site.answers = False
    site.claim("p", 1)
    site.user("p", priority=10, wish="none")
    assert evicted(site) == []


def test_a_claim_that_another_pod_uses_as_well_is_not_freed(site: Site) -> None:
    site.claim("shared", 4)
    for name, priority in (("low", 0), ("high", 20)):
        uid = site.pod(name, "2", priority=priority, **uses("shared", wish="none"))
        site.admit(uid)
    site.answers = False
    site.claim("p", 1)
    site.user("p", priority=10, wish="none")
    assert evicted(site) == []


def test_while_devices_are_being_freed_no_more_pods_are_evicted(site: Site) -> None:
    """A victim is gone; the controller takes its claim back a moment later."""
    for name in ("first", "second"):
        take(site, name, 2)
    site.claim("p", 2)
    site.answers = False
    uid = site.user("p", priority=10, wish="none")
    assert len(evicted(site)) == 1
    victim = evicted(site)[0]
    site.answers = True
    site.end(f"uid-{victim}")
    site.evictions.clear()
    site.pass_time(5)
    assert not site.where(uid)
    assert "being freed" in site.waits(uid)
    site.delete("device-claims", f"default/{victim}")
    site.pass_time(1)
    assert site.where(uid) == "n"
    (other,) = {"first", "second"} - {victim}
    assert site.where(f"uid-{other}") == "n"


def test_a_pod_that_requires_alignment_gets_the_zone_with_its_devices(site: Site) -> None:
    """CPUs are free in zone 0, and its GPUs are held by the pod that has to go."""
    take(site, "zone-0", 2)
    site.answers = False
    site.claim("p", 2)
    site.user("p", priority=10, wish="required")
    assert evicted(site) == ["zone-0"]
