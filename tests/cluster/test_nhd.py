"""The page that takes a user of NHD here, on a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from rte.placement.groups.request import ANNOTATION
from tests.cluster import agents, images
from tests.cluster.test_layouts import render
from tests.unit.placement.groups.test_docs import commands_of_the_page_about_nhd
from tests.unit.placement.groups.test_nhd import FILE, LABELS, allocated, triad_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

TEMPLATE = "radio=${groups[0].cpus.workers};${groups[0].cpus.helpers}\n"

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
    cluster.define(TRIAD_SETS)
    cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump(before[0]))
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
