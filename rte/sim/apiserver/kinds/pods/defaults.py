"""What the API server fills in.

Sources: kubernetes ``pkg/apis/core/v1/defaults.go``, ``pkg/registry/core/pod/strategy.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import podspec
from rte.sim.apiserver.kinds.pods import amounts
from rte.sim.apiserver.schema import quantities

if TYPE_CHECKING:
    from rte.sim.apiserver.storage.store import Obj


def set_defaults(pod: Obj) -> None:
    """Fill in what depends on more than the field itself, in place."""
    spec = pod["spec"]
    default_spec(spec)
    for _, container in amounts.containers_of(spec):
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
        if spec.get("hostNetwork"):
            for port in container.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("enableServiceLinks", True)


def default_spec(spec: Obj) -> None:
    """What also applies to pod templates."""
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for _, container in amounts.containers_of(spec):
        if not container.get("imagePullPolicy"):
            last = container.get("image", "").rpartition("/")[2]
            latest = "@" not in last and (":" not in last or last.endswith(":latest"))
            container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for volume in spec.get("volumes", ()):
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _default_pod_resources(spec: Obj) -> None:
    """The pod-level stanza as Kubernetes 1.37 completes it (KEP-2837; podutil
    DefaultPodLevelResources): limits on huge pages, requests, and limits that all containers have.
    """
    stanza = spec["resources"]
    limits, requests = dict(stanza.get("limits") or {}), dict(stanza.get("requests") or {})
    if not limits and not requests:
        return
    container_limits = amounts.aggregate(spec, "limits")
    for name, total in container_limits.items():
        if name.startswith("hugepages-") and name not in requests:
            limits.setdefault(name, total)
    for name, total in amounts.aggregate(spec, "requests").items():
        if name in amounts.POD_LEVEL:
            requests.setdefault(name, total)
    for name, limit in limits.items():
        if amounts.is_pod_level(name):
            requests.setdefault(name, limit)
    for name in _limited_everywhere(spec) & requests.keys() - limits.keys():
        texts = (container_limits[name], requests[name])
        limits[name] = max(texts, key=lambda text: quantities.amount(name, text))
    if limits:
        stanza["limits"] = limits
    if requests:
        stanza["requests"] = requests


def _limited_everywhere(spec: Obj) -> set[str]:
    """Pod-level resources that every container limits."""
    limited = [
        set(item["resources"].get("limits") or ()) for _, item in amounts.containers_of(spec)
    ]
    return {name for names in limited for name in names if amounts.is_pod_level(name)}.intersection(
        *limited
    )


def prepare_create(pod: Obj) -> None:
    """What a client cannot choose on create."""
    pod["metadata"]["generation"] = 1
    if pod["spec"].get("resources"):
        _default_pod_resources(pod["spec"])
    try:
        qos = str(podspec.parse_pod(pod).qos)
    except errors.ParseError:
        qos = "BestEffort"
    pod["status"] = {"phase": "Pending", "qosClass": qos}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"]["creationTimestamp"],
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
