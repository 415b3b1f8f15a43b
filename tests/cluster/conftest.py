"""Fixtures for tests on the real cluster; a test that uses them is marked ``cluster`` by itself.

A test with a parameter ``release`` runs on kubelets of that release. All of these are marked
``releases``; those of releases that CI does not build are not marked ``cluster``.

``cluster``: one control plane for the session (Kubernetes version: ``RTE_KUBERNETES``).
``fresh_node(...)``: a new node for this test (arguments of :meth:`Cluster.add_node`).
``fresh_nodes([{...}, ...])``: several at once.
Nodes, and pods and claims in the default namespace, are gone when the test ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.cluster import builder, processes
from tests.cluster import cluster as clusters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster.node import Node


class FreshNode(Protocol):
    """Type of the ``fresh_node`` fixture."""

    def __call__(self, name: str = "", **options: Any) -> Node: ...


#: Releases of which CI (``.ci/run``) builds the kubelet: the newest, and one with other rules.
CI_RELEASES = ("1.35", "1.37")
#: What runs side by side with the other cluster tests under ``pytest --dist=loadgroup``: each lane
#: takes about a fourth of the time that all of them take.
_LANES = {
    "cluster-2": (
        "test_differential_api", "test_groups", "test_identity", "test_reading", "test_scheduler",
        "test_whole",
    ),
    "cluster-3": ("test_differential_kubelet", "test_rivals"),
    "cluster-4": (
        "test_differential_scheduler", "test_documents", "test_field", "test_guides",
        "test_release",
    ),
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            release = item.callspec.params.get("release") if hasattr(item, "callspec") else None
            if release:
                item.add_marker("releases")
            if release in (None, *CI_RELEASES):
                item.add_marker("cluster")
        if item.get_closest_marker("cluster") or item.get_closest_marker("releases"):
            lanes = (lane for lane, files in _LANES.items() if item.path.stem in files)
            item.add_marker(pytest.mark.xdist_group(next(lanes, "cluster-1")))


@pytest.fixture(scope="session")
def cluster() -> Iterator[clusters.Cluster]:
    """A control plane for the whole session, without nodes."""
    clusters.sweep()
    running = clusters.Cluster.start(
        version=os.environ.get("RTE_KUBERNETES") or builder.DEFAULT_VERSION
    )
    yield running
    running.stop()


@pytest.fixture
def _tidy(cluster: clusters.Cluster) -> Iterator[None]:
    """Nothing of a test is left for the next one."""
    yield
    for node in cluster.nodes():
        node.remove()
    cluster.api.delete("/api/v1/namespaces/default/pods", grace=0)
    for plural in ("resourceclaims", "resourceclaimtemplates"):
        cluster.api.delete(f"/apis/resource.k8s.io/v1/namespaces/default/{plural}")
    for plural in ("resourceslices", "deviceclasses"):
        cluster.api.delete(f"/apis/resource.k8s.io/v1/{plural}")


@pytest.fixture
def fresh_node(cluster: clusters.Cluster, _tidy: None) -> FreshNode:
    """Makes a node that lives as long as the test."""
    return cluster.add_node


@pytest.fixture
def fresh_nodes(
    cluster: clusters.Cluster, _tidy: None
) -> Callable[[Sequence[dict[str, Any]]], list[Node]]:
    """Makes several nodes at once, from the arguments of each."""

    def make(options: Sequence[dict[str, Any]]) -> list[Node]:
        nodes = [cluster.add_node(**each, wait=False) for each in options]
        for node in nodes:
            node.wait_ready(60)
        return nodes

    return make


_BEGAN = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows the last errors of every program that said something meanwhile."""
    report: Any = yield
    began = item.stash.setdefault(_BEGAN, call.start)
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(running, clusters.Cluster):
        patterns = ("*.log", "n/*/*.log", "n/*/pod-logs/**/*.log")
        for log in [path for each in patterns for path in sorted(running.dir.glob(each))]:
            if log.stat().st_mtime >= began:
                name = str(log.relative_to(running.dir))
                report.sections.append((f"{name} (last lines)", processes.tail(log, 8)))
    return report
