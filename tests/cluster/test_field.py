"""The shipped images and manifests on a real container runtime, as the documentation tells a user.

Two things differ from a user's cluster: the pods are on the network of their node, because the test
bed has none for pods; and the agent is shown the node's simulated hardware, which a container's own
/sys and /proc do not have.
"""

from __future__ import annotations

import itertools
import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte import nrt
from rte.model import bits
from tests.cluster import agents, builder, images, processes
from tests.cluster.test_layouts import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rte.model.node import NodeState
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

NAMESPACE = agents.NAMESPACE
#: What the node's mount namespace has in the place of this machine's own (enter.sh).
HARDWARE = (
    "/sys/devices/system/node", "/sys/devices/system/cpu", "/sys/kernel/mm/hugepages",
    "/proc/meminfo", "/proc/cpuinfo",
)  # fmt: skip
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def on_the_nodes_network(workload: Object, cluster: Cluster) -> Object:
    """A DaemonSet or Deployment that finds the API server where the test bed has it."""
    changed = deepcopy(workload)
    pod = changed["spec"]["template"]["spec"]
    pod["hostNetwork"] = True
    host, port = cluster.server.removeprefix("https://").split(":")
    for container in pod["containers"]:
        container.setdefault("env", []).extend(
            [
                {"name": "KUBERNETES_SERVICE_HOST", "value": host},
                {"name": "KUBERNETES_SERVICE_PORT", "value": port},
            ]
        )
    return changed


def on_the_nodes_hardware(daemonset: Object, node: Node) -> Object:
    """A DaemonSet whose containers see what the node's namespace sees."""
    changed = deepcopy(daemonset)
    pod = changed["spec"]["template"]["spec"]
    for number, path in enumerate(HARDWARE):
        if node.run(["test", "-e", path]).returncode:
            continue  # nor does the node have it
        name = f"hardware-{number}"
        pod["volumes"].append({"name": name, "hostPath": {"path": path}})
        pod["containers"][0]["volumeMounts"].append(
            {"name": name, "mountPath": path, "readOnly": True}
        )
    return changed


def install(cluster: Cluster, folder: str, node: Node) -> list[Object]:
    """``kubectl apply -k manifests/FOLDER``, on the network and the hardware of the test bed."""
    objects = [
        on_the_nodes_network(obj, cluster) if obj["kind"] in ("DaemonSet", "Deployment") else obj
        for obj in render(folder)
    ]
    objects = [
        on_the_nodes_hardware(obj, node) if obj["kind"] == "DaemonSet" else obj for obj in objects
    ]
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
    return objects


