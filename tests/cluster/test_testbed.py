"""The test bed itself: what it promises to the tests that stand on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from tests.cluster import builder, processes
from tests.cluster import cluster as clusters
from tests.cluster.pods import container, pod
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node


def test_a_kubelet_believes_in_the_hardware_it_is_shown(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(shape="2x8,memory=32Gi,hugepages-2Mi=512,memory-zones=1")
    capacity = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]["capacity"]
    assert capacity["cpu"] == "16"
    assert capacity["memory"] == "96Gi"
    assert capacity["hugepages-2Mi"] == "3Gi"
    zones = node.true_state()["memory_manager_state"]["machineState"]
    assert sorted(zones) == ["0", "1", "2"]


def test_kubelets_run_on_odd_machines_all_at_once(
    cluster: Cluster, fresh_nodes: Callable[[list[dict[str, Any]]], list[Node]]
) -> None:
    cpus = {
        "2-laptop-no-node": 2,
        "16-server-memory-only": 16,
        "16-server-offline-cpus": 13,
        "16-2s-zone-holes": 16,
        "24-s390-books": 24,
        "32-2s-gpus": 32,
        "64-2s-snc": 64,
        "384-2s-nps4": 384,
    }
    options = [
        {"name": f"m{number}", "shape": name, "kubelet": {"policy": "best-effort"}}
        for number, name in enumerate(cpus)
    ]
    for node, expected in zip(fresh_nodes(options), cpus.values(), strict=True):
        status = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
        assert status["capacity"]["cpu"] == str(expected)
        assert len(node.run(["ls", "/sys/bus/cpu/devices"]).stdout.split()) >= expected


def test_the_namespace_hides_the_host_and_keeps_it_as_it_is(fresh_node: FreshNode) -> None:
    before = Path("/proc/sys/vm/overcommit_memory").read_text()
    mounts = Path("/proc/self/mounts").read_text()
    node = fresh_node(shape="4x2,sockets=1")
    assert node.run(["cat", "/sys/devices/system/node/online"]).stdout == "0-3\n"
    assert node.run(["ls", "/var/lib/kubelet"]).stdout == subprocess.check_output(
        ["ls", node.root], text=True
    )
    assert Path("/proc/sys/vm/overcommit_memory").read_text() == before
    assert Path("/proc/self/mounts").read_text() == mounts


def test_true_state_drops_what_an_ended_pod_held(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node()
    ended = cluster.run_pod(
        pod(container(2, "1Gi", command=["sleep", "1"]), node=node.name), "Succeeded"
    )
    kept = cluster.run_pod(pod(container(4, "1Gi"), node=node.name))
    state = node.true_state()
    entries = state["cpu_manager_state"]["entries"]
    assert list(entries) == [kept["metadata"]["uid"]]
    assert ended["metadata"]["uid"] not in state["memory_manager_state"]["entries"]


@pytest.mark.parametrize(
    ("command", "phase", "code"),
    [(["sleep", "1"], "Succeeded", 0), (["sleep", "0.2", "exit", "3"], "Failed", 3)],
)
def test_containers_exit_as_their_command_says(
    cluster: Cluster, fresh_node: FreshNode, command: list[str], phase: str, code: int
) -> None:
    node = fresh_node(shape="1x4")
    done = cluster.run_pod(pod(container(command=command), node=node.name), phase)
    (status,) = done["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == code


def test_containers_fail_to_start_and_are_slow_on_demand(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(shape="1x4")
    failing = cluster.create_pod(
        pod(node=node.name, annotations={"testbed.rte.dev/fail-start": "no such device"})
    )
    slow = cluster.create_pod(
        pod(
            container(command=["true"]),
            node=node.name,
            annotations={"testbed.rte.dev/start-delay": "2s"},
        )
    )
    begin = time.monotonic()
    failed = cluster.wait_pod(failing, "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == (
        "no such device"
    )
    cluster.wait_pod(slow, "Succeeded")
    assert time.monotonic() - begin >= 1.5


def test_devices_have_zones_and_turn_unhealthy(cluster: Cluster, fresh_node: FreshNode) -> None:
    gpu = "example.com/gpu"
    node = fresh_node(
        devices={gpu: [[0], [1], [0, 1], None, []]}, kubelet={"nodeStatusUpdateFrequency": "1s"}
    )
    status = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
    assert status["allocatable"][gpu] == "5"
    node.set_health(gpu, "gpu1", healthy=False)
    holder = cluster.run_pod(pod(container(1, "1Gi", **{gpu: 1}), node=node.name))
    state = node.true_state()["kubelet_internal_checkpoint"]
    (entry,) = state["Data"]["PodDeviceEntries"]
    assert entry["PodUID"] == holder["metadata"]["uid"]
    assert "gpu1" not in json.dumps(entry["DeviceIDs"])
    node.set_health(gpu, "gpu1", healthy=True)


def test_devices_survive_a_kubelet_restart(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node(shape="1x4", devices={"example.com/nic": [[0]]})
    node.restart_kubelet()
    cluster.run_pod(pod(container(**{"example.com/nic": 1}), node=node.name))


def test_the_kubelet_refuses_what_does_not_fit_a_zone(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(shape="2x8")
    refused = cluster.run_pod(pod(container(10, "1Gi"), node=node.name), "Failed")
    assert refused["status"]["reason"] == "TopologyAffinityError"


def test_a_kubelet_that_refuses_its_configuration_is_reported_with_its_reason(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    with pytest.raises(ClusterError, match="no-such-policy"):
        fresh_node("broken", kubelet={"policy": "no-such-policy"}, seconds=10)
    assert not (cluster.dir / "n/broken").exists()


def test_every_policy_and_scope_starts(
    fresh_nodes: Callable[[list[dict[str, Any]]], list[Node]],
) -> None:
    policies = ("none", "best-effort", "restricted", "single-numa-node")
    kubelets = [
        {
            "policy": policy,
            "scope": scope,
            "cpu_options": {"full-pcpus-only": "true", "align-by-socket": "true"}
            if policy != "single-numa-node"
            else {"distribute-cpus-across-numa": "true"},
            "topology_options": {"prefer-closest-numa-nodes": "true"},
        }
        for policy in policies
        for scope in ("container", "pod")
    ]
    nodes = fresh_nodes([{"shape": "2x8", "kubelet": kubelet} for kubelet in kubelets])
    for node, kubelet in zip(nodes, kubelets, strict=True):
        running = node.kubelet_get("/configz")["kubeletconfig"]
        assert running["topologyManagerPolicy"] == kubelet["policy"]
        assert running["topologyManagerScope"] == kubelet["scope"]


def test_a_kubelet_of_an_older_release_is_upgraded_in_place(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(shape="2x8", version="1.35")
    status = f"/api/v1/nodes/{node.name}"
    assert cluster.api.get(status)["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.4"
    held = cluster.run_pod(pod(container(2, "1Gi"), node=node.name))["metadata"]["uid"]
    before = node.state_file("cpu_manager_state")["entries"][held]
    node.restart_kubelet(version=cluster.version)
    assert cluster.api.get(status)["status"]["nodeInfo"]["kubeletVersion"] == f"v{cluster.version}"
    assert node.state_file("cpu_manager_state")["entries"][held] == before
    with pytest.raises(ClusterError, match=r"supports kubelets of its own minor version"):
        fresh_node(version="1.33.0")


def test_a_node_bound_token_names_its_node(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node(shape="1x4")
    client = cluster.client(cluster.token("default", node=node.name))
    review = client.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    extra = review["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == [node.name]
    with pytest.raises(errors.KubeError) as refusal:
        client.get("/api/v1/nodes")
    assert refusal.value.status == 403
    client.close()


def test_the_controllers_are_real(cluster: Cluster, fresh_node: FreshNode) -> None:
    """A Job re-creates a failed pod, and the garbage collector follows owners."""
    node = fresh_node(shape="1x4")
    template = pod(container(command=["true"]), node=node.name)
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    cluster.api.create(
        jobs, {"metadata": {"name": "once"}, "spec": {"template": {"spec": template["spec"]}}}
    )
    cluster.api.wait(jobs, "once", lambda job: job and job["status"].get("succeeded") == 1)
    made = cluster.api.get(
        "/api/v1/namespaces/default/pods", labelSelector="batch.kubernetes.io/job-name=once"
    )["items"]
    cluster.api.request(
        "DELETE", f"{jobs}/once", {"propagationPolicy": "Background", "kind": "DeleteOptions"}
    )
    cluster.wait_pod(made[0], lambda obj: obj is None)


@pytest.fixture
def run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for clusters that no other session sweeps; short, as sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="rte-") as folder:
        monkeypatch.setenv("RTE_RUN_DIR", folder)
        yield Path(folder)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tests.cluster", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.cluster
def test_a_cluster_ends_with_the_process_that_started_it(run_dir: Path) -> None:
    """Even when that process is killed: nothing runs on, and the next sweep removes the folder."""
    script = (
        "from tests.cluster.cluster import Cluster\n"
        "cluster = Cluster.start(name='crash')\n"
        "cluster.add_node(shape='1x2')\n"
        "print('up', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    folder = run_dir / f"{clusters.PREFIX}crash"
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        assert len(list(processes.find(folder))) >= 6
        assert command("sweep", "--expect-none").returncode == 0
        assert folder.exists()
    finally:
        starter.kill()
        starter.communicate()
    processes.wait_until(lambda: not any(processes.find(folder)), 10, "end of all processes")
    swept = command("sweep", "--expect-none")
    assert (swept.returncode, swept.stdout) == (
        1,
        f"removed what an ended session left: cluster {folder}\n",
    )
    assert not folder.exists()


@pytest.mark.cluster
def test_a_process_that_outlived_its_cluster_is_swept(run_dir: Path) -> None:
    gone = run_dir / f"{clusters.PREFIX}gone"
    orphan = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.RUN: str(gone)})
    try:
        assert command("sweep", "--expect-none").returncode == 1
        assert orphan.wait(10) == -signal.SIGKILL
        assert command("sweep", "--expect-none").returncode == 0
    finally:
        orphan.kill()
        orphan.wait()


@pytest.mark.cluster
def test_the_command_starts_shows_and_ends_a_cluster(run_dir: Path) -> None:
    name = "command"
    folder = run_dir / f"{clusters.PREFIX}{name}"
    up = command("up", "--name", name, "--node", "name=small;shape=1x4;policy=none")
    try:
        assert up.returncode == 0, up.stderr
        assert up.stdout == f"export KUBECONFIG={folder}/kubeconfig\n"
        again = command("up", "--name", name)
        assert again.returncode == 1
        assert "exists" in again.stderr
        shown = f"small: kubelet {builder.DEFAULT_VERSION} runs, 1x4"
        assert shown in command("status").stdout
        inside = command(
            "exec", "--name", name, "small", "--", "cat", "/sys/devices/system/cpu/online"
        )
        assert inside.stdout == "0-3\n"
        token = command("token", "--name", name, "default/default", "small").stdout.strip()
        client = clusters.Cluster.attach(folder).client(token)
        with pytest.raises(errors.KubeError) as refusal:
            client.get("/api/v1/nodes")
        assert refusal.value.status == 403
        client.close()
    finally:
        down = command("down", "--name", name)
    assert down.returncode == 0, down.stderr
    assert not folder.exists()
    assert not list(processes.find(folder))
