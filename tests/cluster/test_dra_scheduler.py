"""Claims that our scheduler allocates with its own rights, before real kubelets and drivers."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rte.placement.dra import AlignmentWish
from rte.placement.dra.alignment import ANNOTATION
from tests.cluster import agents, processes
from tests.cluster.dra.running import start_driver
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"


@dataclass
class Site:
    """A node with four GPUs, two in each zone, its drivers and its agent."""

    cluster: Cluster
    node: Node

    def asks(self, count: int = 1, expression: str = "") -> Object:
        exactly: Object = {"deviceClassName": "gpu", "count": count}
        if expression:
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    def template(self, name: str) -> None:
        body = {"metadata": {"name": name}, "spec": {"spec": self.asks()}}
        self.cluster.api.create(TEMPLATES, {"kind": "ResourceClaimTemplate", **V1, **body})

    def claim(self, name: str, expression: str = "") -> None:
        body = {"metadata": {"name": name}, "spec": self.asks(expression=expression)}
        self.cluster.api.create(CLAIMS, {"kind": "ResourceClaim", **V1, **body})

    def pod(self, name: str, entry: Object | None, **more: Any) -> None:
        box = container(1, "64Mi", **more)
        extra: Object = {}
        if entry is not None:
            box["resources"]["claims"] = [{"name": "gpus"}]
            extra["resourceClaims"] = [{"name": "gpus", **entry}]
        made = pod(
            box, name=name, scheduler=NAME, annotations={ANNOTATION: AlignmentWish.NONE.value},
            nodeSelector={"kubernetes.io/hostname": self.node.name}, **extra,
        )  # fmt: skip
        self.cluster.api.create(PODS, made)

    def runs(self, *names: str, seconds: float = 120) -> None:
        for name in names:
            try:
                self.cluster.api.wait(PODS, name, _is_running, seconds=seconds)
            except processes.ClusterError as error:
                events = self.cluster.api.get("/api/v1/namespaces/default/events")["items"]
                told = [
                    one["message"] for one in events if one["involvedObject"].get("name") == name
                ]
                claims = [one["status"] for one in self.cluster.api.get(CLAIMS)["items"]]
                raise AssertionError(f"{name}: {told}; claims: {claims}") from error

    def waits(self, name: str, text: str) -> None:
        def told(seen: Object | None) -> bool:
            conditions = (seen or {"status": {}})["status"].get("conditions") or ()
            return any(text in str(one.get("message")) for one in conditions)

        self.cluster.api.wait(PODS, name, told, seconds=30, what=f"{name} to wait for: {text}")

    def held(self) -> list[str]:
        """Every device of this node that a claim holds, as often as it is held."""
        claims = self.cluster.api.get(CLAIMS)["items"]
        results = [
            one
            for claim in claims
            for one in ((claim["status"].get("allocation") or {}).get("devices") or {}).get(
                "results", ()
            )
        ]
        return sorted(one["device"] for one in results if one["pool"] == self.node.name)

    def clear(self) -> None:
        """No pods, and no claim holds anything."""
        self.cluster.api.delete(PODS, grace=0)
        processes.wait_until(lambda: not self.held(), 60, "all devices to be given back")


V1 = {"apiVersion": "resource.k8s.io/v1"}


def _is_running(seen: Object | None) -> bool:
    return seen is not None and seen["status"].get("phase") == "Running"


@pytest.fixture
def site(cluster: Cluster, fresh_node: FreshNode) -> Site:
    node = fresh_node(shape="2x8,gpus=2,nics=1", kubelet={"policy": "single-numa-node"})
    start_driver(cluster, node)
    agents.install(cluster)
    agents.start(node)
    agents.wait_published(node)
    return Site(cluster, node)


def test_a_scheduler_that_is_killed_between_claim_and_bind(
    site: Site,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    """Ten times; its successor finishes what it has begun: no device twice, none lost."""
    chooser = random.Random(1)
    site.template(f"one-{site.node.name}")
    entry = {"resourceClaimTemplateName": f"one-{site.node.name}"}
    role = schedulers.start()
    for attempt in range(10):
        names = [f"{site.node.name}-{attempt}-{number}" for number in range(4)]
        for name in names:
            site.pod(name, entry)
        processes.wait_until(lambda: bool(site.held()), 30, "the first claim to be allocated")
        time.sleep(chooser.uniform(0.0, 0.05))
        schedulers.kill(role)
        role = schedulers.start()
        site.runs(*names)
        assert site.held() == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        site.clear()


def test_what_happens_to_claims_slices_and_drivers_is_survived_and_told(
    site: Site,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    api, node = site.cluster.api, site.node
    name = node.name
    schedulers.start()

    # Somebody else writes the claim all the time.
    site.claim(f"{name}-busy")
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            api.patch(f"{CLAIMS}/{name}-busy", {"metadata": {"labels": {"n": str(number)}}})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        site.pod(f"{name}-busy", {"resourceClaimName": f"{name}-busy"})
        site.runs(f"{name}-busy")
    finally:
        over.set()
        writer.join()

    # A claim that is not there, and comes; one that is deleted under its waiting pod.
    site.pod(f"{name}-late", {"resourceClaimName": f"{name}-late"})
    site.waits(f"{name}-late", f'resourceclaim "{name}-late" not found')
    site.claim(f"{name}-late", expression='device.attributes["gpu.testbed.rte.dev"].none == 1')
    site.waits(f"{name}-late", "not found in map")
    api.delete(f"{CLAIMS}/{name}-late")
    site.waits(f"{name}-late", f'resourceclaim "{name}-late" not found')
    site.claim(f"{name}-late")
    site.runs(f"{name}-late")

    # A pool that is not complete, then one that is gone, then the driver's own again.
    path = f"{API}/resourceslices/{name}-gpu-0"
    api.patch(path, {"spec": {"pool": {"resourceSliceCount": 2}}})
    site.claim(f"{name}-pool")
    site.pod(f"{name}-pool", {"resourceClaimName": f"{name}-pool"})
    site.waits(f"{name}-pool", "without free devices")
    kept = api.get(path)
    api.delete(path)
    kept["spec"]["pool"] |= {"resourceSliceCount": 1, "generation": 7}
    kept["metadata"] = {
        "name": kept["metadata"]["name"],
        "ownerReferences": kept["metadata"]["ownerReferences"],
    }
    api.create(f"{API}/resourceslices", kept)
    site.runs(f"{name}-pool")
    assert len(set(site.held())) == 3
    site.clear()


def test_an_extended_resource_that_a_class_serves(
    site: Site,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    api = site.cluster.api
    api.patch(f"{API}/deviceclasses/gpu", {"spec": {"extendedResourceName": "example.com/dra-gpu"}})
    schedulers.start()
    name = f"{site.node.name}-extended"
    site.pod(name, None, **{"example.com/dra-gpu": "2"})
    site.runs(name)
    assert site.held() == ["gpu-0", "gpu-1"]
    site.clear()

    def made_for_it() -> list[str]:
        names = [one["metadata"]["name"] for one in api.get(CLAIMS)["items"]]
        return [one for one in names if one.startswith(name)]

    processes.wait_until(lambda: not made_for_it(), 60, "its claim to be deleted")
