"""What the kubelet checks after its managers: node totals, node affinity, host ports, taints.

Source: pkg/kubelet/lifecycle/predicate.go and pkg/scheduler AdmissionCheck (v1.35). Pre-emption for
critical pods is not simulated: they are refused like others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.k8s import podspec, selectors, wire
from rte.k8s.requests import totals
from rte.k8s.tolerations import taints_of, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REASONS = {
    "cpu": "OutOfcpu",
    "memory": "OutOfmemory",
    "ephemeral-storage": "OutOfephemeral-storage",
    "pods": "OutOfpods",
}
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_WILDCARD = "0.0.0.0"  # noqa: S104 (a host port on every address)


@dataclass(frozen=True, slots=True)
class KubeletRefusal:
    """The kubelet's reason and text."""

    reason: str
    message: str


def check(
    pod: Mapping[str, Any],
    others: Iterable[Mapping[str, Any]],
    node: Mapping[str, Any],
    allocatable: Mapping[str, int],
) -> KubeletRefusal | None:
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
    rules = wire.read(pod["spec"], wire.PodRules, "pod spec")
    metadata = node["metadata"]
    if not selectors.node_selection(rules).matches(metadata["name"], metadata.get("labels") or {}):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    taken = [port for other in others for port in _host_ports(other)]
    if any(_clash(mine, theirs) for mine in _host_ports(pod) for theirs in taken):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    static = (pod["metadata"].get("annotations") or {}).get("kubernetes.io/config.source")
    if static in (None, "api") and any(
        taint.effect == "NoExecute" and not tolerates(rules.tolerations or (), taint)
        for taint in taints_of(node)
    ):
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _predicate(name: str, text: str) -> KubeletRefusal:
    return KubeletRefusal(name, f"Predicate {name} failed: {text}")


def _totals(
    pod: Mapping[str, Any], others: list[Mapping[str, Any]], allocatable: Mapping[str, int]
) -> KubeletRefusal | None:
    room = allocatable.get("pods", 0)
    if len(others) + 1 > room:
        return _short("pods", 1, len(others), room)
    wanted = {
        name: amount
        for name, amount in totals(podspec.parse_pod(pod)).items()
        if name != "pods" and (name in allocatable or not _is_extended(name))
    }
    if not wanted:
        return None
    used: dict[str, int] = {}
    for other in others:
        for name, amount in totals(podspec.parse_pod(other)).items():
            used[name] = used.get(name, 0) + amount
    rest = sorted(name for name in wanted if name not in _NATIVE)
    for name in (*(name for name in _NATIVE if name in wanted), *rest):
        amount, taken, total = wanted[name], used.get(name, 0), allocatable.get(name, 0)
        if amount > total - taken:
            return _short(name, amount, taken, total)
    return None


def _short(name: str, requested: int, used: int, capacity: int) -> KubeletRefusal:
    return KubeletRefusal(
        _REASONS.get(name, f"OutOf{name}"),
        f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, "
        f"capacity: {capacity}",
    )


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


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
