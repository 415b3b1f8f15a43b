"""Claims, volumes, classes and drivers of the cluster, as the volume plugins read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.k8s import csi, selectors, wire
from rte.model import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.k8s.selectors import NodeTerm, Selector
    from rte.scheduler.framework.objects import NodeInfo

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
#: Label of a volume -> the label that a node has for it where it lacks the same.
_ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim.

    Attributes:
        volume: that it is bound to, or shall be.
        bound: the volume controller has completed that.
        class_name: empty: none.
        selected_node: for which a volume is to be made, None: for none yet.
        attributes_class: name of its VolumeAttributesClass.
        owner: UID of its maker.
    """

    namespace: str
    name: str
    uid: str
    version: str
    volume: str = ""
    bound: bool = False
    class_name: str = ""
    size: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    selector: Selector | None = None
    selected_node: str | None = None
    attributes_class: str = ""
    owner: str = ""
    deleting: bool = False
    lost: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class PersistentVolume:
    """A PersistentVolume.

    Attributes:
        node_terms: from which nodes it can be reached, None: from all.
        claim: ``namespace/name`` of the claim that it belongs to, if any.
        claim_uid: of that claim; empty where only its name is known.
        attached: as a CSI driver knows it, None: none does.
        plugin: the in-tree plugin that it is of, if any.
        migrated: ``node_terms`` on nodes whose kubelet has migrated that plugin.
    """

    name: str
    version: str
    labels: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[NodeTerm, ...] | None = None
    class_name: str = ""
    size: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    claim: str = ""
    claim_uid: str = ""
    available: bool = True
    deleting: bool = False
    attached: csi.Attached | None = None
    plugin: str = ""
    migrated: tuple[NodeTerm, ...] | None = None

    def belongs_to(self, claim: Claim) -> bool:
        """Whether it is for that very claim (IsVolumeBoundToClaim)."""
        return self.claim == claim.key and self.claim_uid in ("", claim.uid)

    def reachable(self, node: NodeInfo, csi_node: CSINode | None = None) -> bool:
        """Whether its node affinity allows the node."""
        terms = self.node_terms
        if self.plugin and csi_node is not None and self.plugin in csi_node.migrated:
            terms = self.migrated
        return terms is None or any(term.matches(node.name, node.labels) for term in terms)

    def in_zone(self, node: NodeInfo) -> bool:
        """Whether its zone labels allow the node (VolumeZone); nodes without any are in all."""
        if not any(label in node.labels for label in _ZONE_LABELS):
            return True
        return all(
            node.labels.get(label, node.labels.get(modern, "")) in self.labels[label].split("__")
            for label, modern in _ZONE_LABELS.items()
            if label in self.labels
        )

    def suits(self, claim: Claim) -> bool:
        """Whether it has what the claim asks of any volume."""
        return (
            self.size >= claim.size
            and self.volume_mode == claim.volume_mode
            and self.attributes_class == claim.attributes_class
            and not self.deleting
        )

    def is_free_for(self, claim: Claim) -> bool:
        """Whether the claim may take it, which is nobody's yet."""
        return (
            self.available
            and self.suits(claim)
            and self.modes >= claim.modes
            and (claim.selector is None or claim.selector.matches(self.labels))
        )


@dataclass(frozen=True, kw_only=True)
class StorageClass:
    """A StorageClass. ``topologies`` are alternatives; none means everywhere."""

    name: str
    waits: bool
    provisioner: str
    topologies: Sequence[Mapping[str, Any]] = ()

    def allows(self, node: NodeInfo) -> bool:
        """Whether a volume may be provisioned for that node."""
        terms = [term.get("matchLabelExpressions") or () for term in self.topologies]
        return not terms or any(
            items
            and all(
                node.labels.get(str(item.get("key"))) in (item.get("values") or ())
                for item in items
            )
            for items in terms
        )


@dataclass(frozen=True, kw_only=True)
class StorageCapacity:
    """A CSIStorageCapacity: the largest volume of a class that nodes with these labels can get."""

    class_name: str
    nodes: Selector
    largest: int


@dataclass(frozen=True, kw_only=True)
class CSINode:
    """A CSINode: driver -> volumes that it can attach, and in-tree plugins that are migrated."""

    limits: Mapping[str, int]
    migrated: frozenset[str] = frozenset()


