"""The real Kueue on a test cluster: its controller manager as a process, its CRDs and webhooks."""

from __future__ import annotations

import base64
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster import builder, processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster

ROLE = "kueue"
NAMESPACE = "kueue-system"
API = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{API}/namespaces/default/workloads"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_SECRET = "kueue-webhook-server-cert"
_SERVICE = "kueue-webhook-service"

#: Names as Kueue's kustomization makes them, by collection.
_CONFIGURATIONS = {
    "mutatingwebhookconfigurations": "kueue-mutating-webhook-configuration",
    "validatingwebhookconfigurations": "kueue-validating-webhook-configuration",
}
#: Its collections, those that others refer to last.
_OURS = ("workloads", "localqueues", "clusterqueues", "admissionchecks", "resourceflavors")


@contextmanager
def running(cluster: Cluster) -> Iterator[None]:
    """Kueue while it lasts; afterwards nothing of it is left.

    Its webhooks are those for its own kinds, so that nobody else's objects depend on it: Jobs come
    suspended, as its webhook would make them.
    """
    folder = builder.kueue()
    port, health = processes.free_port(), processes.free_port()
    try:
        _install(cluster, folder / "config", port)
        _start(cluster, folder / "kueue", port, health)
        yield
    finally:
        _remove(cluster)


def _install(cluster: Cluster, config: Path, port: int) -> None:
    cluster.ensure_namespace(NAMESPACE)
    cluster.api.create(_SECRETS, {"metadata": {"name": _SECRET}})
    # The API server finds it as a webhook's service is found, without a network of pods.
    spec = {"type": "ExternalName", "externalName": "localhost"}
    service = {"metadata": {"name": _SERVICE}, "spec": spec}
    cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    where = {"namespace": NAMESPACE, "name": _SERVICE, "port": port}
    for path in sorted((config / "crd" / "bases").iterdir()):
        crd = yaml.safe_load(path.read_text())
        crd["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": {"service": {**where, "path": "/convert"}},
                "conversionReviewVersions": ["v1"],
            },
        }
        cluster.api.create(_CRDS, crd)
    hooks = yaml.safe_load_all((config / "webhook" / "manifests.yaml").read_text())
    for obj in hooks:
        collection = f"{obj['kind'].lower()}s"
        obj["metadata"]["name"] = _CONFIGURATIONS[collection]
        obj["webhooks"] = [hook for hook in obj["webhooks"] if _is_of_kueue(hook)]
        for hook in obj["webhooks"]:
            hook["clientConfig"]["service"] |= where
        cluster.api.create(f"{_HOOKS}/{collection}", obj)


def _is_of_kueue(hook: Object) -> bool:
    return all("kueue.x-k8s.io" in rule["apiGroups"] for rule in hook["rules"])


def _start(cluster: Cluster, program: Path, port: int, health: int) -> None:
    folder = cluster.dir / ROLE
    certificates = folder / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    body: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": _SERVICE,
            "webhookSecretName": _SECRET,
        },
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(body))
    log = cluster.dir / f"{ROLE}.log"
    env = {"KUBECONFIG": str(cluster.kubeconfig)}
    pid = cluster.spawn(ROLE, [program, f"--config={config}", "--zap-log-level=2"], env=env)
    # It makes its certificates itself; its pod would see them as a volume.
    made = cluster.api.wait(_SECRETS, _SECRET, lambda obj: obj and obj.get("data"), what=str(log))
    assert made is not None
    for name in ("tls.key", "tls.crt"):
        (certificates / name).write_bytes(base64.b64decode(made["data"][name]))
    processes.wait_until(
        lambda: _is_ready(health), 120, what="kueue is ready", pid=pid, log=log, every=0.3
    )


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _remove(cluster: Cluster) -> None:
    """Kueue ends first: what nobody serves any more has no finalizers to wait for."""
    cluster.stop_role(ROLE)
    for collection, name in _CONFIGURATIONS.items():
        cluster.api.delete(f"{_HOOKS}/{collection}/{name}")
    for collection in _OURS:
        found = cluster.api.find(f"{API}/{collection}")
        for obj in found["items"] if found else ():
            namespace = obj["metadata"].get("namespace")
            path = f"{API}/namespaces/{namespace}" if namespace else API
            path += f"/{collection}/{obj['metadata']['name']}"
            cluster.api.patch(path, {"metadata": {"finalizers": None}})
            cluster.api.delete(path)
    crds = [
        each["metadata"]["name"]
        for each in cluster.api.get(_CRDS)["items"]
        if each["spec"]["group"] == "kueue.x-k8s.io"
    ]
    for name in crds:
        cluster.api.delete(f"{_CRDS}/{name}")
    for name in crds:
        cluster.api.wait(_CRDS, name, lambda obj: obj is None)
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    cluster.api.wait("/api/v1/namespaces", NAMESPACE, lambda obj: obj is None)
