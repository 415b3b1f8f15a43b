"""Claims of devices on an API server: written before the bind, and given back when it fails."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from rte.scheduler.loop import telling
from rte.sim.controllers.claims import ClaimController
from tests.unit.scheduler.gpus import DRIVER, claim, consumers, gpu_class, held, slice_of, uses
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Site(Town):
    """A town whose first node has GPUs, and a controller for claims."""

    def scheduler(self, **settings: Any) -> Any:
        """One that does not wait for alignment."""
        return super().scheduler(align_patience=0.0, **settings)

    def claim(self, name: str, count: int = 1, **more: Any) -> None:
        self.api.create("resourceclaims", claim(name, count, **more), "default")

    def of(self, name: str) -> dict[str, Any]:
        return self.api.get("resourceclaims", name, "default")

    def running(self) -> list[str]:
        return [p["metadata"]["name"] for p in self.pods() if p["status"]["phase"] == "Running"]

    def all_held(self) -> list[str]:
        """Every device that some claim holds, as often as it is held."""
        claims = self.api.list("resourceclaims").items
        return [f"{one['metadata']['name']}:{name}" for one in claims for name in held(one)]

    def events(self, reason: str) -> list[str]:
        found = self.api.list("events").items
        return [str(one["message"]) for one in found if one["reason"] == reason]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(tmp_path) as made:
        await made.node("n")
        made.api.create("deviceclasses", gpu_class())
        made.api.create("resourceslices", slice_of("n"))
        controller = asyncio.create_task(ClaimController(made.api).run(), name="claims")
        yield made
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)


async def test_a_pod_runs_with_its_claim_and_gives_it_back(site: Site) -> None:
    site.claim("c")
    async with site.scheduler():
        site.pod("p", **uses("c"))
        await until(lambda: site.phase("p") == "Running")
        assert held(site.of("c")) == ["gpu-0"]
        assert consumers(site.of("c")) == ["p"]
        site.end("p")
        await until(lambda: not held(site.of("c")))


async def test_pods_of_a_template_get_a_device_each(site: Site) -> None:
    spec = claim("x")["spec"]
    template = {"metadata": {"name": "t"}, "spec": {"spec": spec}}
    site.api.create("resourceclaimtemplates", template, "default")
    entry = {"name": "gpus", "resourceClaimTemplateName": "t"}
    async with site.scheduler():
        for number in range(6):
            site.pod(f"p{number}", "1", resourceClaims=[entry])
        await until(lambda: len(site.running()) == 4, 5.0)
        devices = [name.partition(":")[2] for name in site.all_held()]
        assert sorted(devices) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        for name in site.running():
            site.end(name)
        await until(lambda: len(site.running()) == 2, 5.0)
        for name in site.running():
            site.end(name)
        await until(lambda: not site.api.list("resourceclaims").items)


async def test_a_conflict_on_the_claim_is_resolved(site: Site) -> None:
    site.claim("c")
    async with site.scheduler():
        site.server.faults.fail_next(2, code=409, method="PATCH", path="/resourceclaims/c")
        site.pod("p", **uses("c"))
        await until(lambda: site.phase("p") == "Running")
        assert held(site.of("c")) == ["gpu-0"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_lost_answer_leaves_one_allocation(site: Site, after: bool) -> None:
    site.claim("c")
    async with site.scheduler():
        site.server.faults.drop_next(2, method="PATCH", path="/resourceclaims/c", after=after)
        site.pod("p", **uses("c"))
        await until(lambda: site.phase("p") == "Running")
        assert consumers(site.of("c")) == ["p"]


async def test_a_bind_that_fails_gives_the_devices_back(site: Site) -> None:
    site.claim("c")
    async with site.scheduler():
        site.server.faults.fail_next(1000, code=403, method="POST", path="/binding")
        site.pod("p", **uses("c"))
        await until(lambda: bool(site.events("FailedBinding")))
        site.api.delete("pods", "p", "default")
        await until(lambda: not held(site.of("c")) and not consumers(site.of("c")))


async def test_several_claims_stand_or_fall_together(site: Site) -> None:
    site.claim("a")
    site.claim("b")
    async with site.scheduler():
        path = "/resourceclaims/b/status"
        site.server.faults.fail_next(1000, code=403, method="PATCH", path=path)
        site.pod("p", **uses("a", "b"))
        await until(lambda: bool(site.events("FailedBinding")))
        site.api.delete("pods", "p", "default")
        await until(lambda: not site.all_held())


async def test_a_claim_that_is_deleted_meanwhile_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_EXPLAIN_AGAIN_S", 0.2)
    site.claim("c")
    async with site.scheduler():
        site.pod("p", **uses("c"))
        await until(lambda: site.phase("p") == "Running")
        site.api.delete("resourceclaims", "c", "default")
        site.pod("q", **uses("c"))
        await until(lambda: "is being deleted" in site.condition("q"))
        site.end("p")
        await until(lambda: 'resourceclaim "c" not found' in site.condition("q"))


async def test_a_pool_that_changes_under_a_plan_gives_no_device_twice(site: Site) -> None:
    async with site.scheduler():
        for number in range(4):
            site.claim(f"c{number}")
            site.pod(f"p{number}", "1", **uses(f"c{number}"))
            current = site.api.get("resourceslices", "n-gpus")
            current["spec"]["pool"]["generation"] += 1
            current["spec"]["devices"] = current["spec"]["devices"][::-1]
            site.api.update("resourceslices", current)
        await until(lambda: len(site.running()) == 4, 5.0)
    devices = [name.partition(":")[2] for name in site.all_held()]
    assert sorted(devices) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


@pytest.mark.parametrize("seed", range(10))
async def test_a_scheduler_that_dies_between_claim_and_bind_is_succeeded(
    site: Site, seed: int
) -> None:
    """Its successor finishes or undoes what it has begun: no device twice, none lost."""
    chooser = random.Random(seed)
    for number in range(6):
        site.claim(f"c{number}")
    site.server.faults.delay_seconds = 0.005
    async with site.scheduler():
        for number in range(6):
            site.pod(f"p{number}", "1", **uses(f"c{number}"))
        await asyncio.sleep(chooser.uniform(0.0, 0.12))
    site.server.faults.delay_seconds = 0.0
    async with site.scheduler():
        await until(lambda: len(site.running()) == 4, 5.0)
        devices = [name.partition(":")[2] for name in site.all_held()]
        assert sorted(devices) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        for name in site.running():
            site.end(name)
        await until(lambda: len(site.running()) == 2, 5.0)


async def test_what_a_dead_scheduler_has_reserved_on_a_node_that_is_full_is_freed(
    site: Site,
) -> None:
    site.claim("c")
    site.pod("p", "4", **uses("c"))
    await site.node("m")
    uid = site.get("p")["metadata"]["uid"]
    result = {"request": "gpus", "driver": DRIVER, "pool": "gone", "device": "gpu-0"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
    }
    site.api.patch("resourceclaims", "c", {"status": status}, "default", subresource="status")
    async with site.scheduler():
        await until(lambda: site.phase("p") == "Running")
        assert held(site.of("c")) == ["gpu-0"]
        assert site.where("p") == "n"


@pytest.mark.parametrize("change", ["gone", "tainted", "ruled"])
async def test_what_was_given_before_and_is_lost_since_is_given_anew(
    site: Site, change: str
) -> None:
    """A scheduler has died after it wrote the claim; then the device went, or was tainted."""
    site.claim("c")
    site.pod("p", **uses("c"))
    uid = site.get("p")["metadata"]["uid"]
    result = {"request": "gpus", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
    }
    site.api.patch("resourceclaims", "c", {"status": status}, "default", subresource="status")
    taint = {"key": "broken", "effect": "NoSchedule"}
    if change == "ruled":
        selector = {"driver": DRIVER, "pool": "n", "device": "gpu-0"}
        spec = {"deviceSelector": selector, "taint": taint}
        site.api.create("devicetaintrules", {"metadata": {"name": "broken"}, "spec": spec})
    else:
        spec = site.api.get("resourceslices", "n-gpus")["spec"]
        first, *rest = spec["devices"]
        devices = rest if change == "gone" else [{**first, "taints": [taint]}, *rest]
        site.api.patch("resourceslices", "n-gpus", {"spec": {"devices": devices}})
    async with site.scheduler():
        await until(lambda: site.phase("p") == "Running")
        assert held(site.of("c")) == ["gpu-1"]


async def test_an_extended_resource_is_served_and_given_back(site: Site) -> None:
    site.api.patch("deviceclasses", "gpu", {"spec": {"extendedResourceName": "example.com/gpu"}})
    async with site.scheduler():
        site.pod("p", extra={"example.com/gpu": "1"})
        await until(lambda: site.phase("p") == "Running")
        name = site.get("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert held(site.of(name)) == ["gpu-0"]
        site.end("p")
        await until(lambda: not site.api.list("resourceclaims").items)
