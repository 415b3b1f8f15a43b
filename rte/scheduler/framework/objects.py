"""What the scheduler keeps of Pods, Nodes and PodDisruptionBudgets: values read from the API."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.k8s import gang, podspec, selectors, wire
from rte.k8s.gang import GangKey, GangSource
from rte.model import quantity
from rte.placement.groups import allocation
from rte.placement.groups.delivery import networks
from rte.reader.json import as_object, as_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.k8s.gang import Gang
    from rte.k8s.selectors import Selector
    from rte.k8s.wire import Taint
    from rte.model.quantity import ResourceList
    from rte.scheduler.framework.shape import Shape, Shapes

#: Phases after which a pod holds nothing.
TERMINAL = frozenset({"Succeeded", "Failed"})

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"

#: Annotation of pods: "true" asks to be told where the containers are, "kai" has KAI told.
TELL_PLACEMENT = "topology.rte.dev/tell-placement"
#: Annotation of pods: where the containers are, once the kubelet has confirmed it.
PLACEMENT = "topology.rte.dev/placement"
#: Annotation of pods: the same in the words of KAI-Scheduler (pkg/npe there).
KAI_PLACEMENT = "kai.scheduler/numa-placement-observed"

#: Annotations that say what a pod holds or is to be told, or that its bind adds to; they are not
#: part of its shape.
_OWN_ANNOTATIONS = (
    TELL_PLACEMENT,
    PLACEMENT,
    KAI_PLACEMENT,
    RESOURCE_STATUS,
    allocation.ANNOTATION,
    networks.ANNOTATION,
    "scheduling.koordinator.sh/device-allocated",
    "sigproc.viasat.io/nhd_config",
)
#: Annotation of pods: the Workload that Kueue started them for.
_WORKLOAD = "kueue.x-k8s.io/workload"

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_IMAGES: Mapping[str, int] = MappingProxyType({})

#: Of a node so many names of images are read (a kubelet tells 50 images by default, each by five
#: names at most), of so many characters each; a larger image counts for so many bytes.
_MOST_IMAGES, _LONGEST_IMAGE, _LARGEST_IMAGE = 1000, 1024, 1 << 50

#: Annotation of pods that stay where they are, when it says ``false`` (the cluster autoscaler's).
STAYS = "cluster-autoscaler.kubernetes.io/safe-to-evict"

#: Owners that would have the pod on the same node again.
_OF_ITS_NODE = frozenset({"DaemonSet", "Node"})

#: Controllers whose pods are replicas of each other (kube-scheduler's DefaultSelector).
_REPLICATING = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})

#: Seconds that a pod gets to end when it does not say (core/v1).
DEFAULT_GRACE_S = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class PodView:
    """One pod. ``uid`` is the API's, ``kubelet_uid`` the one that the kubelet uses.

    Attributes:
        node: where it is bound, ``""`` while it is not.
        version: resourceVersion as a number (0 where it is not one).
        created: ``creationTimestamp``; ISO text sorts by time.
        owner: UID of the controller that keeps replicas of it, empty where none does.
        controller: UID of whoever creates it again when it is gone, empty where nobody does.
        stays: it is not to be moved: it belongs to its node, or says so.
        lasting: a controller would have it run for ever: it does not end by itself.
        grace_s: seconds that it gets to end.
        preempted: it is being deleted to make room for another one.
        rejected: the kubelet refused it at admission; ``reason`` says why.
        nominated: ``status.nominatedNodeName``.
        unschedulable: what its condition PodScheduled says while it is False: message, since when.
        annotations: those that say what it holds, or that its bind adds to.
        recorded: the allocation of its processing groups that a bind has recorded in its status.
        claim_names: entries of ``spec.resourceClaims`` that name a template -> the claim made for
            it, None where none is needed.
        workload: name of Kueue's Workload that it was started for, empty: none.
        gang: the gang that it belongs to, None: none.
        gang_said: that gang as the pod's own annotations describe it.
        gang_problem: why what it says of its gang cannot be read.
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
    owner: str = ""
    controller: str = ""
    stays: bool = False
    lasting: bool = False
    grace_s: int = DEFAULT_GRACE_S
    terminal: bool = False
    deleting: bool = False
    preempted: bool = False
    gated: bool = False
    rejected: bool = False
    mirror: bool = False
    preempts: bool = True
    reason: str = ""
    message: str = ""
    nominated: str = ""
    started: str = ""
    unschedulable: tuple[str, str] = ("", "")
    annotations: Mapping[str, str] = field(default_factory=lambda: _NONE)
    recorded: str = ""
    claim_names: Mapping[str, str | None] = field(default_factory=dict)
    workload: str = ""
    gang: GangKey | None = None
    gang_said: Gang | None = None
    gang_problem: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def claim_paths(self) -> frozenset[str]:
        """``namespace/name`` of the claims that it names, of volumes and of devices."""
        if not self.claim_names:
            return self.shape.claim_paths
        made = (name for name in self.claim_names.values() if name)
        return self.shape.claim_paths.union(f"{self.namespace}/{name}" for name in made)


