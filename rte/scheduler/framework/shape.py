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
from rte.model import podspec
from rte.model.pod import QOS, ContainerKind, Pod
from rte.model.totals import totals_of
from rte.scheduler.framework import structure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Annotations and labels of Koordinator that change what a pod asks for.
KOORDINATOR_ANNOTATIONS = (
    "scheduling.koordinator.sh/resource-spec",
    "scheduling.koordinator.sh/numa-topology-spec",
)
KOORDINATOR_LABELS = ("koordinator.sh/qosClass", "koordinator.sh/priority-class")

#: Parts of a pod spec that placement depends on, beside containers and volumes.
_SPEC_KEYS = (
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "overhead",
    "resourceClaims",
    "resources",
    "tolerations",
    "topologySpreadConstraints",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape:
    """What the pods of one kind ask for; compared by identity (:class:`Shapes` interns).

    Attributes:
        key: the bytes that identify it.
        namespace: of its pods (selectors of inter-pod terms default to it).
        labels: of its pods where its own terms look at them, else only Koordinator's.
        pod: the pod as the kubelet's admission sees it; its UID is that of the first one seen.
        totals: what the node's totals are charged: milli-CPU, bytes, units; ``pods`` is 1.
        ports: host ports as (IP, protocol, port).
        spec: the raw parts of the specification that the predicates read.
        claims: names of PersistentVolumeClaims.
        unsupported: what we must not place, in words; empty when there is nothing of the kind.
        malformed: why it is no pod that could be placed by anybody; empty for all others.
    """

    key: bytes
    namespace: str
    labels: Mapping[str, str]
    pod: Pod
    totals: Mapping[str, int]
    ports: frozenset[tuple[str, str, int]] = frozenset()
    spec: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    unsupported: str = ""
    malformed: str = ""

    @cached_property
    def may_need_zone(self) -> bool:
        """Whether some kubelet could give it something exclusive: Guaranteed, or devices."""
        return self.pod.qos is QOS.GUARANTEED or any("/" in name for name in self.totals)

    @cached_property
    def exclusive_cpus(self) -> tuple[int, ...]:
        """Whole CPUs of each container that a static CPU manager would pin (0: none), in order."""
        if self.pod.qos is not QOS.GUARANTEED:
            return tuple(0 for _ in self.pod.containers)
        return tuple(
            milli // 1000 if milli % 1000 == 0 else 0
            for milli in (container.requests.get("cpu", 0) for container in self.pod.containers)
        )

    @cached_property
    def shared_milli(self) -> int:
        """CPU limits (requests where there is none) of the containers that share, in millicores."""
        return sum(
            box.limits.get("cpu", box.requests.get("cpu", 0))
            for box, pinned in zip(self.pod.containers, self.exclusive_cpus, strict=True)
            if not pinned and box.kind is not ContainerKind.INIT
        )

    @cached_property
    def affinity(self) -> Mapping[str, Any]:
        """``spec.affinity``."""
        return self.spec.get("affinity") or {}

    @cached_property
    def looks_around(self) -> bool:
        """Whether the answer for a node depends on pods of other nodes."""
        hard = "requiredDuringSchedulingIgnoredDuringExecution"
        return bool(
            (self.affinity.get("podAffinity") or {}).get(hard)
            or (self.affinity.get("podAntiAffinity") or {}).get(hard)
            or any(
                item.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
                for item in self.spec.get("topologySpreadConstraints") or ()
            )
        )

    def as_pod(self, uid: str) -> Pod:
        """The pod with its own UID, ready for admission."""
        return replace(self.pod, uid=uid)


class Shapes:
    """Interns shapes; those nobody uses any more are dropped by :meth:`keep`."""

    def __init__(self) -> None:
        self._table: dict[bytes, Shape] = {}

    def __len__(self) -> int:
        return len(self._table)

    def of(self, obj: Mapping[str, Any]) -> Shape:
        """The shape of a Pod object.

        Raises:
            errors.ParseError: the object is not a valid pod.
        """
        try:
            key, parts = _identify(obj)
            known = self._table.get(key)
            if known is None:
                known = _build(obj, key, parts)
                self._table[key] = known
        except (AttributeError, TypeError, KeyError, orjson.JSONEncodeError) as error:
            raise errors.ParseError("pod", _name(obj), f"malformed: {error}") from None
        return known

    def malformed(self, name: str, namespace: str, why: str) -> Shape:
        """The shape of pods that cannot be read, for the reason given."""
        key = orjson.dumps(["malformed", namespace, why])
        pod = Pod(uid="", namespace=namespace, name=name, qos=QOS.BEST_EFFORT, containers=())
        return self._table.setdefault(
            key,
            Shape(
                key=key,
                namespace=namespace,
                labels={},
                pod=pod,
                totals={"pods": 1},
                malformed=f"the pod is malformed: {why}",
            ),
        )

    def keep(self, used: frozenset[bytes]) -> None:
        """Forget all but the shapes with these keys."""
        self._table = {key: shape for key, shape in self._table.items() if key in used}


def _name(obj: Mapping[str, Any]) -> object:
    """What a pod that cannot be read is called in a message."""
    metadata = obj.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else metadata


def _identify(obj: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
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
    chosen = labels
    if not _reads_labels(spec):
        chosen = {name: labels[name] for name in KOORDINATOR_LABELS if name in labels}
    extra = {name: annotations[name] for name in KOORDINATOR_ANNOTATIONS if name in annotations}
    parts["labels"], parts["annotations"] = chosen, extra
    parts["priority"] = spec.get("priority") or 0
    namespace = metadata.get("namespace") or "default"
    key = orjson.dumps([namespace, parts], option=orjson.OPT_SORT_KEYS)
    return key, parts


def _build(obj: Mapping[str, Any], key: bytes, parts: dict[str, Any]) -> Shape:
    structure.check_rules(parts)
    pod = podspec.parse_pod(obj)
    if any(amount < 0 for box in pod.containers for amount in box.requests.values()):
        raise errors.ParseError("pod", pod.name, "negative request")
    return Shape(
        key=key,
        namespace=pod.namespace,
        labels=parts["labels"],
        pod=pod,
        totals=totals_of(pod),
        ports=frozenset(_ports(parts)),
        spec=parts,
        claims=tuple(item["claim"] for item in parts.get("volumes") or () if "claim" in item),
        unsupported="; ".join(_unsupported(parts)),
    )


def _container(item: Mapping[str, Any]) -> dict[str, Any]:
    resources = item.get("resources") or {}
    out: dict[str, Any] = {"name": item.get("name"), "resources": resources}
    if item.get("restartPolicy"):
        out["restartPolicy"] = item["restartPolicy"]
    ports = [port for port in item.get("ports") or () if port.get("hostPort")]
    if ports:
        out["ports"] = ports
    return out


def _ports(parts: Mapping[str, Any]) -> Sequence[tuple[str, str, int]]:
    """Host ports of app containers and sidecars (both run beside each other)."""
    found = []
    sidecars = [i for i in parts.get("initContainers", ()) if i.get("restartPolicy") == "Always"]
    for item in [*parts["containers"], *sidecars]:
        for port in item.get("ports") or ():
            address = port.get("hostIP") or "0.0.0.0"  # noqa: S104 - the API's wildcard
            found.append((address, port.get("protocol") or "TCP", int(port["hostPort"])))
    return found


def _matters(volume: Mapping[str, Any]) -> bool:
    return any(kind in volume for kind in ("persistentVolumeClaim", "ephemeral", "csi"))


def _volume(volume: Mapping[str, Any], pod_name: str | None) -> dict[str, Any]:
    if "persistentVolumeClaim" in volume:
        return {"claim": volume["persistentVolumeClaim"]["claimName"]}
    if "ephemeral" in volume:
        # The claim of a generic ephemeral volume is named by its pod and volume.
        return {"claim": f"{pod_name}-{volume.get('name')}"}
    return {"csi": volume["csi"].get("driver")}


def _reads_labels(spec: Mapping[str, Any]) -> bool:
    affinity = spec.get("affinity") or {}
    return bool(
        affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or spec.get("topologySpreadConstraints")
    )


def _unsupported(parts: Mapping[str, Any]) -> list[str]:
    found = []
    if parts.get("resourceClaims"):
        found.append(
            "DRA resource claims are not supported (use kube-scheduler with rte's extender)"
        )
    return found
