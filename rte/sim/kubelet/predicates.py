"""What the kubelet checks after its managers: node totals, node affinity, host ports, taints.

Source: pkg/kubelet/lifecycle/predicate.go and pkg/scheduler AdmissionCheck (v1.35). Pre-emption for
critical pods is not simulated: they are refused like others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.model import podspec
from rte.model.pod import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.pod import Pod

_REASONS = {
    "cpu": "OutOfcpu",
    "memory": "OutOfmemory",
    "ephemeral-storage": "OutOfephemeral-storage",
    "pods": "OutOfpods",
}
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_WILDCARD = "0.0.0.0"  # noqa: S104 (a host port on every address)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The kubelet's reason and text."""

    reason: str
    message: str


def check(
    pod: Mapping[str, Any],
    others: Iterable[Mapping[str, Any]],
    node: Mapping[str, Any],
    allocatable: Mapping[str, int],
) -> Refusal | None:
    """The first predicate that fails, None when the pod may run.

    Args:
        pod: the new pod (API object).
        others: the other active pods of the node.
        node: the Node object (labels, taints, name).
        allocatable: by resource, millicores for cpu, else base units.
    """
    others = list(others)
    failed = _totals(pod, others, allocatable)
    if failed is not None:
        return failed
    if not _matches_affinity(pod["spec"], node):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    taken = [port for other in others for port in _host_ports(other)]
    if any(_clash(mine, theirs) for mine in _host_ports(pod) for theirs in taken):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    static = (pod["metadata"].get("annotations") or {}).get("kubernetes.io/config.source")
    taints = (node.get("spec") or {}).get("taints") or ()
    tolerations = pod["spec"].get("tolerations") or ()
    if static in (None, "api") and any(
        taint.get("effect") == "NoExecute"
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    ):
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _predicate(name: str, text: str) -> Refusal:
    return Refusal(name, f"Predicate {name} failed: {text}")


def _totals(
    pod: Mapping[str, Any], others: list[Mapping[str, Any]], allocatable: Mapping[str, int]
) -> Refusal | None:
    room = allocatable.get("pods", 0)
    if len(others) + 1 > room:
        return _short("pods", 1, len(others), room)
    wanted = requests(podspec.parse_pod(pod))
    wanted = {
        name: amount
        for name, amount in wanted.items()
        if amount and (name in allocatable or not _is_extended(name))
    }
    if not wanted:
        return None
    used: dict[str, int] = {}
    for other in others:
        for name, amount in requests(podspec.parse_pod(other)).items():
            used[name] = used.get(name, 0) + amount
    rest = sorted(name for name in wanted if name not in _NATIVE)
    for name in (*(name for name in _NATIVE if name in wanted), *rest):
        amount, taken, total = wanted[name], used.get(name, 0), allocatable.get(name, 0)
        if amount > total - taken:
            return _short(name, amount, taken, total)
    return None


def _short(name: str, requested: int, used: int, capacity: int) -> Refusal:
    return Refusal(
        _REASONS.get(name, f"OutOf{name}"),
        f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, "
        f"capacity: {capacity}",
    )


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def requests(pod: Pod) -> dict[str, int]:
    """What a pod counts for on its node (component-helpers PodRequests): app containers and
    sidecars together, an init container with the sidecars before it, pod-level amounts instead
    where there are any, and the overhead.
    """
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.containers:
        if container.kind is not ContainerKind.INIT:
            for name, amount in container.requests.items():
                total[name] = total.get(name, 0) + amount
        if container.kind is ContainerKind.SIDECAR:
            for name, amount in container.requests.items():
                sidecars[name] = sidecars.get(name, 0) + amount
        if container.kind is not ContainerKind.APP:
            own = container.requests if container.kind is ContainerKind.INIT else {}
            for name in {*own, *sidecars}:
                need = own.get(name, 0) + sidecars.get(name, 0)
                peak[name] = max(peak.get(name, 0), need)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    total |= {
        name: amount
        for name, amount in (pod.pod_requests or {}).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    for name, amount in pod.overhead.items():
        total[name] = total.get(name, 0) + amount
    return total


def _host_ports(pod: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    spec = pod["spec"]
    sidecars = [
        item for item in spec.get("initContainers") or () if item.get("restartPolicy") == "Always"
    ]
    return [
        (port.get("protocol") or "TCP", port.get("hostIP") or _WILDCARD, port["hostPort"])
        for container in (*(spec.get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort", 0) > 0
    ]


def _clash(left: tuple[str, str, int], right: tuple[str, str, int]) -> bool:
    if (left[0], left[2]) != (right[0], right[2]):
        return False
    return left[1] == right[1] or _WILDCARD in (left[1], right[1])


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")


def _matches_affinity(spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def _matches_term(term: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    name = {"metadata.name": node["metadata"]["name"]}
    return all(_holds(item, labels) for item in expressions) and all(
        _holds(item, name) for item in fields
    )


def _holds(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(item["key"])
    values: Sequence[str] = item.get("values") or ()
    match item["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            try:
                left, right = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
