"""What the scheduler keeps of API objects: small values read from raw JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.model import podspec, quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.scheduler.shape import Shape, Shapes

#: Phases after which a pod holds nothing.
TERMINAL = frozenset({"Succeeded", "Failed"})

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"

#: The kubelet writes this in front of the message of every pod that it did not admit.
REJECTED_PREFIX = "Pod was rejected"


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
            shape=shapes.of(obj),
            labels=dict(metadata.get("labels") or {}),
            priority=int(spec.get("priority") or 0),
            created=str(metadata.get("creationTimestamp") or ""),
            version=version_of(metadata),
            scheduler=str(spec.get("schedulerName") or "default-scheduler"),
            terminal=phase in TERMINAL,
            deleting=bool(metadata.get("deletionTimestamp")),
            gated=bool(spec.get("schedulingGates")),
            rejected=phase == "Failed" and message.startswith(REJECTED_PREFIX),
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
        raise errors.ParseError("pod", obj.get("metadata"), f"malformed: {error}") from None


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
        raise errors.ParseError("node", obj.get("metadata"), f"malformed: {error}") from None


def version_of(metadata: Mapping[str, Any]) -> int:
    """``resourceVersion`` as a number, 0 where it is not one."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
