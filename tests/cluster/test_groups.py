"""Processing groups on a real API server, in real containers: what a pod finds in its file is what
its annotation says, and that is true; the runtime pins its containers to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte.model import bits
from rte.nrt import group_inventory
from rte.placement.groups import allocation, holdings
from rte.placement.groups.check import violations
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.record import parse_record
from rte.placement.groups.request import ANNOTATION
from tests.cluster import agents, builder, images, processes
from tests.cluster.test_layouts import render
from tests.unit.placement.groups.test_docs import commands_of_the_page_about_nhd
from tests.unit.placement.groups.test_nhd import FILE, LABELS, allocated, triad_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    # Before that a container is created without being asked about.
    processes.wait_until(lambda: "registered" in node.log("nri"), 60, "the plugin to be registered")
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
        lambda: "processing groups: cpus" in refusal(cluster, pods[1]), 60, "a verdict", every=0.2
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


TRIAD_SETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "triadsets.sigproc.viasat.io"},
    "spec": {
        "group": "sigproc.viasat.io",
        "scope": "Namespaced",
        "names": {"kind": "TriadSet", "plural": "triadsets", "singular": "triadset"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": True
                    }
                },
            }
        ],
    },
}  # fmt: skip


@pytest.fixture
def nhds_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """NHD's node, set and configuration, as far as the API server has them."""
    taint = {"key": "sigproc.viasat.io/nhd_scheduler", "value": "allow", "effect": "NoSchedule"}
    template = triad_set()
    template["apiVersion"] = "sigproc.viasat.io/v1"
    template["spec"]["template"]["spec"]["containers"] = [{"name": "app", "image": "app"}]
    before = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": LABELS},
         "spec": {"taints": [taint]}, "status": {"allocatable": {"hugepages-1Gi": "8Gi"}}},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"radio.cfg": FILE},
         "metadata": {"name": "radio-cfg", "namespace": "prod"}},
        {"apiVersion": "v1", "kind": "Pod",
         "metadata": {"name": "rx-0", "namespace": "prod",
                      "annotations": {"sigproc.viasat.io/nhd_config": FILE}},
         "spec": {"nodeName": "n1", "serviceAccountName": "default",
                  "automountServiceAccountToken": False,
                  "containers": [{"name": "app", "image": "app"}]}},
    ]  # fmt: skip
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump_all([TRIAD_SETS, before[0]]))
    cluster.kubectl("wait", "--for=condition=Established", "crd/triadsets.sigproc.viasat.io")
    cluster.kubectl("apply", "-n", "prod", "-f", "-", text=yaml.safe_dump(account))
    cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump_all([*before[1:], template]))
    yield cluster
    agents.remove(cluster, [*render("scheduler"), *render("default"), before[0]])
    for kind in ("node/n1", "crd/triadsets.sigproc.viasat.io"):
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", kind)


def test_every_command_that_takes_a_user_of_nhd_here(nhds_cluster: Cluster, tmp_path: Path) -> None:
    """docs/nhd.md from the top to the bottom, in one shell."""
    _, record = allocated()
    (tmp_path / "radio.cfg").write_text(FILE)
    (tmp_path / "allocation").write_text(record.text())
    (tmp_path / "app.env").write_text(TEMPLATE.splitlines()[0])
    (tmp_path / "manifests").symlink_to(images.ROOT / "manifests")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(nhds_cluster.binaries.path("kubectl"))
    (programs / "rte").write_text(f'#!/bin/sh\nexec {sys.executable} -m rte "$@"\n')
    (programs / "rte").chmod(0o755)
    script = "\n".join(["set -ex", *commands_of_the_page_about_nhd()])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(images.ROOT),
            "KUBECONFIG": str(nhds_cluster.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    node = nhds_cluster.api.get("/api/v1/nodes/n1")
    assert node["metadata"]["labels"]["values.topology.rte.dev/vlan"] == "100"
    assert "NHD_GROUP" not in node["metadata"]["labels"]
    (taint,) = (t for t in node["spec"]["taints"] if not t["key"].startswith("node."))
    assert taint["key"] == "topology.rte.dev/groups"
    found = nhds_cluster.api.get("/apis/apps/v1/namespaces/prod/statefulsets/rx")
    assert ANNOTATION in found["spec"]["template"]["metadata"]["annotations"]
