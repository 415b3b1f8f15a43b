"""Room made by moves on real kubelets: by hand, and by the scheduler itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rte.cli import main
from rte.scheduler.loop.room.descheduling import LABEL
from tests.cluster import agents
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

__all__ = ["schedulers"]

SETS = "/apis/apps/v1/namespaces/default/replicasets"
#: Of each node: zones with 7 and 8 CPUs to be had, one pod in either, so that no zone takes 8 more.
#: But 4 of a's have a place on b.
SIZES = {"a": (4, 4), "b": (5, 3)}


@pytest.fixture
def crowded(
    cluster: Cluster, fresh_nodes: Callable[[Sequence[dict[str, object]]], list[Node]]
) -> Iterator[None]:
    """Two nodes on which a pod of 8 CPUs has no place, though node totals allow it."""
    kubelet = {"policy": "single-numa-node", "reconcile": "1s"}
    nodes = fresh_nodes([{"shape": "2x8", "kubelet": kubelet}] * 2)
    for node in nodes:
        agents.install(cluster)
        agents.start(node)
    for node in nodes:
        agents.wait_published(node)
    cluster.kubectl("apply", "--server-side", "-f", agents.MANIFESTS / "moves/rbac.yaml")
    yield
    cluster.api.delete(SETS)
    cluster.api.delete(PODS, grace=0)


def fill(cluster: Cluster) -> dict[str, str]:
    """Create the pods, each by a ReplicaSet of its own; ReplicaSet -> node."""
    where = {}
    nodes = sorted(node.name for node in cluster.nodes())
    for node, (key, sizes) in zip(nodes, SIZES.items(), strict=True):
        closed = [name for name in nodes if name != node]
        for name in nodes:
            cordon(cluster, name, closed=name in closed)
        for number, cpus in enumerate(sizes):
            name = f"{key}{number}"
            labels = {"set": name, LABEL: "true"}
            one = pod(container(cpus, "64Mi"), scheduler=NAME)
            one["spec"]["restartPolicy"] = "Always"
            template = {"metadata": {"labels": labels}, "spec": one["spec"]}
            spec = {"replicas": 1, "selector": {"matchLabels": {"set": name}}, "template": template}
            cluster.api.create(SETS, {"metadata": {"name": name}, "spec": spec})
            where[name] = wait_running(cluster, f"set={name}")
            assert where[name] == node
    for name in nodes:
        cordon(cluster, name, closed=False)
    return where


def cordon(cluster: Cluster, node: str, *, closed: bool) -> None:
    cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": closed}})


def wait_running(cluster: Cluster, selector: str) -> str:
    """The node of the running pod of a selector; that none was refused."""
    for kind, each in cluster.api.watch(PODS, seconds=90, labelSelector=selector):
        status = each["status"]
        assert status.get("phase") != "Failed", status
        is_going = "deletionTimestamp" in each["metadata"]
        if kind != "DELETED" and status.get("phase") == "Running" and not is_going:
            return str(each["spec"]["nodeName"])
    raise AssertionError(f"{selector} does not run")


def waits(obj: Object | None) -> bool:
    conditions = (obj or {}).get("status", {}).get("conditions", ())
    return any(each.get("reason") == "Unschedulable" for each in conditions)


@pytest.mark.parametrize("by", ["rte defrag", "the scheduler"])
def test_a_pod_that_waits_runs_after_one_move_and_so_does_the_moved_one(
    cluster: Cluster,
    crowded: None,
    schedulers: Schedulers,
    capsys: pytest.CaptureFixture[str],
    by: str,
) -> None:
    flags = ["--move-every=2"] if by == "the scheduler" else []
    schedulers.start(*flags)
    before = fill(cluster)
    large = pod(container(8, "64Mi"), name="large", scheduler=NAME, labels={"set": "large"})
    cluster.api.create(PODS, large)
    if by == "rte defrag":
        cluster.api.wait(PODS, "large", waits, what="large waits")
        words = ["defrag", "large", "--apply", "--kubeconfig", str(cluster.kubeconfig)]
        assert main(words) == 0
        told = capsys.readouterr().out
        assert "1 move opens a place" in told
        assert told.count("evicting ") == 1
    wait_running(cluster, "set=large")
    after = {name: wait_running(cluster, f"set={name}") for name in before}
    # One of the two on the first node has gone to the other; the rest are where they were.
    moved = [name for name in before if before[name] != after[name]]
    assert len(moved) == 1
    assert moved[0].startswith("a")
