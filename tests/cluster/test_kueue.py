"""Admission by fit with the real Kueue: a Job starts when its pods fit into zones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import agents, kueue
from tests.cluster.kueue import API, WORKLOADS
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

__all__ = ["schedulers"]

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CONTROLLER = "topology.rte.dev/fit"
CHECK, QUEUE = "zones", "all"


@pytest.fixture
def queue(cluster: Cluster) -> Iterator[str]:
    """A queue of the real Kueue with more quota than there is room, and our check."""
    with kueue.running(cluster):
        create = cluster.api.create
        create(f"{API}/resourceflavors", {**head("ResourceFlavor"), "spec": {}})
        check = {**head("AdmissionCheck", CHECK), "spec": {"controllerName": CONTROLLER}}
        create(f"{API}/admissionchecks", check)
        resources = [
            {"name": name, "nominalQuota": quota}
            for name, quota in (("cpu", 100), ("memory", "1Ti"))
        ]
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": QUEUE, "resources": resources}],
                }
            ],
            "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
        }
        create(f"{API}/clusterqueues", {**head("ClusterQueue"), "spec": spec})
        local = {**head("LocalQueue"), "spec": {"clusterQueue": QUEUE}}
        create(f"{API}/namespaces/default/localqueues", local)
        yield QUEUE
        cluster.api.delete(JOBS, grace=0)
        cluster.api.delete(PODS, grace=0)


def head(kind: str, name: str = QUEUE) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}


def job(name: str, cpus: int, pods: int = 1) -> Object:
    """Pods that run until they are deleted. It comes suspended, as Kueue's webhook makes it."""
    one = pod(container(cpus, "64Mi"), scheduler=NAME)
    template = {"metadata": {"labels": {"of": name}}, "spec": one["spec"]}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    labels = {"kueue.x-k8s.io/queue-name": QUEUE}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def run(cluster: Cluster, name: str, cpus: int, pods: int = 1) -> str:
    """Create a job; the name of its Workload."""
    made = cluster.api.create(JOBS, job(name, cpus, pods))
    uid = made["metadata"]["uid"]
    for _, each in cluster.api.watch(WORKLOADS, seconds=90):
        if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", ())):
            return str(each["metadata"]["name"])
    raise AssertionError(f"Kueue made no Workload for {name}")


def state(workload: Object | None) -> Object:
    checks = (workload or {}).get("status", {}).get("admissionChecks") or [{}]
    return dict(checks[0])


def wait_state(cluster: Cluster, workload: str, wanted: str) -> Object:
    found = cluster.api.wait(WORKLOADS, workload, lambda obj: state(obj).get("state") == wanted)
    return state(found)


def wait_condition(cluster: Cluster, path: str, name: str, kind: str) -> Object:
    def holds(obj: Object | None) -> bool:
        conditions = (obj or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == kind and each["status"] == "True" for each in conditions)

    found = cluster.api.wait(path, name, holds, what=f"{name} is {kind}")
    assert found is not None
    return found


def wait_running(cluster: Cluster, name: str, count: int) -> set[str]:
    """Until so many pods of a job run. Kueue comes again after a minute at the longest."""
    running: set[str] = set()
    for kind, each in cluster.api.watch(PODS, seconds=180, labelSelector=f"of={name}"):
        status = each["status"]
        assert status.get("phase") != "Failed", status
        if kind != "DELETED" and status.get("phase") == "Running":
            running.add(each["metadata"]["name"])
        if len(running) == count:
            return running
    raise AssertionError(f"{name}: {len(running)} of {count} pods run")


def end(cluster: Cluster, name: str) -> None:
    cluster.api.request("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"})
    for each in cluster.api.get(PODS, labelSelector=f"of={name}")["items"]:
        cluster.api.wait(PODS, each["metadata"]["name"], lambda obj: obj is None)


def test_a_job_starts_when_its_pods_fit_into_zones(
    cluster: Cluster,
    fresh_node: Callable[..., Node],
    schedulers: Schedulers,
    queue: str,
) -> None:
    # Zones of 7 and 8 CPUs to be had.
    node = fresh_node(shape="2x8", kubelet={"policy": "single-numa-node", "reconcile": "1s"})
    agents.start(node)
    agents.wait_published(node)
    cluster.kubectl("apply", "--server-side", "-f", agents.MANIFESTS / "kueue/rbac.yaml")
    schedulers.start(f"--kueue-controller-name={CONTROLLER}", "--kueue-hold=3")
    wait_condition(cluster, f"{API}/admissionchecks", CHECK, "Active")
    wait_condition(cluster, f"{API}/clusterqueues", queue, "Active")

    # What fits runs, all at once.
    three = run(cluster, "three", 4, 3)
    assert wait_state(cluster, three, "Ready")["message"] == "3 pods fit into zones now"
    wait_running(cluster, "three", 3)

    # What fits by totals alone is sent back to the queue with the reason.
    wide = run(cluster, "wide", 10)
    message = wait_state(cluster, wide, "Retry")["message"]
    assert "is short of" in message
    evicted = wait_condition(cluster, WORKLOADS, wide, "Evicted")
    assert state(evicted)["state"] == "Pending"
    assert "Previously: Retry" in state(evicted)["message"]
    assert state(evicted)["retryCount"] >= 1
    end(cluster, "wide")

    # Of two that fit one at a time one goes; the other follows when the room is free again.
    end(cluster, "three")
    for name in ("first", "second"):
        run(cluster, name, 8)
    (first,) = {each for each in ("first", "second") if wait_any(cluster) == each}
    second = "second" if first == "first" else "first"
    wait_running(cluster, first, 1)
    assert cluster.api.get(f"{JOBS}/{second}")["spec"]["suspend"]
    end(cluster, first)
    wait_running(cluster, second, 1)
    end(cluster, second)


def wait_any(cluster: Cluster) -> str:
    """The job whose pod is there first."""
    for _, each in cluster.api.watch(PODS, seconds=90, labelSelector="of in (first,second)"):
        return str(each["metadata"]["labels"]["of"])
    raise AssertionError("neither of two jobs was started")
