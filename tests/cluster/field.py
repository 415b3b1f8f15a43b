"""The shipped manifests on a node with real containers, for the tests of the field lane.

Two things differ from a user's cluster: the pods are on the network of their node, because the API
server listens on its loopback (so a port that something else on this machine has is another one);
and the agent is shown the node's simulated hardware, which a
container's own /sys and /proc do not have.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import yaml

from rte import nrt
from tests.cluster import agents, builder, images, processes
from tests.cluster.test_layouts import render, render_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.model.node import NodeState
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

#: What the node's mount namespace has in the place of this machine's own (enter.sh).
HARDWARE = (
    "/sys/devices/system/node", "/sys/devices/system/cpu", "/sys/kernel/mm/hugepages",
    "/proc/meminfo", "/proc/cpuinfo",
)  # fmt: skip
PODS = f"/api/v1/namespaces/{agents.NAMESPACE}/pods"
#: What a page or a test may have applied of manifests/, besides the CRD.
INSTALLABLE = ("nri", "extender", "pool", "scheduler", "default")


#: (API server, port of the manifests) -> the port that its cluster has in that place.
_ports: dict[tuple[str, int], int] = {}


def port_in(cluster: Cluster, port: int) -> int:
    """The manifests' port, or another one where it was taken when the cluster first asked."""
    key = cluster.server, port
    if key not in _ports:
        _ports[key] = port if processes.is_free(port) else processes.free_port()
    return _ports[key]


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
        for each in container.get("ports", ()):
            before = each["containerPort"]
            after = each["containerPort"] = port_in(cluster, before)
            args = [arg.replace(f":{before}", f":{after}") for arg in container["args"]]
            container["args"] = args
            if each["name"] == "metrics":
                container["env"].append({"name": "RTE_METRICS_LISTEN", "value": f":{after}"})
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


def install(
    cluster: Cluster,
    folder: str,
    node: Node,
    *,
    agent_image: str = "",
    components: Sequence[str] = (),
) -> None:
    """``kubectl apply -k manifests/FOLDER``, on the network and the hardware of the test bed.

    With ``agent_image`` the agent's is another one; ``components`` of manifests/ come on top.
    """
    on_top = [f"../{name}" for name in components]
    objects = [
        on_the_nodes_network(obj, cluster) if obj["kind"] in ("DaemonSet", "Deployment") else obj
        for obj in render_beside({"resources": [f"../{folder}"], "components": on_top})
    ]
    objects = [
        on_the_nodes_hardware(obj, node) if obj["kind"] == "DaemonSet" else obj for obj in objects
    ]
    text = yaml.safe_dump_all(objects)
    if agent_image:
        text = text.replace(f"image: {images.names()['agent']}\n", f"image: {agent_image}\n")
    cluster.kubectl("apply", "--server-side", "-f", "-", text=text)


def uninstall(cluster: Cluster) -> None:
    """Delete all that any page or test may have applied, but the CRD and its objects."""
    agents.remove(cluster, [obj for folder in INSTALLABLE for obj in render(folder)])


def running(cluster: Cluster, name: str, seconds: float = 120) -> Object:
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


def pinned_pod(name: str, cpus: int = 4, **spec: Any) -> Object:
    """A pod that gets whole CPUs; of ``rte-scheduler`` where ``spec`` does not say otherwise."""
    limits = {"cpu": str(cpus), "memory": "64Mi"}
    main = {"name": "main", "image": images.PAUSE_IMAGE, "imagePullPolicy": "Never"}
    own = {"hostNetwork": True, "terminationGracePeriodSeconds": 1}
    containers = [{**main, "resources": {"limits": limits}}]
    scheduler = {} if "nodeName" in spec else {"schedulerName": "rte-scheduler"}
    return {
        "metadata": {"name": name},
        "spec": {**scheduler, **own, "containers": containers, **spec},
    }


def is_running(pod: Object | None) -> bool:
    """For :meth:`Cluster.wait_pod`."""
    return pod is not None and pod["status"].get("phase") == "Running"


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
