"""What grants CPUs and devices: a scheduler's bind writes it, and nobody else can."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte import errors
from rte.placement.groups import allocation
from tests.cluster import agents, processes
from tests.cluster.pods import container, pod
from tests.cluster.test_layouts import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.api import Api, Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
GRANTS = {allocation.ANNOTATION: "mine", "topology.rte.dev/placement": "mine"}
#: Kinds of manifests/scheduler that start something.
_WORKLOADS = ("Deployment", "PodDisruptionBudget")


def rights(folder: str = "scheduler") -> list[Object]:
    """The rights and policies of a folder of manifests/, without what runs there."""
    return [obj for obj in render(folder) if obj["kind"] not in _WORKLOADS]


@contextmanager
def scheduler_rights(cluster: Cluster) -> Iterator[str]:
    """``manifests/scheduler`` without what runs; a token of the scheduler's account."""
    agents.install(cluster)
    objects = rights()
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
    try:
        yield cluster.token("rte-scheduler", agents.NAMESPACE)
    finally:
        text = yaml.safe_dump_all(objects)
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=text)


def author(cluster: Cluster, namespace: str, role: str = "edit") -> Api:
    """A client of somebody with that ClusterRole in one namespace."""
    cluster.ensure_namespace(namespace)
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1", "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }  # fmt: skip
    cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump(binding))
    return cluster.client(cluster.token("default", namespace))