def read_pod(obj: Mapping[str, Any], shapes: Shapes) -> PodView:
    """The view of a Pod object.

    Raises:
        errors.ParseError: the object is malformed.
    """
    try:
        pod = wire.read(obj, wire.PodObject, "pod")
        metadata, spec, status = pod.metadata, pod.spec, pod.status or wire.PodStatus()
        if not metadata.uid and "uid" not in obj["metadata"]:
            raise errors.ParseError("pod", metadata.name, "no metadata.uid")
        annotations = metadata.annotations or {}
        message = str(status.message or "")
        owner, grace = metadata.controller, spec.termination_grace_period_seconds
        return PodView(
            uid=metadata.uid or "",
            kubelet_uid=wire.kubelet_uid(obj["metadata"]),
            namespace=metadata.namespace or "default",
            name=obj["metadata"]["name"],
            node=spec.node_name or "",
            shape=shapes.of(obj),
            labels=metadata.labels or {},
            priority=spec.priority or 0,
            created=metadata.creation_timestamp or "",
            version=version_of(obj["metadata"]),
            scheduler=spec.scheduler_name or "default-scheduler",
            owner=(owner.uid or "") if owner.kind in _REPLICATING else "",
            controller=owner.uid or "",
            stays=annotations.get(STAYS) == "false"
            or any(each.kind in _OF_ITS_NODE for each in metadata.owner_references or ()),
            lasting=bool(owner.uid) and (spec.restart_policy or "Always") == "Always",
            grace_s=DEFAULT_GRACE_S if grace is None else grace,
            terminal=status.phase in TERMINAL,
            deleting=bool(metadata.deletion_timestamp),
            preempted=bool(metadata.deletion_timestamp) and _is_preempted(status),
            gated=bool(spec.scheduling_gates),
            rejected=status.phase in TERMINAL
            and podspec.rejection(obj.get("status") or {}) is not None,
            mirror=wire.CONFIG_HASH in annotations,
            preempts=spec.preemption_policy != "Never",
            reason=str(status.reason or ""),
            message=message[:500],
            nominated=status.nominated_node_name or "",
            started=str(status.start_time or ""),
            annotations={key: annotations[key] for key in _OWN_ANNOTATIONS if annotations.get(key)}
            if annotations
            else _NONE,
            recorded=allocation.recorded(status.conditions) if status.conditions else "",
            workload=annotations.get(_WORKLOAD) or "",
            unschedulable=("", "") if spec.node_name else _unschedulable(status),
            claim_names={
                one.name or "": one.resource_claim_name
                for one in status.resource_claim_statuses or ()
            },
            **_gang(obj, pod),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, errors.ParseError):
            raise
        raise errors.ParseError("pod", None, f"malformed: {error}") from None


def _gang(obj: Mapping[str, Any], pod: wire.PodObject) -> dict[str, Any]:
    """What the pod says of its gang. A pod that runs counts whatever it says."""
    try:
        key = gang_of(pod.metadata, pod.spec)
        said = gang.parse_annotations(obj) if key and key.source is GangSource.KOORDINATOR else None
    except errors.ParseError as error:
        return {"gang_problem": str(error)}
    return {"gang": key, "gang_said": said} if key else {}


def gang_of(metadata: wire.Metadata, spec: wire.PodSpec) -> GangKey | None:
    """The gang that a Pod belongs to, None: none.

    Raises:
        errors.ParseError: the object says it in a way that no API server accepts.
    """
    namespace = metadata.namespace or "default"
    if spec.scheduling_group:
        group = as_table(spec.scheduling_group, "schedulingGroup").get("podGroupName")
        if group:
            return GangKey(GangSource.POD_GROUP, namespace, str(group))
    if spec.workload_ref:
        reference = as_table(spec.workload_ref, "workloadRef")
        parts = [reference.get("name"), reference.get("podGroup")]
        if not all(parts):
            raise errors.ParseError("workloadRef", reference, "expected name and podGroup")
        parts += [reference["podGroupReplicaKey"]] if reference.get("podGroupReplicaKey") else []
        return GangKey(GangSource.WORKLOAD, namespace, "/".join(map(str, parts)))
    if name := (metadata.annotations or {}).get(f"{gang.KOORDINATOR}name"):
        return GangKey(GangSource.KOORDINATOR, namespace, name)
    labels = metadata.labels or {}
    named = next((labels[label] for label in gang.POD_GROUP_LABELS if labels.get(label)), None)
    return GangKey(GangSource.SCHEDULER_PLUGINS, namespace, named) if named else None


def _is_preempted(status: wire.PodStatus) -> bool:
    """Whether a scheduler evicts the pod (KEP-3329)."""
    return any(
        (item.type, item.status, item.reason)
        == ("DisruptionTarget", "True", "PreemptionByScheduler")
        for item in status.conditions or ()
    )


