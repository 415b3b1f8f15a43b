"""Pod shapes: all of a pod that decides where it may go, parsed once and shared by its likes.

Two pods of equal shape get the same answer from the same cluster, so results are remembered by
shape, and a queue of ten thousand replicas is a queue of one shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from rte import errors
from rte.k8s import csi, podspec, requests, selectors, wire
from rte.model import quantity
from rte.model.pod import MOST_CONTAINERS, QOS, ContainerKind, Pod
from rte.model.quantity import ResourceList
from rte.placement.dra import alignment
from rte.placement.groups import request
from rte.placement.kubelet import demand
from rte.reader import jsontext
from rte.scheduler.framework import terms
from rte.scheduler.framework.outlook import UNBOUNDED, Needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


#: Annotations and labels of Koordinator that change what a pod asks for.
KOORDINATOR_ANNOTATIONS = (
    "scheduling.koordinator.sh/resource-spec",
    "scheduling.koordinator.sh/numa-topology-spec",
)
#: Annotations that pods of one shape have in common.
_ANNOTATIONS = (
    *KOORDINATOR_ANNOTATIONS,
    alignment.ANNOTATION,
    request.ANNOTATION,
    "scheduling.koordinator.sh/device-allocate-hint",
    "scheduling.koordinator.sh/device-joint-allocate",
    "scheduling.koordinator.sh/gpu-partition-spec",
)

KOORDINATOR_LABELS = ("koordinator.sh/qosClass", "koordinator.sh/priority-class")

#: Labels and annotations of gangs that are not supported, and whose they are.
GANG_LABELS = {
    "pod-group.scheduling.sigs.k8s.io/name": "scheduler-plugins before PodGroups",
    "pod-group.scheduling.sigs.k8s.io/min-available": "scheduler-plugins before PodGroups",
    "scheduling.k8s.io/group-name": "Volcano",
    "volcano.sh/queue-name": "Volcano",
    "yunikorn.apache.org/task-group-name": "YuniKorn",
}

#: Parts of a pod spec that placement depends on, beside containers and volumes.
_SPEC_KEYS = (
    "affinity",
    "nodeSelector",
    "overhead",
    "resourceClaims",
    "resources",
    "tolerations",
    "topologySpreadConstraints",
)

#: Those that say where a pod may go, and nothing of what it takes there.
_PLACES = frozenset({"affinity", "nodeSelector", "topologySpreadConstraints"})

#: What the rules read of one pod: a thousand containers that ask for CPUs and memory are less, and
#: selectors with a few thousand values.
_RULES = jsontext.ReadBudget(size=0, items=1 << 14)

#: Volumes that some rule looks at.
_VOLUMES = (
    "persistentVolumeClaim",
    "ephemeral",
    "csi",
    "iscsi",
    "rbd",
    *csi.IN_TREE,
)

_WILDCARD = "0.0.0.0"  # noqa: S104 - the API's word for every address


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape:
    """What the pods of one kind ask for; compared by identity (:class:`Shapes` interns).

    Attributes:
        key: the bytes that identify it.
        namespace: of its pods (selectors of inter-pod terms default to it).
        labels: of its pods: those that its own terms look at, and Koordinator's.
        annotations: Koordinator's requests, the wish for devices, the processing groups.
        priority: of its pods.
        pod: the pod as the kubelet's admission sees it; its UID is that of the first one seen.
        totals: what the node's totals are charged: milli-CPU, bytes, units; ``pods`` is 1.
        scored: milli-CPU and bytes that scores count, where containers ask for none as well.
        ports: host ports as (IP, protocol, port).
        rules: the parts of the specification that plugins read.
        claims: PersistentVolumeClaims; True: made for this pod (generic ephemeral volumes).
        disks: volumes that pods of one node may not share freely.
        attached: inline volumes that a CSI driver attaches.
        features: what its kubelet has to declare (KEP-5328).
        unsupported: fields of the specification, and whose gang labels, that no plugin honours.
        images: of its containers and image volumes, where somebody asks for them; some twice.
        malformed: why it is no pod that could be placed by anybody; empty for all others.
    """

    key: bytes
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    pod: Pod
    totals: ResourceList
    scored: Mapping[str, int] = field(default_factory=dict)
    ports: frozenset[tuple[str, str, int]] = frozenset()
    rules: wire.PodRules = field(default_factory=wire.PodRules)
    claims: tuple[tuple[str, bool], ...] = ()
    disks: tuple[wire.Volume, ...] = ()
    attached: tuple[csi.Attached, ...] = ()
    features: frozenset[str] = frozenset()
    unsupported: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    malformed: str = ""

    @cached_property
    def kubelet_key(self) -> bytes:
        """Identifies what a kubelet's managers see of it: many shapes are alike to them."""
        pod = self.pod
        boxes = [(box.name, box.kind, box.requests, box.limits) for box in pod.containers]
        return orjson.dumps(
            [pod.qos, boxes, pod.pod_requests, pod.pod_limits], option=orjson.OPT_SORT_KEYS
        )

    @cached_property
    def may_need_zone(self) -> bool:
        """Whether some kubelet could give it something exclusive: Guaranteed, or devices."""
        return self.pod.qos is QOS.GUARANTEED or any("/" in name for name in self.totals)

    @cached_property
    def has_groups(self) -> bool:
        """Whether it asks for processing groups."""
        return request.ANNOTATION in self.annotations

    def competes(self, other: Shape) -> bool:
        """Whether both want for themselves what a node hands out: a zone, or processing groups."""
        zones = self.may_need_zone and other.may_need_zone
        return zones or (self.has_groups and other.has_groups)

    @cached_property
    def exclusive_cpus(self) -> tuple[int, ...]:
        """Whole CPUs of each container that a static CPU manager would pin (0: none), in order."""
        return tuple(demand.exclusive_cpus(self.pod, box) for box in self.pod.containers)

    @cached_property
    def memory_ties(self) -> tuple[int, ...]:
        """Bytes of memory for which each container gets the fewest zones that have them.

        :data:`~rte.scheduler.framework.outlook.UNBOUNDED` where huge pages may need more of them.
        """
        return tuple(
            UNBOUNDED
            if any(name.startswith("hugepages-") for name in box.requests)
            else box.requests.get("memory", 0) or UNBOUNDED
            for box in self.pod.containers
        )

    @cached_property
    def needs(self) -> Needs[int]:
        """No less room than this will do.

        Pods with pod-level resources may be served as a whole, by container, or not at all: of
        their zones nothing is said.
        """
        totals = self.totals.get("cpu", 0), self.totals.get("memory", 0)
        if self.pod.pod_requests is not None:
            return _needs(*totals, 0, UNBOUNDED, 0, UNBOUNDED)
        boxes = zip(self.exclusive_cpus, self.memory_ties, strict=True)
        cpus, memory = max(boxes, key=lambda box: (box[0], -box[1]), default=(0, UNBOUNDED))
        # Without zones for all of it the memory manager looks for each container's.
        pod_memory = memory if len(self.memory_ties) == 1 else UNBOUNDED
        return _needs(*totals, cpus, memory, demand.pod_exclusive_cpus(self.pod), pod_memory)

    @cached_property
    def shared_milli(self) -> int:
        """CPU limits (requests where there is none) of the containers that share, in millicores."""
        return sum(
            box.limits.get("cpu", box.requests.get("cpu", 0))
            for box, pinned in zip(self.pod.containers, self.exclusive_cpus, strict=True)
            if not pinned and box.kind is not ContainerKind.INIT
        )

    @cached_property
    def tolerations(self) -> tuple[wire.Toleration, ...]:
        """``spec.tolerations``."""
        return self.rules.tolerations or ()

    @cached_property
    def nodes(self) -> selectors.NodeSelection:
        """``spec.nodeSelector`` and the required node affinity."""
        return selectors.node_selection(self.rules)

    @cached_property
    def preferred_nodes(self) -> tuple[tuple[int, selectors.NodeTerm], ...]:
        """The preferred node affinity: weight and term."""
        affinity = self.rules.affinity.node_affinity if self.rules.affinity else None
        return tuple(
            (item.weight or 0, selectors.node_term(item.preference))
            for item in (affinity.preferred if affinity else None) or ()
            if item.preference is not None
        )

    @cached_property
    def device_claims(self) -> tuple[wire.PodResourceClaim, ...]:
        """``spec.resourceClaims``."""
        return self.rules.resource_claims or ()

    @cached_property
    def claim_paths(self) -> frozenset[str]:
        """``namespace/name`` of the claims that its specification names, of volumes and devices."""
        devices = (entry.resource_claim_name for entry in self.device_claims)
        names = [*(name for name, _ in self.claims), *filter(None, devices)]
        return frozenset(f"{self.namespace}/{name}" for name in names)

    @cached_property
    def company(self) -> terms.Company:
        """Inter-pod affinity and anti-affinity, resolved for pods of this shape."""
        return terms.company(self.rules, self.namespace, self.labels)

    @cached_property
    def spread(self) -> tuple[terms.ResolvedSpread, ...]:
        """Topology spread constraints, resolved for pods of this shape."""
        given = self.rules.topology_spread_constraints or ()
        return tuple(terms.spread(item, self.labels) for item in given)

    def as_pod(self, uid: str) -> Pod:
        """The pod with its own UID, ready for admission."""
        return replace(self.pod, uid=uid)


