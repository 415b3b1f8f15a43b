"""The agent's mounts, as each distribution's overlay renders them, on a node of that layout."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster import builder

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SECRET = "of another pod\n"


@dataclass(frozen=True)
class Layout:
    """Where a distribution keeps what concerns the agent."""

    kubelet: str = "/var/lib/kubelet"
    pki: bool = True
    self_signed: bool = False
    pods_api: bool = True
    links: dict[str, str] = field(default_factory=dict)


LAYOUTS = {
    "kubeadm": Layout(self_signed=True),
    "talos": Layout(self_signed=True),
    "gke": Layout(),
    "openshift": Layout(),
    "k3s": Layout(pki=False),
    "rke2": Layout(pki=False),
    "k0s": Layout(kubelet="/var/lib/k0s/kubelet"),
    "microk8s": Layout(
        kubelet="/var/snap/microk8s/common/var/lib/kubelet",
        pki=False,
        links={"/var/lib/kubelet": "/var/snap/microk8s/common/var/lib/kubelet"},
    ),
}


def render(folder: str) -> list[dict[str, Any]]:
    """The objects of a kustomization, by the kubectl that users have."""
    kubectl = builder.build(programs=["kubectl"]).path("kubectl")
    command = [kubectl, "kustomize", ROOT / "manifests" / folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def render_beside(kustomization: dict[str, Any]) -> list[dict[str, Any]]:
    """Render a kustomization that lies in manifests/ for the moment."""
    with tempfile.TemporaryDirectory(dir=ROOT / "manifests", prefix="test-") as folder:
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(kustomization))
        return render(folder)


def daemonset(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (item for item in objects if item["kind"] == "DaemonSet")
    return found


def node_files(layout: Layout) -> dict[str, str]:
    """What the agent reads, and what is none of its business."""
    files = {
        f"{layout.kubelet}/cpu_manager_state": "state",
        f"{layout.kubelet}/pod-resources/kubelet.sock": "socket",
        f"{layout.kubelet}/plugins/csi.example/csi.sock": SECRET,
        f"{layout.kubelet}/plugins_registry/csi.example-reg.sock": SECRET,
        f"{layout.kubelet}/pods/u/volumes/kubernetes.io~empty-dir/scratch/data": SECRET,
        f"{layout.kubelet}/checkpoints/checkpoint-a.tar": SECRET,
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "devices",
    }
    if layout.pods_api:
        files[f"{layout.kubelet}/pods-api/pods-api"] = SECRET
    if layout.pki:
        files[f"{layout.kubelet}/pki/kubelet.key"] = SECRET
    if layout.self_signed:
        files[f"{layout.kubelet}/pki/kubelet.crt"] = "certificate"
    return files


@pytest.fixture
def carry_out(tmp_path: Path) -> Callable[[dict[str, Any], Layout], dict[str, Any]]:
    def run(pod: dict[str, Any], layout: Layout) -> dict[str, Any]:
        for name in ("host/var", "root", "scratch"):
            (tmp_path / name).mkdir(parents=True)
        (agent,) = pod["containers"]
        plan = {
            **{name: str(tmp_path / name) for name in ("host", "root", "scratch")},
            "links": layout.links,
            "files": node_files(layout),
            "host_mounts": [
                f"{layout.kubelet}/pods/u/volumes/kubernetes.io~csi/v/mount",
                f"{layout.kubelet}/plugins/kubernetes.io/csi/csi.example/v/globalmount",
            ],
            "mounts": agent["volumeMounts"],
            "volumes": pod["volumes"],
        }
        done = subprocess.run(
            ["unshare", "-m", sys.executable, "-m", "tests.cluster.mounts"],
            cwd=ROOT, input=json.dumps(plan), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(params=sorted(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("pods_api", [False, True], ids=["before 1.37", "since 1.37"])
def test_the_agent_sees_what_it_reads_and_nothing_of_other_pods(
    layout: str, pods_api: bool, carry_out: Callable[[dict[str, Any], Layout], dict[str, Any]]
) -> None:
    facts = replace(LAYOUTS[layout], pods_api=pods_api)
    pod = daemonset(render(f"layouts/{layout}"))["spec"]["template"]["spec"]

    report = carry_out(pod, facts)

    assert "error" not in report
    content = set(report["files"].values())
    assert {"state", "socket", "devices"} <= content
    assert SECRET not in content
    assert ("certificate" in content) is facts.self_signed
    # Its own RAM disk, in which the place for the certificate is made.
    assert report["writable"] == (["/var/lib/kubelet/pki"] if facts.self_signed else [])


def test_where_there_are_no_device_plugins_their_folder_is_covered(
    carry_out: Callable[[dict[str, Any], Layout], dict[str, Any]],
) -> None:
    cover = {"resources": ["../default"], "components": ["../no-device-plugins"]}
    pod = daemonset(render_beside(cover))["spec"]["template"]["spec"]

    report = carry_out(pod, LAYOUTS["kubeadm"])

    content = set(report["files"].values())
    assert {"state", "socket"} <= content
    assert not {"devices", SECRET} & content


def test_a_volume_that_the_host_unmounts_is_gone(
    layout: str, carry_out: Callable[[dict[str, Any], Layout], dict[str, Any]]
) -> None:
    pod = daemonset(render(f"layouts/{layout}"))["spec"]["template"]["spec"]

    assert carry_out(pod, LAYOUTS[layout])["left"] == []


def test_without_propagation_the_volume_would_stay_busy(
    carry_out: Callable[[dict[str, Any], Layout], dict[str, Any]],
) -> None:
    """The check can fail: this is what a plain mount of the kubelet's directory does."""
    pod = daemonset(render("layouts/gke"))["spec"]["template"]["spec"]
    for mount in pod["containers"][0]["volumeMounts"]:
        mount.pop("mountPropagation", None)

    assert carry_out(pod, LAYOUTS["gke"])["left"] == ["other-pods-0", "other-pods-1"]


def test_a_cover_over_nothing_keeps_the_container_from_starting(
    carry_out: Callable[[dict[str, Any], Layout], dict[str, Any]],
) -> None:
    """Why k3s, RKE2 and MicroK8s have overlays of their own."""
    pod = daemonset(render("agent"))["spec"]["template"]["spec"]

    report = carry_out(pod, LAYOUTS["k3s"])

    assert report == {"error": "/var/lib/kubelet/pki: no place to mount on: Read-only file system"}


@pytest.mark.parametrize("folder", ["default", "scheduler", "extender"])
def test_every_tree_renders(folder: str) -> None:
    assert render(folder)
