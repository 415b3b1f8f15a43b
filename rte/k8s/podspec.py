"""A Pod object of the API, read into :class:`rte.model.pod.Pod`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import wire
from rte.model import quantity
from rte.model.pod import QOS, Container, ContainerKind, Pod
from rte.model.quantity import ResourceList
from rte.model.totals import peak
from rte.reader.json import as_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.reader.json import Json

#: The kubelet writes this in front of the message of every pod that it did not admit.
_REJECTED_PREFIX = "Pod was rejected"


def is_ready(obj: Json) -> bool:
    """Whether a Pod serves, or a Node takes pods: its condition Ready."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def rejection(status: Json) -> str | None:
    """The kubelet's reason if it did not admit the pod, else None."""
    rejected = str(status.get("message") or "").startswith(_REJECTED_PREFIX)
    return str(status.get("reason") or "") if status.get("phase") == "Failed" and rejected else None


def parse_pod(obj: Json, *, defaults: bool = True) -> Pod:
    """Read a Pod, as JSON from the API or from a user's YAML.

    Args:
        obj: the object.
        defaults: apply the API server's defaults for resources, as YAML needs them; those of the
            pod-level stanza are Kubernetes 1.37's, and only for a pod that no server has stored.

    Raises:
        errors.ParseError: a field has another type than the API's, or a quantity is malformed.
    """
    metadata = as_table(obj.get("metadata"), "metadata")
    spec = as_table(obj.get("spec"), "spec")
    containers = [
        _container(
            item,
            ContainerKind.SIDECAR if item.get("restartPolicy") == "Always" else ContainerKind.INIT,
            defaults=defaults,
        )
        for item in _items(spec.get("initContainers"), "initContainers")
    ]
    containers += [
        _container(item, ContainerKind.APP, defaults=defaults)
        for item in _items(spec.get("containers"), "containers")
    ]
    pod_requests, pod_limits = _resources(spec.get("resources"), defaults=False)
    has_stanza = spec.get("resources") is not None
    status = as_table(obj.get("status"), "status")
    recorded = _recorded_qos(status)
    if defaults and recorded is None:
        pod_requests, pod_limits = _complete_stanza(containers, pod_requests, pod_limits)
    return Pod(
        uid=wire.kubelet_uid(metadata),
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name") or ""),
        qos=recorded or qos_class(containers, pod_requests, pod_limits),
        containers=tuple(containers),
        overhead=_amounts(spec.get("overhead"), "overhead"),
        pod_requests=pod_requests if has_stanza else None,
        pod_limits=pod_limits if has_stanza else None,
    )


def qos_class(
    containers: Sequence[Container],
    pod_requests: Mapping[str, int] | None = None,
    pod_limits: Mapping[str, int] | None = None,
    *,
    by_container: bool = True,
) -> QOS:
    """The class that the API server computes (pkg/apis/core/v1/helper/qos, ComputePodQOS).

    Only cpu and memory above zero count. A pod-level stanza takes the place of the containers.

    Args:
        containers: of the pod, all kinds.
        pod_requests: of the stanza.
        pod_limits: of the stanza.
        by_container: every container has a class of its own, and different ones make the pod
            Burstable (since 1.37); else their sums count.
    """
    if pod_requests or pod_limits:
        return _qos_of([(pod_requests or {}, pod_limits or {})])
    pairs = [(container.requests, container.limits) for container in containers]
    if not by_container:
        return _qos_of(pairs)
    classes = {_qos_of([pair]) for pair in pairs}
    if len(classes) > 1:
        return QOS.BURSTABLE
    return classes.pop() if classes else QOS.BEST_EFFORT


def _qos_of(pairs: Sequence[tuple[Mapping[str, int], Mapping[str, int]]]) -> QOS:
    total_requests: dict[str, int] = {}
    total_limits: dict[str, int] = {}
    guaranteed = True
    for requests, limits in pairs:
        for name in ("cpu", "memory"):
            if requests.get(name, 0) > 0:
                total_requests[name] = total_requests.get(name, 0) + requests[name]
            if limits.get(name, 0) > 0:
                total_limits[name] = total_limits.get(name, 0) + limits[name]
            else:
                guaranteed = False
    if not total_requests and not total_limits:
        return QOS.BEST_EFFORT
    if guaranteed and total_requests == total_limits:
        return QOS.GUARANTEED
    return QOS.BURSTABLE


def _recorded_qos(status: Json) -> QOS | None:
    recorded = status.get("qosClass")
    return QOS(recorded) if recorded in set(QOS) else None


def _container(obj: Json, kind: ContainerKind, *, defaults: bool) -> Container:
    requests, limits = _resources(obj.get("resources"), defaults=defaults)
    return Container(name=str(obj.get("name") or ""), kind=kind, requests=requests, limits=limits)


def _resources(stanza: object, *, defaults: bool) -> tuple[ResourceList, ResourceList]:
    table = as_table(stanza, "resources")
    limits = _amounts(table.get("limits"), "limits")
    requests = _amounts(table.get("requests"), "requests")
    return (ResourceList({**limits, **requests}) if defaults else requests), limits


def _complete_stanza(
    containers: Sequence[Container], requests: ResourceList, limits: ResourceList
) -> tuple[ResourceList, ResourceList]:
    """The pod-level stanza as the API server of 1.37 stores it (KEP-2837; DefaultPodLevelResources
    in pkg/api/pod/util.go): huge pages are limited to what the containers are, requests follow
    those of the containers and then the limits, limits follow where all containers have one.
    """
    if not requests and not limits:
        return requests, limits
    most = peak(containers, lambda container: container.limits)
    pages = {name: n for name, n in most.items() if name.startswith("hugepages-")}
    limited = {name: n for name, n in pages.items() if name not in requests} | limits
    asked = peak(containers, lambda container: container.requests)
    overcommitted = {name: asked[name] for name in ("cpu", "memory") if name in asked}
    wanted = limited | overcommitted | requests
    for name in wanted.keys() - limited.keys():
        if all(name in item.limits for item in containers):
            limited[name] = max(most[name], wanted[name])
    return ResourceList(wanted), ResourceList(limited)


def _amounts(value: object, what: str) -> ResourceList:
    return quantity.parse_list(as_table(value, what))


def _items(value: object, what: str) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise errors.ParseError(what, value, "expected a list of objects")
    return value
