"""Where a pod's volumes let it run, and what has to be bound before it may (pure).

Rules of kube-scheduler's VolumeBinding, VolumeZone and VolumeRestrictions plugins, for claims that
are bound already and for classes with ``WaitForFirstConsumer``: existing volumes by their node
affinity, and provisioning by the class's ``allowedTopologies``. Per-driver limits and published
storage capacity are left to kube-scheduler (use the extender).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.model import quantity
from rte.scheduler.framework import predicates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.scheduler.framework.objects import NodeInfo, PodView

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim. ``volume`` is empty while it is not bound."""

    namespace: str
    name: str
    uid: str
    version: str
    volume: str = ""
    bound: bool = False
    class_name: str | None = None
    size: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    selector: Mapping[str, Any] | None = None
    selected_node: str = ""
    deleting: bool = False
    lost: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A PersistentVolume. ``claim`` is ``namespace/name`` of the claim it belongs to, if any."""

    name: str
    version: str
    labels: Mapping[str, str] = field(default_factory=dict)
    node_terms: Sequence[Mapping[str, Any]] | None = None
    class_name: str = ""
    size: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    claim: str = ""
    available: bool = True

    def reachable(self, node: NodeInfo) -> bool:
        """Whether its node affinity and its zone labels allow the node."""
        if self.node_terms is not None and not predicates.node_matches(self.node_terms, node):
            return False
        if not any(label in node.labels for label in _ZONE_LABELS):
            return True
        return all(
            node.labels.get(label) in self.labels[label].split("__")
            for label in _ZONE_LABELS
            if label in self.labels
        )


@dataclass(frozen=True, kw_only=True)
class StorageClass:
    """A StorageClass. ``topologies`` are alternatives; none means everywhere."""

    name: str
    waits: bool
    provisioner: str
    topologies: Sequence[Mapping[str, Any]] = ()
    default: bool = False

    def allows(self, node: NodeInfo) -> bool:
        """Whether a volume may be provisioned for that node."""
        return not self.topologies or any(
            all(
                node.labels.get(str(item.get("key"))) in (item.get("values") or ())
                for item in term.get("matchLabelExpressions") or ()
            )
            for term in self.topologies
        )


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What has to be written before the pod may be bound: the claim gets this volume, or, where
    ``volume`` is None, one is provisioned for the chosen node.
    """

    claim: Claim
    volume: Volume | None = None


