"""What a pod counts for on node level (k8s.io/component-helpers ``resource.PodRequests``).

KEP-753: sidecars run beside what comes after them, ordinary init containers one at a time.
KEP-2837: the pod-level stanza takes the place of the sum. KEP-1287: while a pod is resized in place
the largest of what it asks for, was allocated and has counts; a resize that the kubelet has called
infeasible counts as if it had not been asked for. Overhead comes on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.model import quantity
from rte.model.pod import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.pod import Container, Pod

    Amounts = Mapping[str, int]


def totals(pod: Pod, running: Running | None = None) -> dict[str, int]:
    """Milli-CPU, bytes and units by resource; ``pods`` is 1. Zero amounts are left out."""
    if running is None:
        total = _aggregate((box, box.requests) for box in pod.containers)
        total.update(_pod_level(pod.pod_requests or {}))
    else:
        total = running.totals(pod)
    for name, amount in pod.overhead.items():
        total[name] = total.get(name, 0) + amount
    total["pods"] = 1
    return {name: amount for name, amount in sorted(total.items()) if amount}


class Running:
    """What the kubelet says that the containers of a running pod were allocated and have.

    Args:
        infeasible: the condition PodResizePending says so.
        allocated: container -> ``allocatedResources``, where it is told.
        actual: container -> ``resources.requests``, where it is told.
        pod_level: ``status.allocatedResources`` and ``status.resources.requests`` of the pod.

    Raises:
        errors.ParseError: an amount is malformed.
    """

    def __init__(
        self,
        infeasible: bool,
        allocated: Mapping[str, Mapping[str, Any]],
        actual: Mapping[str, Mapping[str, Any]],
        pod_level: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._infeasible = infeasible
        self._allocated = {name: _amounts(given) for name, given in allocated.items()}
        self._actual = {name: _amounts(given) for name, given in actual.items()}
        self._pod_level = [_amounts(given) for given in pod_level]

    def totals(self, pod: Pod) -> dict[str, int]:
        """The aggregate before overhead."""
        boxes = pod.containers
        views = [
            _aggregate((box, self._was_allocated(box)) for box in boxes),
            _aggregate((box, self._has(box)) for box in boxes),
        ]
        if not self._infeasible:
            views.append(_aggregate((box, box.requests) for box in boxes))
        total = _largest(views)
        if pod.pod_requests is not None:
            asked = [] if self._infeasible and self._pod_level else [pod.pod_requests]
            total.update(_pod_level(_largest([*asked, *self._pod_level])))
        return total

    def _was_allocated(self, box: Container) -> Amounts:
        nothing: Amounts = {} if self._infeasible else box.requests
        return self._allocated.get(box.name, nothing)

    def _has(self, box: Container) -> Amounts:
        return self._actual.get(box.name, self._was_allocated(box))


def running_part(status: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """What of a pod's status :class:`Running` needs; None where it says nothing but the spec.

    Plain JSON, so that it may be part of a key.
    """
    asked = {
        str(box.get("name")): (box.get("resources") or {}).get("requests") or {}
        for box in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    }
    allocated: dict[str, Any] = {}
    actual: dict[str, Any] = {}
    for item in (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ):
        name = str(item.get("name"))
        if item.get("allocatedResources") is not None:
            allocated[name] = item["allocatedResources"]
        has = (item.get("resources") or {}).get("requests")
        if has is not None:
            actual[name] = has
    told = (status.get("allocatedResources"), (status.get("resources") or {}).get("requests"))
    pod_level = [given for given in told if given]
    usual = all(asked.get(name, {}) == held for name, held in (*allocated.items(), *actual.items()))
    level_usual = all(given == (spec.get("resources") or {}).get("requests") for given in pod_level)
    if usual and level_usual:
        return None
    infeasible = any(
        item.get("type") == "PodResizePending" and item.get("reason") == "Infeasible"
        for item in status.get("conditions") or ()
    )
    return {
        "infeasible": infeasible,
        "allocated": allocated,
        "actual": actual,
        "pod_level": pod_level,
    }


def _aggregate(boxes: Iterable[tuple[Container, Amounts]]) -> dict[str, int]:
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for box, requests in boxes:
        if box.kind is ContainerKind.INIT:
            for name, amount in requests.items():
                peak[name] = max(peak.get(name, 0), running.get(name, 0) + amount)
            continue
        for name, amount in requests.items():
            running[name] = running.get(name, 0) + amount
        if box.kind is ContainerKind.SIDECAR:
            for name, amount in running.items():
                peak[name] = max(peak.get(name, 0), amount)
    return _largest([running, peak])


def _largest(views: Iterable[Amounts]) -> dict[str, int]:
    out: dict[str, int] = {}
    for view in views:
        for name, amount in view.items():
            out[name] = max(out.get(name, 0), amount)
    return out


def _pod_level(amounts: Amounts) -> Amounts:
    """Only these may stand on pod level; others are the sum of the containers."""
    return {
        name: amount
        for name, amount in amounts.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _amounts(given: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): quantity.parse_resource(str(name), amount) for name, amount in given.items()}
