"""Processing groups on a real API server, in real containers: what a pod finds in its file is what
its annotation says, and that is true; the runtime pins its containers to it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rte.model import bits
from rte.nrt import group_inventory
from rte.placement.groups import allocation, holdings
from rte.placement.groups.check import violations
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.record import parse_record
from rte.placement.groups.request import ANNOTATION
from tests.cluster import agents, builder, images, processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

REQUEST = {
    "version": 1,
    "misc": {"count": 1},
    "groups": [
        {"name": "radio", "workers": 3, "helpers": {"count": 1}},
        {"name": "core", "workers": 6, "smt": "isolate"},
    ],
}
TEMPLATE = (
    "radio=${groups[0].cpus.workers};${groups[0].cpus.helpers}\ncore=${groups[1].cpus.workers}\n"
)


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    """A node of two zones with real containers, whose kubelet assigns no CPUs."""
    agents.install_crd(cluster)
    none = {"policy": "none", "cpu_policy": "none", "memory_policy": "None"}
    node = cluster.add_node(shape="2x16", kubelet=none, images=images.archive())
    agents.start(node, "--group-inventory=true")
    node.spawn(
        "nri",
        [sys.executable, "-m", "rte", "nri", "--socket", node.dir / "nri.sock",
         "--node-name", node.name],
    )  # fmt: skip
    cluster.spawn(
        "groups-scheduler",
        [sys.executable, "-m", "rte", "scheduler", "--no-leader-elect", "--listen=off",
         f"--kubeconfig={cluster.kubeconfig}", "--scheduler-name=groups"],
    )  # fmt: skip
    yield node
    cluster.stop_role("groups-scheduler")
    node.remove()


def inventory(node: Node) -> group_inventory.Published:
    report = agents.wait_published(node)
    return group_inventory.decode(report["metadata"]["annotations"][group_inventory.ANNOTATION])


def the_pod(cluster: Cluster, name: str) -> Object:
    """As docs/groups.md tells: the downward API, and an init container that renders."""
    cluster.api.create(
        "/api/v1/namespaces/default/configmaps",
        {"metadata": {"name": name}, "data": {"app.env": TEMPLATE}},
    )
    image = images.names()["agent"]
    mounts = {"allocation": "/allocation", "template": "/template", "filled": "/filled"}
    field = f"metadata.annotations['{allocation.ANNOTATION}']"
    return {
        "metadata": {"name": name, "annotations": {ANNOTATION: json.dumps(REQUEST)}},
        "spec": {
            "schedulerName": "groups",
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                {"name": "allocation", "downwardAPI": {
                    "items": [{"path": "allocation", "fieldRef": {"fieldPath": field}}]}},
                {"name": "template", "configMap": {"name": name}},
                {"name": "filled", "emptyDir": {}},
            ],
            "initContainers": [
                {
                    "name": "render",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "args": ["render", "template", "/template/app.env",
                             "--allocation", "/allocation/allocation", "--out", "/filled/app.env"],
                    "securityContext": {"runAsUser": 0},
                    "volumeMounts": [
                        {"name": volume, "mountPath": path} for volume, path in mounts.items()
                    ],
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": ["/opt/rte/bin/python", "-c", "import time; time.sleep(3600)"],
                    "volumeMounts": [{"name": "filled", "mountPath": "/filled"}],
                }
            ],
        },
    }  # fmt: skip


def ctr(node: Node, *words: str) -> str:
    done = node.run(
        [builder.containerd() / "ctr", "-a", node.dir / "cri.sock", "-n", "k8s.io", *words]
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_a_pod_finds_in_its_file_what_its_annotation_says(cluster: Cluster, node: Node) -> None:
    published = inventory(node)
    pods = [cluster.create_pod(the_pod(cluster, name)) for name in ("first", "second")]
    first = cluster.wait_pod(pods[0], "Running", seconds=90)

    record = parse_record(first["metadata"]["annotations"][allocation.ANNOTATION])
    assert record.holds_for(first["metadata"]["uid"], node.name)
    request = parse_request(json.dumps(REQUEST))
    assert violations(request, record.allocation, published.inventory) == []
    radio, core = record.allocation.groups

    (status,) = first["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    found = ctr(
        node, "tasks", "exec", "--exec-id", "look", container, "/bin/cat", "/filled/app.env"
    )
    assert found == (
        f"radio={listed(radio.workers)};{listed(radio.helpers)}\ncore={listed(core.workers)}\n"
    )

    spec: Any = json.loads(ctr(node, "containers", "info", container))["Spec"]
    pinned = spec["linux"]["resources"]["cpu"]["cpus"]
    assert bits.parse_list(pinned) == holdings.cpus(record.allocation)

    # 10 of 16 cores, of which one is reserved: the second pod has no place beside the first.
    processes.wait_until(
        lambda: "processing groups: cpus" in refusal(cluster, pods[1]), 20, "a verdict", every=0.2
    )
    cluster.delete_pod(first)
    second = cluster.wait_pod(pods[1], "Running", seconds=90)
    again = parse_record(second["metadata"]["annotations"][allocation.ANNOTATION])
    assert again.holds_for(second["metadata"]["uid"], node.name)
    assert again.allocation == record.allocation
    cluster.delete_pod(second)


def listed(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def refusal(cluster: Cluster, pod: Object) -> str:
    """What the condition of a waiting pod says."""
    now = cluster.api.get(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    conditions = now["status"].get("conditions") or []
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")