class Volumes:
    """Claims, volumes and classes of the cluster, and volumes promised by our decisions."""

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.promised: dict[str, str] = {}

    def problem(self, pod: PodView) -> str | None:
        """Why no node can have the pod, whatever the node."""
        for name in pod.shape.claims:
            claim = self.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim.deleting:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if claim.lost:
                return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
            if claim.volume:
                if claim.volume not in self.volumes:
                    return f'persistentvolume "{claim.volume}" not found'
                continue
            kind = self._class(claim)
            if kind is None or not kind.waits:
                return "pod has unbound immediate PersistentVolumeClaims"
        return None

    def on_node(self, pod: PodView, node: NodeInfo) -> str | list[Binding]:
        """What to bind for the pod on this node, or why it cannot run there."""
        bindings: list[Binding] = []
        used: set[str] = set()
        for name in pod.shape.claims:
            claim = self.claims[f"{pod.namespace}/{name}"]
            if claim.volume:
                if not self.volumes[claim.volume].reachable(node):
                    return "node(s) had volume node affinity conflict"
                if not claim.bound:
                    bindings.append(Binding(claim=claim, volume=self.volumes[claim.volume]))
                continue
            if claim.selected_node and claim.selected_node != node.name:
                return "node(s) other than the one a volume is being provisioned for"
            volume = self._match(claim, node, used)
            if volume is not None:
                used.add(volume.name)
                bindings.append(Binding(claim=claim, volume=volume))
                continue
            kind = self._class(claim)
            if kind is None or kind.provisioner == _NO_PROVISIONER:
                return "node(s) didn't find available persistent volumes to bind"
            if not kind.allows(node):
                return "node(s) did not have the storage class's allowed topology"
            bindings.append(Binding(claim=claim))
        return bindings

    def promise(self, bindings: Sequence[Binding]) -> None:
        """These volumes are taken by a decision."""
        for item in bindings:
            if item.volume is not None:
                self.promised[item.volume.name] = item.claim.key

    def withdraw(self, bindings: Sequence[Binding]) -> None:
        """The decision is not in force any more, or the API shows it."""
        for item in bindings:
            if item.volume is not None:
                self.promised.pop(item.volume.name, None)

    def _class(self, claim: Claim) -> StorageClass | None:
        if claim.class_name is None:
            return next((kind for kind in self.classes.values() if kind.default), None)
        return self.classes.get(claim.class_name)

    def _match(self, claim: Claim, node: NodeInfo, used: set[str]) -> Volume | None:
        """The smallest free volume that suits the claim on this node."""
        fitting = [
            volume
            for volume in self.volumes.values()
            if volume.name not in used
            and self.promised.get(volume.name, claim.key) == claim.key
            and (volume.claim == claim.key or (not volume.claim and volume.available))
            and volume.class_name == (claim.class_name or "")
            and volume.volume_mode == claim.volume_mode
            and volume.modes >= claim.modes
            and volume.size >= claim.size
            and (claim.selector is None or predicates.label_selector(claim.selector, volume.labels))
            and volume.reachable(node)
        ]
        return min(fitting, key=lambda v: (not v.claim, v.size, v.name), default=None)


def read_claim(obj: Mapping[str, Any]) -> Claim:
    """A PersistentVolumeClaim of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        annotations = metadata.get("annotations") or {}
        requests = (spec.get("resources") or {}).get("requests") or {}
        return Claim(
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            uid=str(metadata.get("uid") or ""),
            version=str(metadata.get("resourceVersion") or ""),
            volume=str(spec.get("volumeName") or ""),
            bound=status.get("phase") == "Bound",
            class_name=spec.get("storageClassName"),
            size=quantity.parse(requests.get("storage", 0)),
            modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            selector=spec.get("selector"),
            selected_node=str(annotations.get(SELECTED_NODE) or ""),
            deleting=bool(metadata.get("deletionTimestamp")),
            lost=status.get("phase") == "Lost",
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("PersistentVolumeClaim", obj.get("metadata"), str(error)) from None


def read_volume(obj: Mapping[str, Any]) -> Volume:
    """A PersistentVolume of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        required = (spec.get("nodeAffinity") or {}).get("required")
        claim = spec.get("claimRef") or {}
        phase = (obj.get("status") or {}).get("phase")
        return Volume(
            name=str(metadata["name"]),
            version=str(metadata.get("resourceVersion") or ""),
            labels=dict(metadata.get("labels") or {}),
            node_terms=None if required is None else required.get("nodeSelectorTerms") or (),
            class_name=str(spec.get("storageClassName") or ""),
            size=quantity.parse((spec.get("capacity") or {}).get("storage", 0)),
            modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            claim=f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
            available=phase == "Available" and not metadata.get("deletionTimestamp"),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("PersistentVolume", obj.get("metadata"), str(error)) from None


def read_class(obj: Mapping[str, Any]) -> StorageClass:
    """A StorageClass of the API."""
    metadata = obj.get("metadata") or {}
    return StorageClass(
        name=str(metadata.get("name") or ""),
        waits=obj.get("volumeBindingMode") == "WaitForFirstConsumer",
        provisioner=str(obj.get("provisioner") or ""),
        topologies=tuple(obj.get("allowedTopologies") or ()),
        default=(metadata.get("annotations") or {}).get(_DEFAULT_CLASS) == "true",
    )