def wait_for_policy(client: Api, path: str) -> None:
    """A policy takes a moment from its creation to be in force."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            client.request("POST", path, marked(name="probe"), dryRun="All")
        except errors.KubeError as refusal:
            if "only a scheduler of rte writes" in str(refusal):
                return
        time.sleep(0.1)
    raise AssertionError("the policy is not in force")


def marked(**options: Any) -> Object:
    """A pod with an allocation that it was not given."""
    return pod(container("1", "32Mi"), annotations=dict(GRANTS), **options)


@pytest.fixture
def scheduler(cluster: Cluster) -> Iterator[Api]:
    with scheduler_rights(cluster) as token:
        client = cluster.client(token)
        wait_for_policy(author(cluster, TEAM), PODS)
        yield client
        cluster.api.delete(PODS, grace=0)


def refused(words: str, attempt: Callable[[], object]) -> None:
    with pytest.raises(errors.KubeError, match=words) as refusal:
        attempt()
    assert refusal.value.status == 403


@pytest.mark.parametrize("name", GRANTS)
@pytest.mark.parametrize("role", ["edit", "cluster-admin"])
def test_whoever_may_do_anything_in_a_namespace_writes_no_allocation_there(
    cluster: Cluster, scheduler: Api, role: str, name: str
) -> None:
    """``cluster-admin`` here is one of the namespace: status and bindings of pods are his too."""
    client = author(cluster, TEAM, role)
    gate = [{"name": "example.com/gate"}]
    made = client.create(PODS, pod(name="p", schedulerName="nobody", schedulingGates=gate))
    path, grant = f"{PODS}/p", {"metadata": {"annotations": {name: "mine"}}}
    whole = {**made, "metadata": {**made["metadata"], **grant["metadata"]}}
    only = f"{name}: only a scheduler of rte writes|{name} and "

    for kind in ("merge", "strategic"):
        refused(only, partial(client.patch, path, grant, kind=kind))
        refused(only, partial(cluster.api.patch, path, grant, kind=kind))  # a deputy's
    refused(only, partial(client.replace, path, whole))
    refused(name, partial(client.create, PODS, marked(name="copy")))
    if role == "cluster-admin":
        refused(only, partial(client.patch, f"{path}/status", grant))
        refused("condition", partial(client.patch, f"{path}/status", recorded("x")))
        for target in (f"{path}/binding", f"/api/v1/namespaces/{TEAM}/bindings"):
            refused(only, partial(client.create, target, binding(made, "n", grant)))
    client.patch(path, {"metadata": {"annotations": {"other": "x"}}})
    cluster.api.delete(path, grace=0)
    client.close()


def recorded(text: str) -> Object:
    condition = {"type": allocation.CONDITION, "status": "True", "message": text}
    return {"status": {"conditions": [condition]}}


def binding(made: Object, node: str, body: Object) -> Object:
    meta = {"name": made["metadata"]["name"], "uid": made["metadata"]["uid"], **body["metadata"]}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}


def test_what_the_scheduler_wrote_stays_through_the_pods_whole_life(
    cluster: Cluster, scheduler: Api, fresh_node: Callable[..., Node]
) -> None:
    """Let through are the kubelet's status, the garbage collector and the user's annotations."""
    node = fresh_node(shape="1x4")
    made = author(cluster, TEAM).create(PODS, pod(name="p", schedulerName="nobody"))
    path = f"{PODS}/p"
    scheduler.patch(f"{path}/status", recorded("given"), kind="strategic")
    grants = {"metadata": {"annotations": {allocation.ANNOTATION: "given"}}}
    scheduler.create(f"{path}/binding", binding(made, node.name, grants))

    now = cluster.wait_pod({**made}, "Running")

    def holds(obj: Object) -> bool:
        (condition,) = (c for c in obj["status"]["conditions"] if c["type"] == allocation.CONDITION)
        return condition["message"] == obj["metadata"]["annotations"][allocation.ANNOTATION]

    assert holds(now)
    client = author(cluster, TEAM)
    assert holds(client.patch(path, {"metadata": {"annotations": {"mine": "x"}}}))
    for value in (None, "more"):
        body = {"metadata": {"annotations": {allocation.ANNOTATION: value}}}
        for somebody in (client, scheduler, cluster.api):
            with pytest.raises(errors.KubeError) as refusal:
                somebody.patch(path, body)
            assert refusal.value.status == 403
    assert holds(client.get(path))
    cluster.delete_pod(now, grace=None)


def may(cluster: Cluster, who: str, verb: str, group: str, resource: str, namespace: str) -> bool:
    """What the API server's authorizer says."""
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    review = {"spec": {"user": who, "resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(cluster.api.create(path, review)["status"]["allowed"])


def test_all_of_it_holds_in_another_namespace(cluster: Cluster) -> None:
    """``manifests/elsewhere``, as it is shipped."""
    objects = [obj for obj in render("elsewhere") if obj["kind"] not in (*_WORKLOADS, "DaemonSet")]
    agents.install_crd(cluster)
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
    asked = {
        "rte-agent": ("create", "coordination.k8s.io", "leases", "rte-agents"),
        "rte-scheduler": ("write", "topology.rte.dev", "allocations", ""),
    }
    for account, right in asked.items():
        for place, answer in (("numa", True), (agents.NAMESPACE, False)):
            who = f"system:serviceaccount:{place}:{account}"
            processes.wait_until(
                lambda who=who, right=right, answer=answer: may(cluster, who, *right) is answer,
                20,
                f"{who} may {right}: {answer}",
                every=0.2,
            )

    wait_for_policy(author(cluster, TEAM), PODS)
    report = {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "another-node"}, "zones": [],
    }  # fmt: skip
    stolen = cluster.client(cluster.token("rte-agent", "numa"))
    with pytest.raises(errors.KubeError, match="is not bound to a node"):
        stolen.create(agents.NRT, report)
    stolen.close()
    agents.remove(cluster, objects)


def test_a_template_that_was_copied_from_a_pod_is_told(cluster: Cluster, scheduler: Api) -> None:
    client = author(cluster, TEAM)
    sets = f"/apis/apps/v1/namespaces/{TEAM}/replicasets"
    template = {
        **marked(restartPolicy="Always"),
        "metadata": {"labels": {"a": "b"}, "annotations": dict(GRANTS)},
    }
    selector = {"matchLabels": {"a": "b"}}
    client.create(
        sets,
        {"metadata": {"name": "copies"}, "spec": {"selector": selector, "template": template}},
    )

    events = f"/api/v1/namespaces/{TEAM}/events"
    words = "leave it out of manifests and templates"
    told = next(
        event
        for _, event in cluster.api.watch(events, seconds=60)
        if words in event.get("message", "")
    )
    assert told["reason"] == "FailedCreate"
    client.delete(f"{sets}/copies")
