"""A release's own files, in an empty folder without the checkout: what a user downloads works."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import rte
from tests.cluster import agents, builder, images
from tests.cluster.field import (
    is_running,
    on_the_nodes_hardware,
    on_the_nodes_network,
    pinned_pod,
    running,
    state_of,
    uninstall,
)
from tools.release import layouts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made without a network: all that is locked was fetched before."""
    images.archive(ROOT)
    out = tmp_path_factory.mktemp("release")
    command = ["unshare", "--net", "--", sys.executable, "-m", "tools.release", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stderr)  # how large the images are
    return out


def outside(folder: Path, *command: str | Path) -> str:
    """What a command prints that knows nothing of the checkout, nor of a package index."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(builder.cache_dir() / "wheels"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PATH": f"{folder / 'bin'}:{env['PATH']}",
    }
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pip_installs_the_wheel_and_the_demo_plays(release: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"
    (wheel,) = release.glob("*.whl")
    outside(tmp_path, programs / "pip", "install", "--quiet", f"{wheel}[demo]")
    where = outside(tmp_path, programs / "python", "-c", "import rte; print(rte.__file__)")
    assert str(tmp_path / "venv") in where
    shown = outside(tmp_path, programs / "rte", "demo", "--once")
    assert "zone" in shown


def test_kubectl_finds_the_plugin(release: Path, tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "bin").mkdir()
    with tarfile.open(release / "kubectl-rte.tar.gz") as archive:
        archive.extractall(tmp_path / "bin", filter="data")
    kubectl = cluster.binaries.path("kubectl")
    assert outside(tmp_path, kubectl, "rte", "--version").strip() == f"rte {rte.__version__}"


@pytest.fixture
def node(cluster: Cluster, release: Path, tmp_path: Path) -> Iterator[Node]:
    """A node with real containers that has the release's images, and a pause image beside them."""
    with layouts.Archive(images.archive(ROOT)) as archive:
        (tmp_path / "pause.tar").write_bytes(archive.layout(images.PAUSE_IMAGE)[0])
    cluster.start_scheduler()
    made = cluster.add_node(shape="2x8", images=tmp_path / "pause.tar")
    for image in release.glob("*.oci.tar"):
        done = made.run(images.import_command(made.dir, image), timeout=120)
        assert done.returncode == 0, done.stderr
    yield made
    made.remove()
    cluster.stop_role("scheduler")


def rendered(release: Path, *flags: str) -> list[Object]:
    """What ``helm install`` would send."""
    chart = release / f"rte-{rte.__version__}.tgz"
    command: Sequence[str | Path] = [
        builder.helm(), "template", "rte", chart, "--namespace", agents.NAMESPACE,
        "--kube-version", builder.DEFAULT_VERSION, "--no-hooks", "--include-crds", *flags,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def test_its_images_run_as_its_chart_says_and_leave_nothing(
    release: Path, node: Node, cluster: Cluster
) -> None:
    uninstall(cluster)
    objects = rendered(release, "--set=scheduler.enabled=true", "--set=createNamespace=true")
    kinds = {"DaemonSet": 0, "Deployment": 0}
    for number, obj in enumerate(objects):
        if obj["kind"] in kinds:
            kinds[obj["kind"]] += 1
            objects[number] = on_the_nodes_network(obj, cluster)
        if obj["kind"] == "DaemonSet":
            objects[number] = on_the_nodes_hardware(objects[number], node)
    assert kinds == {"DaemonSet": 1, "Deployment": 1}
    agents.install_crd(cluster)
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
    try:
        running(cluster, "rte-agent")
        agents.wait_published(node)
        running(cluster, "rte-scheduler")
        pod = cluster.wait_pod(cluster.create_pod(pinned_pod("released")), is_running)
        uid = pod["metadata"]["uid"]
        state = state_of(node, lambda found: uid in found.holdings)
        assert state.holdings[uid]["main"].cpus.bit_count() == 4
        cluster.delete_pod(pod)
    finally:
        crds = {"CustomResourceDefinition"}
        agents.remove(cluster, [obj for obj in objects if obj["kind"] not in crds])
    pods = cluster.api.get(f"/api/v1/namespaces/{agents.NAMESPACE}/pods")["items"]
    assert pods == []
