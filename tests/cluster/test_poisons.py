"""Objects that anybody may create, on a real API server: the same scheduler serves on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from rte.nrt import group_inventory
from tests.cluster import agents, builder, processes
from tests.cluster.cluster import Cluster
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME, Schedulers

if TYPE_CHECKING:
    from tests.cluster.api import Object
    from tests.cluster.conftest import FreshNode

NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
VOLUMES = f"{NAMESPACE}/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SERVED_WITHIN_S = 8.0

K, GANG, RTE = "scheduling.koordinator.sh/", "gang.scheduling.koordinator.sh/", "topology.rte.dev/"
DEEP = "[" * 2000 + "]" * 2000
HUGE = [container(None, "8Ei", name=name) for name in "abc"]
EXPONENT = '{"version":1,"groups":[{"name":"m","workers":1e9999999999999999999999}]}'


def waiting(boxes: list[Object] | None = None, **annotations: str) -> Object:
    return pod(*(boxes or []), scheduler=NAME, annotations=annotations)


def gang(minimum: str, **more: str) -> Object:
    said = {f"{GANG}name": "g", f"{GANG}min-available": minimum}
    return waiting(**said, **{f"{GANG}{key.replace('_', '-')}": text for key, text in more.items()})


def poisons(node: str) -> list[Object]:
    """Twenty pods and more; each is taken by the API server as it is."""
    grouped = f"{RTE}groups"
    spread = {
        "maxSkew": 2147483647, "topologyKey": "kubernetes.io/hostname", "minDomains": 2147483647,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}},
    }  # fmt: skip
    return [
        gang("1", groups=DEEP),
        gang("9" * 4000),
        gang("1", waiting_time="9" * 400 + "h"),
        waiting(**{grouped: EXPONENT}),
        waiting(**{grouped: DEEP}),
        waiting(**{grouped: '{"version":1e999999999999999999,"groups":[]}'}),
        waiting(HUGE),
        pod(*HUGE, node=node),
        waiting(**{f"{K}device-allocate-hint": '{"gpu":{"selector":{"matchLabels":{"a":[1]}}}}'}),
        waiting(**{f"{K}device-joint-allocate": '{"deviceTypes":[{"a":1}]}'}),
        waiting(**{f"{K}gpu-partition-spec": '{"ringBusBandwidth":{"a":1}}'}),
        pod(node=node, annotations={f"{K}device-allocated": DEEP}),
        pod(node=node, annotations={f"{K}resource-status": '{"cpuset":5,"numaNodeResources":[5]}'}),
        pod(node=node, annotations={f"{RTE}allocation": DEEP}),
        pod(node=node, annotations={f"{RTE}allocation": '{"version":1,"pod":"x","node":1e999}'}),
        waiting(**{f"{RTE}device-alignment": "x" * 200_000}),
        waiting(**{"k8s.v1.cni.cncf.io/networks": DEEP, grouped: EXPONENT}),
        pod(scheduler=NAME, topologySpreadConstraints=[spread]),
        waiting([container("1m", "1Mi", name=f"c{number}") for number in range(200)]),
        pod(scheduler=NAME, terminationGracePeriodSeconds=2**62),
        waiting([container(str(2**62), "1Mi")]),
        pod(scheduler=NAME, resourceClaims=[{"name": "c", "resourceClaimName": "poison"}]),
        pod(
            scheduler=NAME,
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "poison"}}],
        ),
        pod(scheduler="another", annotations={f"{GANG}name": "g", f"{GANG}groups": DEEP}),
    ]


def beside() -> list[tuple[str, Object]]:
    """What pods name, as (collection, object) of the name ``poison``."""
    metadata = {"name": "poison", "annotations": {f"{RTE}groups": DEEP}}
    deep: Object = {}
    for _ in range(80):
        deep = {"a": deep}
    opaque = {"driver": "poison.example.com", "parameters": {"n": int("9" * 18), "deep": deep}}
    exactly = {
        "deviceClassName": "missing",
        "count": 2**63 - 1,
        "selectors": [{"cel": {"expression": "device.attributes['x'].y == '" + "z" * 9000 + "'"}}],
    }
    claim = {
        "devices": {
            "requests": [{"name": "r", "exactly": exactly}],
            "config": [{"opaque": opaque}],
        }
    }
    stored = {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "poison",
        "resources": {"requests": {"storage": "9223372036854775807"}},
        "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 5000}]},
    }
    return [
        (CLAIMS, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                  "metadata": metadata, "spec": claim}),
        (CLASSES, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
                   "provisioner": "poison.example.com",
                   "volumeBindingMode": "WaitForFirstConsumer"}),
        (VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
                   "spec": stored}),
    ]  # fmt: skip


def test_whatever_an_author_writes_an_ordinary_pod_is_served(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(shape="2x16")
    agents.install(cluster)
    agents.start(node)
    agents.wait_published(node)
    schedulers = Schedulers(cluster)
    role = schedulers.start()
    try:
        _serves(cluster, 60.0)  # once it leads
        process = _process(cluster, role)
        tried = 0
        for where, body in beside():
            cluster.api.create(where, body)
            _serves(cluster)
            assert _process(cluster, role) == process, where
            tried += 1
        for number, poison in enumerate(poisons(node.name)):
            poison["metadata"]["name"] = f"poison-{number}"
            cluster.api.create(PODS, poison)
            _serves(cluster)
            assert _process(cluster, role) == process, poison
            tried += 1
        deep = {"metadata": {"annotations": {group_inventory.ANNOTATION: '{"x":' + DEEP + "}"}}}
        reports = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
        for where in (f"{reports}/{node.name}", NAMESPACE, f"/api/v1/nodes/{node.name}"):
            cluster.api.patch(where, deep)
            _serves(cluster)
            assert _process(cluster, role) == process, where
            tried += 1
        assert tried >= 20
    finally:
        for number in range(len(poisons(""))):
            cluster.api.delete(f"{PODS}/poison-{number}", grace=0)
        for where, _ in beside():
            cluster.api.delete(f"{where}/poison")
        cluster.stop_role(role, grace=2)


GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


def podgroups() -> list[Object]:
    """PodGroups that nobody can serve, and that stand for more than they should."""
    most = {"gang": {"minCount": 2**31 - 1}}
    key = "a" * 63
    return [
        {"metadata": {}, "spec": {"schedulingPolicy": most}},
        {"metadata": {"annotations": {f"{GANG}groups": DEEP}}, "spec": {"schedulingPolicy": most}},
        {
            "metadata": {"labels": {"a": "b"}, "annotations": {f"{RTE}groups": EXPONENT}},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 1}},
                "schedulingConstraints": {"topology": [{"key": key}]},
            },
        },
    ]


@pytest.mark.cluster
def test_whatever_a_podgroup_says_an_ordinary_pod_is_served() -> None:
    cluster = Cluster.start(version=builder.PROVEN["1.37"], gangs=True)
    try:
        node = cluster.add_node(shape="2x8")
        agents.install(cluster)
        agents.start(node)
        agents.wait_published(node)
        role = Schedulers(cluster).start()
        _serves(cluster, 60.0)
        process = _process(cluster, role)
        for number, body in enumerate(podgroups()):
            body |= {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
            body["metadata"]["name"] = f"poison-{number}"
            cluster.api.create(GROUPS, body)
            for name in (f"poison-{number}", "missing"):
                made = waiting(**{f"{GANG}groups": DEEP})
                made["spec"]["schedulingGroup"] = {"podGroupName": name}
                cluster.api.create(PODS, made)
            _serves(cluster)
            assert _process(cluster, role) == process, body
    finally:
        cluster.stop()


def _process(cluster: Cluster, role: str) -> list[int]:
    return [each.pid for each in processes.find(cluster.dir, role)]


def _serves(cluster: Cluster, within_s: float = SERVED_WITHIN_S) -> None:
    """An ordinary pod is bound within the time; then it goes."""
    made: dict[str, Any] = cluster.api.create(PODS, pod(container("100m", "8Mi"), scheduler=NAME))
    name, until = made["metadata"]["name"], time.monotonic() + within_s
    while not cluster.api.get(f"{PODS}/{name}")["spec"].get("nodeName"):
        assert time.monotonic() < until, "an ordinary pod is not served"
        time.sleep(0.1)
    cluster.api.delete(f"{PODS}/{name}", grace=0)
