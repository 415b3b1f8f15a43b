"""Devices of DRA that are more than whole ones: shared, partitioned, or made ready for a pod."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster import processes
from tests.cluster.test_dra_scheduler import (
    API,
    CLAIMS,
    V1,
    Site,
    site,  # noqa: F401 - a fixture
)
from tests.cluster.test_scheduler import PODS, Schedulers, schedulers  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.cluster.api import Object


@dataclass
class Published:
    """Devices of a driver that prepares nothing: pods are bound and never run."""

    site: Site
    driver: str = "published.example"

    def put(self, devices: list[Object], counters: Sequence[Object] = ()) -> None:
        api, name = self.site.cluster.api, self.site.node.name
        expression = f'device.driver == "{self.driver}"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        api.create(
            f"{API}/deviceclasses",
            {"kind": "DeviceClass", **V1, "metadata": {"name": "published"}, "spec": spec},
        )
        parts = [{"devices": devices}, *([{"sharedCounters": [*counters]}] if counters else [])]
        pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts)}
        for number, part in enumerate(parts):
            spec = {"driver": self.driver, "nodeName": name, "pool": pool, **part}
            metadata = {"name": f"{name}-published-{number}"}
            api.create(
                f"{API}/resourceslices",
                {"kind": "ResourceSlice", **V1, "metadata": metadata, "spec": spec},
            )

    def ask(self, name: str, **exactly: Any) -> None:
        """A pod with a claim of its name."""
        exactly = {"deviceClassName": "published", "count": 1, **exactly}
        devices = {"requests": [{"name": "r", "exactly": exactly}]}
        body = {"metadata": {"name": name}, "spec": {"devices": devices}}
        self.site.cluster.api.create(CLAIMS, {"kind": "ResourceClaim", **V1, **body})
        self.site.pod(name, {"resourceClaimName": name})

    def given(self, names: Iterable[str]) -> dict[str, Object]:
        """Pods that have something -> the result in their claim."""
        found = {}
        for name in names:
            status = self.site.cluster.api.get(f"{CLAIMS}/{name}").get("status") or {}
            for one in (status.get("allocation") or {}).get("devices", {}).get("results", ()):
                found[name] = one
        return found

    def clear(self) -> None:
        api, name = self.site.cluster.api, self.site.node.name
        self.site.clear()
        api.delete(CLAIMS)
        api.delete(f"{API}/deviceclasses/published")
        for number in range(2):
            api.delete(f"{API}/resourceslices/{name}-published-{number}")


@pytest.fixture
def published(site: Site) -> Iterator[Published]:  # noqa: F811
    made = Published(site)
    yield made
    made.clear()


def test_devices_that_are_shared_by_capacity(
    published: Published,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}}
    memory = {"value": "80Gi", "requestPolicy": policy}
    published.put([{"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": memory}}])
    schedulers.start()
    names = [f"{published.site.node.name}-share-{number}" for number in range(5)]
    for name in names:
        published.ask(name, capacity={"requests": {"memory": "15Gi"}})

    processes.wait_until(lambda: len(published.given(names)) == 4, 60, "four pods to share")
    (left,) = set(names) - published.given(names).keys()
    published.site.waits(left, "without free devices")
    assert len({one["shareID"] for one in published.given(names).values()}) == 4


def test_partitions_of_a_device_that_pods_race_for(
    published: Published,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    def part(name: str, size: str) -> Object:
        used = {"counterSet": "all", "counters": {"memory": {"value": size}}}
        return {"name": name, "consumesCounters": [used]}

    whole = {"name": "all", "counters": {"memory": {"value": "80Gi"}}}
    published.put([*(part(f"half-{n}", "40Gi") for n in range(3)), part("whole", "80Gi")], [whole])
    schedulers.start()
    names = [f"{published.site.node.name}-part-{number}" for number in range(4)]
    racers = [threading.Thread(target=published.ask, args=(name,)) for name in names]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    processes.wait_until(lambda: len(published.given(names)) == 2, 60, "two halves to be given")
    for name in set(names) - published.given(names).keys():
        published.site.waits(name, "without free devices")
    assert len({one["device"] for one in published.given(names).values()}) == 2


def test_a_driver_that_makes_a_device_ready_or_fails(
    published: Published,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    api, name = published.site.cluster.api, f"{published.site.node.name}-ready"
    ready, broken = "example.com/ready", "example.com/broken"
    published.put(
        [{"name": "d", "bindingConditions": [ready], "bindingFailureConditions": [broken]}]
    )
    schedulers.start()
    published.ask(name)

    def allocated_since(version: str) -> bool:
        version_now = api.get(f"{CLAIMS}/{name}")["metadata"]["resourceVersion"]
        return bool(published.given([name])) and version_now != version

    def still_told() -> bool:
        return "devices" in api.get(f"{CLAIMS}/{name}")["status"]

    def tell(kind: str) -> str:
        told = {
            "type": kind, "status": "True", "reason": "Told", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        one = {key: published.given([name])[name][key] for key in ("driver", "pool", "device")}
        status = {"devices": [{**one, "conditions": [told]}]}
        answer = api.patch(f"{CLAIMS}/{name}/status", {"status": status})
        return str(answer["metadata"]["resourceVersion"])

    processes.wait_until(lambda: allocated_since(""), 60, "the claim to be allocated")
    assert "nodeName" not in api.get(f"{PODS}/{name}")["spec"]
    failed = tell(broken)
    processes.wait_until(
        lambda: allocated_since(failed) and not still_told(),
        60,
        "the claim to be given up and allocated anew",
    )
    tell(ready)
    api.wait(PODS, name, lambda seen: bool(seen and seen["spec"].get("nodeName")), seconds=60)