class Shapes:
    """Interns shapes; those nobody uses any more are dropped by :meth:`keep`.

    Attributes:
        images: pods of other images are of another shape.
    """

    def __init__(self, *, images: bool = False) -> None:
        self.images = images
        self._table: dict[bytes, Shape] = {}

    def __len__(self) -> int:
        return len(self._table)

    def of(self, obj: Mapping[str, Any]) -> Shape:
        """The shape of a Pod object.

        Raises:
            errors.ParseError: the object is not a valid pod.
        """
        try:
            _check_containers(obj)
            key, parts = _identify(obj, images=self.images)
            known = self._table.get(key)
            if known is None:
                known = _build(obj, key, parts)
                self._table[key] = known
        except (AttributeError, TypeError, KeyError, orjson.JSONEncodeError) as error:
            raise errors.ParseError("pod", _name(obj), f"malformed: {error}") from None
        return known

    def malformed(self, name: str, namespace: str, why: str) -> Shape:
        """The shape of pods that cannot be read, for the reason given."""
        return self.inert(name, namespace, f"the pod is malformed: {why}")

    def inert(
        self, name: str, namespace: str, why: str, totals: Mapping[str, int] | None = None
    ) -> Shape:
        """The shape of pods that go nowhere for this reason, and of which nothing else counts.

        ``totals``: what a pod that runs is charged all the same.
        """
        charged = ResourceList(dict(totals or {"pods": 1}))
        key = orjson.dumps(["inert", namespace, why, sorted(map(str, charged.items()))])
        pod = Pod(uid="", namespace=namespace, name=name, qos=QOS.BEST_EFFORT, containers=())
        shape = Shape(
            key=key, namespace=namespace, labels={}, pod=pod, totals=charged, malformed=why
        )
        return self._table.setdefault(key, shape)

    def keep(self, used: frozenset[bytes]) -> None:
        """Forget all but the shapes with these keys."""
        self._table = {key: shape for key, shape in self._table.items() if key in used}


