"""A kubelet that would refuse a pod when it starts again: the pod makes way, and the gate opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.cli import main
from tests.cluster import agents
from tests.cluster.pods import container, pod
from tests.cluster.test_defrag import SETS, cordon, wait_running
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

__all__ = ["schedulers"]


def run_set(cluster: Cluster, name: str, cpus: int) -> str:
    """A ReplicaSet of one pod; where that runs."""
    one = pod(container(cpus, "64Mi"), scheduler=NAME)
    one["spec"]["restartPolicy"] = "Always"
    labels = {"set": name}
    template = {"metadata": {"labels": labels}, "spec": one["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    cluster.api.create(SETS, {"metadata": {"name": name}, "spec": spec})
    return wait_running(cluster, f"set={name}")


def test_after_the_drain_the_kubelet_starts_again_and_keeps_the_rest(
    cluster: Cluster,
    fresh_nodes: Callable[[Sequence[dict[str, object]]], list[Node]],
    schedulers: Schedulers,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With full-pcpus-only one of 1.35 refuses what is larger than the free rest (#129079)."""
    kubelet = {"policy": "none", "reconcile": "1s", "cpu_options": {"full-pcpus-only": "true"}}
    nodes = fresh_nodes([{"shape": "2x8", "version": "1.35", "kubelet": kubelet}] * 2)
    for node in nodes:
        agents.install(cluster)
        agents.start(node)
    for node in nodes:
        agents.wait_published(node)
    schedulers.start()
    full, other = nodes
    words = ["--kubeconfig", str(cluster.kubeconfig)]
    try:
        cordon(cluster, other.name, closed=True)
        assert [run_set(cluster, "small", 2), run_set(cluster, "half", 8)] == [full.name] * 2
        cordon(cluster, other.name, closed=False)

        assert main(["explain", "--restart", full.name, *words]) == 1
        assert main(["drain", full.name, "--apply", *words]) == 0, capsys.readouterr().out
        assert main(["explain", "--restart", full.name, "--wait", "60", *words]) == 0
        full.restart_kubelet()
        assert main(["explain", "--restart", full.name, "--wait", "120", *words]) == 0
        assert wait_running(cluster, "set=small") == full.name
        assert wait_running(cluster, "set=half") == other.name
    finally:
        cluster.api.delete(SETS)
        cluster.api.delete(PODS, grace=0)