def _unschedulable(status: wire.PodStatus) -> tuple[str, str]:
    for item in status.conditions or ():
        if item.type == "PodScheduled" and item.status == "False":
            return item.message or "", item.last_transition_time or ""
    return "", ""


def stand_in(obj: Mapping[str, Any], why: str, shapes: Shapes) -> PodView | None:
    """A view of a pod that :func:`read_pod` refuses, so that it waits with its reason.

    None for what cannot be told apart, and for what is bound: what was last known of that stands,
    until it has ended.
    """
    metadata, spec, status = (as_object(obj.get(name)) for name in ("metadata", "spec", "status"))
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


def put_aside(pod: PodView, why: str, shapes: Shapes) -> PodView:
    """What stands for a pod that has caused an internal error; nothing but its totals counts.

    It waits with that reason; on a node it is charged what it was charged before.
    """
    totals = pod.shape.totals if pod.node else None
    return replace(
        pod,
        shape=shapes.inert(pod.name, pod.namespace, why, totals),
        labels=_NONE,
        annotations=_NONE,
        claim_names=_NONE,
        preempts=False,
        nominated="",
        workload="",
        gang=None,
        gang_said=None,
        gang_problem="",
    )


def is_as_written(pod: PodView, before: PodView) -> bool:
    """Whether the author of a pod has left it as it was: what others say of it may be new."""
    said: dict[str, Any] = {
        "version": 0,
        "unschedulable": ("", ""),
        "nominated": "",
        "message": "",
        "reason": "",
    }
    if pod.shape.key != before.shape.key:
        return False
    return replace(pod, **said) == replace(before, **said, shape=pod.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeInfo:
    """What the plugins read of a Node; ``allocatable`` is milli-CPU, bytes, units."""

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: ResourceList
    declared_features: frozenset[str] = frozenset()
    images: Mapping[str, int] = field(default_factory=lambda: _NO_IMAGES)


def read_node(obj: Mapping[str, Any], *, images: bool = False) -> NodeInfo:
    """The view of a Node object.

    Args:
        obj: of the API.
        images: somebody asks for those of nodes; else they are not kept.

    Raises:
        errors.ParseError: the object is malformed.
    """
    try:
        node = wire.read(obj, wire.NodeObject, "node")
        return NodeInfo(
            name=obj["metadata"]["name"],
            uid=node.metadata.uid or "",
            labels=node.metadata.labels or {},
            taints=(node.spec and node.spec.taints) or (),
            unschedulable=bool(node.spec and node.spec.unschedulable),
            allocatable=quantity.parse_list((node.status and node.status.allocatable) or {}),
            declared_features=frozenset((node.status and node.status.declared_features) or ()),
            images=_images(obj) if images else _NO_IMAGES,
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("node", None, f"malformed: {error}") from None


def _images(obj: Mapping[str, Any]) -> dict[str, int]:
    """Names and bytes of ``status.images``; a list without end, or entries of no use, end there.

    Nodes have the same images: their names are kept once.
    """
    found: dict[str, int] = {}
    listed = (obj.get("status") or {}).get("images")
    for image in listed if isinstance(listed, list) else ():
        names, size = image.get("names") or (), image.get("sizeBytes") or 0
        if isinstance(size, int):
            for name in names:
                if len(name) <= _LONGEST_IMAGE:
                    found.setdefault(sys.intern(name), min(max(0, size), _LARGEST_IMAGE))
        if len(found) >= _MOST_IMAGES:
            break
    return dict(islice(found.items(), _MOST_IMAGES))


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectReference:
    """What an event is about; those about a Node are in the default namespace."""

    kind: str
    name: str
    uid: str
    namespace: str = "default"


def version_of(metadata: Mapping[str, Any]) -> int:
    """``resourceVersion`` as a number, 0 where it is not one."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget: how many of the pods that it selects may go.

    Attributes:
        namespace: of its pods.
        selector: which they are.
        allowed: ``status.disruptionsAllowed``.
        disrupted: names of pods whose eviction the API has counted already.
        taken: UIDs of pods that we have evicted since; the status does not count them yet.
    """

    namespace: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str] = frozenset()
    taken: frozenset[str] = field(default_factory=frozenset)

    @property
    def left(self) -> int:
        """How many more may go, our own evictions included."""
        return self.allowed - len(self.taken)

    def covers(self, pod: PodView) -> bool:
        """Whether the pod's end would be counted."""
        return (
            pod.namespace == self.namespace
            and pod.name not in self.disrupted
            and pod.uid not in self.taken
            and self.selector.matches(pod.labels)
        )


def read_budget(obj: Mapping[str, Any]) -> DisruptionBudget:
    """A PodDisruptionBudget of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return DisruptionBudget(
            namespace=str((obj.get("metadata") or {}).get("namespace") or ""),
            selector=selectors.parse_selector(spec.get("selector"), "selector"),
            allowed=int(status.get("disruptionsAllowed") or 0),
            disrupted=frozenset(status.get("disruptedPods") or ()),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.ParseError("PodDisruptionBudget", obj.get("metadata"), str(error)) from None