def _name(obj: Mapping[str, Any]) -> object:
    """What a pod that cannot be read is called in a message."""
    metadata = obj.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else metadata


def _check_containers(obj: Mapping[str, Any]) -> None:
    """Refuse a pod of too many; where another scheduler has bound it, it counts all the same."""
    spec = obj["spec"]
    count = sum(len(spec.get(name) or ()) for name in ("containers", "initContainers"))
    if count > MOST_CONTAINERS and not _is_bound(obj):
        limit = f"{MOST_CONTAINERS} containers"
        raise errors.MalformedError("pod", _name(obj), f"more than {limit}", limit=limit)


def _identify(obj: Mapping[str, Any], *, images: bool) -> tuple[bytes, dict[str, Any]]:
    metadata, spec = obj["metadata"], obj["spec"]
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    parts: dict[str, Any] = {name: spec[name] for name in _SPEC_KEYS if spec.get(name)}
    parts["containers"] = [_container(item) for item in spec.get("containers") or ()]
    if spec.get("initContainers"):
        parts["initContainers"] = [_container(item) for item in spec["initContainers"]]
    volumes = [
        _volume(item, metadata.get("name")) for item in spec.get("volumes") or () if _matters(item)
    ]
    if volumes:
        parts["volumes"] = volumes
    read = {*KOORDINATOR_LABELS, *_labels_read(spec)}
    chosen = {name: labels[name] for name in labels if name in read}
    extra = {name: annotations[name] for name in _ANNOTATIONS if name in annotations}
    parts["labels"], parts["annotations"] = chosen, extra
    parts["priority"] = spec.get("priority") or 0
    gangs = sorted({GANG_LABELS[n] for n in (*labels, *annotations) if n in GANG_LABELS})
    if gangs:
        parts["gangs"] = gangs
    features = sorted(set(_features(spec)))
    if features:
        parts["features"] = features
    if images:
        parts["images"] = sorted(_images(spec))
    if spec.get("nodeName"):
        running = requests.running_part(obj.get("status") or {}, spec)
        if running is not None:
            parts["running"] = running
    namespace = metadata.get("namespace") or "default"
    key = orjson.dumps([namespace, parts], option=orjson.OPT_SORT_KEYS)
    return key, parts