def running(cluster: Cluster, name: str, seconds: float = 60) -> Object:
    """The Ready pod of a workload."""
    selector = f"app.kubernetes.io/name={name}"

    found: list[Object] = []

    def look() -> bool:
        found[:] = [
            pod
            for pod in cluster.api.get(PODS, labelSelector=selector)["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and {"type": "Ready", "status": "True"}.items()
            <= next(
                (c for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"), {}
            ).items()
        ]
        return bool(found)

    processes.wait_until(look, seconds, f"a Ready pod of {name}", every=0.5)
    return found[0]


@pytest.fixture(params=["1.35", "1.37"])
def node(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Node]:
    """A node with real containers and a kubelet that signs its own certificate."""
    agents.install_crd(cluster)
    cluster.start_scheduler()  # a DaemonSet's pods are the default scheduler's
    node = cluster.add_node(shape="2x8", version=request.param, images=images.archive())
    yield node
    for folder in ("scheduler", "default"):
        names = yaml.safe_dump_all(render(folder))
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-f", "-", text=names)
    agents.install.cache_clear()  # what it had installed went with the rest
    node.remove()
    cluster.stop_role("scheduler")


def in_agent(node: Node, pod: Object, script: str) -> Any:
    """Run Python in the agent's container, with its mounts, user and rights; JSON comes back."""
    (status,) = pod["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    done = node.run(
        [builder.containerd() / "ctr", "-a", node.dir / "cri.sock", "-n", "k8s.io", "tasks",
         "exec", "--exec-id", "probe", container, "/opt/rte/bin/python", "-c", script],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: All that a compromised agent could reach below the kubelet's directory.
PROBE = """
import json, os, socket
seen = {"files": [], "sockets": [], "writable": []}
for folder, folders, files in os.walk("/var/lib/kubelet"):
    if os.access(folder, os.W_OK):
        seen["writable"].append(folder)
    for name in files:
        path = os.path.join(folder, name)
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
            seen["sockets"].append(path)
        except OSError:
            try:
                open(path, "rb").close()
                seen["files"].append(path)
            except OSError:
                pass
print(json.dumps(seen))
"""


def test_from_the_image_and_the_manifests_to_a_pod_pinned_as_predicted(
    cluster: Cluster, node: Node
) -> None:
    volume = "/var/lib/kubelet/pods/somebody/volumes/busy"
    assert node.run(["mkdir", "-p", volume]).returncode == 0
    assert node.run(["mount", "-t", "tmpfs", "busy", volume]).returncode == 0
    install(cluster, "default", node)
    agent = running(cluster, "rte-agent")
    report = agents.wait_published(node)
    assert {zone["name"] for zone in report["zones"]} == {"node-0", "node-1"}

    install(cluster, "scheduler", node)
    running(cluster, "rte-scheduler")
    pinned = cluster.create_pod(
        {
            "metadata": {"name": "pinned"},
            "spec": {
                "schedulerName": "rte-scheduler",
                "hostNetwork": True,
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "main",
                        "image": images.PAUSE_IMAGE,
                        "imagePullPolicy": "Never",
                        "resources": {"limits": {"cpu": "4", "memory": "64Mi"}},
                    }
                ],
            },
        }
    )
    cluster.wait_pod(pinned, lambda pod: pod is not None and pod["status"]["phase"] == "Running")
    entries = node.state_file("cpu_manager_state")["entries"]
    (cpus,) = (held["main"] for held in entries.values())
    assert bits.parse_list(cpus).bit_count() == 4

    reachable = in_agent(node, agent, PROBE)
    # The kubelet's own sockets: those of podresources and device plugins lie beside files that are
    # read. That of the pods API (1.37) is not covered yet: older kubelets lack its folder.
    allowed = {
        f"/var/lib/kubelet/{name}"
        for name in (
            "pod-resources/kubelet.sock", "device-plugins/kubelet.sock", "pods-api/pods-api.sock",
        )
    }  # fmt: skip
    assert set(reachable["sockets"]) <= allowed
    assert not [path for path in reachable["files"] if "/pods/" in path or "/plugins" in path]
    assert "/var/lib/kubelet/pki/kubelet.key" not in reachable["files"]
    assert reachable["writable"] == ["/var/lib/kubelet/pki"]

    contents = in_agent(node, agent, CONTENTS)
    print(f"agent on kubelet {node.version}: {contents['resident_mib']:.1f} MiB resident")
    assert contents["resident_mib"] <= 60
    names = {each["name"].lower() for each in contents["sbom"]["components"]}
    assert {"rte", "grpcio", "orjson", "libc6"} <= names
    assert "numpy" not in names

    # A volume that is unmounted on the host is gone for the agent, which started with it mounted.
    assert node.run(["umount", volume]).returncode == 0
    assert volume not in in_agent(node, agent, MOUNTS)

    uid = pinned["metadata"]["uid"]
    for order in ORDERS[node.version[:5]]:
        before = state_of(node, lambda state: uid in state.admitted)
        for what in order:
            RESTARTS[what](node)
        after = state_of(
            node, lambda state, was=before: state.epoch != was.epoch and uid in state.admitted
        )
        assert after.holdings == before.holdings
        assert after.holdings[uid]["main"].cpus == bits.parse_list(cpus)
    cluster.delete_pod(pinned)


def state_of(node: Node, done: Callable[[NodeState], bool]) -> NodeState:
    """Wait until the node's report is synced and as wanted."""
    found: list[NodeState] = []

    def look() -> bool:
        state = nrt.decode(node.cluster.api.get(f"{agents.NRT}/{node.name}")).state
        if state is None or not state.synced or not done(state):
            return False
        found.append(state)
        return True

    processes.wait_until(look, 60, f"a synced report of {node.name}", every=0.3)
    return found[0]


def restart_containerd(node: Node) -> None:
    """Its shims, and so the containers, run on."""
    for process in processes.find(node.cluster.dir, f"{node.name}/containerd"):
        if process.name() == "containerd":
            process.kill()
            process.wait(10)
    node.start_containerd()


def restart_agent(node: Node) -> None:
    """As an operator would: its DaemonSet makes another one."""
    agent = running(node.cluster, "rte-agent")
    node.cluster.delete_pod(agent)
    running(node.cluster, "rte-agent")


RESTARTS: dict[str, Callable[[Node], None]] = {
    "kubelet": lambda node: node.restart_kubelet(seconds=60),
    "containerd": restart_containerd,
    "agent": restart_agent,
}
#: All orders of the three, half of them on each release.
_ORDERS = list(itertools.permutations(RESTARTS))
ORDERS = {"1.35.": _ORDERS[::2], "1.37.": _ORDERS[1::2]}


#: The mounts that the agent sees.
MOUNTS = """
import json
print(json.dumps(open("/proc/self/mountinfo").read()))
"""

#: What the agent is, from within.
CONTENTS = """
import json
status = dict(line.split(":", 1) for line in open("/proc/1/status") if ":" in line)
print(json.dumps({
    "resident_mib": int(status["VmRSS"].split()[0]) / 1024,
    "sbom": json.load(open("/opt/rte/sbom.cdx.json")),
}))
"""
