"""A release's own files, in an empty folder without the checkout: what a user downloads works."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import rte
from tests.cluster import agents, builder, images, processes
from tests.cluster.field import (
    is_running,
    on_the_nodes_hardware,
    on_the_nodes_network,
    pinned_pod,
    running,
    state_of,
    uninstall,
)
from tests.cluster.test_chart import there
from tests.cluster.test_field import ctr
from tools.release import layouts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.model.node import NodeState
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made without a network: all that is locked was fetched before."""
    fetched = [sys.executable, "-m", "tools.release", "--fetch"]
    subprocess.run(fetched, cwd=ROOT, check=True)
    out = tmp_path_factory.mktemp("release")
    command = ["unshare", "--net", "--", sys.executable, "-m", "tools.release", str(out)]
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


@pytest.mark.skipif(not shutil.which("qemu-aarch64-static"), reason="needs qemu-user-static")
@pytest.mark.parametrize(
    ("image", "command", "told"),
    [("agent", ["--version"], rte.__version__), ("scheduler", ["demo", "--once"], "zone")],
)
def test_the_images_for_arm64_run_where_a_program_plays_that_machine(
    release: Path, tmp_path: Path, image: str, command: list[str], told: str
) -> None:
    with tarfile.open(release / f"rte-{image}-{rte.__version__}-linux-arm64.oci.tar") as archive:
        entry = manifest_of(archive)
        assert entry["platform"]["architecture"] == "arm64"
        manifest = json.loads(blob(archive, entry["digest"]))
        (layer,) = manifest["layers"]
        config = json.loads(blob(archive, manifest["config"]["digest"]))
        content = gzip.decompress(blob(archive, layer["digest"]))
    assert config["architecture"] == "arm64"
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert layer["size"] <= {"agent": 60, "scheduler": 110}[image] * 2**20
    root = tmp_path / "root"
    with tarfile.open(fileobj=io.BytesIO(content)) as tree:
        tree.extractall(root, filter="fully_trusted")
    emulator = shutil.which("qemu-aarch64-static")
    assert emulator is not None
    shutil.copy(emulator, root)
    settings = dict(each.split("=", 1) for each in config["config"]["Env"])
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"',
         root, "/qemu-aarch64-static", "/opt/rte/bin/python", "/opt/rte/bin/rte", *command],
        env=os.environ | settings | {"PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert told in done.stdout


def blob(archive: tarfile.TarFile, digest: str) -> bytes:
    file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file is not None
    content = file.read()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def manifest_of(archive: tarfile.TarFile) -> Object:
    file = archive.extractfile("index.json")
    assert file is not None
    (entry,) = json.load(file)["manifests"]
    return dict(entry)


def test_helm_takes_the_chart_from_a_registry(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release / f"rte-chart-{rte.__version__}.oci.tar") as archive:
        entry = manifest_of(archive)
        manifest = blob(archive, entry["digest"])
        served = {each["digest"]: blob(archive, each["digest"]) for each in (
            json.loads(manifest)["config"], *json.loads(manifest)["layers"])}  # fmt: skip

    class Registry(http.server.BaseHTTPRequestHandler):
        """The two questions of a puller: what a tag is, and what has a digest."""

        def do_GET(self) -> None:
            kind, _, asked = self.path.partition("/v2/rte/")[2].partition("/")
            body = manifest if kind == "manifests" else served.get(asked, b"{}")
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            if kind == "manifests":
                self.send_header("Content-Type", entry["mediaType"])
                self.send_header("Docker-Content-Digest", entry["digest"])
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        where = f"oci://127.0.0.1:{registry.server_port}/rte"
        outside(
            tmp_path, builder.helm(), "pull", where, "--version", rte.__version__, "--plain-http"
        )
        registry.shutdown()
    name = f"rte-{rte.__version__}.tgz"
    assert (tmp_path / name).read_bytes() == (release / name).read_bytes()


@pytest.fixture
def node(cluster: Cluster, release: Path, tmp_path: Path) -> Iterator[Node]:
    """A node with real containers that has the release's images, and a pause image beside them."""
    with layouts.Archive(images.archive(ROOT)) as archive:
        (tmp_path / "pause.tar").write_bytes(archive.layout(images.PAUSE_IMAGE))
    cluster.start_scheduler()
    made = cluster.add_node(shape="2x8", images=tmp_path / "pause.tar")
    for image in release.glob("*-amd64.oci.tar"):
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


# --- install, use, upgrade, roll back, uninstall -------------------------------------------------


@dataclass
class Life:
    """Whatever installs it, the same happens to it, with pods that run all the while."""

    cluster: Cluster
    node: Node
    pods: list[Object] = field(default_factory=list)
    before: set[str] = field(default_factory=set)

    def use(self, scheduler: str = "rte-scheduler") -> None:
        """One more pod gets CPUs of its own; those before it run on and keep theirs."""
        held = {pod["metadata"]["uid"]: self._cpus(pod) for pod in self.pods}
        name = f"used-{len(self.pods)}"
        made = self.cluster.create_pod(pinned_pod(name, cpus=2, schedulerName=scheduler))
        self.pods.append(self.cluster.wait_pod(made, is_running))
        uid = made["metadata"]["uid"]
        state = state_of(self.node, lambda found: uid in found.holdings)
        assert state.holdings[uid]["main"].cpus.bit_count() == 2
        assert held.items() <= {each: self._cpus_of(state, each) for each in held}.items()
        for pod in self.pods:
            found = self.cluster.api.get(f"/api/v1/namespaces/default/pods/{name_of(pod)}")
            assert is_running(found)
            assert found["metadata"]["uid"] == pod["metadata"]["uid"]
            (status,) = found["status"]["containerStatuses"]
            assert status["restartCount"] == 0

    def _cpus(self, pod: Object) -> int:
        uid = pod["metadata"]["uid"]
        return self._cpus_of(state_of(self.node, lambda found: uid in found.holdings), uid)

    @staticmethod
    def _cpus_of(state: NodeState, uid: str) -> int:
        return state.holdings[uid]["main"].cpus

    def runs(self, tag: str) -> None:
        """Agent and scheduler are of that version, and the node's report is synced again."""
        for workload, image in (("ds/rte-agent", "agent"), ("deploy/rte-scheduler", "scheduler")):
            where = f"--namespace={agents.NAMESPACE}"
            self.cluster.kubectl("rollout", "status", where, workload, "--timeout=180s")
            name = workload.partition("/")[2]
            (box,) = running(self.cluster, name)["spec"]["containers"]
            assert box["image"] == f"rte-{image}:{tag}"
        state_of(self.node, lambda _: True)

    def ends(self) -> None:
        """Nothing is left of it, in the cluster or on the node; the pods still run until now."""
        for pod in self.pods:
            assert is_running(
                self.cluster.api.get(f"/api/v1/namespaces/default/pods/{name_of(pod)}")
            )
            self.cluster.delete_pod(pod)
        self.cluster.kubectl("delete", "noderesourcetopologies", "--all")
        processes.wait_until(
            lambda: there(self.cluster) == self.before, 90, "objects to go", every=1
        )

        def nothing() -> bool:
            listed = self.node.run([*ctr(self.node), "containers", "ls"]).stdout.splitlines()[1:]
            mounted = self.node.run(["cat", "/proc/self/mountinfo"]).stdout
            folders = list((self.node.root / "pods").iterdir())
            return not listed and "/var/lib/kubelet/pods/" not in mounted and not folders

        processes.wait_until(nothing, 180, "containers, mounts and folders to go", every=1)


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


@pytest.fixture
def life(cluster: Cluster, node: Node) -> Life:
    """The node has the images of the release, and of the one to come."""
    uninstall(cluster)
    agents.install_crd(cluster)
    for image in images.names().values():
        name = f"docker.io/library/{image}"
        tag = [*ctr(node), "images", "tag", name, f"{name.rpartition(':')[0]}:{NEXT}"]
        assert node.run(tag).returncode == 0
    return Life(cluster, node, before=there(cluster))


#: The release to come: this one under another name.
NEXT = "next"


def test_by_helm_it_comes_is_used_upgraded_and_rolled_back_beside_another_and_goes(
    release: Path, life: Life, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugins/bed"
    plugin.mkdir(parents=True)
    (plugin / "plugin.yaml").write_text(
        "apiVersion: v1\ntype: postrenderer/v1\nname: bed\nversion: 0.1.0\nruntime: subprocess\n"
        "runtimeConfig:\n  platformCommand:\n    - command: ${HELM_PLUGIN_DIR}/bed\n"
    )
    (plugin / "bed").write_text(f"#!/bin/sh\n{adapted(life)}\n")
    (plugin / "bed").chmod(0o755)
    chart = release / f"rte-{rte.__version__}.tgz"

    def helm(*words: str | Path) -> None:
        outside(
            tmp_path, "env", f"HELM_PLUGINS={plugin.parent}", builder.helm(), *words,
            "--kubeconfig", life.cluster.kubeconfig,
        )  # fmt: skip

    bed = ("--post-renderer=bed", "--wait", "--timeout=240s")
    first = ("rte", chart, f"--namespace={agents.NAMESPACE}", "--set=scheduler.enabled=true")
    helm("install", *first, "--create-namespace", *bed)
    life.runs(rte.__version__)
    life.use()

    other = ("--set=agent.enabled=false", "--set=scheduler.enabled=true")
    lease = "--set=leaseNamespace=rte-agents"
    helm("install", "numa", chart, "--namespace=numa", "--create-namespace", *other, lease, *bed)
    life.use("numa-scheduler")

    helm("upgrade", *first, f"--set=image.tag={NEXT}", *bed)
    life.runs(NEXT)
    life.use()
    life.use("numa-scheduler")

    helm("rollback", "rte", "1", f"--namespace={agents.NAMESPACE}", "--wait", "--timeout=240s")
    life.runs(rte.__version__)
    life.use()

    helm("uninstall", "numa", "--namespace=numa", "--wait")
    life.use()  # the other one has lost nothing
    helm("uninstall", "rte", f"--namespace={agents.NAMESPACE}", "--wait")
    # What Helm was told to make, and never deletes.
    life.cluster.kubectl("delete", "namespace", "numa", agents.NAMESPACE)
    life.ends()


def test_by_kustomize_it_comes_is_used_upgraded_and_rolled_back_beside_another_and_goes(
    release: Path, life: Life, tmp_path: Path
) -> None:
    cluster = life.cluster
    with tarfile.open(release / f"rte-manifests-{rte.__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    this = tmp_path / f"rte-manifests-{rte.__version__}"
    to_come = tmp_path / "next"
    shutil.copytree(this, to_come)
    for file in to_come.rglob("kustomization.yaml"):
        version = f'newTag: "{rte.__version__}"', f"newTag: {rte.__version__}"
        text = file.read_text()
        for each in version:
            text = text.replace(each, f"newTag: {NEXT}")
        file.write_text(text)

    def apply(folder: Path) -> None:
        objects = cluster.kubectl("kustomize", folder)
        done = subprocess.run(
            ["sh", "-c", adapted(life)], input=objects, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        cluster.kubectl("apply", "--server-side", "-f", "-", text=done.stdout)

    for folder in ("default", "scheduler"):
        apply(this / folder)
    life.runs(rte.__version__)
    life.use()

    cluster.kubectl("label", "node", life.node.name, "topology.rte.dev/pool=a")
    apply(this / "pool")
    life.use("rte-scheduler-a")

    for folder in ("scheduler", "default"):
        apply(to_come / folder)
    life.runs(NEXT)
    life.use()
    life.use("rte-scheduler-a")

    for folder in ("default", "scheduler"):
        apply(this / folder)
    life.runs(rte.__version__)
    life.use()

    # As docs/operations.md says, "Uninstall".
    cluster.kubectl("delete", "-k", this / "pool")
    life.use()
    cluster.kubectl("delete", "-k", this / "scheduler", "--ignore-not-found")
    cluster.kubectl("delete", "-k", this / "default")
    life.ends()


def adapted(life: Life) -> str:
    """A command line of a shell that makes objects fit for the test bed."""
    module = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.cluster.adapted"]
    return f"exec {shlex.join([*module, str(life.cluster.dir), life.node.name])}"