def _build(obj: Mapping[str, Any], key: bytes, parts: dict[str, Any]) -> Shape:
    why = ""
    try:
        rules = wire.read(parts, wire.PodRules, "pod spec")
        _RULES.check(parts, "pod spec")
    except errors.ParseError as error:
        if isinstance(error, errors.MalformedError) and error.limit and not _is_bound(obj):
            raise
        # It goes nowhere; where another scheduler has bound it, it counts all the same.
        why = f"the pod is malformed: {error}"
        rest = {name: parts[name] for name in parts.keys() - _PLACES}
        rules = wire.read(rest, wire.PodRules, "pod spec")
    pod = podspec.parse_pod(obj)
    if any(amount < 0 for box in pod.containers for amount in box.requests.values()):
        raise errors.ParseError("pod", pod.name, "negative request")
    running = requests.Running(**parts["running"]) if "running" in parts else None
    volumes = rules.volumes or ()
    return Shape(
        key=key,
        namespace=pod.namespace,
        labels=parts["labels"],
        annotations=parts["annotations"],
        priority=parts["priority"],
        pod=pod,
        totals=requests.totals(pod, running),
        scored=requests.scored(pod, running),
        ports=frozenset(_ports(rules)),
        rules=rules,
        claims=tuple(_claims(volumes)),
        disks=tuple(volume for volume in volumes if _is_disk(volume)),
        attached=tuple(filter(None, map(csi.attached, parts.get("volumes") or ()))),
        features=frozenset(parts.get("features") or ()),
        unsupported=tuple(_unsupported(parts)),
        images=tuple(parts.get("images") or ()),
        malformed=why,
    )


def _is_bound(obj: Mapping[str, Any]) -> bool:
    return bool(obj["spec"].get("nodeName"))


def _container(item: Mapping[str, Any]) -> dict[str, Any]:
    resources = item.get("resources") or {}
    out: dict[str, Any] = {"name": item.get("name"), "resources": resources}
    if item.get("restartPolicy"):
        out["restartPolicy"] = item["restartPolicy"]
    ports = [port for port in item.get("ports") or () if port.get("hostPort")]
    if ports:
        out["ports"] = ports
    return out


def _features(spec: Mapping[str, Any]) -> Iterable[str]:
    """Features of its kubelet that the pod cannot do without, by the names that nodes declare."""
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        yield "UserNamespacesHostNetworkSupport"
    for box in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        rules = box.get("restartPolicyRules") or ()
        if any(rule.get("action") == "RestartAllContainers" for rule in rules):
            yield "RestartAllContainersOnContainerExits"
        if any(mount.get("bindMountOptions") for mount in box.get("volumeMounts") or ()):
            yield "VolumeBindMountOptions"


def _images(spec: Mapping[str, Any]) -> Iterable[str]:
    """Names as runtimes tell them: without a tag it is ``latest`` (kube-scheduler's words)."""
    boxes = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    names = [box.get("image") or "" for box in boxes]
    volumes = (volume.get("image") for volume in spec.get("volumes") or ())
    names += [volume.get("reference") or "" for volume in volumes if volume is not None]
    for name in names:
        yield name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _ports(rules: wire.PodRules) -> Iterable[tuple[str, str, int]]:
    """Host ports of app containers and sidecars (both run beside each other)."""
    sidecars = [box for box in rules.init_containers or () if box.restart_policy == "Always"]
    for box in (*(rules.containers or ()), *sidecars):
        for port in box.ports or ():
            if port.host_port:
                yield (port.host_ip or _WILDCARD, port.protocol or "TCP", port.host_port)


def _matters(volume: Mapping[str, Any]) -> bool:
    return any(volume.get(kind) is not None for kind in _VOLUMES)


def _volume(volume: Mapping[str, Any], pod_name: str | None) -> dict[str, Any]:
    """What matters of a volume; the claim of a generic ephemeral one is named by pod and volume."""
    if volume.get("ephemeral") is not None:
        claim = {"claimName": f"{pod_name}-{volume.get('name')}"}
        return {"ephemeral": {}, "persistentVolumeClaim": claim}
    return {kind: volume[kind] for kind in _VOLUMES if volume.get(kind) is not None}


def _claims(volumes: Sequence[wire.Volume]) -> Iterable[tuple[str, bool]]:
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name or ""
            yield name, volume.ephemeral is not None


def _is_disk(volume: wire.Volume) -> bool:
    return bool(
        volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi or volume.rbd
    )


def _labels_read(spec: Mapping[str, Any]) -> Iterable[str]:
    """Keys of labels that the pod's own inter-pod terms and spread constraints look at."""
    yield from _labels_of(spec.get("topologySpreadConstraints") or ())
    affinity = spec.get("affinity") or {}
    for part in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(part) or {}
        yield from _labels_of(terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        yield from _labels_of(item.get("podAffinityTerm") or {} for item in preferred)


def _labels_of(terms: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for term in terms:
        selector = term.get("labelSelector") or {}
        yield from selector.get("matchLabels") or ()
        yield from (item["key"] for item in selector.get("matchExpressions") or ())
        yield from term.get("matchLabelKeys") or ()
        yield from term.get("mismatchLabelKeys") or ()


def _unsupported(parts: Mapping[str, Any]) -> Iterable[str]:
    for owner in parts.get("gangs") or ():
        yield f"gang labels of {owner}"


def _needs(*parts: int) -> Needs[int]:
    """Columns have 64 bits; whoever asks for more fits nowhere either."""
    return Needs(*(min(part, quantity.MOST) for part in parts))
