"""Claims, volumes, classes and drivers of the cluster, as the volume plugins read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.k8s import selectors, wire
from rte.model import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.k8s.selectors import NodeTerm, Selector
    from rte.scheduler.framework.objects import NodeInfo

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim. ``volume`` is empty while it is not bound; ``owner``: its maker."""

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
    selector: Selector | None = None
    selected_node: str = ""
    owner: str = ""
    deleting: bool = False
    lost: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A PersistentVolume. ``claim`` is ``namespace/name`` of the claim it belongs to, if any.

    ``driver`` and ``handle`` identify a volume of a CSI driver.
    """

    name: str
    version: str
    labels: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[NodeTerm, ...] | None = None
    class_name: str = ""
    size: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    claim: str = ""
    available: bool = True
    driver: str = ""
    handle: str = ""

    def reachable(self, node: NodeInfo) -> bool:
        """Whether its node affinity and its zone labels allow the node."""
        if self.node_terms is not None and not any(
            term.matches(node.name, node.labels) for term in self.node_terms
        ):
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
class Capacity:
    """A CSIStorageCapacity: the largest volume of a class that nodes with these labels can get."""

    class_name: str
    nodes: Selector
    largest: int


class Storage:
    """What is known of storage; ``promised``: volume -> claim, by our decisions.

    Attributes:
        claims: by ``namespace/name``.
        volumes: by name.
        classes: by name.
        tracked: drivers that publish their storage capacity (CSIDriver).
        capacities: by ``namespace/name`` (CSIStorageCapacity).
        limits: node -> driver -> volumes that it can attach (CSINode).
    """

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.tracked: set[str] = set()
        self.capacities: dict[str, Capacity] = {}
        self.limits: dict[str, Mapping[str, int]] = {}
        self.promised: dict[str, str] = {}

    def class_of(self, claim: Claim) -> StorageClass | None:
        """The claim's class, or the default one where it names none."""
        if claim.class_name is None:
            return next((kind for kind in self.classes.values() if kind.default), None)
        return self.classes.get(claim.class_name)


def read_claim(obj: Mapping[str, Any]) -> Claim:
    """A PersistentVolumeClaim of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        annotations = metadata.get("annotations") or {}
        requests = (spec.get("resources") or {}).get("requests") or {}
        chosen = spec.get("selector")
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
            selector=None if chosen is None else selectors.parse_selector(chosen, "selector"),
            selected_node=str(annotations.get(SELECTED_NODE) or ""),
            owner=wire.read(metadata, wire.Metadata, "claim").controller.uid or "",
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
        claim, csi = spec.get("claimRef") or {}, spec.get("csi") or {}
        phase = (obj.get("status") or {}).get("phase")
        return Volume(
            name=str(metadata["name"]),
            version=str(metadata.get("resourceVersion") or ""),
            labels=dict(metadata.get("labels") or {}),
            node_terms=(
                None if required is None else selectors.parse_node_terms(required, "nodeAffinity")
            ),
            class_name=str(spec.get("storageClassName") or ""),
            size=quantity.parse((spec.get("capacity") or {}).get("storage", 0)),
            modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            claim=f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
            available=phase == "Available" and not metadata.get("deletionTimestamp"),
            driver=str(csi.get("driver") or ""),
            handle=str(csi.get("volumeHandle") or ""),
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


def read_capacity(obj: Mapping[str, Any]) -> Capacity:
    """A CSIStorageCapacity of the API; without ``nodeTopology`` no node can have it.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        limit = obj.get("maximumVolumeSize") or obj.get("capacity")
        return Capacity(
            class_name=str(obj.get("storageClassName") or ""),
            nodes=selectors.parse_selector(obj.get("nodeTopology"), "nodeTopology"),
            largest=-1 if limit is None else quantity.parse(limit),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("CSIStorageCapacity", obj.get("metadata"), str(error)) from None


def read_limits(obj: Mapping[str, Any]) -> Mapping[str, int]:
    """Driver -> volumes that the node of a CSINode can attach, for drivers that have a limit.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        drivers = (obj.get("spec") or {}).get("drivers") or ()
        return {
            str(item["name"]): int(item["allocatable"]["count"])
            for item in drivers
            if (item.get("allocatable") or {}).get("count") is not None
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.ParseError("CSINode", obj.get("metadata"), str(error)) from None


def publishes_capacity(obj: Mapping[str, Any]) -> bool:
    """Whether a CSIDriver publishes its storage capacity for the scheduler."""
    return bool((obj.get("spec") or {}).get("storageCapacity"))
