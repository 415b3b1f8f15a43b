"""Gangs on a real API server and real kubelets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import agents, builder
from tests.cluster.cluster import Cluster
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster.api import Object
    from tests.cluster.node import Node

__all__ = ["schedulers"]

#: CPUs of the pods of one gang: two nodes of two zones with 7 and 8 CPUs to be had take just these.
CPUS = (4,) * 6


def gang(name: str) -> list[Object]:
    """All of its pods are needed."""
    said = {
        "gang.scheduling.koordinator.sh/name": name,
        "gang.scheduling.koordinator.sh/min-available": str(len(CPUS)),
    }
    return [
        pod(
            container(cpus, "64Mi"),
            name=f"{name}-{number}",
            scheduler=NAME,
            labels={"gang": name},
            annotations=said,
        )
        for number, cpus in enumerate(CPUS)
    ]


def wait_for_binds(cluster: Cluster, name: str, count: int) -> int:
    """Until so many pods of the gang are bound; how many are then."""
    bound: set[str] = set()
    for kind, each in cluster.api.watch(PODS, seconds=60, labelSelector=f"gang={name}"):
        if kind != "DELETED" and each["spec"].get("nodeName"):
            bound.add(each["metadata"]["name"])
        if len(bound) >= count:
            return len(bound)
    raise AssertionError(f"{name}: {len(bound)} of {count} pods were bound")


def bound(cluster: Cluster, name: str) -> int:
    found = cluster.api.get(PODS, labelSelector=f"gang={name}")["items"]
    return sum(1 for each in found if each["spec"].get("nodeName"))


def is_running(obj: Object | None) -> bool:
    return obj is not None and obj["status"].get("phase") == "Running"


def test_a_scheduler_killed_in_the_middle_of_binds_leaves_no_gang_in_part(
    cluster: Cluster,
    fresh_nodes: Callable[[Sequence[dict[str, object]]], list[Node]],
    schedulers: Schedulers,
) -> None:
    kubelet = {"policy": "single-numa-node", "reconcile": "1s"}
    nodes = fresh_nodes([{"shape": "2x8", "kubelet": kubelet}] * 2)
    for node in nodes:
        agents.install(cluster)
        agents.start(node)
    for node in nodes:
        agents.wait_published(node)
    replicas = [schedulers.start(), schedulers.start()]
    in_part = 0
    for moment in range(10):
        name = f"gang-{moment}"
        for each in gang(name):
            cluster.api.create(PODS, each)
        count = moment % len(CPUS)
        if count:
            wait_for_binds(cluster, name, count)
        # Whoever of the two decides: the other one, or the next one, goes on.
        schedulers.kill(replicas.pop(0))
        in_part += 0 < bound(cluster, name) < len(CPUS)
        replicas.append(schedulers.start())
        for each in gang(name):
            cluster.api.wait(PODS, each["metadata"]["name"], is_running, seconds=60)
        cluster.api.delete(PODS, grace=0)
        for each in gang(name):
            cluster.api.wait(PODS, each["metadata"]["name"], lambda obj: obj is None)
    print(f"{in_part} of 10 gangs were in part when the scheduler was killed")


#: Kubernetes' own gangs by release: the API, what describes a gang, and how a pod names it.
SERVED = {
    "1.35": ("v1alpha1", "workloads"),
    "1.36": ("v1alpha2", "podgroups"),
    "1.37": ("v1beta1", "podgroups"),
}


class Town:
    """A cluster of one release that serves its gangs, with two nodes and our scheduler."""

    def __init__(self, cluster: Cluster, release: str) -> None:
        self.cluster, self.api = cluster, cluster.api
        version, plural = SERVED[release]
        self.described_at = f"/apis/scheduling.k8s.io/{version}/namespaces/default/{plural}"
        self._is_workload = plural == "workloads"
        self._version = f"scheduling.k8s.io/{version}"

    def describe(self, name: str, count: int) -> None:
        """A gang that needs so many pods."""
        policy = {"gang": {"minCount": count}}
        workload = {"podGroups": [{"name": "all", "policy": policy}]}
        made = {
            "apiVersion": self._version,
            "kind": "Workload" if self._is_workload else "PodGroup",
            "metadata": {"name": name},
            "spec": workload if self._is_workload else {"schedulingPolicy": policy},
        }
        self.api.create(self.described_at, made)

    def create(self, name: str, number: int, cpus: int) -> None:
        """One of its pods."""
        made = pod(
            container(cpus, "64Mi"),
            name=f"{name}-{number}",
            scheduler=NAME,
            labels={"gang": name},
        )
        if self._is_workload:
            made["spec"]["workloadRef"] = {"name": name, "podGroup": "all"}
        else:
            made["spec"]["schedulingGroup"] = {"podGroupName": name}
        self.api.create(PODS, made)

    def wait_told(self, name: str, number: int, text: str) -> None:
        """Until the condition of a pod says why it waits."""

        def told(obj: Object | None) -> bool:
            conditions = (obj or {}).get("status", {}).get("conditions") or ()
            return any(text in each.get("message", "") for each in conditions)

        self.api.wait(PODS, f"{name}-{number}", told, seconds=30)

    def wait_condition(self, name: str, status: str) -> None:
        """Until the PodGroup says whether it was scheduled (a Workload has no such condition)."""
        if self._is_workload:
            return

        def told(obj: Object | None) -> bool:
            conditions = (obj or {}).get("status", {}).get("conditions") or ()
            return any(
                "Scheduled" in each["type"] and each["status"] == status for each in conditions
            )

        self.api.wait(self.described_at, name, told, seconds=30)


@pytest.fixture
def town(release: str) -> Iterator[Town]:
    running = Cluster.start(version=builder.PROVEN[release], gangs=True)
    try:
        kubelet = {"policy": "single-numa-node", "reconcile": "1s"}
        nodes = [running.add_node(shape="2x8", kubelet=kubelet, wait=False) for _ in range(2)]
        for node in nodes:
            node.wait_ready(60)
            agents.install(running)
            agents.start(node)
        for node in nodes:
            agents.wait_published(node)
        Schedulers(running).start()
        yield Town(running, release)
    finally:
        running.stop()


@pytest.mark.parametrize(
    "release",
    [
        pytest.param("1.35", marks=pytest.mark.releases),
        pytest.param("1.36", marks=pytest.mark.releases),
        pytest.param("1.37", marks=[pytest.mark.releases, pytest.mark.cluster]),
    ],
)
def test_gangs_of_kubernetes_wait_until_they_are_whole_and_have_room_in_zones(town: Town) -> None:
    town.describe("six", 6)
    for number in range(5):
        town.create("six", number, 4)
    town.wait_told("six", 0, "5 of 6")
    assert bound(town.cluster, "six") == 0
    town.create("six", 5, 4)
    for number in range(6):
        town.api.wait(PODS, f"six-{number}", is_running, seconds=60)
    town.wait_condition("six", "True")
    # 3 and 4 CPUs are left in zones of both nodes: totals would hold both pods.
    town.describe("two", 2)
    for number in range(2):
        town.create("two", number, 6)
    town.wait_told("two", 1, "")
    town.wait_condition("two", "False")
    assert bound(town.cluster, "two") == 0
    for number in range(6):
        town.api.delete(f"{PODS}/six-{number}", grace=0)
    for number in range(2):
        town.api.wait(PODS, f"two-{number}", is_running, seconds=60)
    town.wait_condition("two", "True")
