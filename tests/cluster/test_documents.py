"""Every command of the documentation, typed as it is written, page by page from top to bottom.

Those of docs/start: tests/cluster/test_guides.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster import agents, builder
from tests.cluster.field import uninstall
from tests.cluster.kubelet_config import kubelet_config
from tests.cluster.pods import container, pod
from tests.documents import PAGES, ROOT, Command, commands
from tests.unit.cli.objects import node_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node

#: The page is typed there, as a whole.
PAGES_ELSEWHERE = {"docs/nhd.md": "tests/cluster/test_nhd.py"}
#: The test that types a command, and how its text has it.
ELSEWHERE = {
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/rte demo --once": (
        (".ci/checks.py", "blocks[0]")
    ),
    ".venv/bin/python -m pytest -q -n logical": (".ci/checks.py", "blocks[1]"),
    # An agent that runs in a container.
    "kubectl rollout status -n rte-system ds/rte-agent": (
        ("tests/cluster/test_field.py", '"rollout", "status", "-n", agents.NAMESPACE')
    ),
    "kubectl logs -n rte-system ds/rte-agent": (
        ("tests/cluster/test_field.py", '"logs", "-n", agents.NAMESPACE, "ds/rte-agent"')
    ),
    # With the addresses of the test bed.
    "kube-scheduler --config manifests/extender/kube-scheduler.yaml": (
        ("tests/cluster/test_scheduler.py", "extender/kube-scheduler.yaml")
    ),
}
#: What no test types, and why.
NOT_TYPED = {
    **{
        command.text: "it is how this very test runs, or a longer one"
        for command in commands("CONTRIBUTING.md")
        if "pytest" in command.text or "ruff" in command.text
    },
    "python3 -m venv .venv": "CI does so first (.ci/run)",
    ".venv/bin/pip install --require-hashes -r requirements-dev.txt": "CI does so first (.ci/run)",
    ".venv/bin/pip install --no-deps --no-build-isolation -e .": "CI does so first (.ci/run)",
    "python -m tests.cluster sweep": "it would end what other tests have; CI does so (.ci/run)",
    "oc get configmap kubelet-serving-ca -n openshift-config-managed -o yaml | "
    "sed 's/namespace: .*/namespace: rte-system/' | oc apply -f -": "it needs OpenShift",
    "rte explain prod/rx-0": "it needs racks of GPUs: tests/unit/cli/test_explain_groups.py",
    ".venv/bin/mkdocs serve": "it serves until it is ended",
    ".venv/bin/mkdocs build --strict": "CI does so (.ci/checks.py)",
    "python -m bench.placement_lib": "a benchmark of minutes",
    "python -m bench.scores": "a benchmark of minutes",
    "python -m tests.releases OLD NEW": "it needs two releases: tests/unit/test_releases.py",
}
#: What a command needs to be true, or what a page leaves to the reader to do before it.
BEFORE = {
    # The chart makes the same objects as the manifests before it.
    "helm install rte manifests/chart --namespace rte-system --create-namespace "
    "--set layout=kubeadm": "kubectl delete -k manifests/default",
    # The files that it takes are made by the commands below it.
    "kubectl create secret generic -n rte-system rte-extender-tls --from-file=tls.crt "
    "--from-file=tls.key --from-file=ca.crt": "touch tls.crt tls.key ca.crt",
    "kubectl delete -k manifests/scheduler --ignore-not-found": (
        "helm uninstall rte -n rte-system && kubectl delete namespace rte-system && "
        "kubectl apply -k manifests/default"
    ),
    "rte fit -f gang.yaml --topology-key topology.kubernetes.io/rack": (
        "kubectl label node worker topology.kubernetes.io/rack=r2"
    ),
    "helm uninstall rte -n rte-system": (
        "helm install rte manifests/chart -n rte-system --create-namespace"
    ),
}
#: Pages that install and uninstall: they begin with an empty cluster.
INSTALLING = ("docs/operations.md", "docs/scheduler.md", "docs/groups.md")
#: Named by a page, given by its reader.
GIVEN = {
    "NAMESPACE/POD": "default/large",
    "NODE": "worker",
    "KIND FILE": "rte_case cases.jsonl",
    "FILE": "case.json",
    "…": "default/large",
}


def typed(page: str) -> list[Command]:
    """What this file types of a page; where there is nothing to look at, README.md has done it."""
    looked = {
        command.text
        for command in commands("README.md")
        if page in INSTALLING and command.text.startswith("rte ")
    }
    return [
        command
        for command in commands(page)
        if page not in PAGES_ELSEWHERE
        and not command.named
        and command.text not in {*looked, *ELSEWHERE, *NOT_TYPED}
    ]


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Callable[[str], None]:
    """Types a command in a folder as a user has it: a clone, the programs, some files."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("manifests", "tests", "rte", "fixtures", "bench", "Dockerfile"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, command in {"rte": "-m rte", "kubectl-rte": "-m rte", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "kubectl").symlink_to(cluster.binaries.path("kubectl"))
    (programs / "helm").symlink_to(builder.helm())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(programs)
    environ = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(cluster.kubeconfig),
    }

    def run(command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environ, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"

    return run


def type_page(page: str, shell: Callable[[str], None]) -> None:
    for command in typed(page):
        text = command.text
        if text in BEFORE:
            shell(BEFORE[text])
        for name, value in GIVEN.items():
            text = text.replace(name, value)
        shell(text)


def test_the_tables_speak_of_what_is_there() -> None:
    known = {command.text for page in PAGES for command in commands(page)}
    for table in (ELSEWHERE, NOT_TYPED, BEFORE):
        assert table.keys() <= known
    for file, text in [*ELSEWHERE.values(), *((f, p) for p, f in PAGES_ELSEWHERE.items())]:
        assert text in (ROOT / file).read_text()


@pytest.mark.parametrize("page", INSTALLING)
def test_what_installs_and_uninstalls(
    page: str, cluster: Cluster, shell: Callable[[str], None], tmp_path: Path
) -> None:
    write_cases(tmp_path)
    uninstall(cluster)
    cluster.kubectl("delete", "-k", "manifests/crd", "--ignore-not-found")
    if page == "docs/groups.md":
        agents.install_crd(cluster)
        shell("kubectl apply -k manifests/default")
    try:
        type_page(page, shell)
    finally:
        uninstall(cluster)
        agents.install_crd(cluster)


@pytest.fixture
def busy(cluster: Cluster, fresh_node: FreshNode, tmp_path: Path) -> Iterator[Node]:
    """A node with an agent and a pod, a pod that waits, and the files that pages speak of."""
    node = fresh_node("worker", shape="2x8", kubelet=kubelet_config())
    agents.start(node)
    agents.wait_published(node)
    cluster.run_pod(pod(container(2, "64Mi"), name="p1", node=node.name))
    large = pod(container(8, "64Mi"), name="large", scheduler="nobody")
    cluster.create_pod(large)
    for name, count in (("pod", 1), ("pods", 2), ("gang", 3)):
        objects = [pod(container(2, "64Mi"), name=f"new-{number}") for number in range(count)]
        text = yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Pod", **obj} for obj in objects])
        (tmp_path / f"{name}.yaml").write_text(text)
    saved = {"kind": "List", "apiVersion": "v1", "items": [*node_objects("n"), large]}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(saved))
    write_cases(tmp_path)
    yield node
    uninstall(cluster)


def write_cases(folder: Path) -> None:
    """Recorded admissions, and one of them."""
    packed = ROOT / "tests/vectors/rte_case.jsonl.gz"
    lines = subprocess.run(["gzip", "-dc", packed], check=True, capture_output=True).stdout
    (folder / "cases.jsonl").write_bytes(lines)
    (folder / "case.json").write_bytes(lines.splitlines()[0])


@pytest.mark.parametrize(
    "page", [page for page in PAGES if typed(page) and page not in (*INSTALLING, "CONTRIBUTING.md")]
)
@pytest.mark.usefixtures("busy")
def test_what_looks_and_plans(page: str, shell: Callable[[str], None]) -> None:
    type_page(page, shell)


def test_a_cluster_on_this_machine(
    shell: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRIBUTING.md; the cluster lies where it stands nobody's in the way."""
    folder = "/tmp/rte-typed"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)  # noqa: PTH102 - sockets need a short path
    try:
        lines = [f"export RTE_RUN_DIR={folder}"]
        lines += [command.text for command in typed("CONTRIBUTING.md")]
        shell("set -e\n" + "\n".join(lines))
    finally:
        shutil.rmtree(folder)
