"""Agents on the test bed: a process in a node's namespace with the identity of a DaemonSet's pod.

The rights are those of manifests/ (RBAC and the admission policy that keeps an agent to its own
node). The pod exists for its token, and the process runs beside it.
"""

from __future__ import annotations

import functools
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3
import yaml

from rte import errors
from tests.cluster import images, processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "rte-system"
LEASE_NAMESPACE = "rte-agents"
ACCOUNT = "rte-agent"
NRT = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


@functools.cache
def install(cluster: Cluster) -> Object:
    """Apply manifests/: CRD, namespace, rights, admission policy. Returns the DaemonSet, unapplied.

    Waits until the CRD is served and the policy in force. Done once for a cluster.
    """
    install_crd(cluster)
    rendered = cluster.kubectl("kustomize", MANIFESTS / "default")
    objects = [obj for obj in yaml.safe_load_all(rendered) if obj]
    daemonset = next(obj for obj in objects if obj["kind"] == "DaemonSet")
    rest = [obj for obj in objects if obj["kind"] != "DaemonSet"]
    cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(rest))
    cluster.ensure_namespace(NAMESPACE)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    cluster.api.wait(path, ACCOUNT, lambda account: account is not None)
    return daemonset


def remove(cluster: Cluster, objects: list[Object]) -> None:
    """Delete what was applied, and wait; pods of nodes that have no kubelet (any more) by force."""
    text = yaml.safe_dump_all(objects)
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=text)
    for namespace in {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Namespace"}:
        cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
    cluster.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-f", "-", text=text)
    install.cache_clear()


def install_crd(cluster: Cluster) -> None:
    """Apply manifests/crd and wait until reports are served."""
    cluster.apply(MANIFESTS / "crd")
    crd = "crd/noderesourcetopologies.topology.node.k8s.io"
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", crd)
    processes.wait_until(lambda: _is_served(cluster), 30, "reports to be served")


def _is_served(cluster: Cluster) -> bool:
    """An established CRD is answered with 429 until its storage is set up."""
    try:
        cluster.api.get(NRT)
    except errors.KubeError:
        return False
    return True


def identity(node: Node) -> Object:
    """The agent's pod on a node, made from the DaemonSet where it is not there yet."""
    cluster = node.cluster
    name = f"{ACCOUNT}-{node.name}"
    found = cluster.api.find(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
    if found:
        return found
    spec = deepcopy(install(cluster)["spec"]["template"]["spec"])
    if node.spec["containers"]:  # a real one would be an agent beside the process
        pause = {"name": "agent", "image": images.PAUSE_IMAGE, "imagePullPolicy": "Never"}
        spec |= {"containers": [pause], "volumes": [], "hostNetwork": True}
    spec.pop("initContainers")  # in a container that is only a record nothing comes to an end
    for container in spec["containers"]:
        # Nothing listens in a container that is only a record.
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            container.pop(probe, None)
    spec |= {"nodeName": node.name, "automountServiceAccountToken": False}
    pod = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    return cluster.create_pod(pod)


def kubeconfig(node: Node) -> Path:
    """A kubeconfig with the agent's rights; the token lies in ``<node.dir>/agent-token``."""
    token = node.dir / "agent-token"
    token.touch(mode=0o600)
    token.write_text(node.cluster.token(ACCOUNT, NAMESPACE, pod=identity(node)))
    return node.cluster.write_kubeconfig(node.dir / "agent-kubeconfig", {"tokenFile": str(token)})


def command(node: Node, *flags: str | Path) -> list[str | Path]:
    """``rte run`` for a node as its DaemonSet would start it."""
    pod = f"{ACCOUNT}-{node.name}"
    return [
        sys.executable, "-m", "rte", "run",
        f"--kubeconfig={kubeconfig(node)}",
        f"--node-name={node.name}",
        f"--lease-namespace={LEASE_NAMESPACE}",
        f"--reference-container={NAMESPACE}/{pod}/agent",
        f"--metrics-listen=127.0.0.1:{processes.free_port()}",
        *flags,
    ]  # fmt: skip


def start(node: Node, *flags: str | Path, argv: Sequence[str | Path] = ()) -> int:
    """Start an agent (or another exporter, ``argv``) in a node's namespace; returns its pid.

    ``node.stop("agent")`` ends it; ``node.log("agent")`` is what it wrote.
    """
    return node.spawn("agent", [*(argv or command(node, *flags))])


def ready(argv: Sequence[str | Path]) -> list[str]:
    """Why an agent with that command line is not ready, line by line; empty: it is."""
    (address,) = [str(word).partition("=")[2] for word in argv if "--metrics-listen" in str(word)]
    answer = urllib3.request("GET", f"http://{address}/readyz", timeout=5, retries=False)
    return [] if answer.status == 200 else answer.data.decode().splitlines()


def wait_published(node: Node, *, seconds: float = 90) -> Object:
    """Wait for the node's NodeResourceTopology."""
    found = node.cluster.api.wait(NRT, node.name, lambda nrt: nrt is not None, seconds=seconds)
    assert found is not None
    return found