class FreeVolumes:
    """Volumes of one class that are nobody's, by what their node affinity asks first.

    A node looks only at those that one of its labels, or nothing, leads to.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[str, PersistentVolume]] = {}
        self._keys: Counter[str] = Counter()

    def put(self, volume: PersistentVolume, number: int) -> None:
        """One more (1), or one less (-1)."""
        for place in _places(volume):
            there = self._places.setdefault(place, {})
            if number > 0:
                there[volume.name] = volume
            else:
                del there[volume.name]
            if not there:
                del self._places[place]
            self._keys[place[0]] += number
            if not self._keys[place[0]]:
                del self._keys[place[0]]

    def near(
        self, node: NodeInfo
    ) -> Iterator[tuple[tuple[str, str], Mapping[str, PersistentVolume]]]:
        """Places that lead to all volumes which the node may reach, and the volumes there."""
        for key in self._keys:
            value = node.name if key == _NAME else node.labels.get(key, "")
            found = self._places.get((key, value))
            if found:
                yield (key, value), found


#: Stands for the name of a node among labels.
_NAME = "metadata.name"


def _places(volume: PersistentVolume) -> set[tuple[str, str]]:
    found = set()
    for term in volume.node_terms or ():
        items = [*term.fields, *term.expressions]
        first = next((item for item in items if item.operator == "In" and item.values), None)
        if first is None:
            return {("", "")}
        found |= {(first.key, value) for value in first.values}
    return found if volume.node_terms is not None else {("", "")}


class Storage:
    """What is known of storage; ``promised``: volume -> UID of a claim, by our decisions.

    Attributes:
        version: grows with each change.
        claims: by ``namespace/name``.
        volumes: by name; changed by :meth:`set_volume` alone.
        classes: by name.
        tracked: drivers that publish their storage capacity (CSIDriver).
        capacities: by ``namespace/name`` (CSIStorageCapacity).
        csi_nodes: node -> CSINode.
    """

    def __init__(self) -> None:
        self.version = 0
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.tracked: set[str] = set()
        self.capacities: dict[str, StorageCapacity] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.promised: dict[str, str] = {}
        self._free: dict[str, FreeVolumes] = {}
        self._meant: dict[str, dict[str, PersistentVolume]] = {}

    def set_volume(self, name: str, volume: PersistentVolume | None) -> None:
        """A volume was added, changed, or is gone (None)."""
        before = self.volumes.pop(name, None)
        if before is not None and before.claim:
            del self._meant[before.claim][name]
        elif before is not None:
            self._free[before.class_name].put(before, -1)
        if volume is None:
            return
        self.volumes[name] = volume
        if volume.claim:
            self._meant.setdefault(volume.claim, {})[name] = volume
        else:
            self._free.setdefault(volume.class_name, FreeVolumes()).put(volume, 1)

    def free(self, class_name: str) -> FreeVolumes:
        """Volumes of that class that are nobody's, promised ones included."""
        return self._free.get(class_name) or FreeVolumes()

    def meant_for(self, claim: Claim) -> list[PersistentVolume]:
        """Volumes of its class that are, or by our decisions will be, for that very claim."""
        found = [
            volume
            for volume in self._meant.get(claim.key, {}).values()
            if volume.belongs_to(claim) and volume.class_name == claim.class_name
        ]
        promised = (name for name, uid in self.promised.items() if uid == claim.uid)
        return found + [self.volumes[name] for name in promised if name in self.volumes]


def _class_of(annotations: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Name of the class of a claim or a volume; the annotation of old comes first."""
    return str(annotations.get(_BETA_CLASS) or spec.get("storageClassName") or "")


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
            bound=bool(spec.get("volumeName")) and BIND_COMPLETED in annotations,
            class_name=_class_of(annotations, spec),
            size=quantity.parse(requests.get("storage", 0)),
            modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            selector=None if chosen is None else selectors.parse_selector(chosen, "selector"),
            selected_node=annotations.get(SELECTED_NODE),
            attributes_class=str(spec.get("volumeAttributesClassName") or ""),
            owner=wire.read(metadata, wire.Metadata, "claim").controller.uid or "",
            deleting=bool(metadata.get("deletionTimestamp")),
            lost=status.get("phase") == "Lost",
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("PersistentVolumeClaim", obj.get("metadata"), str(error)) from None


def read_volume(obj: Mapping[str, Any]) -> PersistentVolume:
    """A PersistentVolume of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        required = (spec.get("nodeAffinity") or {}).get("required")
        terms = None if required is None else selectors.parse_node_terms(required, "nodeAffinity")
        claim = spec.get("claimRef") or {}
        phase = (obj.get("status") or {}).get("phase")
        labels = dict(metadata.get("labels") or {})
        plugin = csi.plugin_of(spec)
        return PersistentVolume(
            name=str(metadata["name"]),
            version=str(metadata.get("resourceVersion") or ""),
            labels=labels,
            node_terms=terms,
            class_name=_class_of(metadata.get("annotations") or {}, spec),
            size=quantity.parse((spec.get("capacity") or {}).get("storage", 0)),
            modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            claim=f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
            claim_uid=str(claim.get("uid") or ""),
            attributes_class=str(spec.get("volumeAttributesClassName") or ""),
            available=phase == "Available",
            deleting=bool(metadata.get("deletionTimestamp")),
            attached=csi.attached(spec, labels),
            plugin=plugin,
            migrated=csi.migrated_terms(plugin, terms, labels),
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
    )


def read_capacity(obj: Mapping[str, Any]) -> StorageCapacity:
    """A CSIStorageCapacity of the API; without ``nodeTopology`` no node can have it.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        limit = obj.get("maximumVolumeSize") or obj.get("capacity")
        return StorageCapacity(
            class_name=str(obj.get("storageClassName") or ""),
            nodes=selectors.parse_selector(obj.get("nodeTopology"), "nodeTopology"),
            largest=-1 if limit is None else quantity.parse(limit),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.ParseError("CSIStorageCapacity", obj.get("metadata"), str(error)) from None


def read_csi_node(obj: Mapping[str, Any]) -> CSINode:
    """A CSINode of the API: limits of the drivers that have one.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        drivers = (obj.get("spec") or {}).get("drivers") or ()
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        return CSINode(
            limits={
                str(item["name"]): int(item["allocatable"]["count"])
                for item in drivers
                if (item.get("allocatable") or {}).get("count") is not None
            },
            migrated=frozenset(str(annotations.get(csi.MIGRATED) or "").split(",")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.ParseError("CSINode", obj.get("metadata"), str(error)) from None


def publishes_capacity(obj: Mapping[str, Any]) -> bool:
    """Whether a CSIDriver publishes its storage capacity for the scheduler."""
    return bool((obj.get("spec") or {}).get("storageCapacity"))
