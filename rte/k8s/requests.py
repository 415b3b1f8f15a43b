"""What a pod counts for on node level (k8s.io/component-helpers ``resource.PodRequests``).

:mod:`rte.model.totals` has the sum for a pod as it is specified. KEP-1287: while a pod is resized
in place the largest of what it asks for, was allocated and has counts; a resize that the kubelet
has called infeasible counts as if it had not been asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.model import quantity
from rte.model.quantity import ResourceList
from rte.model.totals import totals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.pod import Container, Pod
    from rte.reader.json import Json, JsonObject


def totals(pod: Pod, running: Running | None = None) -> ResourceList:
    """Milli-CPU, bytes and units by resource; ``pods`` is 1. Zero amounts are left out."""
    if running is None:
        return totals_of(pod)
    views = [totals_of(view) for view in running.views(pod)]
    return _largest(views)


#: What a container without a request counts for in scores (kube-scheduler's
#: DefaultMilliCPURequest and DefaultMemoryRequest): pods without requests pile up nowhere.
_UNASKED = {"cpu": 100, "memory": 200 << 20}


def scored(pod: Pod, running: Running | None = None) -> dict[str, int]:
    """Milli-CPU and bytes of memory that scores count, where containers ask for none as well."""
    boxes = tuple(
        box
        if box.requests.keys() >= _UNASKED.keys()
        else replace(box, requests=ResourceList({**_UNASKED, **box.requests}))
        for box in pod.containers
    )
    found = totals(replace(pod, containers=boxes), running)
    return {name: found.get(name, 0) for name in _UNASKED}


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
        allocated: Mapping[str, Json],
        actual: Mapping[str, Json],
        pod_level: Iterable[Json] = (),
    ) -> None:
        self._infeasible = infeasible
        self._allocated = {name: quantity.parse_list(given) for name, given in allocated.items()}
        self._actual = {name: quantity.parse_list(given) for name, given in actual.items()}
        self._pod_level = [quantity.parse_list(given) for given in pod_level]

    def views(self, pod: Pod) -> list[Pod]:
        """The pod by what it was allocated, by what it has, and by what it asks for."""
        boxes = pod.containers
        found = [
            [replace(box, requests=self._was_allocated(box)) for box in boxes],
            [replace(box, requests=self._has(box)) for box in boxes],
        ]
        if not self._infeasible:
            found.append(list(boxes))
        stanza = pod.pod_requests
        if stanza is not None and self._pod_level:
            asked = [] if self._infeasible else [stanza]
            stanza = _largest([*asked, *self._pod_level])
        return [replace(pod, containers=tuple(view), pod_requests=stanza) for view in found]

    def _was_allocated(self, box: Container) -> ResourceList:
        nothing = ResourceList({}) if self._infeasible else box.requests
        return self._allocated.get(box.name, nothing)

    def _has(self, box: Container) -> ResourceList:
        return self._actual.get(box.name, self._was_allocated(box))


def running_part(status: Json, spec: Json) -> JsonObject | None:
    """What of a pod's status :class:`Running` needs; None where it says nothing but the spec.

    Plain JSON, so that it may be part of a key.
    """
    asked = {
        str(box.get("name")): (box.get("resources") or {}).get("requests") or {}
        for box in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    }
    allocated: JsonObject = {}
    actual: JsonObject = {}
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


def _largest(views: Iterable[ResourceList]) -> ResourceList:
    out = ResourceList({})
    for view in views:
        for name, amount in view.items():
            out[name] = max(out.get(name, 0), amount)
    return out
