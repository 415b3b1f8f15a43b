"""The guides of docs/start, typed block by block on a node with real containers: no step more.

What this machine lacks is played by the test bed: kind's node and a registry are its containerd,
and Docker hands over the images that buildah made of the same Dockerfile. Objects that are applied
get what :mod:`tests.cluster.field` says. The kubelet runs with the configuration of the guide.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster import agents, builder, images
from tests.cluster.field import uninstall
from tests.cluster.kubelet_config import kubelet_config
from tests.documents import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

#: Beginnings of blocks that are not typed here, and why.
NOT_TYPED = {
    "python3 -m venv .venv\n": "README.md's command does the same, and CI types it",
    "# on each node\n": "the node is made with this configuration, and has no pods yet",
    "rte view\n": "it serves until it is ended: tests/cluster/test_view.py",
}


def configuration(page: str) -> dict[str, Any]:
    """The kubelet's, as the page has it."""
    for text in blocks(page, "yaml"):
        if text.startswith("# kubelet\n"):
            return dict(yaml.safe_load(text))
    for text in blocks(page, "sh"):
        if "kubeadmConfigPatches" in text:
            cluster = yaml.safe_load(text.split("<<'KIND'\n")[1].split("KIND\n")[0])
            (patch,) = cluster["kubeadmConfigPatches"]
            return {key: value for key, value in yaml.safe_load(patch).items() if key != "kind"}
    raise AssertionError(f"{page} does not configure a kubelet")


@pytest.fixture(params=["docs/start/cluster.md", "docs/start/kind.md"])
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def node(page: str, cluster: Cluster) -> Iterator[Node]:
    """A node with the page's kubelet, on which nothing is installed."""
    cluster.start_scheduler()
    config = kubelet_config(memory_policy="None") | configuration(page)
    uninstall(cluster)
    cluster.kubectl("delete", "-k", ROOT / "manifests/crd", "--ignore-not-found")
    node = cluster.add_node("kind-worker", shape="2x8", kubelet=config, images=images.archive())
    yield node
    uninstall(cluster)
    node.remove()
    cluster.stop_role("scheduler")
    agents.install_crd(cluster)


@pytest.fixture
def typed(node: Node, tmp_path: Path) -> Callable[[str], str]:
    """Types a block in a clone; says what it printed."""
    cluster, programs = node.cluster, tmp_path / "bin"
    programs.mkdir()
    for name in ("manifests", "Dockerfile"):
        (tmp_path / name).symlink_to(ROOT / name)
    kubectl = cluster.binaries.path("kubectl")
    ctr = f"{builder.containerd() / 'ctr'} -a {node.dir / 'cri.sock'} -n k8s.io images"
    # An image comes to the node under the name that it is pushed or loaded as.
    bring = f'{ctr} tag --force "docker.io/library/rte-${{1##*/rte-}}" "$1"'
    scripts = {
        "rte": f'exec {sys.executable} -m rte "$@"',
        "kind": f'[ "$1 $2" != "load docker-image" ] || {{ shift 2; {bring}; }}',
        "docker": f'[ "$1" != push ] || {{ shift; {bring}; }}',
        "kubectl": (
            f'case "$*" in "apply -f "*) cat "$3" | {sys.executable} -m tests.cluster.adapted '
            f"{cluster.dir} {node.name} | {kubectl} apply --server-side -f - ;; "
            f'*) exec {kubectl} "$@" ;; esac'
        ),
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(cluster.kubeconfig),
    }

    def run(block: str) -> str:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block], cwd=tmp_path, env=environ, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    return run


def test_the_guide_leads_to_a_pod_in_its_zone(
    page: str, node: Node, typed: Callable[[str], str]
) -> None:
    printed = {}
    for block in blocks(page, "sh"):
        if not block.startswith(tuple(NOT_TYPED)):
            printed[block] = typed(block)

    doctor = next(text for block, text in printed.items() if "rte doctor" in block)
    assert "kubelet configuration: CPU manager static" in doctor
    assert "ok      agent: alive (kind-worker)" in doctor
    assert ", 0 failed" in doctor
    told = next(text for block, text in printed.items() if "rte explain default/job" in block)
    assert "main is in zone " in told
