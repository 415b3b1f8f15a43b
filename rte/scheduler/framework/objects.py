"""What the scheduler keeps of API objects: small values read from raw JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.model import podspec, quantity
from rte.scheduler.framework import structure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.scheduler.framework.shape import Shape, Shapes

#: Phases after which a pod holds nothing.
TERMINAL = frozenset({"Succeeded", "Failed"})

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"


@dataclass(frozen=True, kw_only=True, slots=True)
class PodView:
    """One pod. ``uid`` is the API's, ``kubelet_uid`` the one that the kubelet uses.

    Attributes:
        node: where it is bound, ``""`` while it is not.
        version: resourceVersion as a number (0 where it is not one).
        created: ``creationTimestamp``; ISO text sorts by time.
        rejected: the kubelet refused it at admission; ``reason`` says why.
        nominated: ``status.nominatedNodeName``.
        conditions: of the status, for pods that are not bound.
        resource_status: Koordinator's annotation of that name.
    """

    uid: str
    kubelet_uid: str
    namespace: str
    name: str
    node: str
    shape: Shape
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    created: str = ""
    version: int = 0
    scheduler: str = "default-scheduler"
    terminal: bool = False
    deleting: bool = False
    gated: bool = False
    rejected: bool = False
    mirror: bool = False
    preempts: bool = True
    reason: str = ""
    message: str = ""
    nominated: str = ""
    started: str = ""
    conditions: tuple[Mapping[str, Any], ...] = ()
    resource_status: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def read_pod(obj: Mapping[str, Any], shapes: Shapes) -> PodView:
    """The view of a Pod object.

    Raises:
        errors.ParseError: the object is malformed.
    """
    try:
        structure.check_pod(obj)
        metadata, spec = obj["metadata"], obj["spec"]
        status = obj.get("status") or {}
        annotations = metadata.get("annotations") or {}
        phase = status.get("phase") or ""
        message = str(status.get("message") or "")
        return PodView(
            uid=str(metadata["uid"]),
            kubelet_uid=podspec.kubelet_uid(metadata),
            namespace=str(metadata.get("namespace") or "default"),
            name=str(metadata["name"]),
            node=str(spec.get("nodeName") or ""),
            shape=shapes.of(_as_running(obj) if spec.get("nodeName") else obj),
            labels=dict(metadata.get("labels") or {}),
            priority=int(spec.get("priority") or 0),
            created=str(metadata.get("creationTimestamp") or ""),
            version=version_of(metadata),
            scheduler=str(spec.get("schedulerName") or "default-scheduler"),
            terminal=phase in TERMINAL,
            deleting=bool(metadata.get("deletionTimestamp")),
            gated=bool(spec.get("schedulingGates")),
            rejected=podspec.rejection(status) is not None,
            mirror=podspec.CONFIG_HASH in annotations,
            preempts=spec.get("preemptionPolicy") != "Never",
            reason=str(status.get("reason") or ""),
            message=message[:500],
            nominated=str(status.get("nominatedNodeName") or ""),
            started=str(status.get("startTime") or ""),
            resource_status=str(annotations.get(RESOURCE_STATUS) or ""),
            conditions=() if spec.get("nodeName") else tuple(status.get("conditions") or ()),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, errors.ParseError):
            raise
        raise errors.ParseError("pod", None, f"malformed: {error}") from None


def stand_in(obj: Mapping[str, Any], why: str, shapes: Shapes) -> PodView | None:
    """A view of a pod that :func:`read_pod` refuses, so that it waits with its reason.

    None for what cannot be told apart, and for what is bound: what was last known of that stands,
    until it has ended.
    """
    metadata, spec, status = (_object(obj.get(name)) for name in ("metadata", "spec", "status"))
    uid, name, namespace = (metadata.get(key) for key in ("uid", "name", "namespace"))
    terminal = status.get("phase") in ("Succeeded", "Failed")
    if not (isinstance(uid, str) and isinstance(name, str) and uid and name):
        return None
    if spec.get("nodeName") and not terminal:
        return None
    namespace = namespace if isinstance(namespace, str) and namespace else "default"
    node = spec.get("nodeName")
    return PodView(
        uid=uid,
        kubelet_uid=uid,
        namespace=namespace,
        name=name,
        node=node if isinstance(node, str) else "",
        shape=shapes.malformed(name, namespace, why),
        created=str(metadata.get("creationTimestamp") or ""),
        version=version_of(metadata),
        scheduler=str(spec.get("schedulerName") or "default-scheduler"),
        terminal=terminal,
        deleting=bool(metadata.get("deletionTimestamp")),
        gated=bool(spec.get("schedulingGates")),
        preempts=False,
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_running(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod with what its containers hold where that is more than they ask for.

    While a pod is being resized in place (KEP-1287) the largest of the specification's, the
    allocated and the actual requests count.
    """
    status, spec = obj.get("status") or {}, obj["spec"]
    now: dict[str, list[Mapping[str, Any]]] = {}
    for item in [
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ]:
        held = [item.get("allocatedResources"), (item.get("resources") or {}).get("requests")]
        now[str(item.get("name"))] = [amounts for amounts in held if amounts]
    boxes = [_as_held(box, now.get(str(box.get("name")), ())) for box in spec["containers"]]
    if all(new is old for new, old in zip(boxes, spec["containers"], strict=True)):
        return obj
    return {**obj, "spec": {**spec, "containers": boxes}}


def _as_held(box: Mapping[str, Any], held: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    resources = box.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    more: dict[str, Any] = {}
    for amounts in held:
        for name in ("cpu", "memory"):
            amount, asked = amounts.get(name), more.get(name, requests.get(name, 0))
            if amount is None or amount == asked:
                continue
            if quantity.parse_resource(name, amount) > quantity.parse_resource(name, asked):
                more[name] = amount
    if not more:
        return box
    return {**box, "resources": {**resources, "requests": {**requests, **more}}}


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeInfo:
    """What the predicates read of a Node.

    ``taints`` are (key, value, effect); ``allocatable`` is milli-CPU, bytes, units.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    unschedulable: bool
    allocatable: Mapping[str, int]


def read_node(obj: Mapping[str, Any]) -> NodeInfo:
    """The view of a Node object.

    Raises:
        errors.ParseError: the object is malformed.
    """
    try:
        structure.check_node(obj)
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        status = obj.get("status") or {}
        return NodeInfo(
            name=str(metadata["name"]),
            uid=str(metadata.get("uid") or ""),
            labels=dict(metadata.get("labels") or {}),
            taints=tuple(
                (str(t["key"]), str(t.get("value") or ""), str(t["effect"]))
                for t in spec.get("taints") or ()
            ),
            unschedulable=bool(spec.get("unschedulable")),
            allocatable={
                str(name): quantity.parse_resource(str(name), amount)
                for name, amount in (status.get("allocatable") or {}).items()
            },
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("node", None, f"malformed: {error}") from None


def version_of(metadata: Mapping[str, Any]) -> int:
    """``resourceVersion`` as a number, 0 where it is not one."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
