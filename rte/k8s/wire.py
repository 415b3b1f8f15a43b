"""Parts of Kubernetes objects as the API writes them (k8s.io/api core/v1), checked when read.

Fields that nobody reads are skipped. ``null`` stands for an absent field, as in the API. What a
value means is not checked here: an operator that nobody knows matches nothing.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from rte import errors
from rte.reader.json import Json, JsonObject, JsonValue

T = TypeVar("T", bound=Struct)
_V = TypeVar("_V")

#: A mirror pod carries its static pod's UID here; the kubelet's state files know only that one.
CONFIG_HASH = "kubernetes.io/config.hash"

#: Rules of one kind in one place: the API server takes tens of thousands, and each is looked at
#: for every node and every kind of pod.
_MOST = msgspec.Meta(max_length=100)
_Rules: TypeAlias = Annotated[tuple[_V, ...], _MOST]


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base: keys are the API's."""


class Expression(Wire, frozen=True, kw_only=True):
    """A requirement of a label selector or of a node selector."""

    key: str | None = None
    operator: str | None = None
    values: tuple[str, ...] | None = None


class LabelSelector(Wire, frozen=True, kw_only=True):
    """``metav1.LabelSelector``."""

    match_labels: Annotated[dict[str, str], _MOST] | None = None
    match_expressions: _Rules[Expression] | None = None


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    """One of several alternatives."""

    match_expressions: _Rules[Expression] | None = None
    match_fields: _Rules[Expression] | None = None


class NodeSelector(Wire, frozen=True, kw_only=True):
    """Alternatives for a node."""

    node_selector_terms: _Rules[NodeSelectorTerm] | None = None


class PreferredNodes(Wire, frozen=True, kw_only=True):
    """``PreferredSchedulingTerm``."""

    weight: int | None = None
    preference: NodeSelectorTerm | None = None


class NodeAffinity(Wire, frozen=True, kw_only=True):
    """``spec.affinity.nodeAffinity``."""

    required: NodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: _Rules[PreferredNodes] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire, frozen=True, kw_only=True):
    """Which pods are meant, and over which domains."""

    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PreferredPods(Wire, frozen=True, kw_only=True):
    """``WeightedPodAffinityTerm``."""

    weight: int | None = None
    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(Wire, frozen=True, kw_only=True):
    """``spec.affinity.podAffinity`` and ``podAntiAffinity``."""

    required: _Rules[PodAffinityTerm] | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: _Rules[PreferredPods] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True, kw_only=True):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire, frozen=True, kw_only=True):
    """One of ``spec.tolerations``."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SpreadConstraint(Wire, frozen=True, kw_only=True):
    """One of ``spec.topologySpreadConstraints``."""

    max_skew: int | None = None
    min_domains: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Port(Wire, frozen=True, kw_only=True):
    """A port of a container."""

    host_port: int | None = None
    host_ip: str | None = field(default=None, name="hostIP")
    protocol: str | None = None


class ContainerRules(Wire, frozen=True, kw_only=True):
    """A container: only what rules beside its requests read."""

    name: str | None = None
    restart_policy: str | None = None
    ports: tuple[Port, ...] | None = None


class ClaimSource(Wire, frozen=True, kw_only=True):
    """``persistentVolumeClaim`` of a volume."""

    claim_name: str | None = None


class CSISource(Wire, frozen=True, kw_only=True):
    """``csi`` of a volume: an inline volume of the pod's own."""

    driver: str | None = None


class Disk(Wire, frozen=True, kw_only=True):
    """A disk that pods of one node may not share freely: GCE, AWS, iSCSI or RBD."""

    read_only: bool | None = None
    pd_name: str | None = None
    volume_id: str | None = field(default=None, name="volumeID")
    iqn: str | None = None
    monitors: tuple[str, ...] | None = None
    pool: str | None = None
    image: str | None = None


class Volume(Wire, frozen=True, kw_only=True):
    """One of ``spec.volumes``."""

    name: str | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: JsonObject | None = None
    csi: CSISource | None = None
    gce_persistent_disk: Disk | None = None
    aws_elastic_block_store: Disk | None = None
    iscsi: Disk | None = None
    rbd: Disk | None = None


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    """One of ``spec.resourceClaims``."""

    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodRules(Wire, frozen=True, kw_only=True):
    """What of ``spec`` decides where a pod may go, beside its requests."""

    affinity: Affinity | None = None
    node_selector: Annotated[dict[str, str], _MOST] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: _Rules[SpreadConstraint] | None = None
    containers: tuple[ContainerRules, ...] | None = None
    init_containers: tuple[ContainerRules, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None


class OwnerReference(Wire, frozen=True, kw_only=True):
    """Who made an object."""

    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class Metadata(Wire, frozen=True, kw_only=True):
    """``metadata`` of any object."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: JsonValue = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    @property
    def controller(self) -> OwnerReference:
        """Who keeps the object as it should be; an empty reference where nobody does."""
        owners = self.owner_references or ()
        return next((owner for owner in owners if owner.controller), OwnerReference())


class PodSpec(Wire, frozen=True, kw_only=True):
    """Plain fields of ``spec``."""

    containers: tuple[JsonObject, ...]
    init_containers: tuple[JsonObject, ...] | None = None
    node_name: str | None = None
    preemption_policy: str | None = None
    priority: int | None = None
    restart_policy: str | None = None
    scheduler_name: str | None = None
    scheduling_group: JsonValue = None
    scheduling_gates: tuple[JsonValue, ...] | None = None
    termination_grace_period_seconds: int | None = None
    volumes: tuple[JsonValue, ...] | None = None
    workload_ref: JsonValue = None


class Condition(Wire, frozen=True, kw_only=True):
    """One of ``status.conditions``."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ResourceClaimStatus(Wire, frozen=True, kw_only=True):
    """One of ``status.resourceClaimStatuses``."""

    name: str | None = None
    resource_claim_name: str | None = None


class PodStatus(Wire, frozen=True, kw_only=True):
    """Plain fields of ``status``."""

    phase: str | None = None
    reason: JsonValue = None
    message: JsonValue = None
    nominated_node_name: str | None = None
    start_time: JsonValue = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[JsonObject, ...] | None = None
    init_container_statuses: tuple[JsonObject, ...] | None = None
    resource_claim_statuses: tuple[ResourceClaimStatus, ...] | None = None


class PodObject(Wire, frozen=True, kw_only=True):
    """A Pod, without the parts that are read once for each shape."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus | None = None


class Taint(Wire, frozen=True, kw_only=True):
    """One of a Node's ``spec.taints``."""

    key: str
    value: str | None = None
    effect: str


class NodeSpec(Wire, frozen=True, kw_only=True):
    """Fields of a Node's ``spec``."""

    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire, frozen=True, kw_only=True):
    """Fields of a Node's ``status``."""

    allocatable: JsonObject | None = None
    declared_features: tuple[str, ...] | None = None


class NodeObject(Wire, frozen=True, kw_only=True):
    """A Node."""

    metadata: Metadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


def kubelet_uid(metadata: Json) -> str:
    """The UID that the kubelet uses: the static UID for a mirror pod, else ``metadata.uid``."""
    annotations = metadata.get("annotations") or {}
    return str(annotations.get(CONFIG_HASH) or metadata.get("uid") or "")


def read(obj: object, kind: type[T], what: str) -> T:
    """Take an object of the API for what it is.

    Raises:
        errors.ParseError: a field that rte reads has another type than the API's; it is named.
    """
    try:
        return msgspec.convert(obj, kind)
    except msgspec.ValidationError as error:
        raise errors.ParseError(what, None, str(error)) from None
