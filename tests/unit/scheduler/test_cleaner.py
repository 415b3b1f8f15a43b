"""Refused pods, and reports whose Node is gone, are deleted after a while, if that is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.intake import Intake
from rte.scheduler.shell import cleaner
from rte.scheduler.shell.cleaner import LABEL, Cleaner, ReportCollector
from rte.sim.apiserver import APIServer
from tests.unit.scheduler.build import pod_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REFUSED = "Pod was rejected: Resources cannot be allocated with Topology locality"
PROFILES = ("rte-scheduler",)


class Site:
    """An API server with pods that have failed; ``left`` are those that a look leaves."""

    def __init__(self, client: Client, server: APIServer) -> None:
        self.client, self.api = client, server.api
        self.may_write = True
        self.deleted = 0

    def failed(
        self,
        name: str,
        *,
        owner: str = "ReplicaSet",
        message: str = REFUSED,
        seconds: float = 700,
        **spec: Any,
    ) -> None:
        owners = [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": True}]
        pod = pod_object(name, owners=owners if owner else [], **spec)
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            pod["metadata"].pop(key)
        for container in pod["spec"]["containers"]:
            container["image"] = "pause"
        del pod["status"]
        self.api.create("pods", pod, "default")
        began = datetime.now(UTC) - timedelta(seconds=seconds)
        status = {
            "phase": "Failed",
            "reason": "TopologyAffinityError",
            "message": message,
            "startTime": f"{began:%FT%TZ}",
        }
        stored = self.api.get("pods", name, "default")
        self.api.update("pods", {**stored, "status": status}, subresource="status")

    async def left(self) -> set[str]:
        clean = Cleaner(self.client, 600.0, PROFILES, lambda: self.may_write, self._count)
        await clean.clean()
        return {pod["metadata"]["name"] for pod in self.api.list("pods").items}

    def _count(self) -> None:
        self.deleted += 1


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with APIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client(credentials.load(tmp_path / "kubeconfig", {})) as client:
            yield Site(client, server)


async def test_what_its_replica_set_has_replaced_goes_once_it_is_due(site: Site) -> None:
    site.failed("old")
    site.failed("young", seconds=5)
    assert await site.left() == {"young"}
    assert site.deleted == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"owner": ""},
        {"owner": "Job"},
        {"owner": "RayCluster"},
        {"schedulerName": "default-scheduler"},
    ],
    ids=["bare", "of-a-job", "of-a-foreign-controller", "of-another-scheduler"],
)
async def test_those_of_others_stay_unless_they_carry_the_label(
    site: Site, spec: dict[str, Any]
) -> None:
    site.failed("plain", **spec)
    site.failed("asks", labels={LABEL: "true"}, **spec)
    site.failed("says-no", labels={LABEL: "false"}, **spec)
    assert await site.left() == {"plain", "says-no"}


async def test_what_has_run_and_failed_is_not_touched(site: Site) -> None:
    site.failed("ran", message="exit code 1", labels={LABEL: "true"})
    assert await site.left() == {"ran"}


async def test_a_replica_that_stands_by_deletes_nothing(site: Site) -> None:
    site.failed("old")
    site.may_write = False
    assert await site.left() == {"old"}


async def test_it_goes_on_while_the_api_server_is_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    async def fails(self: Cleaner) -> None:
        looks.append(self)
        if len(looks) == 3:
            raise KeyboardInterrupt
        raise cleaner.errors.KubeError("away")

    monkeypatch.setattr(Cleaner, "clean", fails)
    monkeypatch.setattr(cleaner, "LOOK_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        await Cleaner(site.client, 1.0, PROFILES, lambda: True, lambda: None).run()
    assert len(looks) == 3


CRD = Path(__file__).parents[3] / "manifests/crd/noderesourcetopologies.yaml"
NRTS = "noderesourcetopologies"


class Reports:
    """An API server with Nodes and reports, and what a scheduler knows of them."""

    def __init__(self, site: Site) -> None:
        cluster = Cluster()
        self.api, self.intake = site.api, Intake(cluster)
        self.api.create("customresourcedefinitions", yaml.safe_load(CRD.read_text()))
        self.may_write = True
        self.collector = ReportCollector(site.client, 100.0, cluster, lambda: self.may_write)

    def report(self, name: str) -> None:
        body = {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": name},
            "zones": [{"name": "node-0", "type": "Node", "resources": []}],
        }
        self.intake.seen("reports", self.api.create(NRTS, body), 0.0)

    def node(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.intake.seen("nodes", self.api.create("nodes", body), 0.0)

    def left(self) -> set[str]:
        return {report["metadata"]["name"] for report in self.api.list(NRTS).items}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(cleaner.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def reports(site: Site) -> Reports:
    reports = Reports(site)
    for name in ("alive", "gone"):
        reports.node(name)
        reports.report(name)
    reports.api.delete("nodes", "gone")
    reports.intake.gone("nodes", "gone", 0.0)
    return reports


async def test_a_report_goes_once_its_node_has_been_gone_for_so_long(
    reports: Reports, clock: list[float]
) -> None:
    await reports.collector.collect()
    clock[0] += 99
    await reports.collector.collect()
    assert reports.left() == {"alive", "gone"}
    clock[0] += 2
    reports.may_write = False
    await reports.collector.collect()
    assert reports.left() == {"alive", "gone"}
    reports.may_write = True
    await reports.collector.collect()
    assert reports.left() == {"alive"}


async def test_a_node_that_comes_back_keeps_its_report(
    reports: Reports, clock: list[float]
) -> None:
    await reports.collector.collect()
    clock[0] += 90
    reports.node("gone")
    await reports.collector.collect()
    reports.intake.gone("nodes", "gone", 0.0)
    clock[0] += 20
    await reports.collector.collect()
    assert reports.left() == {"alive", "gone"}


async def test_the_report_of_a_node_that_cannot_be_read_stays(
    reports: Reports, clock: list[float]
) -> None:
    """It is there, whatever this scheduler makes of it; so it is where a watch is behind."""
    reports.api.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gone"}})
    await reports.collector.collect()
    clock[0] += 200
    await reports.collector.collect()
    assert reports.left() == {"alive", "gone"}
