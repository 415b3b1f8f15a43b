"""Gangs on a real API server and real kubelets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster import agents
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
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
